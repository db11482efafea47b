"""When would a request of ours start? One user's questions to the outlook of a partition.

Own jobs, limits on running ones, and choices made since the snapshot are the user's own; everything else is
the outlook's (outlook.py). An outlook is made for the instant its snapshot was taken and asked later. What
it frees since then is not counted on before `PAST_END_S` from now, because nobody has seen it free.
"""

from dataclasses import dataclass, field
from datetime import datetime

from federation.types import ResourceRecord, UserLimits
from orchestrator.placement.capacity import Layout, NodeKind
from orchestrator.placement.model import PlacementModel
from orchestrator.placement.occupancy import PAST_END_S
from orchestrator.placement.outlook import Outlook, ends_of
from orchestrator.placement.shared_caps import SharedCap, caps_of
from orchestrator.placement.timeline import Need


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
    """What one user's requests can expect of an outlook, `late_s` after the instant it was made for.

    Running limits and own jobs are the user's; what is reserved stays in this plan.
    """

    outlook: Outlook
    limits: UserLimits
    own_ends: list[OwnEnd]
    """Own jobs seen running, then own choices made meanwhile; seconds from the outlook's `at`."""
    own_seen: int
    late_s: int = 0
    reserved: int = 0
    """Commitments already taken from this plan."""
    caps: list[SharedCap] = field(default_factory=list)
    """Limits shared with others."""
    _forked: bool = False
    _answers: dict[tuple[int, ...], tuple[tuple[NodeKind, ...], Forecast]] = field(default_factory=dict)

    def forecast(self, layout: Layout) -> Forecast:
        """Return when a layout would start, seconds from now."""
        key = (layout.nodes, layout.gpus, layout.cpus, layout.memory_per_node_mib, layout.walltime_s)
        known = self._answers.get(key)
        if known is not None and known[0] == layout.kinds:
            return known[1]
        answer = self._ask(layout, need_of(layout))
        self._answers[key] = (layout.kinds, answer)
        return answer

    def _ask(self, layout: Layout, need: Need) -> Forecast:
        outlook = self.outlook
        slots = outlook.slots(need)
        if not outlook.is_visible:
            return Forecast(None, None, somebody_ahead=False, fits_now=slots > 0, free_slots=slots)
        after = self._after(layout, need)
        in_limits, in_means = outlook.starts(need, layout.walltime_s, after=after)
        return Forecast(
            limits_s=None if in_limits is None else in_limits - self.late_s,
            means_s=None if in_means is None else in_means - self.late_s,
            somebody_ahead=outlook.ahead > 0,
            fits_now=slots > 0,
            free_slots=slots,
        )

    def reserve(self, layout: Layout, runtime_s: int, *, is_own: bool = True) -> None:
        """Put a choice into the plan: it holds nodes from its planned start, an own one running slots too."""
        if not self._forked:
            self.outlook, self._forked = self.outlook.fork(), True
        need = need_of(layout)
        after = self._after(layout, need)
        end = self.outlook.reserve(need, limit_s=layout.walltime_s, run_s=runtime_s, after=after)
        for cap in self.caps:
            cap.take(layout, run_s=runtime_s, after=after)
        if is_own and end is not None:
            self.own_ends.append(OwnEnd(*end, layout.gpus))
        self._answers.clear()

    def _after(self, layout: Layout, need: Need) -> tuple[int, int]:
        """Return the first instants at which one more of ours may start, in the outlook's seconds.

        Not before now, not before the limits on running jobs and GPUs admit it, our own and those shared with
        others, and a little later on what was not seen free.
        """
        earliest = self.late_s + (0 if self.outlook.slots(need) else PAST_END_S)
        own = self._after_own(layout, earliest)
        for cap in self.caps:
            own = cap.first(layout, after=own)
        return own

    def _after_own(self, layout: Layout, earliest: int) -> tuple[int, int]:
        """Return the first instants at which the limits on our own running jobs and GPUs admit one more."""
        limits = self.limits
        if limits.max_running_jobs is None and limits.max_gpus_per_user is None:
            return earliest, earliest
        held = [*self.own_ends, *self._unseen(layout)]
        waits = []
        for ends in (sorted((e.limits_s, e.gpus) for e in held), sorted((e.means_s, e.gpus) for e in held)):
            after = earliest
            most = None if limits.max_running_jobs is None else max(limits.max_running_jobs, 1)
            if most is not None and len(ends) >= most:
                after = max(after, ends[len(ends) - most][0])
            if limits.max_gpus_per_user is not None:
                after = max(after, _gpus_free_at(ends, limits.max_gpus_per_user - layout.gpus))
            waits.append(after)
        return waits[0], waits[1]

    def _unseen(self, layout: Layout) -> list[OwnEnd]:
        """Return own jobs that only the limits know of, taken to last half our wall time still."""
        limits, half_s = self.limits, self.late_s + layout.walltime_s // 2
        jobs = max(0, limits.running_jobs - self.own_seen)
        gpus = max(0, limits.gpus_in_use - sum(end.gpus for end in self.own_ends[: self.own_seen]))
        if gpus and not jobs:
            jobs = 1
        return [OwnEnd(half_s, half_s, gpus if index == 0 else 0) for index in range(jobs)]


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


def plan_on(
    outlook: Outlook, record: ResourceRecord, *, now: datetime, model: PlacementModel
) -> PartitionPlan:
    """Return one user's plan on an outlook of the record's partition."""
    own = [share for share in record.queue.running if record.user is not None and share.user == record.user]
    if not record.queue.is_visible:
        own = []
    whole, learned = ends_of(record, outlook.at, model)
    return PartitionPlan(
        outlook=outlook,
        limits=record.limits,
        own_ends=[
            OwnEnd(whole(share), learned(share), share.gpus_per_node * len(share.node_names)) for share in own
        ],
        own_seen=len(own),
        caps=caps_of(record, at=outlook.at, model=model) if record.queue.is_visible else [],
        late_s=max(0, int((now - outlook.at).total_seconds())),
    )
