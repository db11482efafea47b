"""Which nodes could hold a job: node-level packing of CPUs, memory and GPUs.

Pure. A node is taken whole by exclusive jobs and in exclusive partitions; GPUs get the lowest free
indices of the wanted type; nodes of other users' reservations and of coming maintenance are left alone.
"""

from __future__ import annotations

from providers.sandbox.slurm.model import Cluster, Held, Job, Node, Partition, Reservation

Allocation = dict[str, tuple[int, int, list[int]]]
UNUSABLE = frozenset(
    {
        "DOWN",
        "DRAIN",
        "FAIL",
        "NOT_RESPONDING",
        "POWERED_DOWN",
        "POWERING_DOWN",
        "INVALID_REG",
        "REBOOT_ISSUED",
    }
)


class Request:
    """What a job takes on each of its nodes in one partition."""

    __slots__ = ("cpus", "exclusive", "features", "gpu_type", "gpus", "mem", "mem_all", "mem_cpu", "nodes")

    def __init__(self, job: Job, part: Partition) -> None:
        self.nodes = job.nodes
        self.cpus = max(1, -(-job.cpus // job.nodes))
        self.gpus = job.gpus_node
        self.gpu_type = job.gpu_type
        self.exclusive = job.exclusive or part.exclusive
        self.mem_cpu = job.mem_cpu
        self.mem = job.memory_on_node(self.cpus)
        self.mem_all = job.mem_all
        self.features = job.constraint

    def key(self) -> tuple[object, ...]:
        """Return what makes two requests interchangeable."""
        return (
            self.nodes,
            self.cpus,
            self.gpus,
            self.gpu_type,
            self.exclusive,
            self.mem,
            self.mem_all,
            self.features,
        )


def has_features(node: Node, constraint: str) -> bool:
    """Return whether a node meets `a`, `a&b`, `a|b`, or `[a|b]`."""
    if not constraint:
        return True
    wanted = constraint.strip("[]")
    if "&" in wanted or "," in wanted:
        return all(has_features(node, part) for part in wanted.replace(",", "&").split("&"))
    return any(part.split("*")[0].strip("()") in node.features for part in wanted.split("|"))


def shape_fits(node: Node, request: Request) -> bool:
    """Return whether the empty node could hold its share of the request."""
    kinds = node.gpu_types
    gpus = sum(1 for kind in kinds if not request.gpu_type or kind == request.gpu_type)
    memory = node.mem if request.mem_all else request.mem
    return (
        node.cpus >= request.cpus
        and node.mem >= memory
        and gpus >= request.gpus
        and has_features(node, request.features)
    )


def share(node: Node, request: Request, held: Held) -> tuple[int, int, list[int]] | None:
    """Return (CPUs, MiB, GPU indices) the request would take on a node, or None when it does not fit."""
    if not shape_fits(node, request):
        return None
    if request.exclusive:
        if held.jobs:
            return None
        memory = node.mem if request.mem_all else min(node.mem, max(request.mem, request.mem_cpu * node.cpus))
        return node.cpus, memory, list(range(len(node.gpu_types)))
    memory = node.mem if request.mem_all else request.mem
    if held.cpus + request.cpus > node.cpus or held.mem + memory > node.mem:
        return None
    free = [
        index
        for index, kind in enumerate(node.gpu_types)
        if index not in held.gpus and (not request.gpu_type or kind == request.gpu_type)
    ]
    if len(free) < request.gpus:
        return None
    return request.cpus, memory, free[: request.gpus]


def admits(cluster: Cluster, node: Node, job: Job, now: int) -> bool:
    """Return whether node state and reservations let this job start here now."""
    if not UNUSABLE.isdisjoint(node.flags) or (job.want_nodes and node.name not in job.want_nodes):
        return False
    if node.name in job.avoid_nodes:
        return False
    inside = False
    for reservation in cluster.reservations:
        if node.name in reservation.nodes:
            mine = job.reservation == reservation.name
            inside = inside or (mine and reservation.start <= now < reservation.end)
            if not mine and overlaps(reservation, now, job.limit):
                return False
    return inside or not job.reservation


def overlaps(reservation: Reservation, start: int, limit: int) -> bool:
    """Return whether a job of `limit` seconds (0 = for ever) from `start` would run into the reservation."""
    return start < reservation.end and (not limit or start + limit > reservation.start)


def place(
    cluster: Cluster,
    job: Job,
    part: Partition,
    held: dict[str, Held],
    now: int,
    *,
    kept: dict[str, int],
) -> Allocation | None:
    """Return an allocation for now, or None.

    `kept` holds by node the start of a planned job: a node is taken only when this job ends before.
    Fuller nodes are preferred, so that whole nodes stay whole.
    """
    request = Request(job, part)
    found: list[tuple[int, int, str, tuple[int, int, list[int]]]] = []
    for name in part.nodes:
        planned = kept.get(name)
        if planned is not None and (not job.limit or now + job.limit > planned):
            continue
        node, here = cluster.nodes[name], held[name]
        if here.completing or not admits(cluster, node, job, now):
            continue
        taken = share(node, request, here)
        if taken is not None:
            found.append((-len(here.gpus), -here.cpus, name, taken))
            if len(found) >= request.nodes and not job.gpus_node and request.exclusive:
                break
    if len(found) < request.nodes or (job.want_nodes and not set(job.want_nodes) <= {f[2] for f in found}):
        return None
    found.sort(key=lambda row: row[:3])
    return {name: taken for _, _, name, taken in found[: request.nodes]}


def unavailable(cluster: Cluster, job: Job, part: Partition) -> str:
    """Return the sentence for a job that no set of presently healthy nodes could hold, else ""."""
    request = Request(job, part)
    healthy = [
        name
        for name in part.nodes
        if UNUSABLE.isdisjoint(cluster.nodes[name].flags) and shape_fits(cluster.nodes[name], request)
    ]
    if len(healthy) >= request.nodes:
        return ""
    return "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions"
