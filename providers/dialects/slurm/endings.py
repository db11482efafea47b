"""How a job ended: what its exit code means, and a sentence about it.

Source: sacct(1) ExitCode and State; slurm_errno for Slurm's own pseudo signals 53 and 125.
"""

from typing import Final

from providers.dialects.body import explain_exit
from providers.dialects.slurm.units import read_exit_code
from providers.dialects.slurm.words import cancelled_by
from providers.types import JobState

_OWN_CODE: Final = frozenset({JobState.COMPLETED, JobState.FAILED, JobState.OUT_OF_MEMORY})
"""Ends in which the exit code is the program's; elsewhere Slurm prints 0:0 or 1:0 whatever it did."""

_WORDS: Final[dict[str, str]] = {
    "BOOT_FAIL": "A node could not be booted for the job.",
    "DEADLINE": "The job could not end before its deadline.",
    "LAUNCH_FAILED": "The scheduler could not launch the job on its nodes.",
    "RECONFIG_FAIL": "A node could not be reconfigured for the job.",
    "REVOKED": "A sibling of the job runs on another cluster of the federation.",
}
_STATES: Final[dict[JobState, str]] = {
    JobState.CANCELLED: "The job was cancelled.",
    JobState.NODE_FAIL: "A node of the job failed.",
    JobState.OUT_OF_MEMORY: "A process needed more memory than the job was given and was killed; "
    "the output may be incomplete.",
    JobState.PREEMPTED: "The job had to give way to one of higher priority.",
    JobState.TIMEOUT: "The job used up its wall time and was stopped.",
}


_SIGNALS: Final[dict[int, str]] = {
    53: "The job could not be launched: its output path or a file it needs is not there or not writable.",
    125: _STATES[JobState.OUT_OF_MEMORY],
}
"""Slurm's own pseudo signals."""


def read_ending(state: JobState, printed: str) -> tuple[int | None, int | None]:
    """Return (exit code, signal) of the program; None where the printed pair does not speak of it.

    Raises:
        UnparsableOutput: the pair cannot be read.
    """
    if not printed.strip():
        return None, None
    code, signal = read_exit_code(printed)
    if signal:
        return None, signal
    return (code if state in _OWN_CODE else None), None


def explain_ending(state: JobState, word: str, *, code: int | None, signal: int | None, started: bool) -> str:
    """Return a sentence on why the job ended; empty for success and for jobs that have not ended."""
    if word in _WORDS:
        return _WORDS[word]
    if state is JobState.CANCELLED:
        return _explain_cancelled(cancelled_by(word))
    if state is not JobState.FAILED:
        return _STATES.get(state, "")
    if signal is not None:
        return _SIGNALS.get(signal, f"The program was ended by signal {signal}.")
    if not started:
        return "The job failed before it could start; nothing was run."
    return explain_exit(code)


def _explain_cancelled(uid: int | None) -> str:
    if uid is None:
        return _STATES[JobState.CANCELLED]
    if uid == 0:
        return "The job was cancelled by the site (root)."
    return f"The job was cancelled by user id {uid}."
