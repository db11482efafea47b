"""What Slurm's words for a job's state mean.

Slurm prints one word in text (long in `squeue %T` and `sacct`, two letters in `squeue %t`), a base state
with flags in JSON, and endings such as `CANCELLED by 123`. A word that is not listed here is UNKNOWN:
never running, never completed.

Source: Slurm's "Job State Codes" page and squeue(1), sacct(1) of 20.11 to 25.11.
"""

import re
from collections.abc import Sequence
from typing import Final

from providers.types import JobState

_LONG: Final[dict[str, JobState]] = {
    "BOOT_FAIL": JobState.NODE_FAIL,
    "CANCELLED": JobState.CANCELLED,
    "COMPLETED": JobState.COMPLETED,
    "COMPLETING": JobState.COMPLETING,
    "CONFIGURING": JobState.STARTING,
    "DEADLINE": JobState.TIMEOUT,
    "FAILED": JobState.FAILED,
    "LAUNCH_FAILED": JobState.NODE_FAIL,
    "NODE_FAIL": JobState.NODE_FAIL,
    "OUT_OF_MEMORY": JobState.OUT_OF_MEMORY,
    "PENDING": JobState.QUEUED,
    "POWER_UP_NODE": JobState.STARTING,
    "PREEMPTED": JobState.PREEMPTED,
    "RECONFIG_FAIL": JobState.NODE_FAIL,
    "REQUEUED": JobState.QUEUED,
    "REQUEUE_FED": JobState.QUEUED,
    "REQUEUE_HOLD": JobState.HELD,
    "RESIZING": JobState.RUNNING,
    "RESV_DEL_HOLD": JobState.HELD,
    "REVOKED": JobState.UNKNOWN,  # the sibling in the federation runs elsewhere: no failure, no end of ours
    "RUNNING": JobState.RUNNING,
    "SIGNALING": JobState.RUNNING,
    "SPECIAL_EXIT": JobState.HELD,
    "STAGE_OUT": JobState.COMPLETING,
    "STOPPED": JobState.SUSPENDED,
    "SUSPENDED": JobState.SUSPENDED,
    "TIMEOUT": JobState.TIMEOUT,
}

COMPACT: Final[dict[str, str]] = {
    "BF": "BOOT_FAIL",
    "CA": "CANCELLED",
    "CD": "COMPLETED",
    "CF": "CONFIGURING",
    "CG": "COMPLETING",
    "DL": "DEADLINE",
    "EX": "EXPEDITING",
    "F": "FAILED",
    "LF": "LAUNCH_FAILED",
    "NF": "NODE_FAIL",
    "OOM": "OUT_OF_MEMORY",
    "PD": "PENDING",
    "PR": "PREEMPTED",
    "PU": "POWER_UP_NODE",
    "R": "RUNNING",
    "RC": "RECONFIG_FAIL",
    "RD": "RESV_DEL_HOLD",
    "RF": "REQUEUE_FED",
    "RH": "REQUEUE_HOLD",
    "RQ": "REQUEUED",
    "RS": "RESIZING",
    "RV": "REVOKED",
    "S": "SUSPENDED",
    "SE": "SPECIAL_EXIT",
    "SI": "SIGNALING",
    "SO": "STAGE_OUT",
    "ST": "STOPPED",
    "TO": "TIMEOUT",
}

TERMINAL: Final[frozenset[JobState]] = frozenset(
    {
        JobState.CANCELLED,
        JobState.COMPLETED,
        JobState.FAILED,
        JobState.NODE_FAIL,
        JobState.OUT_OF_MEMORY,
        JobState.PREEMPTED,
        JobState.TIMEOUT,
    }
)

REQUEUEABLE: Final[frozenset[JobState]] = frozenset({JobState.NODE_FAIL, JobState.PREEMPTED})
"""Ends after which Slurm itself may queue the same id again: not final while that can happen."""

_BASES: Final[frozenset[str]] = frozenset(
    {
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PENDING",
        "PREEMPTED",
        "RUNNING",
        "SUSPENDED",
        "TIMEOUT",
    }
)
_SILENT_FLAGS: Final[frozenset[str]] = frozenset({"EXPEDITING", "UPDATE_DB"})
"""Flags that say nothing of their own about progress: the base state decides."""

_CANCELLED_BY = re.compile(r"CANCELLED by (\d+)")


def read_state(word: str | Sequence[str], *, reason: str = "") -> JobState:
    """Return the canonical state for what Slurm printed.

    Args:
        word: One word (`RUNNING`, `PD`, `CANCELLED by 20002`, `OUT_OF_ME+`) or JSON's list of base and flags.
        reason: The pending reason, which alone tells a held job from a waiting one.

    Returns:
        UNKNOWN for any word that is not in Slurm's documentation.
    """
    words = [word] if isinstance(word, str) else list(word)
    known = [_long_word(each) for each in words]
    if not known or any(each is None for each in known):
        return JobState.UNKNOWN
    state = _combine([each for each in known if each is not None])
    if state is JobState.QUEUED and is_held_reason(reason):
        return JobState.HELD
    return state


def cancelled_by(word: str) -> int | None:
    """Return the uid in `CANCELLED by 20002`; None when the word names nobody."""
    match = _CANCELLED_BY.fullmatch(word.strip())
    return int(match[1]) if match else None


def is_held_reason(reason: str) -> bool:
    """Whether a pending job with this reason waits for somebody to release it."""
    return reason in {
        "JobHeldAdmin",
        "JobHeldUser",
        "JobHoldMaxRequeue",
        "ReservationDeleted",
    } or reason.endswith(("requeued held", "requeued in held state"))


def _long_word(word: str) -> str | None:
    text = word.strip()
    if _CANCELLED_BY.fullmatch(text):
        return "CANCELLED"
    if text.endswith("+"):  # sacct cuts its columns without -P
        meant = {each for each in _LONG if each.startswith(text[:-1])}
        return meant.pop() if len(meant) == 1 and len(text) > 5 else None
    text = COMPACT.get(text, text)
    return text if text in _LONG or text in _SILENT_FLAGS else None


def _combine(words: list[str]) -> JobState:
    bases = [each for each in words if each in _BASES]
    flags = [each for each in words if each not in _BASES and each not in _SILENT_FLAGS]
    if len(bases) > 1 or not (bases or flags):
        return JobState.UNKNOWN
    states = {_LONG[each] for each in flags}
    for state in (JobState.UNKNOWN, JobState.HELD, JobState.NODE_FAIL):
        if state in states:
            return state
    if bases == ["PENDING"]:  # whatever is still being cleaned up, this attempt waits
        return JobState.QUEUED
    for state in (JobState.QUEUED, JobState.COMPLETING, JobState.SUSPENDED, JobState.STARTING):
        if state in states:
            return state
    return _LONG[bases[0]] if bases else states.pop()
