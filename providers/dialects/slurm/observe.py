"""Look at many jobs of ours at once: the queue first, then accounting, and one verdict for each key.

The order matters: a job that leaves the queue between the two questions is then in accounting. The queue is
asked for all of our own user's jobs (`--me`, 20.02 and later), finished ones included while the controller
still remembers them; unknown ids, which make `squeue -j` fail, are never named. Accounting is asked by id
(without a window: jobs not yet eligible are outside every window) and by name where no id is known.

A ping comes before both: without a controller squeue would hang for half a minute, so it is skipped, while
accounting may still confirm ends.

Accounting has the last word on how a job ended. It lags or is down, so a job that only the controller calls
finished is COMPLETING until accounting agrees or SETTLE_S have passed, unless the site keeps no accounting. A
job that accounting calls alive and the queue does not hold is told as such: either accounting lags, or a
controller that lost its state forgot the job. A preempted or node-failed job that has left the
queue may come back under its id (requeue): nothing is said of it before SETTLE_S.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from providers.dialects.body import checked_key
from providers.dialects.slurm.ping import PING, build_ping
from providers.dialects.slurm.rows import (
    ACCOUNTING_FORMAT,
    FIELD,
    QUEUE_FORMAT,
    AccountingRow,
    QueueRow,
    read_accounting,
    read_queue,
)
from providers.dialects.slurm.sightings import Sighting, find_accounting, find_queue
from providers.dialects.slurm.words import REQUEUEABLE, TERMINAL
from providers.errors import SchedulerDown, UnparsableOutput
from providers.types import Batch, BatchReply, Exec, JobRef, JobState, Observation, Reply

QUEUE: Final = "queue"
SETTLE_S: Final = 120
"""How long accounting may lag, and a requeue may take to show."""

_IDS_PER_QUESTION: Final = 400
_NAMES_PER_QUESTION: Final = 150
_WINDOW_MARGIN: Final = timedelta(hours=2)
"""Our clock may have been set back since. The window itself is told by the site's own clock, and ends in its
future: a job that was submitted before that clock was set back is there, too."""
_WINDOW_END: Final = "now+1days"
_QUEUE_TIMEOUT_S: Final = 15.0
_ACCOUNTING_TIMEOUT_S: Final = 20.0
_ENVIRONMENT: Final[Mapping[str, str]] = {
    "LC_ALL": "C",
    "SLURM_BITSTR_LEN": "0",
    "SLURM_TIME_FORMAT": "standard",
    "TZ": "UTC",
}


@dataclass(frozen=True, slots=True)
class Question:
    """One question to accounting and the refs it is about."""

    name: str
    selection: tuple[str, ...]
    refs: tuple[JobRef, ...]


def build_observe(refs: Sequence[JobRef], *, since: datetime, now: datetime) -> Batch:
    """Return one look at the refs: a ping, one squeue, and one sacct for each few hundred of them."""
    questions = _questions(refs, back=now - since)
    return Batch(
        operations=(
            build_ping(),
            Exec(
                name=QUEUE,
                argv=("squeue", "--me", "-h", "-a", "-t", "all", "-o", QUEUE_FORMAT),
                env=_ENVIRONMENT,
                timeout_s=_QUEUE_TIMEOUT_S,
                requires=PING,
            ),
            *(
                Exec(
                    name=question.name,
                    argv=(
                        *("sacct", "-n", "-X", "-P", "-D", f"--delimiter={FIELD}"),
                        f"--format={ACCOUNTING_FORMAT}",
                        *question.selection,
                    ),
                    env=_ENVIRONMENT,
                    timeout_s=_ACCOUNTING_TIMEOUT_S,
                )
                for question in questions
            ),
        ),
        deadline_s=_QUEUE_TIMEOUT_S + _ACCOUNTING_TIMEOUT_S * max(1, len(questions)),
    )


def read_observe(
    reply: BatchReply, refs: Sequence[JobRef], *, now: datetime
) -> Mapping[str, Observation | None]:
    """Return by key what was seen; None = queue and accounting answered and know no such job.

    Raises:
        SchedulerDown: neither the queue nor accounting answered anything.
    """
    queue = _queue_rows(reply.replies.get(QUEUE))
    found: dict[str, Observation | None] = {}
    has_answer = queue is not None
    for question in _questions(refs, back=timedelta(0)):
        answer = reply.replies.get(question.name)
        rows = _accounting_rows(answer)
        has_answer = has_answer or rows is not None
        for ref in question.refs:
            verdict = judge(
                find_queue(queue, ref) if queue is not None else None,
                find_accounting(rows, ref) if rows is not None else None,
                now=reply.site_time or now,
                keeps_accounting=not _keeps_none(answer),
            )
            if verdict is not UNSAID:
                found[ref.submit_key] = verdict.seen
    if refs and not has_answer:
        raise SchedulerDown(
            "neither squeue nor sacct answered",
            said={name: _words(each) for name, each in reply.replies.items()},
        )
    return found


@dataclass(frozen=True, slots=True)
class Verdict:
    """What can be said of one key; `seen` None = the scheduler knows no such job."""

    seen: Observation | None


UNSAID: Final = Verdict(None)
"""Nothing can be said; told apart from "no such job" by identity."""


def judge(
    queue: Sighting | None, accounting: Sighting | None, *, now: datetime, keeps_accounting: bool = True
) -> Verdict:
    """Weigh what the queue and accounting show of one job; None for one that did not answer."""
    if queue is None:
        return _without_queue(accounting)
    if queue.seen is None:
        return UNSAID if queue.in_doubt else _left_queue(accounting, now=now)
    known = accounting.seen if accounting is not None else None
    if queue.seen.state not in TERMINAL:
        return Verdict(_enriched(queue.seen, known))
    if known is not None and _is_final(known):
        return Verdict(_with_reason(known, queue.seen))
    if not keeps_accounting or _is_settled(queue.seen, now=now):
        return Verdict(queue.seen)
    return Verdict(
        queue.seen.model_copy(
            update={
                "state": JobState.COMPLETING,
                "exit_code": None,
                "reason_explained": "The job has ended; its accounting record is awaited.",
            }
        )
    )


def _without_queue(accounting: Sighting | None) -> Verdict:
    """Accounting alone confirms ends, and only those that no requeue can undo."""
    seen = accounting.seen if accounting is not None else None
    if seen is None or not _is_final(seen) or seen.state in REQUEUEABLE:
        return UNSAID
    return Verdict(seen)


def _left_queue(accounting: Sighting | None, *, now: datetime) -> Verdict:
    if accounting is None or accounting.in_doubt:
        return UNSAID
    seen = accounting.seen
    if seen is None:
        return Verdict(None)
    if seen.state is JobState.UNKNOWN:
        return Verdict(seen)
    if not _is_final(seen):
        return Verdict(seen.model_copy(update={"left_queue": True}))
    if seen.state in REQUEUEABLE and not _is_settled(seen, now=now):
        return UNSAID
    return Verdict(seen)


def _is_final(known: Observation) -> bool:
    """Whether accounting has a job's end whole.

    A slurmdbd that was down gets the end in two messages: for seconds the row has a final state, exit code
    0:0 and no time of end (seen on 22.05).
    """
    return known.state in TERMINAL and known.end_at is not None


def _is_settled(seen: Observation, *, now: datetime) -> bool:
    return seen.end_at is not None and now - seen.end_at > timedelta(seconds=SETTLE_S)


def _enriched(queue: Observation, known: Observation | None) -> Observation:
    """Add to a job in the queue what only accounting tells: restarts, GPUs, billing."""
    if known is None:
        return queue
    same_attempt = known.submit_at == queue.submit_at
    return queue.model_copy(
        update={
            "restarts": known.restarts if same_attempt else known.restarts + (known.state in TERMINAL),
            "gpus": known.gpus,
            "billing": known.billing if same_attempt else None,
            "eligible_at": known.eligible_at if same_attempt else None,
        }
    )


def _with_reason(known: Observation, queue: Observation) -> Observation:
    """Keep accounting's record, and the controller's last reason where accounting names none."""
    if known.reason_raw or not queue.reason_raw:
        return known
    return known.model_copy(
        update={
            "reason_raw": queue.reason_raw,
            "reason_explained": known.reason_explained or queue.reason_explained,
        }
    )


# --- questions and answers ------------------------------------------------------------------------


def _questions(refs: Sequence[JobRef], *, back: timedelta) -> list[Question]:
    with_id = [ref for ref in refs if ref.job_id is not None]
    without = [ref for ref in refs if ref.job_id is None]
    start_s = round((max(back, timedelta(0)) + _WINDOW_MARGIN).total_seconds())
    window = ("-S", f"now-{start_s}seconds", "-E", _WINDOW_END)
    questions: list[Question] = []
    for number, first in enumerate(range(0, len(with_id), _IDS_PER_QUESTION)):
        some = tuple(with_id[first : first + _IDS_PER_QUESTION])
        ids = ",".join(dict.fromkeys(str(ref.job_id) for ref in some))
        questions.append(Question(f"accounting-ids-{number}", ("-j", ids), some))
    for number, first in enumerate(range(0, len(without), _NAMES_PER_QUESTION)):
        some = tuple(without[first : first + _NAMES_PER_QUESTION])
        names = ",".join(checked_key(ref.submit_key) for ref in some)
        questions.append(Question(f"accounting-names-{number}", (f"--name={names}", *window), some))
    return questions


def _queue_rows(answer: Reply | None) -> tuple[QueueRow, ...] | None:
    if not _is_whole(answer):
        return None
    try:
        return read_queue(answer.stdout if answer else "")
    except UnparsableOutput:
        return None


def _accounting_rows(answer: Reply | None) -> tuple[AccountingRow, ...] | None:
    if not _is_whole(answer):
        return None
    try:
        return read_accounting(answer.stdout if answer else "")
    except UnparsableOutput:
        return None


def _keeps_none(answer: Reply | None) -> bool:
    """Whether the site said that it keeps no accounting; one that is down is waited for."""
    return answer is not None and "accounting storage is disabled" in answer.stderr


def _is_whole(answer: Reply | None) -> bool:
    """Whether an answer may be believed, an empty one included."""
    if answer is None or answer.rc != 0:
        return False
    if answer.timed_out or answer.truncated or answer.skipped or answer.missing:
        return False
    return bool(answer.stdout.strip()) or "error" not in answer.stderr.casefold()


def _words(answer: Reply) -> str:
    return (answer.stderr.strip() or ("timed out" if answer.timed_out else f"rc {answer.rc}"))[:500]
