"""The forward plan of one partition: what its queue and its running jobs leave free, and when.

Running jobs free their nodes when they end; eligible waiting jobs are given the earliest window in priority
order (conservative reservations); ours comes last among equals. The plan is made twice: once as if every
job used its whole time limit, once with the share of its limit such a job used before.

An outlook is made for one instant, the one its snapshot was taken at, and serves every later decision.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from statistics import median_low
from threading import Lock

from federation.types import NodeView, PendingShare, ResourceRecord, RunningShare
from orchestrator.placement.capacity import NodeKind, kind_key, node_kinds
from orchestrator.placement.model import PlacementModel
from orchestrator.placement.occupancy import (
    PAST_END_S,
    build_counts,
    build_nodes,
    counts_suffice,
    memory_of,
)
from orchestrator.placement.timeline import Need, Timeline
from orchestrator.placement.turns import HeldBack, Lanes, Turns

DEPTH = 300
"""Waiting jobs that are planned one by one."""
UNLIMITED_S = 30 * 86_400
"""Taken for a job without any time limit."""
GRAIN_S = 60
"""Expected runtimes are rounded up to this, so that alike requests share their bounds."""
GRAINS = 2
"""Learned ones to the nearest half of the power of two below them: every user has another share, none is
known better, and each further duration costs a plan of a thousand nodes some milliseconds."""
FRESH_S = 3600
"""A waiting job younger than this tells what priority a fresh job gets."""
MAX_STARTS = 1024
"""Answers an outlook remembers; all are forgotten when there are more."""


@dataclass(slots=True)
class Outlook:
    """The future of one partition as all jobs of one priority see it. Times are seconds from `at`.

    It never changes once it was built: a plan that reserves forks it first. Threads may ask together.
    """

    at: datetime
    kinds: tuple[NodeKind, ...]
    limits: Timeline
    means: Timeline
    ahead: int
    """Eligible waiting jobs before ours, array tasks one by one."""
    free_by_kind: dict[tuple[int, int, int, int], int]
    """How many usable nodes have exactly (kind, cpus, memory, GPUs) free."""
    is_visible: bool
    is_exclusive: bool
    held_back: HeldBack | None = None
    """What comes before us later, though not now."""
    _starts: dict[tuple[Need, int], tuple[int | None, int | None]] = field(default_factory=dict)
    _slots: dict[Need, int] = field(default_factory=dict)
    _asking: Lock = field(default_factory=Lock)
    """Asking moves remembered bounds about."""

    def starts(self, need: Need, duration_s: int, *, after: tuple[int, int]) -> tuple[int | None, int | None]:
        """Return the first starts by limits and by means at or after an instant of each."""
        key = (need, duration_s)
        first = self._starts.get(key)
        if first is None:
            with self._asking:
                first = self.limits.earliest(need, duration_s), self.means.earliest(need, duration_s)
            if len(self._starts) >= MAX_STARTS:
                self._starts = {}
            self._starts[key] = first
        in_limits, in_means = first
        # The first start of all is the first after an instant too, unless it comes before that instant.
        if in_limits is not None and in_limits < after[0]:
            with self._asking:
                in_limits = self.limits.earliest(need, duration_s, after_s=after[0])
        if in_means is not None and in_means < after[1]:
            with self._asking:
                in_means = self.means.earliest(need, duration_s, after_s=after[1])
        if self.held_back is None:
            return in_limits, in_means
        with self._asking:
            return self.held_back.later(need, duration_s, (in_limits, in_means))

    def slots(self, need: Need) -> int:
        """Return how many requests of this size the resources that were seen free hold."""
        found = self._slots.get(need)
        if found is None:
            if len(self._slots) >= MAX_STARTS:
                self._slots = {}
            found = self._slots[need] = self._count_slots(need)
        return found

    def _count_slots(self, need: Need) -> int:
        per_node = 0
        for (kind, cpus, memory_mib, gpus), count in self.free_by_kind.items():
            if need.kinds is not None and kind not in need.kinds:
                continue
            each = cpus // max(need.cpus, 1)
            if need.gpus:
                each = min(each, gpus // need.gpus)
            if need.memory_mib:
                each = min(each, memory_mib // need.memory_mib)
            alone = need.nodes > 1 or self.is_exclusive
            per_node += count * (min(each, 1) if alone else each)
        return per_node // need.nodes

    def fork(self) -> "Outlook":
        """Return a copy that may be reserved; nodes are shared until something is taken from them."""
        with self._asking:
            limits, means = self.limits.fork(), self.means.fork()
            held_back = None if self.held_back is None else self.held_back.fork()
        return Outlook(
            at=self.at,
            kinds=self.kinds,
            limits=limits,
            means=means,
            ahead=self.ahead,
            free_by_kind=self.free_by_kind,
            is_visible=self.is_visible,
            is_exclusive=self.is_exclusive,
            held_back=held_back,
        )

    def reserve(
        self, need: Need, *, limit_s: int, run_s: int, after: tuple[int, int]
    ) -> tuple[int, int] | None:
        """Take a window from both pictures and return when each ends; None when it never fits."""
        runs_s = max(1, min(run_s, limit_s))
        in_limits = self.limits.earliest(need, limit_s, after_s=after[0])
        in_means = self.means.earliest(need, runs_s, after_s=after[1])
        if self.held_back is not None:
            in_limits, _ = self.held_back.later(need, limit_s, (in_limits, None))
            _, in_means = self.held_back.later(need, runs_s, (None, in_means))
        for picture, start_s, lasts_s in self._pictures(in_limits, limit_s, in_means, runs_s):
            if start_s is not None:
                picture.reserve(need, lasts_s, after_s=start_s)
        self._starts = {}
        if in_limits is None or in_means is None:
            return None
        return in_limits + limit_s, in_means + run_s

    def _pictures(
        self, in_limits: int | None, limit_s: int, in_means: int | None, runs_s: int
    ) -> Iterator[tuple[Timeline, int | None, int]]:
        yield self.limits, in_limits, limit_s
        yield self.means, in_means, runs_s
        if self.held_back is not None:
            yield self.held_back.limits, in_limits, limit_s
            yield self.held_back.means, in_means, runs_s


def planned_at(record: ResourceRecord, *, now: datetime) -> datetime:
    """Return the instant a record's outlook is made for: that of its snapshot, and never after now."""
    return now if record.observed_at is None else min(record.observed_at, now)


def build_outlook(
    record: ResourceRecord, *, at: datetime, model: PlacementModel, kinds: tuple[NodeKind, ...] | None = None
) -> Outlook:
    """Return the future of a record's partition, seen at an instant with the user's priority.

    `kinds` are those of its nodes, where they are known already.
    """
    kinds = node_kinds(record.nodes) if kinds is None else kinds
    queue = record.queue if record.queue.is_visible else type(record.queue)()
    build = build_counts if counts_suffice(record, kinds) else build_nodes
    holding = (*queue.running, *queue.beside)
    ends = ends_of(record, at, model)
    limits, means = build(record, kinds, now=at, running=holding, ends=ends)
    own = own_priority(record, now=at)
    jobs, ahead = jobs_ahead((*queue.pending, *queue.rivals), own, DEPTH)
    lanes = Lanes(), Lanes()
    for job in jobs:
        need, (limit_s, run_s) = _need_of_pending(job, kinds), lasting(job, record, model)
        lanes[0].reserve(limits, job, need, limit_s)
        lanes[1].reserve(means, job, need, run_s)
    held_back = _held_back(record, (limits, means), kinds, own=own, ends=ends, model=model)
    limits.settle()
    means.settle()
    index_of = {(k.cpus, k.memory_mib, k.gpus, k.gpu_type, k.gpu_memory_mib): k.index for k in kinds}
    return Outlook(
        at=at,
        kinds=kinds,
        limits=limits,
        means=means,
        ahead=ahead,
        free_by_kind=_free_by_kind(record.nodes, index_of, whole=record.is_exclusive),
        is_visible=record.queue.is_visible,
        is_exclusive=record.is_exclusive,
        held_back=held_back,
    )


def lasting(job: PendingShare, record: ResourceRecord, model: PlacementModel) -> tuple[int, int]:
    """Return how long a waiting job lasts by its limit, and as such jobs usually do."""
    limit_s = limit_of(job.walltime_s, record)
    used = model.limit_use.expected(record.system, record.partition, job.user, 0.0)
    return limit_s, rounded_s(limit_s * used, is_learned=bool(model.limit_use))


def _held_back(
    record: ResourceRecord,
    pictures: tuple[Timeline, Timeline],
    kinds: tuple[NodeKind, ...],
    *,
    own: int | None,
    ends: tuple["_EndOf", "_EndOf"],
    model: PlacementModel,
) -> HeldBack | None:
    """Return the pictures with the jobs before ours that a limit of their own user holds back, if any."""
    capped = [replace(job, is_eligible=True) for job in record.queue.pending if job.capped is not None]
    jobs, _ = jobs_ahead(capped, own, DEPTH)
    if not jobs:
        return None
    later = [picture.fork() for picture in pictures]
    turns = [Turns(record.queue.running, end_of) for end_of in ends]
    first: list[int | None] = [None, None]
    for job in jobs:
        need = _need_of_pending(job, kinds)
        for index, lasts_s in enumerate(lasting(job, record, model)):
            turn_s = turns[index].first(job, lasts_s)
            if turn_s is None:
                continue
            start_s = later[index].reserve(need, lasts_s, after_s=turn_s)
            turns[index].take(job, lasts_s, start_s=turn_s if start_s is None else start_s)
            seen = first[index]
            first[index] = turn_s if seen is None else min(seen, turn_s)
    if first == [None, None]:
        return None
    for picture in later:
        picture.settle()
    return HeldBack(later[0], later[1], (first[0], first[1]))


def rounded_s(runtime_s: float, *, is_learned: bool) -> int:
    """Return an expected runtime on its grid, which grows with a learned one; never nothing."""
    if not is_learned:
        return max(1, -(-int(runtime_s) // GRAIN_S)) * GRAIN_S
    grain_s = max(GRAIN_S, (1 << int(runtime_s).bit_length()) // 2 // GRAINS)
    return max(1, round(runtime_s / grain_s)) * grain_s


def ends_of(record: ResourceRecord, at: datetime, model: PlacementModel) -> tuple["_EndOf", "_EndOf"]:
    """Return when running jobs end: by their limits, and as such jobs did before."""

    def used(user: str | None, elapsed_frac: float) -> float:
        return model.limit_use.expected(record.system, record.partition, user, elapsed_frac)

    return _EndOf(at, record, None), _EndOf(at, record, used)


@dataclass(frozen=True, slots=True)
class _EndOf:
    """When a running job ends, seconds from an instant: its limit, or the share of it that such jobs use."""

    at: datetime
    record: ResourceRecord
    used_frac: Callable[[str | None, float], float] | None
    """None: the whole limit."""

    def __call__(self, share: RunningShare) -> int:
        limit_s = limit_of(share.walltime_s, self.record)
        elapsed_s = 0
        if share.start_at is not None:
            elapsed_s = max(0, int((self.at - share.start_at).total_seconds()))
        if elapsed_s >= limit_s:
            return PAST_END_S
        if self.used_frac is None:
            return max(PAST_END_S, limit_s - elapsed_s)
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
