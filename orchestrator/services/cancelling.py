"""Ending attempts on request: at once where the site knows nothing of them, else by the control cycle."""

from collections.abc import Sequence
from datetime import datetime

from django.db import transaction

from federation import circuits
from orchestrator.doorbell import ring
from orchestrator.lifecycle import AttemptState, Cause
from orchestrator.models import Attempt, Task
from orchestrator.services import spending
from orchestrator.services.deciding import ENDED
from orchestrator.services.moves import move_attempt


def open_attempts(task: Task) -> list[Attempt]:
    """Return the attempts that have not ended, locked, oldest first."""
    rows = task.attempts.select_for_update(no_key=True, of=("self",)).select_related("system", "task__group")
    return list(rows.exclude(state__in=ENDED).order_by("number"))


def end_unsent(attempt: Attempt, *, now: datetime, target: AttemptState = AttemptState.CANCELLED) -> bool:
    """End an attempt of which the site knows nothing yet; return whether that was so."""
    if attempt.state != AttemptState.PLANNED:
        return False
    cause = Cause.CANCELLED_BY_USER if target is AttemptState.CANCELLED else None
    move_attempt(attempt, target, now=now, cause=cause, cancel_requested_at=now)
    spending.give_back(attempt, now=now)
    circuits.note_nothing(attempt.system, attempt.handle, now=now)
    return True


def follow_open(task: Task, waiting: Sequence[Attempt]) -> None:
    """Let a task whose own attempt has ended follow one that has not: that one's end is then the task's."""
    if waiting and task.attempt_id not in {attempt.pk for attempt in waiting}:
        task.attempt = waiting[-1]
        Task.objects.filter(pk=task.pk).update(attempt=task.attempt)


def ask_to_cancel(attempt: Attempt, reason: str, *, now: datetime) -> None:
    """Have the control cycle cancel a job; `reason` is user, superseded or deadline, the first one stays."""
    Attempt.objects.filter(pk=attempt.pk, cancel_requested_at=None).update(
        cancel_requested_at=now, cancel_reason=reason
    )
    # A dispatching attempt is looked at when its answer is in; the others now.
    Attempt.objects.filter(pk=attempt.pk).exclude(state=AttemptState.DISPATCHING).update(due_at=now)
    system_id = attempt.system_id
    transaction.on_commit(lambda: ring("control_system", system_id))
