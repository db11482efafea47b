"""What squeue and sacct print about jobs of ours: rows of text, and one observation from each.

Both are asked for in formats with control characters between fields and user text last: names and comments
may hold anything else, line ends included. A record that is cut makes the whole answer worthless.

Source: squeue(1) --format, sacct(1) --parsable2 --delimiter --format, 20.11 to 25.11.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias

from providers.dialects.slurm.endings import explain_ending, read_ending
from providers.dialects.slurm.gres import read_tres, tres_gpus
from providers.dialects.slurm.hostlist import expand, read_job_id
from providers.dialects.slurm.reasons import explain_reason
from providers.dialects.slurm.units import (
    finite,
    read_count,
    read_duration_s,
    read_instant,
    read_least_count,
    read_limit_s,
)
from providers.dialects.slurm.words import TERMINAL, read_state
from providers.errors import UnparsableOutput
from providers.types import JobState, Observation

FIELD: Final = "\x1f"
RECORD: Final = "\x1e"

QUEUE_FORMAT: Final = (
    FIELD.join(
        ["%i", "%A", "%T", "%r", "%V", "%S", "%e", "%M", "%l", "%D", "%C", "%P", "%a", "%N", "%j", "%k"]
    )
    + RECORD
)
ACCOUNTING_FORMAT: Final = (
    "JobID,JobIDRaw,State,ExitCode,Submit,Eligible,Start,End,ElapsedRaw,TimelimitRaw,NNodes,"
    "Partition,Account,ReqTRES,AllocTRES,NodeList,Reason,JobName,Comment,Cluster"
)
_ACCOUNTING_FIELDS: Final = len(ACCOUNTING_FORMAT.split(","))
_USER_TEXT: Final = frozenset({17, 18})
_UNKNOWN_DURATIONS: Final = frozenset({"", "INVALID", "N/A"})


@dataclass(frozen=True, slots=True)
class QueueRow:
    """One record of squeue, as printed."""

    job_id: str
    raw_id: str
    state: str
    reason: str
    submit: str
    start: str
    end: str
    elapsed: str
    limit: str
    nodes: str
    cpus: str
    partition: str
    account: str
    node_list: str
    name: str
    comment: str

    def observe(self) -> Observation:
        """Return what this record says.

        Raises:
            UnparsableOutput: a field is not understood.
        """
        state = read_state(self.state, reason=self.reason)
        is_terminal = state in TERMINAL
        waits = state in {JobState.QUEUED, JobState.HELD}
        start = read_instant(self.start)
        code = 0 if state is JobState.COMPLETED else None
        reason = "" if self.reason in {"None", "(null)"} else self.reason
        ending = explain_ending(state, self.state, code=code, signal=None, started=start is not None)
        return Observation(
            job_id=self.job_id,
            source="queue",
            state=state,
            state_raw=self.state,
            reason_raw=reason,
            reason_explained=explain_reason(reason).sentence or ending,
            exit_code=code,
            submit_at=read_instant(self.submit),
            start_at=None if waits else start,
            expected_start_at=start if waits else None,
            end_at=read_instant(self.end) if is_terminal else None,
            elapsed_s=None if self.elapsed in _UNKNOWN_DURATIONS else read_duration_s(self.elapsed),
            walltime_s=finite(read_limit_s(self.limit)),
            node_names=expand(self.node_list),
            partition=self.partition or None,
            account=_word(self.account),
            cpus=read_count(self.cpus),
            nodes=read_least_count(self.nodes),
        )


@dataclass(frozen=True, slots=True)
class AccountingRow:
    """One record of sacct (an allocation, never a step), as printed."""

    job_id: str
    raw_id: str
    state: str
    exit_code: str
    submit: str
    eligible: str
    start: str
    end: str
    elapsed: str
    limit: str
    nodes: str
    partition: str
    account: str
    asked: str
    allocated: str
    node_list: str
    reason: str
    name: str
    comment: str
    cluster: str

    def observe(self) -> Observation:
        """Return what this record says. Counts are those allocated, or asked for while nothing is.

        Raises:
            UnparsableOutput: a field is not understood.
        """
        state = read_state(self.state, reason=self.reason)
        is_terminal = state in TERMINAL
        tres = read_tres(self.allocated) or read_tres(self.asked)
        start = read_instant(self.start)
        code, signal = read_ending(state, self.exit_code) if is_terminal else (None, None)
        reason = "" if self.reason in {"None", "(null)"} else self.reason
        ending = explain_ending(state, self.state, code=code, signal=signal, started=start is not None)
        billing = read_tres(self.allocated).get("billing")
        return Observation(
            job_id=self.job_id,
            source="accounting",
            state=state,
            state_raw=self.state,
            reason_raw=reason,
            reason_explained=ending if is_terminal or ending else explain_reason(reason).sentence,
            exit_code=code,
            exit_signal=signal,
            submit_at=read_instant(self.submit),
            eligible_at=read_instant(self.eligible),
            start_at=start,
            end_at=read_instant(self.end) if is_terminal else None,
            elapsed_s=int(self.elapsed) if self.elapsed.isascii() and self.elapsed.isdigit() else None,
            walltime_s=finite(read_limit_s(self.limit)),
            node_names=expand(self.node_list),
            partition=_word(self.partition),
            account=_word(self.account),
            cpus=tres.get("cpu"),
            gpus=tres_gpus(tres)[0] if tres else None,
            nodes=tres.get("node") or (read_count(self.nodes) if self.nodes else None),
            billing=None if billing is None else float(billing),
        )


Row: TypeAlias = QueueRow | AccountingRow


def read_queue(text: str) -> tuple[QueueRow, ...]:
    """Return the records of `squeue -h -o QUEUE_FORMAT`, in order.

    Raises:
        UnparsableOutput: a record is cut or has another number of fields.
    """
    *records, rest = text.split(RECORD)
    if rest.strip():
        raise UnparsableOutput("squeue's answer is cut", command="squeue", line=rest[:200])
    rows: list[QueueRow] = []
    for record in records:
        fields = record.split(FIELD, 15)
        if len(fields) != 16 or FIELD in fields[15]:
            raise UnparsableOutput("squeue printed other columns", command="squeue", line=record[:200])
        head = fields[0].rpartition("\n")[2].strip()  # a login banner may stand before the first record
        rows.append(QueueRow(head, *(each.strip() for each in fields[1:14]), *fields[14:]))
    return tuple(rows)


def read_accounting(text: str) -> tuple[AccountingRow, ...]:
    """Return the allocations of `sacct -n -P -X --delimiter --format ACCOUNTING_FORMAT`, in order.

    Steps (`57.batch`, `57.0`) are left out should a site print them. Lines before the first record that
    hold no delimiter are a login banner.

    Raises:
        UnparsableOutput: a record is cut or has another number of fields.
    """
    rows: list[AccountingRow] = []
    pending = ""
    for line in text.split("\n"):
        if not pending and FIELD not in line:
            continue
        pending = f"{pending}\n{line}" if pending else line
        if pending.count(FIELD) < _ACCOUNTING_FIELDS - 1:
            continue  # a line end inside a name or comment
        fields = pending.split(FIELD)
        if len(fields) != _ACCOUNTING_FIELDS:
            raise UnparsableOutput("sacct printed other columns", command="sacct", line=pending[:200])
        pending = ""
        if "." not in fields[0]:
            tidy = (each if at in _USER_TEXT else each.strip() for at, each in enumerate(fields))
            rows.append(AccountingRow(*tidy))
    if pending.strip():
        raise UnparsableOutput("sacct's answer is cut", command="sacct", line=pending[:200])
    return tuple(rows)


def submit_time(row: Row) -> datetime | None:
    """Return when the row's attempt was submitted (a requeue counts as a submission); None if not shown."""
    return _instant_or_none(row.submit)


def end_time(row: AccountingRow) -> datetime | None:
    """Return when the row's attempt ended; None if it has not, or that is not shown."""
    return _instant_or_none(row.end)


def _instant_or_none(text: str) -> datetime | None:
    try:
        return read_instant(text)
    except UnparsableOutput:
        return None


def is_for_id(row: Row, job_id: str) -> bool:
    """Whether the row is the job, a task of the array or a component of the heterogeneous job `job_id`.

    `job_id` may also name one task (`4_7`) or one component (`20+1`), or a task's raw id.
    """
    if job_id in {row.job_id, row.raw_id}:
        return True
    try:
        wanted, shown = read_job_id(job_id), read_job_id(row.job_id)
    except UnparsableOutput:
        return False
    if wanted.job != shown.job:
        return False
    if wanted.task is not None:
        return shown.is_array_rest and _holds_task(row.job_id, wanted.task)
    return wanted.offset is None


def _holds_task(printed: str, task: int) -> bool:
    body = printed.partition("[")[2].rstrip("]").partition("%")[0]
    for part in body.removesuffix("...").rstrip(",").split(","):
        span, _, step = part.partition(":")
        low, _, high = span.partition("-")
        if task in range(int(low), int(high or low) + 1, int(step or 1)):
            return True
    return False


def _word(text: str) -> str | None:
    return None if text in {"", "(null)", "N/A", "Unknown"} else text
