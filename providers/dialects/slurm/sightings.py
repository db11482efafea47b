"""Which rows are ours, and what the rows of one job say together.

Ids are recycled, so the submit key decides: it is the job's name and stands in its comment. Only where a row
shows no key at all (renamed by hand) do the id and the time of submission decide.
A requeued job has several accounting rows under one id: the newest speaks, the older ones count as restarts.
Array tasks and components of heterogeneous jobs are folded into one observation.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar

from providers.dialects.slurm.rows import (
    AccountingRow,
    QueueRow,
    Row,
    end_time,
    is_for_id,
    submit_time,
)
from providers.dialects.slurm.words import TERMINAL
from providers.errors import UnparsableOutput
from providers.types import JobRef, JobState, Observation

_R = TypeVar("_R", QueueRow, AccountingRow)
_COMMENT = re.compile(r"facet:([A-Za-z0-9_.-]+)")
_SLACK: Final = timedelta(minutes=15)
"""How far the site's clock may be from ours before a submission counts as another one's."""
_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)
_NOT_YET: Final = datetime.max.replace(tzinfo=UTC)
_SUPERSEDED: Final = frozenset({"REQUEUED", "RESIZING"})
"""Accounting's words for an allocation that the same job went on from."""

_LEADING: Final[tuple[JobState, ...]] = (
    JobState.RUNNING,
    JobState.STARTING,
    JobState.SUSPENDED,
    JobState.COMPLETING,
    JobState.QUEUED,
    JobState.HELD,
    JobState.UNKNOWN,
    JobState.NODE_FAIL,
    JobState.PREEMPTED,
    JobState.OUT_OF_MEMORY,
    JobState.TIMEOUT,
    JobState.FAILED,
    JobState.CANCELLED,
    JobState.COMPLETED,
)
"""Of several parts the first state here is the state of the whole."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """What one program that answered shows of one job; `seen` None = nothing."""

    seen: Observation | None
    in_doubt: bool = False
    """There is a row under the id that may or may not be ours."""


def find_queue(rows: Sequence[QueueRow], ref: JobRef) -> Sighting:
    """Return what squeue's records show of the job."""
    ours, in_doubt = _ours(rows, ref)
    if not ours:
        return Sighting(None, in_doubt)
    return Sighting(_fold([_observe(row) for row in ours], ref))


def find_accounting(rows: Sequence[AccountingRow], ref: JobRef) -> Sighting:
    """Return what sacct's records show of the job: the newest attempt of each part."""
    ours, in_doubt = _ours(rows, ref)
    if not ours:
        return Sighting(None, in_doubt)
    attempts: dict[str, list[AccountingRow]] = {}
    for row in ours:
        attempts.setdefault(row.job_id, []).append(row)
    parts: list[Observation] = []
    for rows_of_part in attempts.values():
        newest = max(enumerate(rows_of_part), key=_age_of)[1]
        restarts = sum(row is not newest and row.state != "RESIZING" for row in rows_of_part)
        parts.append(_observe(newest).model_copy(update={"restarts": restarts}))
    return Sighting(_fold(parts, ref))


def _age_of(numbered: tuple[int, AccountingRow]) -> tuple[datetime, datetime, bool, int]:
    """Return what orders the rows of one job, the newest last.

    A requeue counts as a submission, and may fall into the second of the one before: then the row that ended
    last, or has not ended, is the newer. A row that says REQUEUED or RESIZING is never the last word of
    two. sacct promises no order of such rows.
    """
    number, row = numbered
    return (submit_time(row) or _LONG_AGO, end_time(row) or _NOT_YET, row.state not in _SUPERSEDED, number)


def belongs(row: Row, ref: JobRef) -> bool | None:
    """Whether the row is the job of the ref; None when that cannot be told."""
    stated = _COMMENT.fullmatch(row.comment.strip())
    if ref.submit_key in {row.name, stated[1] if stated else None}:
        return True
    if stated or ref.job_id is None or not is_for_id(row, ref.job_id):
        return False
    submitted = submit_time(row)
    if ref.submitted_at is None or submitted is None:
        return None
    if submitted < ref.submitted_at - _SLACK:
        return False
    return True if submitted <= ref.submitted_at + _SLACK else None


def _ours(rows: Iterable[_R], ref: JobRef) -> tuple[list[_R], bool]:
    ours: list[_R] = []
    in_doubt = False
    for row in rows:
        verdict = belongs(row, ref)
        if verdict:
            ours.append(row)
        in_doubt = in_doubt or verdict is None
    if ref.job_id is not None and any(is_for_id(row, ref.job_id) for row in ours):
        ours = [row for row in ours if is_for_id(row, ref.job_id)]
    return ours, in_doubt


def _observe(row: Row) -> Observation:
    """Return the row's observation; one that cannot be read is an explicit UNKNOWN, never a guess."""
    try:
        return row.observe()
    except UnparsableOutput as cause:
        return Observation(
            job_id=row.job_id,
            source="queue" if isinstance(row, QueueRow) else "accounting",
            state=JobState.UNKNOWN,
            state_raw=row.state,
            reason_raw=row.reason,
            reason_explained=f"The scheduler's answer on this job is not understood: {cause.message}",
        )


def _fold(parts: Sequence[Observation], ref: JobRef) -> Observation:
    """Return the parts of one job as one; of several jobs with the key, the one that still lives."""
    by_job: dict[str, list[Observation]] = {}
    for part in parts:
        by_job.setdefault(_base_id(part.job_id), []).append(part)
    jobs = [_fold_parts(base, some) for base, some in by_job.items()]
    chosen = min(jobs, key=lambda job: (job.state in TERMINAL, -_number(job.job_id)))
    return chosen.model_copy(
        update={"submit_key": ref.submit_key, "job_id": ref.job_id or _base_id(chosen.job_id)}
    )


def _fold_parts(base: str, parts: Sequence[Observation]) -> Observation:
    if len(parts) == 1 and "_[" not in parts[0].job_id:
        return parts[0]
    lead = min(parts, key=lambda part: _LEADING.index(part.state))
    is_over = all(part.state in TERMINAL for part in parts)
    update: dict[str, object] = {
        "job_id": base,
        "node_names": tuple(dict.fromkeys(name for part in parts for name in part.node_names)),
        "start_at": min((part.start_at for part in parts if part.start_at), default=None),
        "end_at": max((part.end_at for part in parts if part.end_at), default=None) if is_over else None,
        "restarts": max(part.restarts for part in parts),
    }
    if any("+" in part.job_id for part in parts):  # components run together: their sizes add up
        for field in ("nodes", "cpus", "gpus", "billing"):
            known = [getattr(part, field) for part in parts]
            update[field] = None if None in known else sum(known)
    return lead.model_copy(update=update)


def _base_id(job_id: str) -> str:
    return re.split(r"[_+]", job_id, maxsplit=1)[0]


def _number(job_id: str) -> int:
    base = _base_id(job_id)
    return int(base) if base.isdigit() else 0
