"""What a look at a move means: go on, end, or give up. Pure functions of (facts, what was seen, now)."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from orchestrator.lifecycle import TransferState
from providers.movers.types import Fault, MoveState, Progress

GIVE_UP_AFTER = timedelta(minutes=5)
"""How long a fault that no further try gets over is borne with."""
GRACE = timedelta(minutes=2)
"""After the deadline, before we end a move that its service did not end."""
MOST_LOOKS_WITHOUT_TRACE = 5
_LASTING = frozenset({Fault.MISSING, Fault.DENIED, Fault.QUOTA, Fault.CHECKSUM})
_ENDS: Mapping[MoveState, TransferState] = {
    MoveState.SUCCEEDED: TransferState.SUCCEEDED,
    MoveState.FAILED: TransferState.FAILED,
    MoveState.CANCELLED: TransferState.CANCELLED,
}
_FIRST_LOOKS_S, _SLOWEST_LOOK_S = 1.0, 30.0


@dataclass(frozen=True, slots=True)
class MoveFacts:
    """What is known of a transfer before a look."""

    started_at: datetime
    deadline_at: datetime | None = None
    fault: str = ""
    fault_since: datetime | None = None
    tries: int = 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a look means. `target` None: it goes on; `gives_up`: its service must be told to end it."""

    target: TransferState | None
    reason: str
    fault: str = ""
    fault_since: datetime | None = None
    gives_up: bool = False


def judge(facts: MoveFacts, seen: Progress, *, now: datetime) -> Verdict:
    """Return what this look means."""
    fault = seen.fault.value if seen.fault else ""
    since = None if not fault else (facts.fault_since if facts.fault == fault else None) or now
    target = _ENDS.get(seen.state)
    if target is not None:
        return Verdict(target, seen.reason, fault, since)
    if facts.deadline_at is not None and now > facts.deadline_at + GRACE:
        reason = seen.reason or "the deadline passed before everything was moved"
        return Verdict(TransferState.FAILED, reason, Fault.DEADLINE.value, since, gives_up=True)
    if since is not None and seen.fault in _LASTING and now - since >= GIVE_UP_AFTER:
        return Verdict(TransferState.FAILED, seen.reason, fault, since, gives_up=True)
    return Verdict(None, seen.reason, fault, since)


def without_trace(facts: MoveFacts) -> Verdict:
    """Return what it means that the service answered and did not name the move."""
    if facts.tries + 1 >= MOST_LOOKS_WITHOUT_TRACE:
        reason = "its service does not know the move any more; whether it was done cannot be told"
        return Verdict(TransferState.FAILED, reason, Fault.OTHER.value)
    return Verdict(None, "")


def next_look_s(facts: MoveFacts, *, now: datetime) -> float:
    """Return the pause before the next look: short at first, longer the longer it takes."""
    age_s = max(0.0, (now - facts.started_at).total_seconds())
    return min(_SLOWEST_LOOK_S, _FIRST_LOOKS_S + age_s / 30)


def pause_s(tries: int) -> float:
    """Return the pause after so many requests in a row without an answer: 2, 4 … 300 s."""
    return float(min(300.0, 2.0 ** min(tries, 9)))
