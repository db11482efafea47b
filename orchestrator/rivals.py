"""Two open attempts of one task: which one stays. Pure.

There are two ways to get there. *Hedged*: the task asked to wait in two queues at once. *Replaced*: a waiting
attempt went out of sight with its system, and a successor was placed elsewhere. In both, the first of the two
that is seen to start is the task's attempt, and the other is cancelled; what it cost is booked.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from federation.types import Health
from orchestrator.lifecycle import ATTEMPT_MOVES, AttemptState, is_terminal


class Rivalry(StrEnum):
    """Why an attempt may have a rival."""

    NONE = ""
    HEDGE = "hedge"
    REPLACED = "replaced"
    """It waited at a system that went out of sight; another attempt was made meanwhile."""
    SUCCESSOR = "successor"


class Verdict(StrEnum):
    """Which of two open attempts stays; the other gives way."""

    BOTH = "both"
    MINE = "mine"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two attempts as it stands now."""

    rivalry: Rivalry
    state: AttemptState
    has_started: bool
    is_accepted: bool
    """The task follows it."""


def settle(mine: Side, other: Side) -> tuple[Verdict, str]:
    """Return which attempt stays, and why, after a look at `mine`; what ended without success stays out."""
    if mine.state is AttemptState.SUCCEEDED:
        return Verdict.MINE, "it has done the work"
    if is_terminal(ATTEMPT_MOVES, mine.state):
        return Verdict.BOTH, "it is out"
    if other.has_started and (other.is_accepted or not mine.has_started):
        both = "both had started; the one that was seen to start first stays"
        return Verdict.OTHER, both if mine.has_started else "the other one has started"
    if mine.has_started:
        return Verdict.MINE, "it was the first that was seen to start"
    if mine.rivalry is Rivalry.REPLACED and not mine.is_accepted:
        return Verdict.OTHER, "it had not started before it was replaced"
    return Verdict.BOTH, ""


# --- replacing what is out of sight ------------------------------------------------------------------

OUT_OF_SIGHT_FOR = timedelta(seconds=15)
"""Of the attempt itself, beside its system's three failed probes in a row."""
_GONE = frozenset({Health.STALE, Health.OFFLINE})


@dataclass(frozen=True, slots=True)
class OutOfSight:
    """An accepted attempt whose site gave no answer."""

    health: Health
    """Of its system, by its probes."""
    is_wanted: bool
    """The task allows it: `replacement.enabled` and `replacement.on_endpoint_loss`."""
    moves_left: int
    was_waiting: bool
    """The last look showed it in the queue."""
    has_started: bool
    is_ending: bool
    """A cancel was asked for, or it has a rival already."""
    unseen_since: datetime | None
    expected_start_at: datetime | None
    """What the scheduler said at the last look."""


def keeps_waiting(lost: OutOfSight, *, now: datetime) -> str | None:
    """Return why an attempt out of sight is not replaced; None = it is, if there is room elsewhere.

    Only work that is known to have waited is replaced. That it cannot be seen is never a reason by itself.
    """
    unseen_for = None if lost.unseen_since is None else now - lost.unseen_since
    is_due = lost.expected_start_at is not None and lost.expected_start_at <= now
    claims = (
        (lost.health not in _GONE, "its system is not given up"),
        (lost.has_started or not lost.was_waiting, "it may be running"),
        (lost.is_ending, "it is being ended or replaced already"),
        (not lost.is_wanted or lost.moves_left <= 0, "the task allows no (further) replacement"),
        (unseen_for is None or unseen_for < OUT_OF_SIGHT_FOR, "it was seen a moment ago"),
        (is_due, "its scheduler expected it to have started by now"),
    )
    return next((why for holds, why in claims if holds), None)


# --- hedging ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Hedge:
    """What is known when a task that asks for a hedge was placed once."""

    first_allows: bool
    wait_p90_s: int
    """Of the first placement."""
    min_wait_s: int
    second: str | None
    """The best other system whose site allows it; None = there is none."""
    brings_inputs: bool = False
    keeps_apart: bool = False
    """Its group wants every child at a system of its own."""


def why_not_hedged(hedge: Hedge) -> str | None:
    """Return why a task is not placed at a second system; None = it is."""
    if not hedge.first_allows:
        return "the site of the first placement does not allow it"
    if hedge.wait_p90_s <= hedge.min_wait_s:
        return f"9 of 10 such jobs start within {hedge.wait_p90_s} s there, and {hedge.min_wait_s} s are fine"
    if hedge.brings_inputs:
        return "its inputs are brought to one system only"
    if hedge.keeps_apart:
        return "its group keeps every task at a system of its own"
    if hedge.second is None:
        return "no other system fits whose site allows it"
    return None
