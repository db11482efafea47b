"""A cost that is corrected: one line more in each ledger, the attempt's own figure, and who, why and when."""

from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import User

from federation.models import Allocation, Charge, Event, System
from orchestrator.budget_input import BudgetInput
from orchestrator.models import Attempt, BudgetLine, Meter
from orchestrator.selectors import show_task
from orchestrator.selectors import tasks as tasks_of
from orchestrator.services import budgets
from orchestrator.services.corrections import correct_cost
from providers.errors import Conflict, InvalidInput, NotFound
from tests.state.spending import check_ledgers, newest, run, submit
from tests.web.world import make_system

pytestmark = pytest.mark.django_db


@pytest.fixture
def anvil(alice: User, now: datetime) -> System:
    """One system that charges 1 SU for a GPU-hour; alice may use a thousand."""
    return make_system(alice, "anvil", "Anvil", "a100", "40G", free=3, now=now)


def _correct(attempt: Attempt, cost: str, now: datetime, reason: str = "the site refunded it") -> Attempt:
    return correct_cost(attempt.handle, Decimal(cost), reason=reason, actor="user:root", now=now)


def _lines(rows: Any, **which: str) -> list[tuple[str, Decimal, str]]:
    return list(rows.filter(**which).order_by("id").values_list("kind", "amount", "note"))


def test_a_corrected_cost_stands_in_every_ledger_on_the_task_and_in_the_log(
    alice: User, anvil: System, now: datetime
) -> None:
    given = BudgetInput.model_validate({"max_charge": {"anvil": 10}, "max_node_hours": 10})
    budgets.set_budget(alice.pk, ("project", "climate"), given, actor="user:alice", now=now)
    task = submit(alice, now, project="climate")
    attempt = run(task, now, ran_s=1800)

    _correct(attempt, "0.2", now)
    _correct(attempt, "0.7", now, reason="billed after all")

    corrected = [
        ("correct", Decimal("-0.3000"), "user:root: the site refunded it"),
        ("correct", Decimal("0.5000"), "user:root: billed after all"),
    ]
    assert _lines(Charge.objects, attempt_handle=attempt.handle)[2:] == corrected
    of_charge = BudgetLine.objects.filter(meter__measure="charge")
    assert _lines(of_charge, subject=attempt.handle)[2:] == corrected
    assert not BudgetLine.objects.filter(meter__measure="node_hours", kind="correct").exists()
    assert Allocation.objects.get(system=anvil).used == Decimal("0.7")
    assert Meter.objects.get(measure="charge").used == Decimal("0.7")
    check_ledgers()
    (cost,) = show_task(tasks_of(alice).get(pk=task.pk)).cost
    assert cost.settled == Decimal("0.7")
    first, second = Event.objects.filter(type="charge.corrected").order_by("id")
    assert (first.actor, first.user, first.task) == ("user:root", alice, task.handle)
    assert (first.subject, first.attempt, first.system) == (attempt.handle, attempt.handle, "anvil")
    assert first.summary == (
        "the cost of attempt 1 on anvil is corrected from 0.5 to 0.2 SU: the site refunded it"
    )
    assert second.data == {"from": "0.2000", "to": "0.7", "unit": "SU", "reason": "billed after all"}


def test_what_was_released_without_a_cost_may_turn_out_to_have_had_one(
    alice: User, anvil: System, now: datetime
) -> None:
    attempt = run(submit(alice, now), now, ran_s=0)
    assert [kind for kind, *_ in _lines(Charge.objects)] == ["reserve", "release"]

    _correct(attempt, "0.25", now)

    assert Allocation.objects.get(system=anvil).used == Decimal("0.25")
    check_ledgers()


def test_a_cost_that_is_right_already_adds_nothing(alice: User, anvil: System, now: datetime) -> None:
    attempt = run(submit(alice, now), now, ran_s=1800)

    _correct(attempt, "0.5", now)

    assert Charge.objects.count() == 2
    assert not Event.objects.filter(type="charge.corrected").exists()


def test_a_budget_that_a_correction_takes_past_its_threshold_says_so(
    alice: User, anvil: System, now: datetime
) -> None:
    given = BudgetInput.model_validate({"max_charge": {"anvil": 4}, "thresholds": [0.5]})
    budgets.set_budget(alice.pk, ("project", "climate"), given, actor="user:alice", now=now)
    attempt = run(submit(alice, now, project="climate"), now, ran_s=1800)
    assert not Event.objects.filter(type="budget.threshold").exists()

    _correct(attempt, "3", now)

    assert Event.objects.get(type="budget.threshold").data["threshold"] == 0.5


@pytest.mark.parametrize(
    ("cost", "reason", "pointer"),
    [
        ("-1", "because", "/cost"),
        ("NaN", "because", "/cost"),
        ("Infinity", "because", "/cost"),
        ("10000000000000", "because", "/cost"),
        ("0.00001", "because", "/cost"),
        ("1", "  ", "/reason"),
        ("1", "x" * 151, "/reason"),
    ],
)
def test_a_correction_that_says_too_little_changes_nothing(
    alice: User, anvil: System, now: datetime, cost: str, reason: str, pointer: str
) -> None:
    attempt = run(submit(alice, now), now, ran_s=1800)

    with pytest.raises(InvalidInput) as refused:
        _correct(attempt, cost, now, reason)

    assert [where for where, *_ in refused.value.problems] == [pointer]
    assert Charge.objects.count() == 2
    attempt.refresh_from_db()
    assert attempt.charge_cost == Decimal("0.5")


def test_only_what_is_settled_can_be_corrected(alice: User, anvil: System, now: datetime) -> None:
    open_ = newest(submit(alice, now))

    with pytest.raises(Conflict, match="not settled yet"):
        _correct(open_, "1", now)
    with pytest.raises(NotFound):
        correct_cost("att_none", Decimal(1), reason="x", actor="user:root", now=now)
    assert list(Charge.objects.values_list("kind", flat=True)) == ["reserve"]
