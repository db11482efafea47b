"""Joining a site profile and a probe: what every user sees alike, made once per snapshot. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from math import ceil

from federation.held_back import cap_of
from federation.profile import NodeType, PartitionProfile, ProfileDocument
from federation.types import Maintenance, NodeView, PartitionQueue, PendingShare, RunningShare
from providers.gpus import canonical_gpu, read_gpu
from providers.types import GpuPool, JobState, Node, Partition, Probe, QueueJob

_DOWN_STATES = frozenset({"down", "error", "unknown", "future", "fail"})
_DOWN_FLAGS = frozenset(
    {"DRAIN", "FAIL", "INVALID_REG", "NOT_RESPONDING", "MAINTENANCE", "REBOOT_ISSUED", "REBOOT_REQUESTED"}
)
_GROUP_REASONS = ("QOSGrp", "AssocGrp")
"""A job that only what others hold under the same QoS or account keeps from starting."""
TIER = 1 << 40
"""More than any priority: a scheduler serves its tiers one after the other."""
WAITING = frozenset({JobState.QUEUED, JobState.HELD})
HOLDING = frozenset({JobState.RUNNING, JobState.STARTING, JobState.COMPLETING, JobState.SUSPENDED})


@dataclass(frozen=True, slots=True)
class PreparedPartition:
    """What every user sees alike of one partition."""

    name: str
    scheduler_name: str
    profile: PartitionProfile
    live: Partition | None
    nodes: tuple[NodeView, ...]
    queue: PartitionQueue
    maintenance: tuple[Maintenance, ...]


@dataclass(slots=True)
class QosJobs:
    """The jobs under one QoS or account, each once wherever it may run."""

    running: list[RunningShare] = field(default_factory=list)
    waiting: list[PendingShare] = field(default_factory=list)
    """Those that resources, priority or a limit of the group hold back; all marked eligible."""


@dataclass(frozen=True, slots=True)
class PreparedSystem:
    """What every user sees alike of one system at one snapshot."""

    profile: ProfileDocument
    probe: Probe | None
    partitions: tuple[PreparedPartition, ...]
    groups: Mapping[str, QosJobs] = field(default_factory=dict)
    """What the jobs of each QoS hold and wait for, its own and those of the partitions it governs."""


def prepare(
    profile: ProfileDocument, probe: Probe | None, partitions: Sequence[Partition] | None
) -> PreparedSystem:
    """Join profile and probe.

    Args:
        profile: the revision in force.
        probe: the last good probe, None where there never was one.
        partitions: the partition table of the last full probe (a live probe does not ask for it).
    """
    if probe is not None:
        probe = _in_our_time(probe)
    live = {partition.name: partition for partition in partitions or ()}
    names = {name: profile.scheduler_name(name) for name in profile.partitions}
    if not profile.only_listed_partitions:
        known = {*names, *names.values()}
        names |= {name: name for name in sorted(live) if name not in known and not live[name].root_only}
    stated = {name: profile.partitions.get(name, PartitionProfile()) for name in names}
    whole = frozenset(name for name in names if is_exclusive(stated[name], live.get(names[name])))
    rivals = _rivals(probe, live) if probe is not None else {}
    queues = _queues(probe, names, whole=frozenset(names[name] for name in whole), rivals=rivals)
    governs = {name: each.qos for name, each in live.items() if each.qos}
    nodes = _nodes_by_partition(profile, probe, names, whole=whole)
    return PreparedSystem(
        profile=profile,
        probe=probe,
        partitions=tuple(
            PreparedPartition(
                name=name,
                scheduler_name=theirs,
                profile=stated[name],
                live=live.get(theirs),
                nodes=nodes[name],
                queue=queues[name],
                maintenance=_maintenance(profile, probe, name),
            )
            for name, theirs in names.items()
        ),
        groups=_groups(probe, governs) if probe is not None else {},
    )


def _in_our_time(probe: Probe) -> Probe:
    """Return the probe with every instant of the site's clock brought to ours."""
    if not probe.clock_ahead_s:
        return probe
    ahead = timedelta(seconds=probe.clock_ahead_s)

    def brought(at: datetime | None) -> datetime | None:
        return None if at is None else at - ahead

    return probe.model_copy(
        update={
            "jobs": tuple(
                job.model_copy(
                    update={"submit_at": brought(job.submit_at), "start_at": brought(job.start_at)}
                )
                for job in probe.jobs
            ),
            "reservations": tuple(
                found.model_copy(update={"start_at": found.start_at - ahead, "end_at": brought(found.end_at)})
                for found in probe.reservations
            ),
        }
    )


def is_exclusive(stated: PartitionProfile, live: Partition | None) -> bool:
    """Return whether a partition gives whole nodes: as the profile says, else as the scheduler shows."""
    return stated.exclusive if stated.exclusive is not None else bool(live and live.exclusive)


def _nodes_by_partition(
    profile: ProfileDocument, probe: Probe | None, names: Mapping[str, str], *, whole: frozenset[str]
) -> dict[str, tuple[NodeView, ...]]:
    """Return the nodes of each partition, by our names; `names` gives the scheduler's.

    A node with several pools of GPUs is listed once for each, unless it is given `whole`.
    """
    if probe is None:
        return {name: _declared_nodes(profile, name) for name in names}
    entries: dict[str, list[tuple[str, frozenset[str], _Kinds]]] = {}
    for name, theirs in names.items():
        stated = profile.partitions.get(name, PartitionProfile())
        entries.setdefault(theirs, []).append((name, frozenset(stated.features), _kinds(profile, stated)))
    found: dict[str, list[NodeView]] = {name: [] for name in names}
    for node in probe.nodes:
        views: dict[tuple[_Kinds, bool], tuple[NodeView, ...]] = {}
        for theirs in node.partitions:
            for name, features, kinds in entries.get(theirs, ()):
                if features <= set(node.features):
                    key = kinds, name in whole
                    if key not in views:
                        views[key] = _views(node, kinds, is_whole=name in whole)
                    found[name].extend(views[key])
    return {name: tuple(views) for name, views in found.items()}


@dataclass(frozen=True, slots=True)
class _Kinds:
    """The node types with GPUs that a node may be: those of its partition before all others."""

    own: tuple[NodeType, ...]
    every: tuple[NodeType, ...]


def _kinds(profile: ProfileDocument, partition: PartitionProfile) -> _Kinds:
    own = dict.fromkeys(profile.node_types[group.type] for group in partition.nodes)
    return _Kinds(
        own=tuple(kind for kind in own if kind.gpus),
        every=tuple(kind for kind in profile.node_types.values() if kind.gpus),
    )


def _pools(node: Node) -> tuple[GpuPool, ...]:
    """Return a node's pools of GPUs, the largest first; one whose GPUs were not found is none."""
    found = (pool for pool in node.gpus if pool.total)
    return tuple(sorted(found, key=lambda pool: (pool.total, pool.type or ""), reverse=True))


def _part_name(node: str, pool: GpuPool) -> str:
    return f"{node}/{pool.type or pool.total}"


def _views(node: Node, kinds: _Kinds, *, is_whole: bool) -> tuple[NodeView, ...]:
    """Return a node as it is offered: once for each pool, with the share of the node that its GPUs are.

    What is given whole is given with all its GPUs, and asked for by those of its largest pool.
    """
    pools = _pools(node)
    if is_whole or len(pools) < 2:
        return (_view(node, pools[0] if pools else None, kinds),)
    gpus, left = sum(pool.total for pool in pools), _view(node, pools[0], kinds)
    parts = []
    for pool in pools[1:]:
        seen = _view(node, pool, kinds)
        part = replace(
            seen,
            name=_part_name(node.name, pool),
            cpus=seen.cpus * pool.total // gpus,
            cpus_free=seen.cpus_free * pool.total // gpus,
            memory_mib=_share(seen.memory_mib, pool.total, gpus),
            memory_free_mib=_share(seen.memory_free_mib, pool.total, gpus),
            is_part=True,
        )
        parts.append(part)
        left = replace(
            left,
            cpus=left.cpus - part.cpus,
            cpus_free=left.cpus_free - part.cpus_free,
            memory_mib=_less(left.memory_mib, part.memory_mib),
            memory_free_mib=_less(left.memory_free_mib, part.memory_free_mib),
        )
    return (left, *parts)


def _share(whole: int | None, part: int, of: int) -> int | None:
    return None if whole is None else whole * part // of


def _less(whole: int | None, part: int | None) -> int | None:
    return None if whole is None or part is None else whole - part


def _view(node: Node, pool: GpuPool | None, kinds: _Kinds) -> NodeView:
    kind = _gpu_kind(pool, kinds)
    return NodeView(
        name=node.name,
        is_up=node.state not in _DOWN_STATES and not node.flags & _DOWN_FLAGS,
        is_usable=node.usable,
        cpus=node.cpus_total,
        cpus_free=node.cpus_free,
        memory_mib=node.memory_total_mib,
        memory_free_mib=node.memory_free_mib if node.usable else 0,
        gpus=pool.total if pool else 0,
        gpus_free=pool.free if pool else 0,
        gpu_type=kind.gpu if kind else (pool and (canonical_gpu(pool.type or "") or pool.type)) or None,
        gpu_spelling=pool.type if pool else None,
        gpu_memory_mib=kind.gpu_memory_mib if kind else _memory_of(pool),
        is_idle=node.usable and node.state == "idle" and node.cpus_free == node.cpus_total,
    )


def _memory_of(pool: GpuPool | None) -> int | None:
    known = read_gpu(pool.type) if pool and pool.type else None
    return known.memory_mib if known else None


def _gpu_kind(pool: GpuPool | None, kinds: _Kinds) -> NodeType | None:
    """Return the node type with this GPU; None where no type, or more than one, could be meant."""
    if pool is None:
        return None
    if pool.type is None:
        return _only_with(pool.total, kinds.own) or _only_with(pool.total, kinds.every)
    return _spelled(pool.type, kinds.own) or _spelled(pool.type, kinds.every)


def _only_with(gpus: int, kinds: tuple[NodeType, ...]) -> NodeType | None:
    """Return the type with so many GPUs a node, unless several with different GPUs have."""
    same = [kind for kind in kinds if kind.gpus == gpus]
    return same[0] if len({kind.gpu for kind in same}) == 1 else None


def _spelled(spelling: str, kinds: tuple[NodeType, ...]) -> NodeType | None:
    """Return the type whose GPU is spelled so, else the first that means the same GPU."""
    word = canonical_gpu(spelling)
    exact = (kind for kind in kinds if spelling in (kind.gpu_spelling, kind.gpu))
    alike = (kind for kind in kinds if word is not None and kind.gpu == word)
    return next(exact, None) or next(alike, None)


def _declared_nodes(profile: ProfileDocument, name: str) -> tuple[NodeView, ...]:
    """Return the profile's nodes, none of them known to be free: enough to say what could never run here."""
    views = []
    for group in profile.partitions[name].nodes if name in profile.partitions else ():
        kind = profile.node_types[group.type]
        views += [
            NodeView(
                name=f"{group.type}-{number}",
                is_up=True,
                is_usable=False,
                cpus=kind.cpus,
                cpus_free=0,
                memory_mib=kind.memory_mib,
                memory_free_mib=0,
                gpus=kind.gpus,
                gpus_free=0,
                gpu_type=kind.gpu,
                gpu_spelling=kind.gpu_spelling or kind.gpu,
                gpu_memory_mib=kind.gpu_memory_mib,
            )
            for number in range(group.count)
        ]
    return tuple(views)


_Parts = Mapping[str, Mapping[str | None, str]]
"""Of nodes with several pools: the name each further pool is listed by, by the node and its GPUs' type."""


_Rivals = Mapping[str, Sequence[tuple[str, int]]]
"""By partition: those that its waiting jobs contend with for the same nodes, and by how many tiers theirs is
the lower one."""


def _rivals(probe: Probe, live: Mapping[str, Partition]) -> _Rivals:
    """Return where jobs of each partition contend: on exactly its nodes, in partitions of no higher tier."""
    nodes: dict[str, set[str]] = {}
    for node in probe.nodes:
        for theirs in node.partitions:
            nodes.setdefault(theirs, set()).add(node.name)
    tiers = {
        name: each.priority_tier
        for name, each in live.items()
        if each.priority_tier is not None and each.state == "up" and name in nodes
    }
    return {
        name: tuple(
            (other, tier - below)
            for other, below in tiers.items()
            if other != name and below <= tier and nodes[other] == nodes[name]
        )
        for name, tier in tiers.items()
    }


def _contending(probe: Probe, rivals: _Rivals) -> dict[str, list[PendingShare]]:
    """Return the eligible waiting jobs that each partition's own contend with, as its queue sees them."""
    found: dict[str, list[PendingShare]] = {}
    for job in probe.jobs if any(rivals.values()) else ():
        if job.state is not JobState.QUEUED or not job.is_eligible:
            continue
        seen = {other: tiers for theirs in job.partitions for other, tiers in rivals.get(theirs, ())}
        for other in seen.keys() - {*job.partitions}:
            share, tiers = _pending(job), seen[other]
            if tiers:
                share = replace(share, priority=(share.priority or 0) + tiers * TIER)
            found.setdefault(other, []).append(share)
    return found


def _queues(
    probe: Probe | None, names: Mapping[str, str], *, whole: frozenset[str], rivals: _Rivals
) -> dict[str, PartitionQueue]:
    """Return each partition's queue, by our names; entries of one scheduler partition share it."""
    if probe is None:
        return {name: PartitionQueue(is_visible=False) for name in names}
    running: dict[str, list[RunningShare]] = {theirs: [] for theirs in names.values()}
    pending: dict[str, list[PendingShare]] = {theirs: [] for theirs in names.values()}
    parts: _Parts = {
        node.name: {pool.type: _part_name(node.name, pool) for pool in _pools(node)[1:]}
        for node in probe.nodes
        if len(node.gpus) > 1
    }
    beside: dict[str, list[RunningShare]] = {theirs: [] for theirs in running}
    contending = _contending(probe, rivals)
    offered = {node.name: frozenset(node.partitions) & running.keys() for node in probe.nodes}
    for job in probe.jobs:
        for theirs in job.partitions:
            if theirs not in running:
                continue
            if job.state in HOLDING:
                running[theirs].append(_running(job, {} if theirs in whole else parts))
            elif job.state in WAITING:
                pending[theirs].append(_pending(job))
        if job.state in HOLDING:
            others = {theirs for name in job.node_names for theirs in offered.get(name, ())}
            for theirs in others.difference(job.partitions):
                beside[theirs].append(_running(job, {} if theirs in whole else parts))
    queues = {
        theirs: PartitionQueue(
            tuple(running[theirs]),
            tuple(pending[theirs]),
            is_visible=probe.jobs_visible,
            beside=tuple(beside[theirs]),
            rivals=tuple(contending.get(theirs, ())),
        )
        for theirs in running
    }
    return {name: queues[theirs] for name, theirs in names.items()}


def _groups(probe: Probe, governs: Mapping[str, str]) -> dict[str, QosJobs]:
    """Return the jobs of each QoS; `governs` tells a partition's own."""
    found: dict[str, QosJobs] = {}
    for job in probe.jobs:
        words = {job.qos, *(governs.get(theirs) for theirs in job.partitions)}
        for qos in words - {None}:
            _count_in(found.setdefault(qos or "", QosJobs()), job)
    return found


def jobs_of_account(probe: Probe, account: str) -> QosJobs:
    """Return the jobs that share the limits of an account; accounting keeps its name in lower case."""
    found = QosJobs()
    for job in probe.jobs:
        if job.account is not None and job.account.lower() == account.lower():
            _count_in(found, job)
    return found


def _count_in(jobs: QosJobs, job: QueueJob) -> None:
    if job.state in HOLDING:
        jobs.running.append(_running(job, {}))
    elif job.state is JobState.QUEUED and (job.is_eligible or job.reason.startswith(_GROUP_REASONS)):
        jobs.waiting.append(replace(_pending(job), is_eligible=True))


def _running(job: QueueJob, parts: _Parts) -> RunningShare:
    nodes, held = max(1, len(job.node_names) or job.nodes), job.node_names
    if parts and job.gpus:
        held = tuple(parts.get(name, {}).get(job.gpu_type, name) for name in held)
    return RunningShare(
        user=job.user,
        node_names=held,
        cpus_per_node=ceil(job.cpus / nodes),
        memory_per_node_mib=ceil((job.memory_mib or 0) / nodes),
        gpus_per_node=ceil(job.gpus / nodes),
        start_at=job.start_at,
        walltime_s=job.walltime_s,
    )


def _pending(job: QueueJob) -> PendingShare:
    return PendingShare(
        user=job.user,
        nodes=max(1, job.nodes),
        cpus=job.cpus,
        memory_mib=job.memory_mib or 0,
        gpus=job.gpus,
        gpu_type=canonical_gpu(job.gpu_type) or job.gpu_type if job.gpu_type else None,
        walltime_s=job.walltime_s,
        priority=job.priority,
        submit_at=job.submit_at,
        is_eligible=job.is_eligible and job.state is JobState.QUEUED,
        count=job.array_pending,
        at_once=job.array_throttle or None,
        capped=None if job.is_eligible else cap_of(job.reason),
        job_id=job.job_id,
    )


def _maintenance(profile: ProfileDocument, probe: Probe | None, name: str) -> tuple[Maintenance, ...]:
    announced = [
        Maintenance(window.start_at, window.end_at, frozenset(), window.reason or "announced maintenance")
        for window in profile.maintenance
        if not window.partitions or name in window.partitions
    ]
    reserved = [
        Maintenance(found.start_at, found.end_at, frozenset(found.node_names), found.name)
        for found in (probe.reservations if probe else ())
        if found.is_maintenance
    ]
    return tuple(sorted((*announced, *reserved), key=lambda window: (window.start_at, window.name)))
