"""One decision as a person reads it: ranked candidates, stacked times, reasons in sentences."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from portal.web.presenters.shared import SystemRef


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a candidate is out: the sentence, what would help, and the stable code."""

    sentence: str
    remedy: str
    code: str


@dataclass(frozen=True, slots=True)
class Estimates:
    """What is expected of a candidate, in seconds; None = not known."""

    wait_p50_s: int | None
    wait_p90_s: int | None
    preparation_s: int
    transfer_s: int
    runtime_s: int | None
    completion_s: int | None
    wait_kind: str = ""
    """What the wait rests on, in words: nobody ahead, somebody ahead, when others end, hidden."""


@dataclass(frozen=True, slots=True)
class TimeBar:
    """Widths in percent of the scale: wait, stage (data and environment), run, and p90 tail."""

    wait: float
    stage: float
    run: float
    tail_from: float
    tail: float
    is_cut: bool = False
    """It goes on beyond the scale."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One candidate: where, what shape, when, and why not."""

    ref: SystemRef
    partition: str
    account: str
    chosen: bool
    feasible: bool
    rank: int | None
    shape: str
    estimates: Estimates | None
    finish_at: datetime | None
    bar: TimeBar | None
    charge: str
    reasons: tuple[Reason, ...]
    note: str = ""
    """Sizing or tie-break in a sentence."""

    @property
    def stage_s(self) -> int | None:
        """Preparation of the environment and data together, in seconds."""
        return self.estimates.preparation_s + self.estimates.transfer_s if self.estimates else None


@dataclass(frozen=True, slots=True)
class Rejected:
    """Places of one system that are out for the same reasons."""

    ref: SystemRef
    places: tuple[str, ...]
    """Partitions, with the account where a partition has several."""
    reasons: tuple[tuple[str, tuple[str, ...]], ...]
    """Each reason in a sentence, with what would help at these places."""


@dataclass(frozen=True, slots=True)
class DecisionRef:
    """One decision of a task, to choose from: handle, why it was made, when."""

    handle: str
    purpose: str
    at: datetime


@dataclass(frozen=True, slots=True)
class DecisionView:
    """The whole decision. `smallest_change` speaks only when nothing is feasible."""

    handle: str
    generated_at: datetime
    objective: str
    why: str
    feasible: tuple[Candidate, ...]
    rejected: tuple[Candidate, ...]
    smallest_change: str
    data_age_s: int | None
    attempt: int | None = None
    warnings: tuple[str, ...] = ()
    """What must be known of it besides: a deadline that nothing is sure to keep, figures that were old."""

    @property
    def chosen(self) -> Candidate | None:
        """The candidate that won."""
        return next((candidate for candidate in self.feasible if candidate.chosen), None)

    @property
    def out(self) -> tuple[Rejected, ...]:
        """The rejected places, those of a system that share their reasons together."""
        same: dict[tuple[SystemRef, tuple[str, ...]], list[Candidate]] = {}
        for each in self.rejected:
            same.setdefault((each.ref, tuple(reason.code for reason in each.reasons)), []).append(each)
        return tuple(_together(ref, several) for (ref, _codes), several in same.items())

    @property
    def out_by_place(self) -> tuple[Candidate, ...]:
        """Where it cannot run, each place once: by the account that comes nearest, not where another can."""
        able = {(each.ref.slug, each.partition) for each in self.feasible}
        nearest: dict[tuple[str, str], Candidate] = {}
        for each in self.rejected:
            place = (each.ref.slug, each.partition)
            if place not in able and len(each.reasons) < len(nearest.get(place, each).reasons) + (
                place not in nearest
            ):
                nearest[place] = each
        return tuple(nearest.values())

    @property
    def rows(self) -> tuple[Candidate, ...]:
        """All candidates, the feasible first."""
        return self.feasible + self.rejected


def _together(ref: SystemRef, several: Sequence[Candidate]) -> Rejected:
    partitions = [each.partition for each in several]
    places = [
        f"{each.partition} ({each.account})" if partitions.count(each.partition) > 1 else each.partition
        for each in several
    ]
    reasons = []
    for number, reason in enumerate(several[0].reasons):
        remedies = dict.fromkeys(each.reasons[number].remedy for each in several)
        reasons.append((reason.sentence, tuple(remedy for remedy in remedies if remedy)))
    return Rejected(ref, tuple(dict.fromkeys(places)), tuple(reasons))


LONGEST = 8
"""A bar longer than the shortest this many times is cut: it would squeeze those that matter."""


def time_bars(estimates: Sequence[Estimates]) -> tuple[TimeBar, ...]:
    """Return the bars of candidates on one common scale.

    The scale ends at the latest p90 completion, but at most an eighth past the latest median: a long tail
    is cut there rather than squeezing every bar. So are bars that are many times longer than the shortest.
    """
    ends = [_end(e) for e in estimates]
    latest = min(max(ends, default=1), LONGEST * max(min(ends, default=1), 1))
    limit = latest * 9 // 8
    scale = (
        max((min(end + _spread(e), limit) for end, e in zip(ends, estimates, strict=True)), default=1) or 1
    )
    return tuple(_bar(e, scale) for e in estimates)


def _end(e: Estimates) -> int:
    return (e.wait_p50_s or 0) + e.preparation_s + e.transfer_s + (e.runtime_s or 0)


def _spread(e: Estimates) -> int:
    return max((e.wait_p90_s or 0) - (e.wait_p50_s or 0), 0)


def _bar(e: Estimates, scale: int) -> TimeBar:
    def share(seconds: int) -> float:
        return round(100 * seconds / scale, 2)

    wait = min(share(e.wait_p50_s or 0), 100)
    stage = min(share(e.preparation_s + e.transfer_s), 100 - wait)
    run = min(share(e.runtime_s or 0), 100 - wait - stage)
    end = min(share(_end(e)), 100)
    return TimeBar(
        wait=wait,
        stage=round(stage, 2),
        run=round(run, 2),
        tail_from=end,
        tail=round(min(share(_spread(e)), 100 - end), 2),
        is_cut=share(_end(e)) > 100,
    )
