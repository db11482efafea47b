"""Rebuild, as an emulated cluster, the state in which a real Slurm 22.05.8 was recorded."""

import gzip
import re
from datetime import UTC, datetime
from pathlib import Path

from providers.sandbox.slurm.model import Cluster, Job
from providers.sandbox.slurm.spec import CONFIG
from providers.sandbox.slurm.text import hosts, read_memory, read_ranges, read_span

DATA = Path(__file__).parents[2] / "data" / "sandbox"
Held = dict[int, dict[str, tuple[int, int, list[int]]]]
"""By job id and node: CPUs, MiB, GPU indices."""
NOT_SET_BY_HAND = {"MAINTENANCE", "RESERVED", "PLANNED", "COMPLETING"}


def recorded(cluster: str, name: str) -> str:
    return gzip.decompress((DATA / cluster / f"{name}.gz").read_bytes()).decode()


def at(text: str) -> int:
    if text in {"N/A", "Unknown", "None", ""}:
        return 0
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def seconds(text: str) -> int:
    days, _, rest = text.rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    return int(days or 0) * 86400 + sum(int(part * 60**place) for place, part in enumerate(reversed(parts)))


def found_in(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    assert match, (pattern, text)
    return str(match[1])


def pairs(line: str) -> dict[str, str]:
    return dict(re.findall(r"(\S+?)=((?:[^=\s]|=(?=\d+[,\s]))*)", line))


def conf_lines(name: str, kind: str) -> list[dict[str, str]]:
    lines = recorded(name, "slurm.conf").splitlines()
    return [dict(word.split("=", 1) for word in line.split()) for line in lines if line.startswith(kind)]


def rebuilt(name: str, *, now: int) -> Cluster:
    conf = dict(line.split("=", 1) for line in recorded(name, "slurm.conf").splitlines() if "=" in line)
    site: dict[str, object] = {
        "name": name,
        "version": "22.05.8",
        "config": {
            **CONFIG,
            "AccountingStorageTRES": "cpu,mem,energy,node,billing," + conf["AccountingStorageTRES"],
        },
        "users": {"root": 0, "alice": 20001, "bob": 20002, "carol": 20003, "svcgw": 20010},
        "nodes": nodes(name),
        "partitions": partitions(name, preempt=conf.get("PreemptMode", "OFF")),
        "qos": qos(name),
        "assocs": assocs(name),
        "reservations": reservations(name),
    }
    cluster = Cluster(site)
    cluster.jobs = jobs(name, now=now)
    return cluster


def nodes(name: str) -> list[dict[str, object]]:
    shapes: dict[str, dict[str, str]] = {}
    for row in conf_lines(name, "NodeName="):
        for host in hosts(row["NodeName"]):
            shapes[host] = row
    found = []
    for line in recorded(name, "scontrol_o_nodes_d.txt").splitlines():
        seen = pairs(line)
        shape = shapes[seen["NodeName"]]
        gpus = []
        for part in shape.get("Gres", "").split(",") if shape.get("Gres") else []:
            words = part.split(":")
            gpus.append([words[1] if len(words) == 3 else "", int(words[-1])])
        node = {
            "name": seen["NodeName"],
            "arch": seen["Arch"],
            "sockets": int(shape["Sockets"]),
            "cores": int(shape["CoresPerSocket"]),
            "mem": int(shape["RealMemory"]),
            "gpus": gpus,
            "features": shape["Feature"].split(","),
            "flags": [flag for flag in seen["State"].split("+")[1:] if flag not in NOT_SET_BY_HAND],
            "port": int(seen["Port"]),
            "addr": seen["NodeAddr"],
            "host": seen["NodeHostName"],
            "os": found_in(r"OS=(.*?)  ", line),
            "boot": at(seen["BootTime"]),
            "started": at(seen["SlurmdStartTime"]),
            "busy_at": at(seen["LastBusyTime"]),
            "load": seen["CPULoad"],
            "free": int(seen["FreeMem"]),
        }
        reason = re.search(r"Reason=(.*) \[(\w+)@(\S+)\]", line)
        if reason:
            node |= {"reason": reason[1], "reason_user": reason[2], "reason_at": at(reason[3])}
        found.append(node)
    return found


def partitions(name: str, *, preempt: str) -> list[dict[str, object]]:
    every = [host for row in conf_lines(name, "NodeName=") for host in hosts(row["NodeName"])]
    return [
        {
            "name": row["PartitionName"],
            "nodes": sorted(every) if row["Nodes"] == "ALL" else hosts(row["Nodes"]),
            "default": row.get("Default") == "YES",
            "hidden": row.get("Hidden") == "YES",
            "max_time": read_span(row["MaxTime"]),
            "default_time": read_span(row["DefaultTime"]) if "DefaultTime" in row else 0,
            "max_nodes": int(row.get("MaxNodes", 0)),
            "tier": int(row.get("PriorityTier", 1)),
            "exclusive": row.get("OverSubscribe") == "EXCLUSIVE",
            "allow_accounts": row["AllowAccounts"].split(",") if "AllowAccounts" in row else [],
            "allow_groups": row["AllowGroups"].split(",") if "AllowGroups" in row else [],
            "qos": row.get("QOS", ""),
            "preempt": row.get("PreemptMode", preempt),
            "grace": int(row.get("GraceTime", 0)),
            "def_mem_per_gpu": int(row.get("DefMemPerGPU", 0)),
            "def_cpus_per_gpu": int(row.get("DefCpuPerGPU", 0)),
        }
        for row in conf_lines(name, "PartitionName=")
    ]


def qos(name: str) -> list[dict[str, object]]:
    found = []
    for line in recorded(name, "sacctmgr_qos.txt").splitlines()[1:]:
        cells = line.split("|")
        found.append(
            {
                "name": cells[0],
                "priority": int(cells[1]),
                "max_wall": seconds(cells[3]) if cells[3] else 0,
                "max_gpus_user": int(cells[4].partition("gres/gpu=")[2] or 0),
                "max_jobs_user": int(cells[5] or 0),
                "max_submit_user": int(cells[6] or 0),
                "grp_gpus": int(cells[7].partition("gres/gpu=")[2] or 0),
            }
        )
    return found


def assocs(name: str) -> list[dict[str, object]]:
    names = ["normal"] if len(qos(name)) == 1 else sorted(str(each["name"]) for each in qos(name))
    rows: list[dict[str, object]] = [{"account": "root"}, {"account": "root", "user": "root"}]
    accounts: dict[str, list[str]] = {}
    parent = ""
    for line in recorded(name, "assoc.cfg").splitlines():
        kind, _, rest = line.partition(" - ")
        word = rest.split("'")[1] if "'" in rest else ""
        if kind == "Parent":
            parent = word
        elif kind == "Account":
            accounts.setdefault(word.lower(), [])  # slurmdbd keeps account names in lower case
        elif kind == "User" and parent != "root":
            accounts[parent.lower()].append(word)
    for account in sorted(accounts):
        rows.append({"account": account, "share": 10, "qos": names})
        rows += [{"account": account, "user": user, "qos": names} for user in sorted(accounts[account])]
    return rows


def reservations(name: str) -> list[dict[str, object]]:
    found = []
    for block in recorded(name, "scontrol_resv.txt").split("\n\n"):
        seen = pairs(" ".join(block.split()))
        if "ReservationName" in seen:
            found.append(
                {
                    "name": seen["ReservationName"],
                    "start": at(seen["StartTime"]),
                    "end": at(seen["EndTime"]),
                    "nodes": hosts(seen["Nodes"]),
                    "flags": found_in(r"Flags=(\S*)", block).split(","),
                    "users": seen["Users"].split(","),
                }
            )
    return found


def allocations(name: str) -> Held:
    found: Held = {}
    for block in recorded(name, "scontrol_job_d.txt").split("\n\n"):
        head = re.search(r"JobId=(\d+) ", block)
        if head and "JobState=RUNNING" in block:
            for nodes_, cpus, mem, gres in re.findall(
                r"Nodes=(\S+) CPU_IDs=(\S+) Mem=(\d+) GRES=(\S*)", block
            ):
                index = re.search(r"IDX:([\d,-]+)", gres)
                share = (len(read_ranges(cpus)), int(mem), read_ranges(index[1]) if index else [])
                for host in hosts(nodes_):
                    found.setdefault(int(head[1]), {})[host] = share
    return found


def jobs(name: str, *, now: int) -> list[Job]:
    held = allocations(name)
    wide = {}
    for line in recorded(name, "squeue_O.txt").splitlines()[1:]:
        cells = line.split("|")
        wide[cells[0]] = cells
    return [job(row.split("|"), wide, held, now=now) for row in recorded(name, "squeue_o.txt").splitlines()]


def job(cells: list[str], wide: dict[str, list[str]], held: Held, *, now: int) -> Job:
    (
        shown,
        raw,
        array,
        task,
        part,
        name,
        user,
        account,
        _,
        state,
        _,
        limit,
        _,
        nodes_,
        cpus,
        gres,
        mem,
        reason,
    ) = cells[:18]
    qos_, priority, submit, start, dependency = (*cells[19:23], cells[24])
    running = state == "RUNNING"
    is_array = "_" in shown
    indexes, _, throttle = task.partition("%")
    waited = 0 if running or priority == "0" else min(1000, 1000 * max(0, now - at(submit)) // 604800)
    made = Job(
        id=int(raw),
        array=int(array) if is_array else 0,
        task=int(task) if is_array and running else -1,
        tasks=[] if running or not is_array else read_ranges(indexes),
        throttle=int(throttle or 0),
        name=name,
        user=user,
        account=account,
        qos=qos_,
        partitions=[part],
        partition=part,
        state=state,
        reason=reason,
        submit=at(submit),
        eligible=at(submit),
        start=at(start) if running else 0,
        expected=0 if running else at(start),
        planned=[] if cells[27] == "(null)" else hosts(cells[27]),
        limit=seconds(limit),
        nodes=int(nodes_),
        cpus=int(cpus),
        mem_cpu=read_memory(mem),
        gpu_words="" if gres == "N/A" else gres,
        gpu_job_words="" if wide[raw][17] == "N/A" else wide[raw][17],
        constraint="" if cells[26] == "(null)" else cells[26],
        held="user" if priority == "0" else "",
        base_priority=int(priority) - waited,
        dependency="" if dependency == "(null)" else re.sub(r"\(\w+\)", "", dependency),
        comment="|".join(wide[raw][27:-1]).replace("(null)", ""),
        alloc=held.get(int(raw), {}) if running else {},
        background=True,
        runtime=10**9,
    )
    if gres != "N/A":
        words = gres.split(":")
        made.gpus_node, made.gpu_type = int(words[-1]), words[2] if len(words) == 4 else ""
    if not running:
        total = re.search(r"mem=([^,]+)", wide[raw][19])
        if total and total[1] == mem and made.cpus > 1:
            made.mem_cpu, made.mem_node = 0, read_memory(mem)
        made.last_gpus = {
            kind: int(count) for kind, count in re.findall(r"gres/gpu:(\w+)=(\d+)", wide[raw][19])
        }
    return made
