"""Over random lives of attempts every ledger balances, and at the end nothing is held that nobody needs."""

from datetime import datetime
from decimal import Decimal

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from federation import charges
from federation.models import Allocation, Charge
from orchestrator.budget_input import BudgetInput
from orchestrator.envelope.types import Envelope, Range
from orchestrator.lifecycle import AttemptState, Cause
from orchestrator.models import Attempt, Meter, Task
from orchestrator.placement.types import Selected
from orchestrator.services import budgets, deciding, tasks
from orchestrator.services.attempts import reject_submission
from orchestrator.services.moves import move_attempt
from providers.types import SubmitResult
from tests.state.spending import check_ledgers, end, newest, plan, send
from tests.web.world import make_system

pytestmark = pytest.mark.django_db

LIVES = st.lists(
    st.tuples(
        st.sampled_from(["succeed", "fail", "unsent", "cancelled", "superseded", "rejected", "open"]),
        st.integers(0, 7200),
        st.booleans(),
    ),
    min_size=1,
    max_size=6,
)


@pytest.fixture
def chosen(alice: User, now: datetime) -> Selected:
    """One placement of a GPU-hour that costs 1 SU."""
    make_system(alice, "anvil", "Anvil", "a100", "40G", free=3, now=now)
    one = Envelope(gpus=Range.exactly(1), cpus=Range.exactly(1), walltime_s=Range.exactly(3600))
    found = deciding.decide(alice, one, now=now).selected
    assert found is not None
    assert found.estimates.charge.amount == 1
    return found


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(LIVES)
def test_every_ledger_balances_over_random_lives(
    alice: User, chosen: Selected, now: datetime, lives: list[tuple[str, int, bool]]
) -> None:
    with transaction.atomic():
        limits = {"max_charge": {"anvil": 4}, "max_node_hours": 5, "max_attempts": 6}
        wanted = BudgetInput.model_validate(limits)
        budgets.set_budget(alice.pk, ("project", "climate"), wanted, actor="user:alice", now=now)
        for kind, ran_s, is_corrected in lives:
            task = plan(alice, chosen, now, project="climate")
            if task.attempt is not None and kind != "open":
                _live(task, kind, ran_s, now, is_corrected=is_corrected)
            check_ledgers()
        for task in Task.objects.exclude(state__in=["succeeded", "failed", "cancelled"]):
            _end_of(task, now)
        check_ledgers()
        _nothing_is_left()
        transaction.set_rollback(True)


def _nothing_is_left() -> None:
    """Nothing is held, and what is used is what the attempts cost, corrections included."""
    assert set(Meter.objects.values_list("reserved", flat=True)) == {Decimal(0)}
    assert set(Attempt.objects.values_list("charge_held", flat=True)) <= {Decimal(0)}
    cost = sum((each.charge_cost or Decimal(0) for each in Attempt.objects.all()), Decimal(0))
    revised = sum((line.amount for line in Charge.objects.filter(kind="correct")), Decimal(0))
    allocation = Allocation.objects.get()
    assert (allocation.reserved, allocation.used) == (Decimal(0), cost + revised)
    assert Meter.objects.get(measure="charge").used == cost
    sent = Attempt.objects.filter(dispatches__gt=0).count()
    assert Meter.objects.get(measure="attempts").used == sent


def _live(task: Task, kind: str, ran_s: int, now: datetime, *, is_corrected: bool) -> None:
    """Lead one task through a life."""
    if kind == "unsent":
        tasks.cancel_task(task.user, task.handle, actor="user:alice", now=now)
        return
    attempt = newest(task)
    if kind == "rejected":
        move_attempt(attempt, AttemptState.DISPATCHING, now=now, dispatches=1)
        refusal = SubmitResult(outcome="rejected", said="no", explained="no", retryable=False)
        reject_submission(attempt, refusal, cause=Cause.DISPATCH_REJECTED, now=now)
        return
    send(attempt, now)
    state, cause = {
        "succeed": (AttemptState.SUCCEEDED, None),
        "fail": (AttemptState.FAILED, Cause.EXIT_CODE),
        "cancelled": (AttemptState.CANCELLED, Cause.CANCELLED_BY_USER),
        "superseded": (AttemptState.SUPERSEDED, None),
    }[kind]
    if kind == "cancelled":
        tasks.cancel_task(task.user, task.handle, actor="user:alice", now=now)
        attempt = newest(task)
    end(attempt, now, ran_s=0 if kind == "superseded" else ran_s, state=state, cause=cause)
    if is_corrected and attempt.charge_cost:
        cost = (Decimal(ran_s) / 7200).quantize(Decimal("0.0001"))
        charges.correct(attempt=attempt.handle, cost=cost, note="the site revised it", now=now)


def _end_of(task: Task, now: datetime) -> None:
    tasks.cancel_task(task.user, task.handle, actor="user:alice", now=now)
    for attempt in task.attempts.filter(finished_at=None).select_related("task__group", "system"):
        end(attempt, now, ran_s=0, state=AttemptState.CANCELLED, cause=Cause.CANCELLED_BY_USER)
