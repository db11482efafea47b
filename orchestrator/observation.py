"""Folding one look at a job into an attempt. Pure: what was seen is translated, never guessed."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from orchestrator.lifecycle import AttemptState, Cause
from providers.types import JobState, Observation

UNSEEN_AFTER = timedelta(seconds=60)
"""How long an attempt keeps its last state while its site does not answer."""
LOOKS_BEFORE_LOST = 4
LOST_AFTER = timedelta(seconds=45)
"""A job is lost only when the scheduler, accounting included, denied it this often and this long."""
LOOKS_BEFORE_REDISPATCH = 2
FORGOTTEN_AFTER = timedelta(minutes=15)
LOOKS_BEFORE_FORGOTTEN = 30
"""How long and how often the queue must deny a job that accounting calls alive before it counts as lost:
longer than accounting may lag after it was down itself."""

_LIVE = {
    JobState.QUEUED: AttemptState.PENDING,
    JobState.HELD: AttemptState.PENDING,
    JobState.STARTING: AttemptState.RUNNING,
    JobState.RUNNING: AttemptState.RUNNING,
    JobState.SUSPENDED: AttemptState.RUNNING,
    JobState.COMPLETING: AttemptState.RUNNING,
}
_ENDED = {
    JobState.COMPLETED: (AttemptState.SUCCEEDED, None),
    JobState.FAILED: (AttemptState.FAILED, Cause.EXIT_CODE),
    JobState.TIMEOUT: (AttemptState.FAILED, Cause.TIMEOUT),
    JobState.OUT_OF_MEMORY: (AttemptState.FAILED, Cause.OUT_OF_MEMORY),
    JobState.NODE_FAIL: (AttemptState.FAILED, Cause.NODE_FAILURE),
    JobState.PREEMPTED: (AttemptState.FAILED, Cause.PREEMPTED),
    JobState.CANCELLED: (AttemptState.CANCELLED, Cause.CANCELLED_BY_SITE),
}

_BY_WORD = {
    "DEADLINE": Cause.DEADLINE,
    "BOOT_FAIL": Cause.LAUNCH_FAILED,
    "LAUNCH_FAILED": Cause.LAUNCH_FAILED,
    "RECONFIG_FAIL": Cause.LAUNCH_FAILED,
}
"""Scheduler's own words that say more than the canonical state."""


@dataclass(frozen=True, slots=True)
class AttemptFacts:
    """What we believe of an attempt before the look."""

    state: AttemptState
    observed_at: datetime | None
    unseen_since: datetime | None
    looks_without_trace: int
    dispatch_deadline_at: datetime | None
    cancel_reason: str
    """"" when no cancel was asked for; user, superseded or deadline."""


@dataclass(frozen=True, slots=True)
class Fold:
    """What one look changes. `target` None = the state stays."""

    target: AttemptState | None = None
    cause: Cause | None = None
    changes: dict[str, Any] = field(default_factory=dict)
    """Column values to set."""
    became_unseen: bool = False
    became_seen: bool = False
    is_blind: bool = False
    """The look brought no answer about this job at all."""


def seen(facts: AttemptFacts, look: Observation, *, now: datetime) -> Fold:
    """Fold what the scheduler showed of the job."""
    if look.left_queue:
        return _left_queue(facts, look, now=now)
    target, cause = _meaning(facts, look)
    changes: dict[str, Any] = {
        "job_id": look.job_id,
        "state_raw": look.state_raw[:80],
        "reason_raw": look.reason_raw[:300],
        "reason_explained": look.reason_explained,
        "observed_at": now,
        "unseen_since": None,
        "looks_without_trace": 0,
        "restarts": look.restarts,
        "node_names": list(look.node_names),
        "expected_start_at": look.expected_start_at,
    }
    known = {
        "submitted_at": look.submit_at,
        "eligible_at": look.eligible_at,
        "started_at": look.start_at,
        "ended_at": look.end_at if target not in (AttemptState.PENDING, AttemptState.RUNNING) else None,
        "exit_code": look.exit_code,
        "exit_signal": look.exit_signal,
    }
    changes |= {name: value for name, value in known.items() if value is not None}
    if target is AttemptState.PENDING:
        changes |= {"started_at": None}  # requeued: it has not started again
    return Fold(
        target=target if target is not facts.state else None,
        cause=cause,
        changes=changes,
        became_seen=facts.unseen_since is not None,
    )


def _left_queue(facts: AttemptFacts, look: Observation, *, now: datetime) -> Fold:
    """Fold a job that left the queue without an end in accounting: late news mostly, a lost job seldom."""
    looks = facts.looks_without_trace + 1
    since = _unseen_since(facts, now=now)
    changes: dict[str, Any] = {
        "job_id": look.job_id,
        "state_raw": look.state_raw[:80],
        "looks_without_trace": looks,
        "unseen_since": since,
    }
    if looks >= LOOKS_BEFORE_FORGOTTEN and now - since >= FORGOTTEN_AFTER:
        if facts.cancel_reason:
            target, cause = _as_asked(facts)
            return Fold(target=target, cause=cause, changes=changes)
        changes["reason_explained"] = (
            f"The scheduler has forgotten the job; its accounting still calls it {look.state_raw}."
        )
        return Fold(target=AttemptState.FAILED, cause=Cause.LOST, changes=changes)
    if facts.state is AttemptState.UNKNOWN or now - _last_seen(facts, since, now=now) < UNSEEN_AFTER:
        return Fold(changes=changes)
    changes["reason_explained"] = (
        f"The job has left the queue, while accounting still calls it {look.state_raw}."
    )
    return Fold(target=AttemptState.UNKNOWN, changes=changes, became_unseen=True)


def _unseen_since(facts: AttemptFacts, *, now: datetime) -> datetime:
    """Return since when there was no trace; what a clock that was ahead noted counts from now on."""
    return min(facts.unseen_since or now, now)


def _last_seen(facts: AttemptFacts, since: datetime, *, now: datetime) -> datetime:
    """Return the last instant at which the job was seen, as far as a clock that was ahead did not note it."""
    return since if facts.observed_at is None or facts.observed_at > now else facts.observed_at


def _meaning(facts: AttemptFacts, look: Observation) -> tuple[AttemptState, Cause | None]:
    if look.state in _LIVE:
        return _LIVE[look.state], None
    if look.state not in _ENDED:
        return AttemptState.UNKNOWN, None
    word = look.state_raw.upper().split(" ")[0]
    if word in _BY_WORD:
        return AttemptState.FAILED, _BY_WORD[word]
    target, cause = _ENDED[look.state]
    return _as_asked(facts) if target is AttemptState.CANCELLED and facts.cancel_reason else (target, cause)


def _as_asked(facts: AttemptFacts) -> tuple[AttemptState, Cause | None]:
    """Return how an attempt ends whose cancel we asked for."""
    if facts.cancel_reason == "superseded":
        return AttemptState.SUPERSEDED, None
    by_deadline = facts.cancel_reason == "deadline"
    return AttemptState.CANCELLED, Cause.DEADLINE if by_deadline else Cause.CANCELLED_BY_USER


def absent(facts: AttemptFacts, *, now: datetime) -> Fold:
    """Fold the scheduler's clear answer that it knows no such job."""
    looks = facts.looks_without_trace + 1
    since = _unseen_since(facts, now=now)
    changes: dict[str, Any] = {"looks_without_trace": looks, "unseen_since": since}
    if facts.state is AttemptState.DISPATCHING:
        return _absent_while_dispatching(facts, looks, changes, now=now)
    if looks >= LOOKS_BEFORE_LOST and now - since >= LOST_AFTER:
        if facts.cancel_reason:
            target, cause = _as_asked(facts)
            return Fold(target=target, cause=cause, changes=changes)
        changes["reason_explained"] = "The scheduler and its accounting know no job with our key any more."
        return Fold(target=AttemptState.FAILED, cause=Cause.LOST, changes=changes)
    if looks >= 2 and facts.state is not AttemptState.UNKNOWN:
        return Fold(target=AttemptState.UNKNOWN, changes=changes, became_unseen=True)
    return Fold(changes=changes)


def _absent_while_dispatching(
    facts: AttemptFacts, looks: int, changes: dict[str, Any], *, now: datetime
) -> Fold:
    """No submit command of ours can be alive after the deadline, so absence then means it was never made."""
    over = facts.dispatch_deadline_at is not None and now > facts.dispatch_deadline_at
    if not over:
        return Fold(changes={"looks_without_trace": 0})
    if looks < LOOKS_BEFORE_REDISPATCH:
        return Fold(changes=changes)
    if facts.cancel_reason:
        target, cause = _as_asked(facts)
        return Fold(target=target, cause=cause, changes=changes)
    return Fold(
        target=AttemptState.PLANNED,
        changes={"looks_without_trace": 0, "unseen_since": None, "dispatch_started_at": None},
    )


def unseen(facts: AttemptFacts, reason: str, *, now: datetime) -> Fold:
    """Fold a look that brought no answer: after a while the attempt is unknown, and nothing worse."""
    since = _unseen_since(facts, now=now)
    changes: dict[str, Any] = {"unseen_since": since}
    last = _last_seen(facts, since, now=now)
    if facts.state in (AttemptState.UNKNOWN, AttemptState.DISPATCHING) or now - last < UNSEEN_AFTER:
        return Fold(changes=changes, is_blind=True)
    changes["reason_explained"] = f"Cannot be seen now: {reason}"
    return Fold(target=AttemptState.UNKNOWN, changes=changes, became_unseen=True, is_blind=True)
