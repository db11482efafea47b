"""What to do about an attempt that ended: decisions only, each with its reason. Pure."""

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from math import ceil

from orchestrator.lifecycle import AttemptState, Cause

_BACK_OFF_S = (0, 30, 120, 300, 900)
"""Seconds before the 2nd, 3rd … attempt: the first retry is free, then the site is given time."""

_ELSEWHERE = frozenset({Cause.DISPATCH_REJECTED, Cause.LAUNCH_FAILED, Cause.NODE_FAILURE})
"""Causes that lie with the place: the next attempt prefers another one."""


_RESUMED = frozenset({Cause.TIMEOUT, Cause.PREEMPTED, Cause.NODE_FAILURE})
"""Causes after which a checkpoint is there and worth going on from; more wall time is not needed then."""

_MEMORY_GROWS = Fraction(3, 2)
"""What the next attempt asks of what was too little, within the envelope: as triage suggests."""
_PLACES_FAULT = frozenset({Cause.LAUNCH_FAILED, Cause.NODE_FAILURE, Cause.LOST})
_OWN_DOING = frozenset({Cause.EXIT_CODE, Cause.TIMEOUT, Cause.OUT_OF_MEMORY})


def speaks_for_the_site(state: AttemptState, cause: Cause | None) -> bool | None:
    """Return whether an ended attempt shows that its site starts work and keeps it alive.

    False: the site failed it. None: it says nothing (cancelled, refused, preempted for others' sake).
    """
    if state is AttemptState.SUCCEEDED or cause in _OWN_DOING:
        return True
    return False if cause in _PLACES_FAULT else None


class Act(StrEnum):
    """What becomes of the task."""

    SUCCEED = "succeed"
    FAIL = "fail"
    CANCEL = "cancel"
    RETRY = "retry"
    REPLACE = "replace"


@dataclass(frozen=True, slots=True)
class Ended:
    """An accepted attempt that reached an end, and what the task allows."""

    state: AttemptState
    cause: Cause | None
    attempts_made: int
    max_attempts: int
    retry_on: frozenset[Cause]
    extend_walltime_factor: float
    walltime_s: int
    cancel_requested: bool
    replan_requested: bool
    is_retryable: bool = True
    """False: the site refused for a reason that will not pass there."""
    saves_itself: bool = False
    """The work writes checkpoints and had started."""
    memory_mib: int | None = None
    """What it was granted; None = the site's own default."""
    memory_most_mib: int | None = None
    """What its envelope allows at most; None = it does not say."""


@dataclass(frozen=True, slots=True)
class Adaptation:
    """The act, why, and for a retry how it differs."""

    act: Act
    reason: str
    delay_s: int = 0
    walltime_s: int | None = None
    """Wall time of the next attempt, where it changes."""
    memory_mib: int | None = None
    """Least memory of the next attempt, where it changes."""
    avoid_place: bool = False
    """Keep the next attempt off the same system × partition × account."""
    never_there_again: bool = False
    """The site refused for a reason that will not pass."""
    resumes: bool = False
    """Go on from the checkpoint, at the system that holds it."""


def adapt(ended: Ended) -> Adaptation:
    """Return what to do next."""
    if ended.state is AttemptState.SUCCEEDED:
        return Adaptation(Act.SUCCEED, "The job completed with exit code 0.")
    if ended.cancel_requested:
        return Adaptation(Act.CANCEL, "Cancelled as asked.")
    if ended.state is AttemptState.SUPERSEDED or ended.replan_requested:
        return Adaptation(Act.REPLACE, "The attempt gave way to another placement.")
    cause = ended.cause or Cause.LOST
    final = Act.CANCEL if ended.state is AttemptState.CANCELLED else Act.FAIL
    if cause not in ended.retry_on:
        return Adaptation(
            final, f"{_SENTENCE[cause]} Not retried: {cause} is not among the causes to retry on."
        )
    if ended.attempts_made >= ended.max_attempts:
        return Adaptation(final, f"{_SENTENCE[cause]} All {ended.max_attempts} attempts are used up.")
    resumes = ended.saves_itself and cause in _RESUMED
    grows = cause is Cause.TIMEOUT and not resumes
    walltime_s = ceil(ended.walltime_s * ended.extend_walltime_factor) if grows else None
    memory_mib = _more_memory(ended) if cause is Cause.OUT_OF_MEMORY else None
    how = " from its checkpoint" if resumes else f" with {walltime_s} s of wall time" if grows else ""
    step = min(ended.attempts_made - 1, len(_BACK_OFF_S) - 1)
    return Adaptation(
        Act.RETRY,
        f"{_SENTENCE[cause]} Attempt {ended.attempts_made + 1} of {ended.max_attempts} follows"
        + (how or (f" with {memory_mib} MiB of memory" if memory_mib else ""))
        + ".",
        delay_s=_BACK_OFF_S[step],
        walltime_s=walltime_s,
        memory_mib=memory_mib,
        avoid_place=cause in _ELSEWHERE and not resumes,
        resumes=resumes,
        never_there_again=cause is Cause.DISPATCH_REJECTED and not ended.is_retryable,
    )


def _more_memory(ended: Ended) -> int | None:
    """Return more memory than was too little; None where the envelope allows no more, or says nothing."""
    had, most = ended.memory_mib, ended.memory_most_mib
    return None if had is None or most is None or had >= most else min(most, ceil(had * _MEMORY_GROWS))


_SENTENCE = {
    Cause.EXIT_CODE: "The work ended with an error.",
    Cause.TIMEOUT: "The job ran out of wall time.",
    Cause.OUT_OF_MEMORY: "The job ran out of memory.",
    Cause.NODE_FAILURE: "A node failed under the job.",
    Cause.PREEMPTED: "The job was preempted.",
    Cause.LAUNCH_FAILED: "The job could not be launched.",
    Cause.CANCELLED_BY_USER: "The job was cancelled by its owner.",
    Cause.CANCELLED_BY_SITE: "The job was cancelled at the site.",
    Cause.DEADLINE: "The deadline passed.",
    Cause.DISPATCH_REJECTED: "The scheduler refused the job.",
    Cause.LOST: "The job vanished from the scheduler.",
}
