"""Replies as a site would send them, made from records of any recorded format."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from providers.dialects.slurm.observe import QUEUE, build_observe
from providers.dialects.slurm.rows import ACCOUNTING_FORMAT, FIELD, RECORD
from providers.types import BatchReply, JobRef, Reply

DATA = Path(__file__).resolve().parents[2] / "data" / "slurm_jobs"
COLUMNS = tuple(ACCOUNTING_FORMAT.split(","))
NOW = datetime(2026, 11, 29, 18, 0, tzinfo=UTC)
KEY = "train-llm.att01"

QUEUE_COLUMNS = (
    *("id", "raw", "state", "reason", "submit", "start", "end", "elapsed", "limit", "nodes", "cpus"),
    *("partition", "account", "node_list", "name", "comment"),
)


def at(text: str) -> datetime:
    """Return the instant of a recorded time (the recordings ran with TZ=UTC)."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def queue_record(**given: str) -> str:
    """Return one record of our squeue format."""
    defaults = {
        **dict.fromkeys(QUEUE_COLUMNS, ""),
        "raw": given.get("id", "7"),
        "state": "RUNNING",
        "reason": "None",
        "submit": "2026-11-29T17:00:00",
        "start": "N/A",
        "end": "N/A",
        "elapsed": "0:00",
        "limit": "1:00:00",
        "nodes": "1",
        "cpus": "1",
        "partition": "gpu",
        "account": "acct",
        "name": KEY,
        "comment": f"facet:{given.get('name', KEY)}",
    }
    return FIELD.join({**defaults, **given}[column] for column in QUEUE_COLUMNS) + RECORD + "\n"


def accounting_record(**given: str) -> str:
    """Return one record of our sacct format."""
    defaults = {
        **dict.fromkeys(COLUMNS, ""),
        "JobIDRaw": given.get("JobID", "7"),
        "State": "COMPLETED",
        "ExitCode": "0:0",
        "Submit": "2026-11-29T17:00:00",
        "Eligible": "2026-11-29T17:00:00",
        "Start": "2026-11-29T17:01:00",
        "End": "2026-11-29T17:02:00",
        "ElapsedRaw": "60",
        "TimelimitRaw": "60",
        "NNodes": "1",
        "Reason": "None",
        "JobName": KEY,
        "Cluster": "delta",
    }
    return FIELD.join({**defaults, **given}[column] for column in COLUMNS) + "\n"


def recorded_accounting(name: str) -> list[dict[str, str]]:
    """Return the rows of a recorded `sacct -P` table; a name with pipes is put together again."""
    header, *lines = (DATA / name).read_text().splitlines()
    columns = header.split("|")
    rows: list[dict[str, str]] = []
    for line in lines:
        fields = line.split("|")
        spare = len(fields) - len(columns)
        if spare:
            place = columns.index("JobName")
            fields[place : place + spare + 1] = ["|".join(fields[place : place + spare + 1])]
        rows.append(dict(zip(columns, fields, strict=True)))
    return rows


def as_accounting(row: Mapping[str, str]) -> str:
    """Return a recorded row in our format; columns that the recording lacks stay empty."""
    given = {column: row[column] for column in COLUMNS if column in row}
    if "TimelimitRaw" not in row and "Timelimit" in row:
        given["TimelimitRaw"] = row["Timelimit"]
    absent = {
        column: "" for column in COLUMNS if column not in given and column not in {"JobIDRaw", "Cluster"}
    }
    return accounting_record(**{**absent, **given})


def answer(name: str, stdout: str = "", *, rc: int | None = 0, stderr: str = "", **more: bool) -> Reply:
    """Return one program's reply."""
    return Reply(name=name, rc=rc, stdout=stdout, stderr=stderr, **more)


def both(
    refs: Sequence[JobRef],
    *,
    queue: str | Reply = "",
    accounting: str | Reply = "",
    site_time: datetime | None = None,
) -> BatchReply:
    """Return the reply to `build_observe(refs)`, every sacct of it answering alike."""
    replies = {QUEUE: queue if isinstance(queue, Reply) else answer(QUEUE, queue)}
    for operation in build_observe(refs, since=NOW, now=NOW).operations[2:]:
        replies[operation.name] = (
            accounting.model_copy(update={"name": operation.name})
            if isinstance(accounting, Reply)
            else answer(operation.name, accounting)
        )
    return BatchReply(replies=replies, site_time=site_time)


def ref(job_id: str | None = None, *, key: str = KEY, at: str | None = "2026-11-29T17:00:00") -> JobRef:
    """Return how we know a job."""
    submitted = datetime.fromisoformat(at).replace(tzinfo=UTC) if at else None
    return JobRef(submit_key=key, job_id=job_id, submitted_at=submitted)
