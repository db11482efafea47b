"""The forward plan of one partition: when would a request of ours start, given everything that is visible?

Running jobs free their nodes when they end; eligible waiting jobs are given the earliest window in priority
order (conservative reservations); ours comes last among equals. The plan is made twice: once as if every
job used its whole time limit, once with the share of its limit such a job used before.

Plans are memoized per snapshot in a `PlanCache` (see cache.py).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from statistics import median_low

from federation.types import NodeView, PendingShare, ResourceRecord, RunningShare
from orchestrator.placement.capacity import Layout, NodeKind, kind_key, node_kinds
from orchestrator.placement.model import PlacementModel
from orchestrator.placement.occupancy import (
    PAST_END_S,
    build_counts,
    build_nodes,
    counts_suffice,
    memory_of,
)
from orchestrator.placement.timeline import Need, Timeline

DEPTH = 300
"""Waiting jobs that are planned one by one."""
UNLIMITED_S = 30 * 86_400
"""Taken for a job without any time limit."""
GRAIN_S = 60
"""Learned runtimes are rounded up to this, so that alike requests share their bounds."""
FRESH_S = 3600
"""A waiting job younger than this tells what priority a fresh job gets."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """When a request would start, seconds from now; None = it never fits what is left."""

    limits_s: int | None
    means_s: int | None
    somebody_ahead: bool
    fits_now: bool
    free_slots: int
    """How many requests of this size the free resources hold now."""


@dataclass(frozen=True, slots=True)
class OwnEnd:
    """One own job that holds a running slot until `limits_s` / `means_s`."""

    limits_s: int
    means_s: int
    gpus: int


@dataclass(slots=True)
class PartitionPlan:
    """The plan of one partition for one priority; asked per shape, answers remembered until a reservation."""

    record: ResourceRecord
    kinds: tuple[NodeKind, ...]
    limits: Timeline
    means: Timeline
    ahead: int
    """Eligible waiting jobs before ours, array tasks one by one."""
    own_ends: list[OwnEnd]
    """Own jobs seen running, then own choices of this session of planning."""
    own_seen: int
    free_by_kind: dict[tuple[int, int, int, int], int]
    """How many usable nodes have exactly (kind, cpus, memory, GPUs) free."""
    reserved: int = 0
    """Commitments already taken from this plan."""
    _answers: dict[tuple[Need, int], Forecast] = field(default_factory=dict)

    def forecast(self, layout: Layout) -> Forecast:
        """Return when a layout would start."""
        need = need_of(layout)
        key = (need, layout.walltime_s)
        answer = self._answers.get(key)
        if answer is None:
            answer = self._answers[key] = self._ask(layout, need)
        return answer

    def _ask(self, layout: Layout, need: Need) -> Forecast:
        slots = self._slots(need)
        if not self.record.queue.is_visible:
            return Forecast(None, None, somebody_ahead=False, fits_now=slots > 0, free_slots=slots)
        after_limits, after_means = self._after(layout)
        return Forecast(
            limits_s=self.limits.earliest(need, layout.walltime_s, after_s=after_limits),
            means_s=self.means.earliest(need, layout.walltime_s, after_s=after_means),
            somebody_ahead=self.ahead > 0,
            fits_now=slots > 0,
            free_slots=slots,
        )

    def reserve(self, layout: Layout, runtime_s: int, *, is_own: bool = True) -> None:
        """Put a choice into the plan: it holds nodes from its planned start, an own one also running slots."""
        need, (after_limits, after_means) = need_of(layout), self._after(layout)
        in_limits = self.limits.reserve(need, layout.walltime_s, after_s=after_limits)
        in_means = self.means.reserve(need, max(1, min(runtime_s, layout.walltime_s)), after_s=after_means)
        if is_own and in_limits is not None and in_means is not None:
            ends = OwnEnd(in_limits + layout.walltime_s, in_means + runtime_s, layout.gpus)
            self.own_ends.append(ends)
        self._answers.clear()

    def _after(self, layout: Layout) -> tuple[int, int]:
        """Return the first instants at which the limits on running jobs and GPUs admit one more of ours."""
        limits = self.record.limits
        held = [*self.own_ends, *self._unseen(layout)]
        waits = []
        for ends in (sorted((e.limits_s, e.gpus) for e in held), sorted((e.means_s, e.gpus) for e in held)):
            after = 0
            if limits.max_running_jobs is not None and len(ends) >= limits.max_running_jobs:
                surplus = len(ends) - max(limits.max_running_jobs, 1)
                after = ends[surplus][0]
            if limits.max_gpus_per_user is not None:
                after = max(after, _gpus_free_at(ends, limits.max_gpus_per_user - layout.gpus))
            waits.append(after)
        return waits[0], waits[1]

    def _unseen(self, layout: Layout) -> list[OwnEnd]:
        """Return own jobs that only the limits know of, taken to last half our wall time still."""
        limits, half_s = self.record.limits, layout.walltime_s // 2
        jobs = max(0, limits.running_jobs - self.own_seen)
        gpus = max(0, limits.gpus_in_use - sum(end.gpus for end in self.own_ends[: self.own_seen]))
        if gpus and not jobs:
            jobs = 1
        return [OwnEnd(half_s, half_s, gpus if index == 0 else 0) for index in range(jobs)]

    def _slots(self, need: Need) -> int:
        per_node = 0
        for (kind, cpus, memory_mib, gpus), count in self.free_by_kind.items():
            if need.kinds is not None and kind not in need.kinds:
                continue
            each = cpus // max(need.cpus, 1)
            if need.gpus:
                each = min(each, gpus // need.gpus)
            if need.memory_mib:
                each = min(each, memory_mib // need.memory_mib)
            alone = need.nodes > 1 or self.record.is_exclusive
            per_node += count * (min(each, 1) if alone else each)
        return per_node // need.nodes


def need_of(layout: Layout) -> Need:
    """Return what a layout asks of each node; whole nodes are asked whole by the exclusive plan itself."""
    return Need(
        nodes=layout.nodes,
        cpus=layout.cpus_per_node,
        memory_mib=layout.memory_per_node_mib,
        gpus=layout.gpus_per_node,
        kinds=layout.kind_indices,
    )


def _gpus_free_at(ends: list[tuple[int, int]], room: int) -> int:
    """Return when the GPUs held by own jobs have fallen to `room`; ends by growing time."""
    held = sum(gpus for _, gpus in ends)
    for end_s, gpus in ends:
        if held <= room:
            break
        held -= gpus
        if held <= room:
            return end_s
    return 0


def build_plan(record: ResourceRecord, *, now: datetime, model: PlacementModel) -> PartitionPlan:
    """Return the plan of a record's partition at the priority a fresh job of ours would get."""
    kinds = node_kinds(record.nodes)
    queue = record.queue if record.queue.is_visible else type(record.queue)()

    def used(user: str | None, elapsed_frac: float) -> float:
        return model.limit_fraction(record.system, record.partition, user, elapsed_frac)

    whole = _EndOf(now, record, lambda _user, _elapsed: 1.0)
    learned = _EndOf(now, record, used)
    counts_only = counts_suffice(record, kinds)
    build = build_counts if counts_only else build_nodes
    limits, means = (
        build(record, kinds, now=now, running=queue.running, end_of=end_of) for end_of in (whole, learned)
    )
    jobs, ahead = jobs_ahead(queue.pending, own_priority(record, now=now), DEPTH)
    index_of = {(k.cpus, k.memory_mib, k.gpus, k.gpu_type, k.gpu_memory_mib): k.index for k in kinds}
    for job in jobs:
        need = _need_of_pending(job, kinds)
        limit_s = limit_of(job.walltime_s, record)
        limits.reserve(need, limit_s)
        mean_s = -(-int(limit_s * used(job.user, 0.0)) // GRAIN_S) * GRAIN_S
        means.reserve(need, max(GRAIN_S, mean_s))
    own = [share for share in queue.running if record.user is not None and share.user == record.user]
    return PartitionPlan(
        record=record,
        kinds=kinds,
        limits=limits,
        means=means,
        ahead=ahead,
        own_ends=[
            OwnEnd(whole(share), learned(share), share.gpus_per_node * len(share.node_names)) for share in own
        ],
        own_seen=len(own),
        free_by_kind=_free_by_kind(record.nodes, index_of, whole=record.is_exclusive),
    )


@dataclass(frozen=True, slots=True)
class _EndOf:
    """When a running job ends, seconds from now: its limit, or the share of it that such jobs use."""

    now: datetime
    record: ResourceRecord
    used_frac: Callable[[str | None, float], float]

    def __call__(self, share: RunningShare) -> int:
        limit_s = limit_of(share.walltime_s, self.record)
        elapsed_s = 0
        if share.start_at is not None:
            elapsed_s = max(0, int((self.now - share.start_at).total_seconds()))
        if elapsed_s >= limit_s:
            return PAST_END_S
        used = self.used_frac(share.user, elapsed_s / limit_s)
        return max(PAST_END_S, int(limit_s * used) - elapsed_s)


def limit_of(walltime_s: int | None, record: ResourceRecord) -> int:
    """Return a job's time limit; where it has none, or one that makes no sense, the partition's."""
    if walltime_s is not None and walltime_s > 0:
        return walltime_s
    return record.max_walltime_s or UNLIMITED_S


def own_priority(record: ResourceRecord, *, now: datetime) -> int | None:
    """Return our priority: as told, else the median of fresh waiting jobs, else of all; None = hidden."""
    if record.own_priority is not None:
        return record.own_priority
    known = [job for job in record.queue.pending if job.priority is not None]
    fresh = [
        job for job in known if job.submit_at is not None and (now - job.submit_at).total_seconds() <= FRESH_S
    ]
    priorities = [job.priority for job in fresh or known if job.priority is not None]
    return median_low(priorities) if priorities else None


def jobs_ahead(
    pending: Iterable[PendingShare], own: int | None, depth: int
) -> tuple[list[PendingShare], int]:
    """Return the eligible jobs before ours in the order they are served, at most `depth`, and their number.

    Ours is last among equals. A job of unknown priority counts as equal.
    """
    before = [
        job
        for job in pending
        if job.is_eligible and (own is None or job.priority is None or job.priority >= own)
    ]

    def order(numbered: tuple[int, PendingShare]) -> tuple[int, float, int]:
        index, job = numbered
        priority = job.priority if job.priority is not None else own or 0
        submitted = job.submit_at.timestamp() if job.submit_at is not None else float("inf")
        return -priority, submitted, index

    served: list[PendingShare] = []
    for _, job in sorted(enumerate(before), key=order):
        served.extend([job] * min(job.count, depth - len(served)))
        if len(served) >= depth:
            break
    return served, sum(max(job.count, 0) for job in before)


def _need_of_pending(job: PendingShare, kinds: tuple[NodeKind, ...]) -> Need:
    nodes = max(1, job.nodes)
    of_type = None
    if job.gpus and job.gpu_type is not None:
        of_type = frozenset(kind.index for kind in kinds if kind.gpu_type == job.gpu_type)
    return Need(
        nodes, max(1, -(-job.cpus // nodes)), -(-job.memory_mib // nodes), -(-job.gpus // nodes), of_type
    )


def _free_by_kind(
    nodes: Iterable[NodeView],
    index_of: dict[tuple[int, int, int, str | None, int | None], int],
    *,
    whole: bool,
) -> dict[tuple[int, int, int, int], int]:
    counted: dict[tuple[int, int, int, int], int] = {}
    for node in nodes:
        if node.is_usable and node.is_up and (not whole or _is_idle(node)):
            key = (index_of[kind_key(node)], node.cpus_free, memory_of(node.memory_free_mib), node.gpus_free)
            counted[key] = counted.get(key, 0) + 1
    return counted


def _is_idle(node: NodeView) -> bool:
    return node.is_idle or (node.cpus_free >= node.cpus and node.gpus_free >= node.gpus)
