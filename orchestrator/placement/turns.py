"""Turns of jobs that a limit of their own user holds back: each may start as that user's running jobs end.

Such a job is not ahead of us now: the scheduler reserves nothing for it, and ours may start before its turn
whatever comes then. Once its turn has come it takes what is free before us, where its priority is higher. The
limit itself is not told for others; what the user holds while it binds stands for it.

A user may also throttle an array: so many of its tasks run together, and the next begins when one ends.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush

from federation.held_back import Cap
from federation.types import PendingShare, RunningShare
from orchestrator.placement.timeline import Need, NodeCounts, Timeline

_NOTHING = Need(nodes=0, cpus=0, memory_mib=0, gpus=0)

_HOLDS: Mapping[Cap, Callable[[RunningShare], int]] = {
    "jobs": lambda _: 1,
    "gpus": lambda share: share.gpus_per_node * len(share.node_names),
    "cpus": lambda share: share.cpus_per_node * len(share.node_names),
    "nodes": lambda share: len(share.node_names),
}
_ASKS: Mapping[Cap, Callable[[PendingShare], int]] = {
    "jobs": lambda _: 1,
    "gpus": lambda job: job.gpus,
    "cpus": lambda job: job.cpus,
    "nodes": lambda job: job.nodes,
}


@dataclass(frozen=True, slots=True)
class HeldBack:
    """Both pictures of a partition with those jobs at their turns; they count from the first turn on."""

    limits: Timeline
    means: Timeline
    first: tuple[int | None, int | None]
    """The first turn in each picture, None = none comes."""

    def later(
        self, need: Need, lasts_s: int, starts: tuple[int | None, int | None]
    ) -> tuple[int | None, int | None]:
        """Return the starts of ours, each put off where turns come before it."""
        found = list(starts)
        for index, picture in enumerate((self.limits, self.means)):
            start_s, turn_s = starts[index], self.first[index]
            if start_s is not None and turn_s is not None and start_s >= turn_s:
                found[index] = picture.earliest(need, lasts_s, after_s=start_s)
        return found[0], found[1]

    def fork(self) -> "HeldBack":
        """Return a copy that can be reserved without changing this one."""
        return HeldBack(self.limits.fork(), self.means.fork(), self.first)


class Lanes:
    """One picture of the tasks of throttled arrays: of one array, no more than it admits run together.

    Its tasks that run already are not told from other jobs; they are taken to be none.
    """

    def __init__(self) -> None:
        """Start with no task planned."""
        self._ends: dict[int, list[int]] = {}

    def reserve(self, picture: Timeline, job: PendingShare, need: Need, lasts_s: int) -> None:
        """Give a job, or one more task of its array, its earliest window."""
        ends = self._ends.setdefault(id(job), [])
        is_full = job.at_once is not None and len(ends) >= job.at_once
        start_s = picture.reserve(need, lasts_s, after_s=heappop(ends) if is_full else 0)
        if job.at_once is not None and start_s is not None:
            heappush(ends, start_s + lasts_s)


class Turns:
    """One picture of a partition: when running jobs end, and what their users' limits give back then."""

    def __init__(self, running: Iterable[RunningShare], end_of: Callable[[RunningShare], int]) -> None:
        """Take the running jobs of the partition and when each ends, seconds from the outlook's instant."""
        self._running, self._end_of = tuple(running), end_of
        self._left: dict[tuple[str, Cap], NodeCounts] = {}

    def first(self, job: PendingShare, limit_s: int) -> int | None:
        """Return when its user's limit first admits a job; None where nothing tells."""
        left = self._of(job)
        return None if left is None else left.earliest(_need(job), limit_s)

    def take(self, job: PendingShare, limit_s: int, *, start_s: int) -> None:
        """Count a job in that was planned to start then."""
        left = self._of(job)
        if left is not None:
            left.reserve(_need(job), limit_s, after_s=start_s)

    def _of(self, job: PendingShare) -> NodeCounts | None:
        if job.capped is None or job.user is None:
            return None
        key = (job.user, job.capped)
        if key not in self._left:
            own = [share for share in self._running if share.user == job.user]
            holds = _HOLDS[job.capped]
            free, steps = 0, {0: 0}
            for end_s, amount in sorted((self._end_of(share), holds(share)) for share in own):
                free += amount
                steps[max(end_s, 1)] = free
            self._left[key] = NodeCounts(_NOTHING, sorted(steps.items()))
        return self._left[key]


def _need(job: PendingShare) -> Need:
    amount = _ASKS[job.capped](job) if job.capped is not None else 0
    return Need(nodes=amount, cpus=0, memory_mib=0, gpus=0)
