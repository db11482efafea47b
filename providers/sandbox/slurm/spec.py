"""Ready emulated clusters, shaped after Delta, DeltaAI, Anvil and Vista and scaled for a laptop.

Partition names, node shapes and limits follow the sites' recordings; node counts are smaller. Read only
when a cluster is made, so ordinary imports are welcome here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from providers.sandbox.slurm.model import Cluster, Node, Partition, Qos
from providers.sandbox.slurm.text import hosts

HOUR, DAY = 3600, 86400

CONFIG: Mapping[str, str] = {
    "AccountingStorageEnforce": "associations,limits,qos",
    "AccountingStorageTRES": "cpu,mem,energy,node,billing,fs/disk,vmem,pages,gres/gpu",
    "AccountingStorageType": "accounting_storage/slurmdbd",
    "ClusterName": "",
    "DefMemPerCPU": "1000",
    "EnforcePartLimits": "NO",
    "GresTypes": "gpu",
    "JobRequeue": "1",
    "KillWait": "2 sec",
    "MaxArraySize": "10001",
    "MaxJobCount": "50000",
    "MinJobAge": "300 sec",
    "PreemptMode": "OFF",
    "PreemptType": "preempt/none",
    "PriorityType": "priority/multifactor",
    "PriorityWeightAge": "1000",
    "PrivateData": "none",
    "SchedulerType": "sched/backfill",
    "SelectType": "select/cons_tres",
    "SelectTypeParameters": "CR_CORE_MEMORY",
    "SlurmctldHost[0]": "ctl(127.0.0.1)",
    "SLURM_VERSION": "22.05.8",
}


@dataclass(frozen=True)
class NodeGroup:
    """Equal nodes; `hosts` is a host list, memory in MiB, `gpus` pairs of (type or "", count)."""

    hosts: str
    sockets: int
    cores: int
    mem: int
    gpus: tuple[tuple[str, int], ...] = ()
    features: tuple[str, ...] = ()
    arch: str = "x86_64"


@dataclass(frozen=True)
class Planned:
    """A reservation from `starts_in_s` after creation for `length_s` seconds."""

    name: str
    hosts: str
    starts_in_s: int
    length_s: int
    flags: tuple[str, ...] = ("MAINT", "IGNORE_JOBS", "SPEC_NODES")
    users: tuple[str, ...] = ("root",)


@dataclass(frozen=True)
class ClusterSpec:
    """Everything needed to make one emulated cluster.

    `accounts` maps an account to its users; a partition's `nodes` may hold one host list.
    `load` rows are read by `load.Profile`; without any, the cluster holds only submitted jobs.
    """

    name: str
    nodes: tuple[NodeGroup, ...]
    partitions: tuple[Partition, ...]
    accounts: Mapping[str, tuple[str, ...]]
    users: Mapping[str, int] = field(
        default_factory=lambda: {"root": 0, "alice": 20001, "bob": 20002, "carol": 20003, "svcgw": 20010}
    )
    qos: tuple[Qos, ...] = (Qos(name="normal"),)
    config: Mapping[str, str] = field(default_factory=dict)
    load: tuple[Mapping[str, object], ...] = ()
    background_accounts: tuple[str, ...] = ()
    minutes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """GrpTRESMins of accounts, by TRES."""
    reservations: tuple[Planned, ...] = ()
    drained: Mapping[str, str] = field(default_factory=dict)
    """Node name to the administrator's reason."""
    requeue_delay: int = 10
    kill_wait_s: int = 2

    def quiet(self) -> "ClusterSpec":
        """Return the spec without background load, reservations and drained nodes."""
        return replace(self, load=(), reservations=(), drained={})


def build(spec: ClusterSpec, now: int) -> Cluster:
    """Return the cluster of a spec, with no jobs yet."""
    partitions = []
    for part in spec.partitions:
        row = part.packed()
        row["nodes"] = [name for text in part.nodes for name in hosts(text)]
        partitions.append(row)
    site: dict[str, object] = {
        "name": spec.name,
        "version": "22.05.8",
        "boot": now,
        "config": {**CONFIG, **spec.config, "ClusterName": spec.name},
        "users": {**spec.users, **{f"u{n:03}": 30000 + n for n in range(1, 41)}},
        "nodes": sorted(_nodes(spec, now), key=lambda row: str(row["name"])),
        "partitions": partitions,
        "qos": [qos.packed() for qos in spec.qos],
        "assocs": _assocs(spec),
        "reservations": [_reservation(planned, now) for planned in spec.reservations],
        "requeue_delay": spec.requeue_delay,
    }
    return Cluster(site)


def _nodes(spec: ClusterSpec, now: int) -> list[dict[str, object]]:
    nodes = []
    for group in spec.nodes:
        for name in hosts(group.hosts):
            node = Node(
                name=name,
                arch=group.arch,
                sockets=group.sockets,
                cores=group.cores,
                mem=group.mem,
                gpus=[list(pair) for pair in group.gpus],
                features=list(group.features),
                boot=now - 30 * DAY,
                started=now - 30 * DAY + 60,
                busy_at=now,
            )
            if name in spec.drained:
                node.flags, node.reason, node.reason_at = ["DRAIN"], spec.drained[name], now
            nodes.append(node.packed())
    return nodes


def _assocs(spec: ClusterSpec) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = [{"account": "root"}, {"account": "root", "user": "root"}]
    names = sorted(qos.name for qos in spec.qos)
    for account in sorted({*spec.accounts, *spec.background_accounts}):
        kept = account.lower()  # slurmdbd keeps account names in lower case
        minutes = dict(spec.minutes.get(account, {}))
        rows.append({"account": kept, "share": 10, "qos": names, "grp_minutes": minutes})
        users = sorted(spec.accounts.get(account, ()))
        rows.extend({"account": kept, "user": user, "qos": names} for user in users)
    return rows


def _reservation(planned: Planned, now: int) -> dict[str, object]:
    return {
        "name": planned.name,
        "start": now + planned.starts_in_s,
        "end": now + planned.starts_in_s + planned.length_s,
        "nodes": hosts(planned.hosts),
        "flags": list(planned.flags),
        "users": list(planned.users),
    }


def _part(name: str, nodes: str, max_time: int, **more: object) -> Partition:
    return Partition(name=name, nodes=[nodes], max_time=max_time, **{"default_time": 1800, **more})


_A100, _A40 = "gpua[001-016]", "gpub[001-016]"
DELTA = ClusterSpec(
    name="delta",
    nodes=(
        NodeGroup(_A100, 2, 32, 256000, (("a100", 4),), ("a100", "nvlink", "x86")),
        NodeGroup(_A40, 2, 32, 256000, (("a40", 4),), ("a40", "x86")),
        NodeGroup("gpuc[001-002]", 2, 64, 2000000, (("a100", 8),), ("a100", "nvlink", "bigmem", "x86")),
        NodeGroup("cn[001-012]", 2, 64, 256000, (), ("cpu", "x86")),
    ),
    partitions=(
        _part("gpuA100x4", _A100, 2 * DAY, default=True, tier=10),
        _part("gpuA100x4-interactive", _A100, HOUR, tier=20),
        _part("gpuA100x4-preempt", _A100, 2 * DAY, tier=1, preempt="REQUEUE", grace=60),
        _part("gpuA40x4", _A40, 2 * DAY, tier=10),
        _part("gpuA100x8", "gpuc[001-002]", 2 * DAY),
        _part("cpu", "cn[001-012]", 2 * DAY),
    ),
    accounts={
        "bbka-delta-gpu": ("alice", "bob", "svcgw"),
        "bbka-delta-cpu": ("alice", "carol"),
    },
    config={
        "PreemptType": "preempt/partition_prio",
        "AccountingStorageTRES": CONFIG["AccountingStorageTRES"] + ",gres/gpu:a100,gres/gpu:a40",
    },
    background_accounts=("baaa-delta-gpu", "baaa-delta-cpu"),
    minutes={"bbka-delta-gpu": {"gres/gpu": 600_000}, "bbka-delta-cpu": {"cpu": 6_000_000}},
    load=(
        {
            "partition": "gpuA100x4",
            "account": "baaa-delta-gpu",
            "busy": 0.95,
            "sizes": [1, 1, 2, 4, 4],
            "ahead": 4,
            "large": [2, 3, 4],
            "pending": 60,
            "run_s": 2400,
        },
        {
            "partition": "gpuA40x4",
            "account": "baaa-delta-gpu",
            "busy": 0.72,
            "sizes": [1, 1, 2, 4],
            "pending": 12,
        },
        {
            "partition": "gpuA100x8",
            "account": "baaa-delta-gpu",
            "busy": 0.9,
            "sizes": [2, 4, 8],
            "run_s": 5400,
            "pending": 4,
        },
        {
            "partition": "cpu",
            "account": "baaa-delta-cpu",
            "busy": 0.7,
            "sizes": [8, 16, 32, 64],
            "mem_mib": 1000,
        },
    ),
    drained={"gpua016": "bad nvlink XID 74", "gpub012": "ECC recheck"},
)

DELTAAI = ClusterSpec(
    name="deltaai",
    nodes=(NodeGroup("gh[001-024]", 4, 72, 860000, (("gh200", 4),), ("gh200", "aarch64"), "aarch64"),),
    partitions=(
        _part("ghx4", "gh[001-024]", 2 * DAY, default=True, def_mem_per_gpu=200000, def_cpus_per_gpu=72),
        _part("ghx4-interactive", "gh[001-024]", 2 * HOUR, tier=20),
    ),
    accounts={"bbka-dtai-gh": ("alice", "bob", "svcgw")},
    config={"AccountingStorageTRES": CONFIG["AccountingStorageTRES"] + ",gres/gpu:gh200"},
    background_accounts=("baaa-dtai-gh",),
    load=(
        {
            "partition": "ghx4",
            "account": "baaa-dtai-gh",
            "busy": 0.93,
            "sizes": [1, 2, 4, 4],
            "ahead": 24,
            "large": [2, 3, 4, 6, 8],
            "pending": 800,
            "run_s": 7200,
            "cpus_per_gpu": 36,
            "mem_mib": 2000,
            "users": 24,
        },
    ),
    drained={"gh024": "NHC: check_fs_mount"},
)

ANVIL = ClusterSpec(
    name="anvil",
    nodes=(
        NodeGroup("a[001-012]", 2, 64, 257000, (), ("cpu", "A")),
        NodeGroup("g[001-008]", 2, 64, 512000, (("", 4),), ("gpu", "G", "a100")),
        NodeGroup("h[001-006]", 2, 48, 1030000, (("h100", 4),), ("gpu", "H", "h100")),
    ),
    partitions=(
        _part("shared", "a[001-012]", 4 * DAY, default=True, max_nodes=1),
        _part("wholenode", "a[001-012]", 4 * DAY, exclusive=True),
        _part("debug", "a[001-002]", 2 * HOUR, qos="debug"),
        _part("gpu", "g[001-008]", 2 * DAY, allow_accounts=["cis220051-gpu", "bio230001-gpu"], qos="gpu"),
        _part(
            "gpu-debug",
            "g[001-002]",
            1800,
            default_time=900,
            allow_accounts=["cis220051-gpu", "bio230001-gpu"],
            qos="debug",
        ),
        _part("ai", "h[001-006]", 2 * DAY, allow_accounts=["cis220051-ai", "bio230001-ai"], qos="ai"),
    ),
    accounts={
        "cis220051": ("alice", "bob"),
        "cis220051-gpu": ("alice", "svcgw"),
        "cis220051-ai": ("alice", "bob"),
    },
    qos=(
        Qos(name="normal"),
        Qos(name="debug", priority=1000, max_wall=2 * HOUR, max_jobs_user=1, max_submit_user=2),
        Qos(name="gpu", max_gpus_user=12),
        Qos(name="ai", max_gpus_user=8),
    ),
    config={"AccountingStorageTRES": CONFIG["AccountingStorageTRES"] + ",gres/gpu:h100"},
    background_accounts=("bio230001", "bio230001-gpu", "bio230001-ai"),
    load=(
        {
            "partition": "shared",
            "account": "bio230001",
            "busy": 0.75,
            "sizes": [4, 16, 32, 64],
            "mem_mib": 1000,
        },
        {
            "partition": "gpu",
            "account": "bio230001-gpu",
            "busy": 0.8,
            "sizes": [1, 1, 2, 4],
            "pending": 30,
            "cpus_per_gpu": 16,
        },
        {
            "partition": "ai",
            "account": "bio230001-ai",
            "busy": 0.96,
            "sizes": [1, 2, 4],
            "pending": 98,
            "run_s": 5400,
            "cpus_per_gpu": 16,
            "users": 16,
        },
    ),
)

VISTA = ClusterSpec(
    name="vista",
    nodes=(
        NodeGroup("c608-[001-048]", 1, 72, 237000, (("gh200", 1),), ("gh200", "aarch64"), "aarch64"),
        NodeGroup("c640-[001-008]", 2, 72, 237000, (), ("gg", "aarch64"), "aarch64"),
    ),
    partitions=(
        _part("gh", "c608-[013-048]", 2 * DAY, default=True, default_time=HOUR, exclusive=True),
        _part("gh-dev", "c608-[001-012]", 2 * HOUR, exclusive=True, max_nodes=8, tier=20, qos="gh-dev"),
        _part("gg", "c640-[001-008]", 2 * DAY, default_time=HOUR, exclusive=True),
    ),
    accounts={"ASC24001": ("alice", "bob", "svcgw")},
    qos=(Qos(name="normal"), Qos(name="gh-dev", max_jobs_user=1, max_submit_user=3)),
    config={"AccountingStorageTRES": CONFIG["AccountingStorageTRES"] + ",gres/gpu:gh200"},
    background_accounts=("TG-BIO24",),
    load=(
        {
            "partition": "gh",
            "account": "TG-BIO24",
            "busy": 0.97,
            "sizes": [1],
            "ahead": 6,
            "large": [2, 4, 8],
            "pending": 20,
            "run_s": 5400,
            "cpus_per_gpu": 72,
            "mem_mib": 1000,
        },
        {
            "partition": "gh-dev",
            "account": "TG-BIO24",
            "busy": 0.1,
            "sizes": [1],
            "run_s": 900,
            "cpus_per_gpu": 72,
            "mem_mib": 1000,
        },
        {
            "partition": "gg",
            "account": "TG-BIO24",
            "busy": 0.6,
            "sizes": [144],
            "run_s": 3600,
            "mem_mib": 1000,
        },
    ),
)
