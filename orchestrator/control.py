"""One control cycle of one system: load what is due → decide → ask the site → apply, attempt by attempt.

All attempts of a connection are looked at in one request; no transaction is open meanwhile. One bad row
costs only itself. The lock keeps it to one worker at a time, and a killed worker's lock goes with it.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import structlog
from django.db import DatabaseError, transaction
from django.db.models import Q

from federation.collector import probe_soon
from federation.ledger import record
from federation.links import open_link
from federation.locks import only_one
from federation.models import Connection, System
from federation.selectors import profile_of
from orchestrator import leavings
from orchestrator.continuation import next_actions
from orchestrator.dispatch import dispatch_together, is_being_asked_for, is_really_over, planned
from orchestrator.dueness import is_due
from orchestrator.leavings import Leavings
from orchestrator.lifecycle import ATTEMPT_MOVES, TASK_MOVES, AttemptState, TaskState, is_terminal
from orchestrator.models import Attempt, Task
from orchestrator.observation import AttemptFacts, Fold, absent, seen, unseen
from orchestrator.services import rivals
from orchestrator.services.attempts import apply_fold
from orchestrator.services.milestones import note_dropped
from orchestrator.services.moves import move_task, task_event
from orchestrator.services.out_of_sight import replace_out_of_sight
from orchestrator.tracing import about
from providers.contracts import Dialect, Link
from providers.errors import FacetError, SiteError
from providers.registry import dialect
from providers.types import Batch, BatchReply, JobRef, Observation, Operation

log = structlog.get_logger(__name__)

_AT_ONCE = 500
"""Attempts of one connection looked at in one request; the rest is due again at once."""
_CANCEL_AGAIN = timedelta(seconds=20)
_NO_ANSWER_PAUSE = timedelta(seconds=10)
_SLOWEST_LOOK_S = 60.0
ATTENTION_AFTER = timedelta(minutes=30)
"""How long an attempt may stay unseen before a person is asked."""
_FILES = "facet.files."
_TAILS_AT_ONCE = 100
"""Failed attempts whose last words are read in one request (16 KiB each); the others say less of why."""

_ENDED = [state.value for state in ATTEMPT_MOVES if is_terminal(ATTEMPT_MOVES, state)]


@dataclass(slots=True)
class Looked:
    """What one request to a site brought for the attempts of one connection."""

    folds: dict[int, Fold] = field(default_factory=dict)
    """By attempt row."""
    cancels_sent: set[int] = field(default_factory=set)
    refusals: dict[int, str] = field(default_factory=dict)
    left: dict[int, Leavings] = field(default_factory=dict)
    answered: bool = True
    may_replace: int = 25
    """Tries to place elsewhere what is out of sight that are left in this cycle; each costs a decision."""


def systems_with_work(*, now: datetime) -> list[int]:
    """Return the systems that have an attempt due; the index makes it independent of history."""
    due = Attempt.objects.filter(is_due(now)).exclude(state__in=_ENDED)
    return list(due.order_by("system_id").values_list("system_id", flat=True).distinct())


def tasks_with_work(*, now: datetime, limit: int = 500) -> list[int]:
    """Return the tasks that are due themselves."""
    placing = Q(state__in=(TaskState.PLACING, TaskState.UNSCHEDULABLE)) & is_due(now)
    rows = Task.objects.filter(Q(due_at__lte=now) | placing)
    return list(rows.order_by("due_at").values_list("pk", flat=True)[:limit])


def control_system(system_id: int, *, now: datetime) -> int:
    """Run one cycle for a system; return how many attempts were looked at (0: another worker is at it)."""
    with only_one(f"control:{system_id}") as mine:
        if not mine:
            return 0
        system = System.objects.select_related("profile").get(pk=system_id)
        looked_at = 0
        for connection, attempts in _due(system, now=now).items():
            sent = [attempt for attempt in attempts if attempt.state != AttemptState.PLANNED]
            waiting = [attempt for attempt in sent if not _is_too_early(attempt)]
            if len(sent) < len(attempts):
                dispatch_together(planned(connection.pk, now=now), now=now)
            if waiting:
                _keep_deadlines(waiting, now=now)
                looked = _look(system, connection, waiting, now=now)
                _apply_all(system, waiting, looked, now=now)
                looked_at += len(waiting)
        return looked_at


def _is_too_early(attempt: Attempt) -> bool:
    """Whether a look must not conclude that a submission was never made: a clock that jumps ends no deadline.

    Asked before the site is, so that what is over by then is seen.
    """
    is_last_look = attempt.state == AttemptState.DISPATCHING and attempt.looks_without_trace > 0
    return is_last_look and is_being_asked_for(attempt)


def _keep_deadlines(attempts: Sequence[Attempt], *, now: datetime) -> None:
    """Let no look conclude from a deadline that has not really passed; asked before the site is.

    Nor may one that a clock put far ahead keep a submission in doubt: the steady clock alone ends it then.
    """
    for attempt in attempts:
        if attempt.state != AttemptState.DISPATCHING:
            continue
        if not is_really_over(attempt):
            attempt.dispatch_deadline_at = None
        elif attempt.dispatch_ticks and attempt.dispatch_started_at and attempt.dispatch_started_at > now:
            attempt.dispatch_deadline_at = now - timedelta(seconds=1)


def _due(system: System, *, now: datetime) -> Mapping[Connection, list[Attempt]]:
    rows = (
        Attempt.objects.filter(is_due(now), system=system)
        .exclude(state__in=_ENDED)
        .select_related("connection__system", "system", "task__group")
        .order_by("due_at")[:_AT_ONCE]
    )
    grouped: dict[Connection, list[Attempt]] = {}
    for attempt in rows:
        grouped.setdefault(attempt.connection, []).append(attempt)
    return grouped


def _ref(attempt: Attempt) -> JobRef:
    return JobRef(
        submit_key=attempt.submit_key,
        job_id=attempt.job_id or None,
        submitted_at=attempt.submitted_at or attempt.dispatch_started_at,
    )


def _look(system: System, connection: Connection, attempts: Sequence[Attempt], *, now: datetime) -> Looked:
    speaks = dialect(system.dialect)
    try:
        link = open_link(connection)
        looked = _ask(speaks, link, attempts, now=now)
    except FacetError as error:
        log.info("site gave no answer", system=system.slug, connection=connection.handle, error=str(error))
        if isinstance(error, SiteError):
            probe_soon(system.pk, now=now)
        reason = str(error)
        folds = {attempt.pk: unseen(_facts(attempt), reason, now=now) for attempt in attempts}
        return Looked(folds=folds, answered=False)
    ended = [attempt for attempt in attempts if _ends(looked.folds.get(attempt.pk))]
    if ended:
        failed = {each.pk for each in ended if looked.folds[each.pk].target is AttemptState.FAILED}
        looked.left = _list_files(link, ended, failed)
    return looked


def _ends(fold: Fold | None) -> bool:
    return fold is not None and fold.target is not None and is_terminal(ATTEMPT_MOVES, fold.target)


def _ask(speaks: Dialect, link: Link, attempts: Sequence[Attempt], *, now: datetime) -> Looked:
    refs = [_ref(attempt) for attempt in attempts]
    observing = speaks.observe(refs, since=_since(refs, now=now), now=now)
    to_cancel = [attempt for attempt in attempts if _cancel_is_due(attempt, now=now)]
    cancelling = speaks.cancel([_ref(attempt) for attempt in to_cancel]) if to_cancel else None
    operations = _once((*(cancelling.operations if cancelling else ()), *observing.operations))
    deadline_s = observing.deadline_s + (cancelling.deadline_s if cancelling else 0)
    reply = link.run(Batch(operations=operations, deadline_s=deadline_s))
    looked = Looked()
    if cancelling is not None:
        _read_cancels(speaks, reply, to_cancel, looked)
    observations = speaks.read_observe(reply, refs, now=now)
    for attempt in attempts:
        looked.folds[attempt.pk] = _fold(attempt, observations, now=now)
    return looked


def _since(refs: Sequence[JobRef], *, now: datetime) -> datetime:
    """Return from when on accounting is asked: a day ago where a clock was ahead at a submission."""
    submitted = [ref.submitted_at for ref in refs if ref.submitted_at]
    known = [now - timedelta(days=1) if at > now else at for at in submitted]
    return min(known, default=now) - timedelta(minutes=5)


def _once(operations: Iterable[Operation]) -> tuple[Operation, ...]:
    """Return the operations, each name once: what two batches both need first is asked once."""
    found: dict[str, Operation] = {}
    for operation in operations:
        found.setdefault(operation.name, operation)
    return tuple(found.values())


def _cancel_is_due(attempt: Attempt, *, now: datetime) -> bool:
    if attempt.cancel_requested_at is None or attempt.state == AttemptState.DISPATCHING:
        return False
    sent_at = attempt.cancel_sent_at
    # Sent in the future: a clock was ahead.
    return sent_at is None or now - sent_at >= _CANCEL_AGAIN or sent_at > now


def _read_cancels(speaks: Dialect, reply: BatchReply, attempts: Sequence[Attempt], looked: Looked) -> None:
    answers = speaks.read_cancel(reply, [_ref(attempt) for attempt in attempts])
    for attempt in attempts:
        said = answers.get(attempt.submit_key)
        if said == "":
            looked.cancels_sent.add(attempt.pk)
        elif said:
            looked.refusals[attempt.pk] = said


def _facts(attempt: Attempt) -> AttemptFacts:
    return AttemptFacts(
        state=AttemptState(attempt.state),
        observed_at=attempt.observed_at,
        unseen_since=attempt.unseen_since,
        looks_without_trace=attempt.looks_without_trace,
        dispatch_deadline_at=attempt.dispatch_deadline_at,
        cancel_reason=attempt.cancel_reason,
    )


def _fold(attempt: Attempt, observations: Mapping[str, Observation | None], *, now: datetime) -> Fold:
    facts = _facts(attempt)
    if attempt.submit_key not in observations:
        return unseen(facts, "the scheduler's answer was incomplete", now=now)
    observation = observations[attempt.submit_key]
    return absent(facts, now=now) if observation is None else seen(facts, observation, now=now)


def _list_files(link: Link, attempts: Sequence[Attempt], failed: Collection[int]) -> dict[int, Leavings]:
    """Return what each ended attempt left; an attempt is left out where the site cannot say.

    The last words of the failed ones are read in the same request: later they may be gone.
    """
    wanted = {f"{_FILES}{attempt.pk}": attempt for attempt in attempts if attempt.workdir}
    if not wanted:
        return {}
    told = set(sorted(failed)[:_TAILS_AT_ONCE])
    operations = tuple(
        operation
        for key, attempt in wanted.items()
        for operation in leavings.operations(
            key,
            workdir=attempt.workdir,
            stdout=attempt.stdout_path,
            stderr=attempt.stderr_path,
            with_tails=attempt.pk in told,
        )
    )
    try:
        reply = link.run(Batch(operations=operations, deadline_s=30))
    except FacetError as error:
        log.info("files could not be listed", error=str(error))
        return {}
    return {
        attempt.pk: leavings.read(key, reply, workdir=attempt.workdir, since=attempt.submitted_at)
        for key, attempt in wanted.items()
    }


def _apply_all(system: System, attempts: Sequence[Attempt], looked: Looked, *, now: datetime) -> None:
    for attempt in attempts:
        with about(attempt.task, attempt):
            try:
                with transaction.atomic():
                    _apply(system, attempt, looked.folds[attempt.pk], looked, now=now)
            except (FacetError, DatabaseError) as error:
                log.warning("attempt could not be moved", error=str(error))


def _apply(system: System, attempt: Attempt, fold: Fold, looked: Looked, *, now: datetime) -> None:
    # Locks in one order, task before attempt, so that a cancel or replan meanwhile is seen.
    task = (
        Task.objects.select_for_update(no_key=True, of=("self",))
        .select_related("group")
        .get(pk=attempt.task_id)
    )
    attempt.task = task
    if fold.target is AttemptState.PLANNED and _cancel_came(attempt):
        return  # it is due still: the next look ends it
    if fold.target is AttemptState.PLANNED and attempt.claim_is_made:
        fold.changes.update(claims=attempt.claims + 1, claim_is_made=False)
    if attempt.pk in looked.cancels_sent:
        Attempt.objects.filter(pk=attempt.pk).update(cancel_sent_at=now)
    if attempt.pk in looked.refusals:
        fold.changes.setdefault(
            "reason_explained", f"The site refused to cancel: {looked.refusals[attempt.pk]}"
        )
    due_at = _next_look(system, attempt, fold, answered=looked.answered, now=now)
    left = looked.left.get(attempt.pk, Leavings())
    note_dropped(attempt, left.milestones, now=now)
    rivals.meet(task, attempt, fold, now=now)
    apply_fold(attempt, fold, now=now, due_at=due_at, left=left)
    if fold.is_blind and looked.may_replace > 0:
        looked.may_replace -= replace_out_of_sight(system, task, attempt, now=now)
    _ask_a_person(task, attempt, now=now)


def _cancel_came(attempt: Attempt) -> bool:
    """Whether its end was asked for since it was read: what is planned again then would never be sent."""
    return Attempt.objects.filter(pk=attempt.pk, cancel_requested_at__isnull=False).exists()


def _next_look(system: System, attempt: Attempt, fold: Fold, *, answered: bool, now: datetime) -> datetime:
    """Return when to look again: often while things are new, more slowly the longer nothing changes."""
    if not answered or fold.is_blind:
        return now + _NO_ANSWER_PAUSE
    assert system.profile_id is not None  # noqa: S101  # attempts are placed by a profile
    base = profile_of(system.profile_id).probe.observe_s
    if (
        fold.target is not None
        or attempt.cancel_requested_at is not None
        or fold.changes.get("looks_without_trace")
    ):
        return now + timedelta(seconds=base)
    since = attempt.started_at or attempt.submitted_at or attempt.planned_at
    age_s = max(0.0, (now - since).total_seconds())
    return now + timedelta(seconds=min(_SLOWEST_LOOK_S, base + age_s / 60))


def _ask_a_person(task: Task, attempt: Attempt, *, now: datetime) -> None:
    """Put a task to attention whose accepted attempt has been out of sight for long."""
    if attempt.state != AttemptState.UNKNOWN or task.attempt_id != attempt.pk:
        return
    if attempt.unseen_since is None or now - attempt.unseen_since < ATTENTION_AFTER:
        return
    state = TaskState(task.state)
    if TaskState.ATTENTION not in TASK_MOVES[state]:
        return
    reason = f"{attempt.system.slug} has not shown job {attempt.job_id or attempt.submit_key} since " + (
        attempt.observed_at.isoformat(timespec="seconds") if attempt.observed_at else "it was submitted"
    )
    move_task(task, TaskState.ATTENTION, now=now, reason=reason)
    event = task_event(
        task,
        "task.attention",
        f"{task.name}: {reason}",
        attempt=attempt,
        next_actions=next_actions(task.handle, TaskState.ATTENTION),
    )
    record([event], now=now)


def look_again(connection_ids: Sequence[int], *, now: datetime) -> int:
    """Make the open attempts of these connections due now: their sites can be seen again."""
    return (
        Attempt.objects.filter(connection_id__in=connection_ids)
        .exclude(state__in=_ENDED)
        .filter(due_at__gt=now)
        .update(due_at=now)
    )
