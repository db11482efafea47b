"""What the clock does to budgets: tell how near a deadline is, end what must not go on. Safe to repeat."""

from collections.abc import Iterable
from datetime import datetime

from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet

from federation.ledger import record
from orchestrator.budget_models import OnExhaustion, TokenDescent
from orchestrator.doorbell import ring
from orchestrator.lifecycle import TASK_MOVES, Cause, TaskState, is_terminal, terminal_states
from orchestrator.models import Budget, Meter, Task
from orchestrator.services import approvals
from orchestrator.services.budgets import bound_tasks, budget_event
from orchestrator.services.cancelling import ask_to_cancel, end_unsent, follow_open, open_attempts
from orchestrator.services.moves import move_task, task_event
from orchestrator.services.transfer_ends import end_stage_in

_ENDED = [state.value for state in terminal_states(TASK_MOVES)]
_AT_ONCE = 500


def sweep(*, now: datetime) -> int:
    """Tell of deadlines and end what is past them, or past a limit that ends work; return how many tasks."""
    ended = 0
    near = Budget.objects.filter(closed_at=None, deadline_at__isnull=False, deadline_told__lt=1)
    for budget in near.order_by("deadline_at")[:_AT_ONCE]:
        ended += _look(budget, now=now)
    used_up = Meter.objects.select_related("budget").filter(
        Exists(_open_below("budget__")),
        used__gte=F("limit"),
        budget__closed_at=None,
        budget__on_exhaustion=OnExhaustion.CANCEL,
    )
    for meter in used_up.order_by("pk")[:_AT_ONCE]:
        why = f"the budget {meter.budget.handle} has used up its {meter.unit}"
        ended += _end_all(_open_tasks(meter.budget), why, with_running=True, now=now)
    return ended


def _open_below(budget: str) -> QuerySet[Task]:
    """Return the open tasks a budget of an outer query may bind: one whose work has ended needs no look."""
    subject = OuterRef(f"{budget}subject")
    made_with = TokenDescent.objects.filter(token=OuterRef("token"), ancestor=OuterRef(subject))
    bound = Q(handle=subject) | Q(group__handle=subject) | Q(project=subject) | Q(token=subject)
    rows = Task.objects.filter(bound | Exists(made_with), user_id=OuterRef(f"{budget}user_id"))
    return rows.filter(cancel_requested_at=None).exclude(state__in=_ENDED)


def _open_tasks(budget: Budget) -> QuerySet[Task]:
    return Task.objects.filter(bound_tasks(budget), cancel_requested_at=None).exclude(state__in=_ENDED)


def _look(budget: Budget, *, now: datetime) -> int:
    """Tell how much of the time is over; once it is over, end what waits."""
    assert budget.deadline_at is not None  # noqa: S101  # the caller filtered
    whole_s = max(1.0, (budget.deadline_at - budget.created_at).total_seconds())
    share = min(1.0, (now - budget.created_at).total_seconds() / whole_s)
    open_ = _open_tasks(budget)
    if share < 1:
        passed = max((each for each in budget.thresholds if each <= share), default=0.0)
        if passed > budget.deadline_told and open_.exists():
            _tell(budget, passed, now=now)
        return 0
    with_running = budget.on_exhaustion == OnExhaustion.CANCEL
    had_work = open_.exists() or budget.scope in ("project", "token")
    why = f"the deadline of the budget {budget.handle} has passed"
    ended = _end_all(open_, why, with_running=with_running, now=now)
    _tell(budget, 1.0, now=now, silent=not had_work)
    return ended


@transaction.atomic
def _tell(budget: Budget, share: float, *, now: datetime, silent: bool = False) -> None:
    fresh = Budget.objects.filter(pk=budget.pk, deadline_told__lt=share).update(deadline_told=share)
    if not fresh or silent:
        return
    facts = {
        "measure": "wall_clock",
        "system": None,
        "unit": "time",
        "limit": budget.deadline_at.isoformat() if budget.deadline_at else None,
        "threshold": share,
    }
    record([budget_event(budget, "exhausted" if share >= 1 else "threshold", facts)], now=now)


def _end_all(rows: QuerySet[Task], why: str, *, with_running: bool, now: datetime) -> int:
    ids: Iterable[int] = list(rows.order_by("pk").values_list("pk", flat=True)[:_AT_ONCE])
    return sum(end_late(task_id, why, with_running=with_running, now=now) for task_id in ids)


@transaction.atomic
def end_late(task_id: int, why: str, *, with_running: bool, now: datetime) -> bool:
    """Cancel a task that a budget no longer lets go on; one that runs only `with_running`. Return whether."""
    rows = Task.objects.select_for_update(no_key=True, of=("self",)).select_related("group")
    task = rows.filter(pk=task_id).first()
    if task is None or is_terminal(TASK_MOVES, TaskState(task.state)) or task.cancel_requested_at is not None:
        return False
    attempts = open_attempts(task)
    runs = task.state == TaskState.RUNNING or any(each.started_at is not None for each in attempts)
    if runs and not with_running:
        return False
    Task.objects.filter(pk=task.pk).update(cancel_requested_at=now, updated_at=now)
    task.cancel_requested_at = now
    approvals.withdraw(task, now=now)
    waiting = [attempt for attempt in attempts if not end_unsent(attempt, now=now)]
    end_stage_in(task, now=now)
    follow_open(task, waiting)
    for attempt in waiting:
        ask_to_cancel(attempt, "deadline", now=now)
    if not waiting:
        move_task(task, TaskState.CANCELLED, now=now, cause=Cause.DEADLINE, reason=f"Cancelled: {why}.")
        record([task_event(task, "task.cancelled", f"{task.name} cancelled: {why}")], now=now)
        group_id = task.group_id
        if group_id is not None:
            transaction.on_commit(lambda: ring("advance_group", group_id))
    return True
