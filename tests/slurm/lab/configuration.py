"""Renders one cluster's slurm.conf, gres.conf, slurmdbd.conf and association file, and its directories."""

import os
import stat

from tests.slurm.lab.layout import HOST, SiteLayout, write
from tests.slurm.lab.sites import NodeGroup, Site

SETTINGS = """\
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
SlurmctldDebug=info
SlurmdDebug=error
MailProg=/bin/true
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,bf_interval=5,bf_continue,bf_window=4320,\
bf_max_job_test=1000,default_queue_depth=1000
SlurmdParameters=config_overrides
ReturnToService=2
SlurmdTimeout=300
MessageTimeout=30
MaxJobCount=50000
MaxArraySize=10001
KillWait=2
CompleteWait=0
DefMemPerCPU=1000
GresTypes=gpu
PriorityType=priority/multifactor
PriorityWeightAge=1000
PriorityWeightFairshare=10000
PriorityWeightPartition=1000
PriorityWeightQOS=5000
PriorityDecayHalfLife=7-0
JobAcctGatherType=jobacct_gather/none
"""
# config_overrides lets two CPUs claim hundreds of cores and terabytes of memory.

ACCOUNTING = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStorageEnforce=associations,limits,qos
AccountingStorageTRES=gres/gpu,gres/gpu:a100,gres/gpu:a40,gres/gpu:h100,gres/gpu:gh200
AccountingStoreFlags=job_comment,job_script,job_env
"""


def write_site(site: Site, place: SiteLayout, *, accounting: bool) -> None:
    """Make every directory and file that the cluster's daemons need before they start."""
    for name in ("state", "spool", "log", "munge", "dev", "jobs"):
        (place.root / name).mkdir(parents=True, exist_ok=True)
    for name in () if site.is_cloud else site.node_names:
        (place.root / "spool" / name).mkdir(exist_ok=True)
    place.jobs.chmod(0o1777)
    key = place.root / "munge" / "munge.key"
    key.touch(mode=0o600)
    key.write_bytes(os.urandom(128))
    _make_devices(site, place)
    write(place.root / "slurm.conf", slurm_conf(site, place, accounting=accounting))
    write(place.root / "gres.conf", gres_conf(site, place))
    if accounting:
        write(place.root / "slurmdbd.conf", slurmdbd_conf(site, place), mode=0o600)
        write(place.root / "associations.cfg", associations(site))


def slurm_conf(site: Site, place: SiteLayout, *, accounting: bool) -> str:
    """Return the whole slurm.conf."""
    d = place.root
    lines = [
        f"ClusterName={site.name}",
        f"SlurmctldHost={HOST}(127.0.0.1)",
        f"AuthInfo=socket={place.munge_socket}",
        f"SlurmctldPort={place.controller_port}",
        f"SlurmctldPidFile={d}/slurmctld.pid",
        f"SlurmdPidFile={d}/spool/%n.pid",
        f"StateSaveLocation={d}/state",
        f"SlurmdSpoolDir={d}/spool/%n",
        f"SlurmctldLogFile={d}/log/slurmctld.log",
        f"SlurmdLogFile={d}/log/slurmd.%n.log",
        SETTINGS + (ACCOUNTING if accounting else "AccountingStorageType=accounting_storage/none"),
    ]
    if accounting:  # this connection does not read AuthInfo
        lines.append(f"AccountingStoragePort={place.database_daemon_port}")
        lines.append(f"AccountingStoragePass={place.munge_socket}")
    lines += site.extra
    if not any(line.startswith("MinJobAge=") for line in site.extra):
        lines.append("MinJobAge=300")
    port = place.first_node_port
    for group in site.nodes:
        lines.append(_node_line(group, port, is_cloud=site.is_cloud))
        port += group.count
    partitions = [" ".join(f"{key}={value}" for key, value in part.items()) for part in site.partitions]
    return "\n".join([*lines, *partitions, ""])


def _node_line(group: NodeGroup, port: int, *, is_cloud: bool) -> str:
    words = [f"NodeName={group.expression}"]
    if not is_cloud:
        ports = f"[{port}-{port + group.count - 1}]" if group.count > 1 else str(port)
        words.append(f"NodeHostname={HOST} NodeAddr=127.0.0.1 Port={ports}")
    words.append(f"Sockets={group.sockets} CoresPerSocket={group.cores_per_socket} ThreadsPerCore=1")
    words.append(f"RealMemory={group.memory_mib} Feature={group.features}")
    if group.gres:
        words.append(f"Gres={group.gres}")
    words.append("State=CLOUD" if is_cloud else "State=UNKNOWN")
    return " ".join(words)


def _gpus(group: NodeGroup) -> list[tuple[str, int]]:
    """Return (type or "", count) of each GRES entry of a node."""
    found = []
    for entry in filter(None, group.gres.split(",")):
        _, *kind, count = entry.split(":")
        found.append((kind[0] if kind else "", int(count)))
    return found


def gres_conf(site: Site, place: SiteLayout) -> str:
    """Return gres.conf: each type in two halves bound to the cores of one socket, as real nodes have it."""
    lines = ["AutoDetect=off"]
    for group in site.nodes:
        gpus, first = _gpus(group), 0
        total, cores = sum(count for _, count in gpus), group.sockets * group.cores_per_socket
        for kind, count in gpus:
            halves = [count] if count < 2 or group.sockets < 2 else [count // 2, count - count // 2]
            for part in halves:
                low, high = first * cores // total, (first + part) * cores // total - 1
                devices = f"[{first}-{first + part - 1}]" if part > 1 else str(first)
                typed = f"Type={kind} " if kind else ""
                file = f"File={place.root}/dev/nvidia{devices}"
                lines.append(f"NodeName={group.expression} Name=gpu {typed}{file} Cores={low}-{high}")
                first += part
    return "\n".join([*lines, ""])


def _make_devices(site: Site, place: SiteLayout) -> None:
    # Slurm insists on a character device for each GPU; Count= alone and /dev/null itself do not work.
    most = max(sum(count for _, count in _gpus(group)) for group in site.nodes)
    for i in range(most):
        device = place.root / "dev" / f"nvidia{i}"
        if not device.exists():
            os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 3))


def slurmdbd_conf(site: Site, place: SiteLayout) -> str:
    """Return slurmdbd.conf; every cluster has its own daemon and its own database."""
    return "\n".join(
        [
            "AuthType=auth/munge",
            f"AuthInfo=socket={place.munge_socket}",
            "DbdAddr=127.0.0.1",
            "DbdHost=localhost",
            f"DbdPort={place.database_daemon_port}",
            "SlurmUser=root",
            f"LogFile={place.root}/log/slurmdbd.log",
            f"PidFile={place.root}/slurmdbd.pid",
            "StorageType=accounting_storage/mysql",
            "StorageHost=127.0.0.1",
            f"StoragePort={place.lab.database_port}",
            "StorageUser=slurm",
            "StoragePass=x",
            f"StorageLoc=slurm_acct_{site.name}",
            "",
        ]
    )


def associations(site: Site) -> str:
    """Return the file for `sacctmgr load`: accounts under root, users under accounts."""
    lines = [
        f"Cluster - '{site.name}':Fairshare=1:QOS='normal'",
        "Parent - 'root'",
        "User - 'root':DefaultAccount='root':AdminLevel='Administrator':Fairshare=1",
    ]
    described = f"Organization='{site.name}':Fairshare=10"
    lines += [f"Account - '{account}':Description='{account}':{described}" for account in site.accounts]
    for account, users in site.accounts.items():
        lines.append(f"Parent - '{account}'")
        lines += [f"User - '{user}':DefaultAccount='{account}':Fairshare=1" for user in users]
    return "\n".join([*lines, ""])
