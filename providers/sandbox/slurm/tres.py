"""Trackable resources as Slurm lists them: of nodes, partitions and jobs, in its two orders."""

from __future__ import annotations

from providers.sandbox.slurm.model import Cluster, Held, Job, Node
from providers.sandbox.slurm.text import memory, ranges

Pairs = list[tuple[str, str]]


def joined(pairs: Pairs) -> str:
    """Return `cpu=8,mem=8000M` in the order given."""
    return ",".join(f"{name}={value}" for name, value in pairs)


def by_name(pairs: Pairs) -> str:
    """Return the accounting order: names sorted, typed GPUs before their total."""
    return joined(sorted(pairs, key=lambda pair: (pair[0].split(":")[0], ":" not in pair[0], pair[0])))


def gpu_pairs(cluster: Cluster, counts: dict[str, int]) -> Pairs:
    """Return `gres/gpu` and the types that the site accounts for; `counts` by type, "" where unnamed."""
    total = sum(counts.values())
    if not total:
        return []
    tracked = cluster.config.get("AccountingStorageTRES", "").split(",")
    typed = [
        (f"gres/gpu:{kind}", str(count))
        for kind, count in sorted(counts.items())
        if kind and count and f"gres/gpu:{kind}" in tracked
    ]
    return [("gres/gpu", str(total)), *typed]


def gpu_counts(node: Node) -> dict[str, int]:
    """Return GPUs of a node by type."""
    counts: dict[str, int] = {}
    for kind, count in node.gpus:
        counts[kind] = counts.get(kind, 0) + count
    return counts


def configured(cluster: Cluster, node: Node) -> str:
    """Return CfgTRES of a node."""
    pairs = [("cpu", str(node.cpus)), ("mem", memory(node.mem)), ("billing", str(node.cpus))]
    return joined(pairs + gpu_pairs(cluster, gpu_counts(node)))


def allocated(cluster: Cluster, node: Node, held: Held) -> str:
    """Return AllocTRES of a node, "" when idle."""
    if not held.jobs:
        return ""
    counts: dict[str, int] = {}
    kinds = node.gpu_types
    for index in held.gpus:
        counts[kinds[index]] = counts.get(kinds[index], 0) + 1
    return joined([("cpu", str(held.cpus)), ("mem", memory(held.mem)), *gpu_pairs(cluster, counts)])


def gres(node: Node) -> str:
    """Return Gres of a node, `gpu:a100:4(S:0-1)`; `(null)` without GPUs."""
    parts, first, total = [], 0, len(node.gpu_types)
    for kind, count in node.gpus:
        sockets = ranges([index * node.sockets // total for index in range(first, first + count)])
        parts.append(f"gpu:{kind}:{count}(S:{sockets})" if kind else f"gpu:{count}(S:{sockets})")
        first += count
    return ",".join(parts) or "(null)"


def gres_used(node: Node, held: Held) -> str:
    """Return GresUsed of a node, `gpu:a100:3(IDX:0-2)`; untyped GPUs show `(null)` as their type."""
    parts, first = [], 0
    for kind, count in node.gpus:
        taken = sorted(held.gpus & set(range(first, first + count)))
        parts.append(f"gpu:{kind or '(null)'}:{len(taken)}(IDX:{ranges(taken) if taken else 'N/A'})")
        first += count
    return ",".join(parts) or "gpu:0"


def held_gpus(cluster: Cluster, job: Job) -> dict[str, int]:
    """Return the GPUs a job holds, by type."""
    counts: dict[str, int] = {}
    for name, (_, _, gpus) in job.alloc.items():
        kinds = cluster.nodes[name].gpu_types
        for index in gpus:
            counts[kinds[index]] = counts.get(kinds[index], 0) + 1
    return counts


def job_pairs(cluster: Cluster, job: Job) -> Pairs:
    """Return what a job holds, or asks for while it holds nothing."""
    if not job.alloc:
        asked = requested_pairs(cluster, job)
        return [*asked[:4], *gpu_pairs(cluster, job.last_gpus)] if job.last_gpus else asked
    counts = held_gpus(cluster, job)
    return [
        ("cpu", str(job.alloc_cpus)),
        ("mem", memory(sum(row[1] for row in job.alloc.values()))),
        ("node", str(len(job.alloc))),
        ("billing", str(job.alloc_cpus)),
        *gpu_pairs(cluster, counts),
    ]


def requested_pairs(cluster: Cluster, job: Job) -> Pairs:
    """Return what a job asked for."""
    total = job.mem_node * job.nodes or job.mem_cpu * job.cpus
    counts = {job.gpu_type: job.gpus} if job.gpus else {}
    return [
        ("cpu", str(job.cpus)),
        ("mem", memory(total)),
        ("node", str(job.nodes)),
        ("billing", str(job.cpus)),
        *gpu_pairs(cluster, counts),
    ]
