"""Jobs of this host: what is asked for, and what a look at one says."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from providers.dialects.body import absolute, body_lines, checked_key, explain_exit
from providers.dialects.machine.answers import OPEN, Job
from providers.errors import InvalidInput
from providers.types import JobRequest, JobState, Observation, QueueJob

PARTITION: Final = "local"
"""The one partition a host has."""

_SIGNAL = re.compile(r"(?P<leader>B:)?(?:SIG)?(?P<signal>[A-Z][A-Z0-9]*|\d{1,2})(?:@(?P<before_s>\d{1,5}))?")
_BEFORE_S: Final = 60
_STATES: Final[Mapping[str, JobState]] = {
    "queued": JobState.QUEUED,
    "running": JobState.RUNNING,
    "completed": JobState.COMPLETED,
    "failed": JobState.FAILED,
    "timeout": JobState.TIMEOUT,
    "cancelled": JobState.CANCELLED,
    "oom": JobState.OUT_OF_MEMORY,
    "launch_failed": JobState.FAILED,
    "rebooted": JobState.NODE_FAIL,
    "stopped": JobState.NODE_FAIL,
    "unwatched": JobState.NODE_FAIL,
}
_SENTENCES: Final[Mapping[str, str]] = {
    "timeout": "The job used up its wall time and was stopped.",
    "cancelled": "The job was cancelled.",
    "oom": "The kernel killed a process for want of memory; the output may be incomplete.",
    "rebooted": "The host restarted while the job ran.",
    "stopped": "The job's supervisor was told to end, as when the host shuts down; the job was stopped.",
    "unwatched": "The job is over, but its supervisor had been killed: how it ended is not known.",
}
_OWN_CODE: Final = frozenset({"completed", "failed", "oom"})
"""Ends of which the exit code is the program's own doing."""


def render_script(job: JobRequest) -> str:
    """Return the script as bash runs it.

    Raises:
        InvalidInput: a field cannot be rendered safely.
    """
    return "\n".join(["#!/bin/bash", *body_lines(job)]) + "\n"


def wanted(job: JobRequest) -> dict[str, Any]:
    """Return what the queue keeps of a job.

    Raises:
        InvalidInput: it asks for what a host without a scheduler does not have.
    """
    _check(job)
    return {
        "name": job.name,
        "cpus": job.cpus,
        "gpus": job.gpus,
        "gpu_type": job.gpu_type if job.gpus else None,
        "memory_mib": job.memory_mib if job.memory_spelling != "none" else None,
        "exclusive": job.exclusive,
        "walltime_s": job.walltime_s,
        "warning": _warning(job.signal),
        "workdir": absolute(job.workdir, field="workdir"),
        "stdout": absolute(job.stdout_path, field="stdout_path"),
        "stderr": absolute(job.stderr_path, field="stderr_path"),
    }


def _check(job: JobRequest) -> None:
    checked_key(job.submit_key)
    for field, value in (
        ("qos", job.qos),
        ("reservation", job.reservation),
        ("constraint", job.constraint),
        ("extra_directives", job.extra_directives),
    ):
        if value:
            raise InvalidInput(f"a host without a scheduler knows no {field}", field=field)
    if job.partition not in (None, PARTITION):
        raise InvalidInput(f"this host has the partition {PARTITION!r} alone", field="partition")
    if job.nodes != 1:
        raise InvalidInput("this host is one node", field="nodes", given=job.nodes)
    for field, number, least in (
        ("cpus", job.cpus, 1),
        ("gpus", job.gpus, 0),
        ("memory_mib", job.memory_mib or 0, 0),
        ("walltime_s", job.walltime_s, 1),
    ):
        if number < least:
            raise InvalidInput(f"{field} must be at least {least}", field=field, given=number)


def _warning(spelled: str | None) -> dict[str, Any] | None:
    """Return which signal comes how long before the end, and whether to the batch shell alone.

    Source: sbatch(1) --signal; 60 seconds where no time is named.
    """
    if spelled is None:
        return None
    match = _SIGNAL.fullmatch(spelled)
    if match is None:
        raise InvalidInput(f"not a signal before the end: {spelled[:100]!r}", field="signal")
    before_s = int(match["before_s"]) if match["before_s"] else _BEFORE_S
    return {"signal": match["signal"], "before_s": before_s, "leader_only": match["leader"] is not None}


def read_observation(job: Job, *, host: str, now: datetime) -> Observation:
    """Return one look at one job."""
    start, end = _instant(job.start_at), _instant(job.end_at)
    return Observation(
        job_id=str(job.number),
        submit_key=job.key,
        source="queue" if job.state in OPEN else "accounting",
        state=_STATES[job.state],
        state_raw=job.state.upper(),
        reason_raw=job.error or "",
        reason_explained=_explain(job),
        exit_code=job.exit_code if job.state in _OWN_CODE else None,
        exit_signal=job.signal if job.state in _OWN_CODE else None,
        submit_at=_instant(job.submit_at),
        eligible_at=_instant(job.submit_at),
        start_at=start,
        end_at=end,
        elapsed_s=None if start is None else max(0, round(((end or now) - start).total_seconds())),
        walltime_s=job.walltime_s,
        node_names=(host,) if start is not None and host else (),
        partition=PARTITION,
        cpus=job.cpus,
        gpus=job.gpus,
        nodes=1,
    )


def read_queue_job(job: Job, *, host: str) -> QueueJob:
    """Return one open job as the queue shows it."""
    is_running = job.state == "running"
    return QueueJob(
        job_id=str(job.number),
        state=_STATES[job.state],
        state_raw=job.state.upper(),
        user=job.user,
        partitions=(PARTITION,),
        reason="" if is_running else _explain(job),
        cpus=job.cpus,
        memory_mib=job.memory_mib,
        gpus=job.gpus,
        gpu_type=job.gpu_type,
        walltime_s=job.walltime_s,
        submit_at=_instant(job.submit_at),
        start_at=_instant(job.start_at),
        node_names=(host,) if is_running else (),
        name=job.name,
        comment=f"facet:{job.key}",
    )


def _explain(job: Job) -> str:
    if job.state == "queued":
        return f"It waits for its turn; open jobs before it: {job.before}."
    if job.state == "launch_failed":
        return f"The job could not be started: {job.error or 'no reason was given'}."
    if job.state == "failed":
        if job.signal is not None:
            return f"The program was ended by signal {job.signal}."
        return explain_exit(job.exit_code)
    return _SENTENCES.get(job.state, "")


def _instant(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, tz=UTC)
