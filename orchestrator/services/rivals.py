"""Keeping one of two open attempts of a task."""

from collections.abc import Sequence
from datetime import datetime

from federation.ledger import record
from orchestrator.lifecycle import ATTEMPT_MOVES, TASK_MOVES, AttemptState, TaskState, is_terminal
from orchestrator.models import Attempt, Task
from orchestrator.observation import Fold
from orchestrator.rivals import Rivalry, Side, Verdict, settle
from orchestrator.services import approvals
from orchestrator.services.cancelling import ask_to_cancel, end_unsent, follow_open, open_attempts
from orchestrator.services.moves import attempt_event, move_task, task_event


def rivals_of(task: Task, attempt: Attempt) -> list[Attempt]:
    """Return the other open attempts that nobody asked to end, locked."""
    return _at_large(open_attempts(task), attempt)


def _at_large(attempts: Sequence[Attempt], attempt: Attempt) -> list[Attempt]:
    return [other for other in attempts if other.pk != attempt.pk and other.cancel_requested_at is None]


def meet(task: Task, attempt: Attempt, fold: Fold, *, now: datetime) -> None:
    """Settle an attempt that was just seen with its rivals, before the look is written.

    The caller holds the task's lock. A look that brought nothing settles nothing.
    """
    if not attempt.rivalry or fold.changes.get("observed_at") != now:
        return
    mine = _side(task, attempt, fold)
    if attempt.cancel_requested_at is not None and mine.state is not AttemptState.SUCCEEDED:
        return
    if is_terminal(TASK_MOVES, TaskState(task.state)):
        if not is_terminal(ATTEMPT_MOVES, mine.state):
            _give_way(attempt, "the task has ended without it", now=now)
        return
    if task.cancel_requested_at is not None:
        return
    others = open_attempts(task)
    works = mine.has_started and not is_terminal(ATTEMPT_MOVES, mine.state)
    if works or mine.state is AttemptState.SUCCEEDED:
        _take_up(task, attempt, mine, others, now=now)
    for other in _at_large(others, attempt):
        verdict, why = settle(_side(task, attempt, fold), _side(task, other, None))
        if verdict is Verdict.MINE:
            _keep(task, attempt, other, why, now=now)
        elif verdict is Verdict.OTHER:
            _keep(task, other, attempt, why, now=now)
            return


def _take_up(task: Task, attempt: Attempt, mine: Side, open_: Sequence[Attempt], *, now: datetime) -> None:
    """Go on with an attempt that works, where the followed one has ended and nothing took its place."""
    former = task.attempt
    has_another = any(other.pk == task.attempt_id for other in open_) or _at_large(open_, attempt)
    if former is None or mine.is_accepted or has_another:
        return
    _accept(task, attempt, former, f"attempt {former.number} on {former.system.slug} has ended", now=now)


def ends_with_another(task: Task, attempt: Attempt) -> bool:
    """Whether a cancelled task must wait for the end of another attempt, which it follows from then on."""
    if task.cancel_requested_at is None or attempt.state == AttemptState.SUCCEEDED:
        return False
    others = [other for other in open_attempts(task) if other.pk != attempt.pk]
    follow_open(task, others)
    return bool(others)


def heir_of(task: Task, attempt: Attempt) -> Attempt | None:
    """Return the hedge that goes on where the accepted attempt ended without success; None = nothing does."""
    ended_by_us = attempt.cancel_requested_at is not None or task.cancel_requested_at is not None
    if attempt.rivalry != Rivalry.HEDGE or attempt.state == AttemptState.SUCCEEDED or ended_by_us:
        return None
    return next((other for other in rivals_of(task, attempt) if other.rivalry == Rivalry.HEDGE), None)


def inherit(task: Task, heir: Attempt, attempt: Attempt, *, now: datetime) -> None:
    """Let the task go on with its other attempt, after the accepted one ended."""
    why = f"attempt {attempt.number} on {attempt.system.slug} ended: {attempt.cause or attempt.state}"
    _accept(task, heir, attempt, why, now=now)


def _side(task: Task, attempt: Attempt, fold: Fold | None) -> Side:
    state = AttemptState(attempt.state)
    started_at = attempt.started_at
    if fold is not None:
        state = fold.target or state
        started_at = fold.changes.get("started_at", started_at)
    return Side(
        rivalry=Rivalry(attempt.rivalry),
        state=state,
        has_started=state is AttemptState.RUNNING or started_at is not None,
        is_accepted=task.attempt_id == attempt.pk,
    )


def _keep(task: Task, stays: Attempt, leaves: Attempt, why: str, *, now: datetime) -> None:
    if task.attempt_id != stays.pk:
        _accept(task, stays, leaves, why, now=now)
    _give_way(leaves, why, now=now)


def _accept(task: Task, attempt: Attempt, former: Attempt, why: str, *, now: datetime) -> None:
    """Let the task follow this attempt from now on; one that was to be placed anew is not any more."""
    if TaskState(task.state) in (TaskState.UNSCHEDULABLE, TaskState.PENDING_APPROVAL):
        approvals.withdraw(task, now=now)
        move_task(task, TaskState.PLACING, now=now)
    Task.objects.filter(pk=task.pk).update(attempt=attempt, due_at=None, updated_at=now)
    task.attempt, task.due_at = attempt, None
    attempt.task = task
    event = task_event(
        task,
        "task.replaced",
        f"{task.name} goes on with attempt {attempt.number} on {attempt.system.slug}: {why}",
        attempt=attempt,
        data={"accepted": attempt.handle, "former": former.handle, "reason": why},
    )
    record([event], now=now)


def _give_way(attempt: Attempt, why: str, *, now: datetime) -> None:
    summary = f"attempt {attempt.number} on {attempt.system.slug} gives way: {why}"
    if end_unsent(attempt, now=now, target=AttemptState.SUPERSEDED):
        record([attempt_event(attempt, "attempt.superseded", summary)], now=now)
        return
    ask_to_cancel(attempt, "superseded", now=now)
    attempt.cancel_requested_at, attempt.cancel_reason = now, "superseded"
    record([attempt_event(attempt, "attempt.moved", summary, data={"reason": why})], now=now)


def still_in_the_way(task: Task, attempts: Sequence[Attempt]) -> list[Attempt]:
    """Return the open attempts that must end before another is made: all but those replaced out of sight.

    One that was replaced and kept, since it was seen to start, is the task's again and is waited for.
    """
    return [each for each in attempts if each.rivalry != Rivalry.REPLACED or each.pk == task.attempt_id]
