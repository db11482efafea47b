"""Limits that many users share (GrpTRES and GrpJobs of a QoS): one number over time, planned like nodes.

What the group's running jobs hold is given back when they end; its waiting jobs before ours take what is free
in the order of their priority, whether or not the scheduler shows them as held by this very limit.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from federation.types import GroupLimit, PendingShare, ResourceRecord, RunningShare
from orchestrator.placement.capacity import Layout
from orchestrator.placement.model import PlacementModel
from orchestrator.placement.outlook import DEPTH, ends_of, jobs_ahead, limit_of, own_priority
from orchestrator.placement.timeline import Need, NodeCounts

_NOTHING = Need(nodes=0, cpus=0, memory_mib=0, gpus=0)


@dataclass(frozen=True, slots=True)
class _Unit:
    """What a limit counts, of a running job, a waiting one, and a layout of ours."""

    running: Callable[[RunningShare], int]
    waiting: Callable[[PendingShare], int]
    ours: Callable[[Layout], int]


_JOBS = _Unit(lambda _: 1, lambda _: 1, lambda _: 1)
_GPUS = _Unit(
    lambda share: share.gpus_per_node * len(share.node_names),
    lambda job: job.gpus,
    lambda layout: layout.gpus,
)
_CPUS = _Unit(
    lambda share: share.cpus_per_node * len(share.node_names),
    lambda job: job.cpus,
    lambda layout: layout.cpus,
)
_NODES = _Unit(lambda share: len(share.node_names), lambda job: job.nodes, lambda layout: layout.nodes)


@dataclass(slots=True)
class SharedCap:
    """One limit over time, seconds from the outlook's instant: by time limits, and as jobs usually run."""

    unit: _Unit
    limits: NodeCounts
    means: NodeCounts

    def first(self, layout: Layout, *, after: tuple[int, int]) -> tuple[int, int]:
        """Return when the limit first admits a layout, at or after an instant of each picture."""
        need, found = _need(self.unit.ours(layout)), []
        for counts, after_s in ((self.limits, after[0]), (self.means, after[1])):
            start_s = counts.earliest(need, layout.walltime_s, after_s=after_s)
            found.append(after_s if start_s is None else start_s)
        return found[0], found[1]

    def take(self, layout: Layout, *, run_s: int, after: tuple[int, int]) -> None:
        """Count a choice of ours in."""
        need = _need(self.unit.ours(layout))
        self.limits.reserve(need, layout.walltime_s, after_s=after[0])
        self.means.reserve(need, max(1, min(run_s, layout.walltime_s)), after_s=after[1])


def caps_of(record: ResourceRecord, *, at: datetime, model: PlacementModel) -> list[SharedCap]:
    """Return every limit that this record's jobs share with others, planned up to our turn."""
    found = []
    for group in record.groups:
        caps = (
            (group.max_jobs, _JOBS),
            (group.max_gpus, _GPUS),
            (group.max_cpus, _CPUS),
            (group.max_nodes, _NODES),
        )
        found += [
            _cap(record, group, most, unit, at=at, model=model) for most, unit in caps if most is not None
        ]
    return found


def _cap(
    record: ResourceRecord,
    group: GroupLimit,
    most: int,
    unit: _Unit,
    *,
    at: datetime,
    model: PlacementModel,
) -> SharedCap:
    pictures = []
    for end_of in ends_of(record, at, model):
        held = sum(unit.running(share) for share in group.running)
        steps = {0: most - held}
        free = most - held
        for end_s, amount in sorted((end_of(share), unit.running(share)) for share in group.running):
            free += amount
            steps[max(end_s, 1)] = free
        pictures.append(
            NodeCounts(_NOTHING, sorted((time_s, max(0, left)) for time_s, left in steps.items()))
        )
    limits, means = pictures
    ahead, _ = jobs_ahead(group.waiting, own_priority(record, now=at), DEPTH)
    for job in ahead:
        need, limit_s = _need(unit.waiting(job)), limit_of(job.walltime_s, record)
        used = model.limit_use.expected(record.system, record.partition, job.user, 0.0)
        limits.reserve(need, limit_s)
        means.reserve(need, max(1, int(limit_s * used)))
    return SharedCap(unit, limits, means)


def _need(amount: int) -> Need:
    return Need(nodes=amount, cpus=0, memory_mib=0, gpus=0)
