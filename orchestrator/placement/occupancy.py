"""From what a snapshot shows to timelines: nodes freed by running jobs, closed by maintenance.

What is taken on a node but belongs to no visible job is freed at the partition's longest wall time. A node
that is up but cannot take work now, with nothing running on it, is expected back soon.
"""

from collections.abc import Callable, Iterable
from datetime import datetime

from federation.types import NodeView, ResourceRecord, RunningShare
from orchestrator.placement.capacity import PLENTY_MIB, NodeKind, kind_key
from orchestrator.placement.timeline import FOREVER, Need, NodeCounts, NodeSteps, NodeTimelines

PAST_END_S = 30
"""A job past its limit, or past its expected end, ends this many seconds from now."""
RETURN_S = 600
"""A node that is up but not usable, with nothing running on it, is back after this."""
UNSEEN_S = 86_400
"""Unseen work ends after this where the partition has no wall-time cap."""

EndOf = Callable[[RunningShare], int]
_Release = tuple[int, int, int, int]
"""Time, CPUs, memory, GPUs given back."""


def memory_of(memory_mib: int | None) -> int:
    """Return memory as the plan counts it: plenty where it is not known."""
    return PLENTY_MIB if memory_mib is None else memory_mib


def counts_suffice(record: ResourceRecord, kinds: tuple[NodeKind, ...]) -> bool:
    """Return whether counting nodes is enough: whole nodes, all alike, and maintenance of all or none."""
    return record.is_exclusive and len(kinds) == 1 and not any(w.node_names for w in record.maintenance)


def build_nodes(
    record: ResourceRecord,
    kinds: tuple[NodeKind, ...],
    *,
    now: datetime,
    running: Iterable[RunningShare],
    ends: Iterable[EndOf],
) -> list[NodeTimelines]:
    """Return the partition node by node, the busiest first so that gaps are filled before idle nodes.

    One picture for each way of telling when a running job ends.
    """
    index_of = {(k.cpus, k.memory_mib, k.gpus, k.gpu_type, k.gpu_memory_mib): k.index for k in kinds}
    up = sorted(
        ((index_of[kind_key(node)], node) for node in record.nodes if node.is_up),
        key=lambda each: (each[0], each[1].gpus_free, each[1].cpus_free, each[1].name),
    )
    unseen_s = record.max_walltime_s or UNSEEN_S
    steps_of = _whole_steps if record.is_exclusive else _shared_steps
    jobs = tuple(running)
    pictures = []
    for end_of in ends:
        releases = _releases(jobs, end_of)
        nodes = [
            NodeSteps(index, steps_of(node, releases.get(node.name, []), unseen_s)) for index, node in up
        ]
        if record.maintenance:
            for (_, node), timeline in zip(up, nodes, strict=True):
                for start_s, end_s in _closures(record, node.name, now):
                    timeline.close(start_s, end_s)
        pictures.append(NodeTimelines(nodes, is_exclusive=record.is_exclusive))
    return pictures


def build_counts(
    record: ResourceRecord,
    kinds: tuple[NodeKind, ...],
    *,
    now: datetime,
    running: Iterable[RunningShare],
    ends: Iterable[EndOf],
) -> list[NodeCounts]:
    """Return the partition as a number of free nodes over time; one picture for each way jobs end."""
    jobs = tuple(running)
    return [_count(record, kinds[0], now=now, releases=_releases(jobs, end_of)) for end_of in ends]


def _count(
    record: ResourceRecord, kind: NodeKind, *, now: datetime, releases: dict[str, list[_Release]]
) -> NodeCounts:
    unseen_s = record.max_walltime_s or UNSEEN_S
    frees: dict[int, int] = {0: 0}
    for node in record.nodes:
        if node.is_up:
            free_s = _whole_steps(node, releases.get(node.name, []), unseen_s)[-1][0]
            frees[free_s] = frees.get(free_s, 0) + 1
    count, steps = 0, []
    for time_s in sorted(frees):
        count += frees[time_s]
        steps.append((time_s, count))
    whole = Need(1, kind.cpus, kind.memory_mib, kind.gpus, frozenset({kind.index}))
    counts = NodeCounts(whole, steps)
    for start_s, end_s in _closures(record, "", now):
        counts.close(start_s, end_s)
    return counts


def _releases(running: Iterable[RunningShare], end_of: EndOf) -> dict[str, list[_Release]]:
    found: dict[str, list[_Release]] = {}
    for share in running:
        released = (end_of(share), share.cpus_per_node, share.memory_per_node_mib, share.gpus_per_node)
        for name in share.node_names:
            found.setdefault(name, []).append(released)
    return found


def _shared_steps(node: NodeView, releases: list[_Release], unseen_s: int) -> list[tuple[int, int, int, int]]:
    """Return a shared node's free resources: what is free, then what each job gives back, at last all."""
    all_cpus, all_memory_mib, all_gpus = node.cpus, memory_of(node.memory_mib), node.gpus
    cpus, memory_mib, gpus = 0, 0, 0
    if node.is_usable:
        cpus, memory_mib, gpus = node.cpus_free, memory_of(node.memory_free_mib), node.gpus_free
    returns = [(0, 0, 0, 0), *sorted(releases)] if len(releases) > 1 else [(0, 0, 0, 0), *releases]
    steps: list[tuple[int, int, int, int]] = []
    # No job runs without memory: where the site does not tell whose it is, the last to end gives all back.
    is_untold, last_end_s = any(not release[2] for release in releases), returns[-1][0]
    for end_s, cpus_back, memory_back_mib, gpus_back in returns:
        cpus, memory_mib, gpus = cpus + cpus_back, memory_mib + memory_back_mib, gpus + gpus_back
        if is_untold and end_s == last_end_s:
            memory_mib = all_memory_mib
        at_s = max(end_s, 1) if steps else 0
        if steps and at_s == steps[-1][0]:
            steps.pop()
        steps.append(
            (
                at_s,
                max(0, min(cpus, all_cpus)),
                max(0, min(memory_mib, all_memory_mib)),
                max(0, min(gpus, all_gpus)),
            )
        )
    if cpus < all_cpus or memory_mib < all_memory_mib or gpus < all_gpus:
        back_s = RETURN_S if not releases and not node.is_usable else unseen_s
        steps.append((max(back_s, steps[-1][0] + 1), all_cpus, all_memory_mib, all_gpus))
    return steps


def _whole_steps(node: NodeView, releases: list[_Release], unseen_s: int) -> list[tuple[int, int, int, int]]:
    """Return a whole node's steps: nothing until its last job ends, then all."""
    whole = (node.cpus, memory_of(node.memory_mib), node.gpus)
    if releases:
        free_s = max(1, *(release[0] for release in releases))
    elif not node.is_usable:
        free_s = RETURN_S
    elif node.is_idle or (node.cpus_free >= node.cpus and node.gpus_free >= node.gpus):
        return [(0, *whole)]
    else:
        free_s = unseen_s
    return [(0, 0, 0, 0), (free_s, *whole)]


def _closures(record: ResourceRecord, name: str, now: datetime) -> list[tuple[int, int]]:
    """Return the windows in which a node is closed, seconds from now; one without an end lasts for ever."""
    windows = []
    for window in record.maintenance:
        if window.node_names and name not in window.node_names:
            continue
        start_s = max(0, int((window.start_at - now).total_seconds()))
        end_s = FOREVER if window.end_at is None else int((window.end_at - now).total_seconds()) + 1
        if end_s > start_s:
            windows.append((start_s, end_s))
    return windows
