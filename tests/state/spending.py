"""Lives of attempts without a site: what a scheduler would have told is folded in by hand."""

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from federation.models import Allocation, Charge
from orchestrator.lifecycle import AttemptState, Cause, TaskState
from orchestrator.models import Attempt, BudgetLine, Decision, Meter, Task
from orchestrator.observation import Fold
from orchestrator.placement.types import Selected
from orchestrator.services import attempts, placing, spending, tasks
from orchestrator.services.envelopes import understand
from orchestrator.services.moves import move_attempt, move_task

ONE_GPU = {"gpus": 1, "cpus": 1, "walltime_s": 3600}
"""One unit at a system of tests/web/world.py: one GPU for one hour."""


def submit(user: User, now: datetime, *, token: str = "", actor: str = "user:alice", **given: Any) -> Task:
    """Submit a task of one GPU-hour unless told otherwise; planned, not sent."""
    wanted = {"command": "true", "envelope": ONE_GPU, **given}
    return tasks.submit_task(user, wanted, actor=actor, token=token, now=now).task


def newest(task: Task) -> Attempt:
    """Return a task's newest attempt with what folding needs."""
    return task.attempts.select_related("task__user", "task__group", "system").order_by("-number")[0]


@transaction.atomic
def plan(user: User, chosen: Selected, now: datetime, **given: Any) -> Task:
    """Submit a task to a placement that is known already, as far as its budgets pay for it."""
    wanted = tasks.read_task({"command": "true", "envelope": ONE_GPU, **given})
    who = tasks.Submitter(user, "user:alice")
    task = tasks.new_task(who, wanted, understand(wanted, user_id=user.pk), now=now)
    purse = spending.purse_of(task)
    if purse.refusals(chosen) or not spending.fits(task, chosen, purse):
        return task
    move_task(task, TaskState.PLACING, now=now)
    decision = Decision.objects.create(
        handle=task.handle.replace("task", "dec"),
        user=user,
        purpose="submit",
        input_hash="",
        body={},
        created_at=now,
    )
    handle = decision.handle.replace("dec", "att")
    attempt = placing.plan_attempt(task, decision, chosen, handle=handle, now=now)
    spending.hold(task, attempt, chosen, purse, now=now)
    Task.objects.filter(pk=task.pk).update(attempt=attempt)
    task.attempt = attempt
    return task


@transaction.atomic
def send(attempt: Attempt, now: datetime) -> None:
    """Have the scheduler take it."""
    move_attempt(attempt, AttemptState.DISPATCHING, now=now, dispatches=1)
    attempts.accept_submission(attempt, job_id=str(attempt.pk), now=now)


@transaction.atomic
def start(attempt: Attempt, now: datetime) -> None:
    """Have it start."""
    _fold(attempt, AttemptState.RUNNING, now, started_at=now)


@transaction.atomic
def end(
    attempt: Attempt,
    now: datetime,
    *,
    ran_s: float,
    state: AttemptState = AttemptState.SUCCEEDED,
    cause: Cause | None = None,
) -> None:
    """Have it end after so many seconds of holding its nodes."""
    ended_at = now + timedelta(seconds=ran_s)
    _fold(attempt, state, now, cause=cause, started_at=now, ended_at=ended_at)


def _fold(
    attempt: Attempt, target: AttemptState, now: datetime, *, cause: Cause | None = None, **changes: Any
) -> None:
    attempts.apply_fold(attempt, Fold(target=target, cause=cause, changes=changes), now=now, due_at=None)


def run(task: Task, now: datetime, *, ran_s: float = 600) -> Attempt:
    """Have a task's newest attempt taken, run and succeed."""
    attempt = newest(task)
    send(attempt, now)
    end(attempt, now, ran_s=ran_s)
    task.refresh_from_db()
    return attempt


def check_ledgers() -> None:
    """Every ledger balances: totals equal lines, a reservation ends at most once, nothing is negative."""
    for allocation in Allocation.objects.all():
        lines = [(c.attempt_handle, c.kind, c.amount) for c in Charge.objects.filter(allocation=allocation)]
        assert (allocation.reserved, allocation.used) == _totals(lines)
    for meter in Meter.objects.all():
        lines = [(b.subject, b.kind, b.amount) for b in BudgetLine.objects.filter(meter=meter)]
        assert (meter.reserved, meter.used) == _totals(lines), meter


def _totals(lines: list[tuple[str, str, Decimal]]) -> tuple[Decimal, Decimal]:
    """Return what lines say is reserved and used."""
    reserved, used = Decimal(0), Decimal(0)
    for subject in {subject for subject, _, _ in lines}:
        own = [(kind, amount) for each, kind, amount in lines if each == subject]
        endings = [kind for kind, _ in own if kind in ("settle", "release")]
        held = [amount for kind, amount in own if kind == "reserve"]
        assert len(endings) <= 1
        assert len(held) <= 1
        reserved += sum(held, Decimal(0)) if not endings else Decimal(0)
        booked = sum((amount for kind, amount in own if kind in ("settle", "correct")), Decimal(0))
        assert booked >= 0
        used += booked
    assert reserved >= 0
    return reserved, used
