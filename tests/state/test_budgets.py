"""Budgets hold at placement, settle at the end, tell once, and never let two at once spend the same rest."""

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.db.models import Model

from federation.models import Allocation, Event, System
from orchestrator import budget_selectors as selectors
from orchestrator.budget_input import BudgetInput
from orchestrator.budget_models import TokenDescent
from orchestrator.lifecycle import AttemptState, Cause, TaskState
from orchestrator.models import Attempt, Budget, Meter, Task
from orchestrator.selectors import show_task
from orchestrator.selectors import tasks as tasks_of
from orchestrator.services import budgets, deadlines, groups, tasks
from orchestrator.services.replacement import reconsider
from orchestrator.services.spending import purse_of
from providers.errors import InvalidInput, NotAuthorized, NotFound
from tests.state.spending import ONE_GPU, check_ledgers, end, newest, run, send, start, submit
from tests.web.world import make_system

pytestmark = pytest.mark.django_db


@pytest.fixture
def anvil(alice: User, now: datetime) -> System:
    """One system that charges 1 SU for a GPU-hour; alice may use a thousand."""
    return make_system(alice, "anvil", "Anvil", "a100", "40G", free=3, now=now)


def _budget(user: User, now: datetime, on: tuple[str, str] = ("project", "climate"), **given: Any) -> Budget:
    return budgets.set_budget(user.pk, on, BudgetInput.model_validate(given), actor="user:alice", now=now)


def _meters(budget: Budget) -> Mapping[str, Any]:
    """Return (reserved, used) by measure."""
    rows = Meter.objects.filter(budget=budget)
    return {row.measure: (row.reserved, row.used) for row in rows}


def _figures(*amounts: Decimal | None) -> tuple[Any, ...]:
    """Return amounts to be compared with plain numbers."""
    return amounts


def _told(word: str) -> list[dict[str, Any]]:
    return list(Event.objects.filter(type=word).order_by("id").values_list("data", flat=True))


def test_an_attempt_holds_and_settles_every_measure(alice: User, anvil: System, now: datetime) -> None:
    budget = _budget(
        alice,
        now,
        max_charge={"anvil": 10},
        max_node_hours=10,
        max_accelerator_hours=10,
        max_attempts=5,
        thresholds=[1],
    )
    task = submit(alice, now, project="climate")

    one = Decimal("1.0000")
    assert set(_meters(budget).values()) == {(one, Decimal(0))}
    assert Attempt.objects.get().charge_held == one

    run(task, now, ran_s=900)

    quarter = Decimal("0.2500")
    assert _meters(budget) == {
        "charge": (0, quarter),
        "node_hours": (0, quarter),
        "accelerator_hours": (0, quarter),
        "attempts": (0, 1),
    }
    check_ledgers()


def test_only_what_an_attempt_still_holds_is_left_out_of_a_purse(
    alice: User, anvil: System, now: datetime
) -> None:
    budget = _budget(alice, now, max_charge={"anvil": 10})
    over = submit(alice, now, project="climate")
    run(over, now, ran_s=900)
    open_ = submit(alice, now, project="climate")

    def reserved(without: Attempt) -> Decimal:
        (gauge,) = purse_of(open_, without=without.handle).gauges
        return gauge.reserved

    assert _meters(budget) == {"charge": (Decimal("1.0000"), Decimal("0.2500"))}
    assert (reserved(newest(over)), reserved(newest(open_))) == (Decimal("1.0000"), Decimal(0))


def test_work_of_another_project_is_not_counted(alice: User, anvil: System, now: datetime) -> None:
    budget = _budget(alice, now, max_charge={"anvil": 10})
    submit(alice, now, project="weather")
    submit(alice, now)

    assert _meters(budget) == {"charge": (0, 0)}


@pytest.mark.parametrize(
    "limits",
    [{"max_charge": {"anvil": 1}}, {"max_node_hours": 1}, {"max_accelerator_hours": 1}, {"max_attempts": 1}],
)
def test_what_a_budget_cannot_pay_is_not_placed_until_it_can(
    alice: User, anvil: System, now: datetime, limits: dict[str, Any]
) -> None:
    budget = _budget(alice, now, **limits)
    submit(alice, now, project="climate")

    second = submit(alice, now, project="climate")

    assert second.state == TaskState.UNSCHEDULABLE
    assert budget.handle in second.reason
    assert second.attempts.count() == 0
    (told,) = _told("budget.exhausted")
    assert (told["budget"], told["scope"], told["subject"]) == (budget.handle, "project", "climate")
    assert selectors.show_budget(Budget.objects.get()).state == "exhausted"

    more: dict[str, Any] = {name: {"anvil": 5} if name == "max_charge" else 5 for name in limits}
    _budget(alice, now, **more)
    tasks.advance_task(second.pk, now=now)

    second.refresh_from_db()
    assert second.state == TaskState.PLACING
    assert selectors.show_budget(Budget.objects.get()).state == "open"
    check_ledgers()


def test_a_task_that_waits_for_budget_is_looked_at_without_keeping_decisions(
    alice: User, anvil: System, now: datetime
) -> None:
    _budget(alice, now, max_node_hours=1)
    submit(alice, now, project="climate")
    second = submit(alice, now, project="climate")

    for minute in range(1, 4):
        tasks.advance_task(second.pk, now=now + timedelta(minutes=minute, seconds=1))

    assert second.decisions.count() == 1
    assert len(_told("budget.exhausted")) == 1


def test_sizes_shrink_to_what_the_accelerator_hours_pay(alice: User, anvil: System, now: datetime) -> None:
    _budget(alice, now, max_accelerator_hours=2)

    task = submit(
        alice, now, project="climate", envelope={"gpus": {"min": 1, "max": 3}, "cpus": 1, "walltime_s": 3600}
    )

    assert newest(task).shape["gpus"] == 2


def test_thresholds_are_told_once_each(alice: User, anvil: System, now: datetime) -> None:
    _budget(alice, now, max_node_hours=4, thresholds=[0.5, 0.75])
    for _ in range(3):
        submit(alice, now, project="climate")

    told = _told("budget.threshold")

    assert [(each["threshold"], each["reserved"], each["limit"]) for each in told] == [
        (0.5, "2", "4"),
        (0.75, "3", "4"),
    ]


def test_exhaustion_never_ends_running_work(alice: User, anvil: System, now: datetime) -> None:
    budget = _budget(alice, now, max_node_hours=1)
    task = submit(alice, now, project="climate")
    attempt = newest(task)
    send(attempt, now)
    start(attempt, now)

    submit(alice, now, project="climate")
    deadlines.sweep(now=now)

    task.refresh_from_db()
    attempt.refresh_from_db()
    assert (task.state, attempt.cancel_requested_at) == (TaskState.RUNNING, None)
    assert _meters(budget)["node_hours"] == (1, 0)


@pytest.mark.django_db(transaction=True)
def test_two_submissions_at_once_do_not_spend_the_same_rest(
    alice: User, anvil: System, now: datetime
) -> None:
    budget = _budget(alice, now, max_charge={"anvil": 2}, max_node_hours=50)
    Allocation.objects.update(granted=Decimal(3))

    def one(number: int) -> str:
        try:
            project = "climate" if number % 2 else "weather"
            return submit(alice, now, project=project).state
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        states = sorted(pool.map(one, range(8)))

    assert states == ["placing"] * 3 + ["unschedulable"] * 5
    assert Allocation.objects.get().reserved == 3
    assert _meters(budget)["charge"][0] <= 2
    check_ledgers()


def test_a_retry_holds_anew_and_its_own_budget_ends_it(alice: User, anvil: System, now: datetime) -> None:
    task = submit(alice, now, retry={"max_attempts": 5, "on": ["node_failure"]}, budget={"max_attempts": 2})
    for number in (1, 2):
        attempt = newest(task)
        assert attempt.number == number
        send(attempt, now)
        end(attempt, now, ran_s=60, state=AttemptState.FAILED, cause=Cause.NODE_FAILURE)
        tasks.advance_task(task.pk, now=now)

    task.refresh_from_db()
    assert (task.state, task.attempts.count()) == (TaskState.FAILED, 2)
    assert _meters(Budget.objects.get()) == {"attempts": (0, 2)}
    check_ledgers()


@pytest.mark.parametrize(("raised", "ends"), [(None, TaskState.FAILED), (3, TaskState.PLACING)])
def test_a_task_may_make_as_many_attempts_as_its_budget_says_now(
    alice: User, anvil: System, now: datetime, raised: int | None, ends: TaskState
) -> None:
    task = submit(alice, now, retry={"max_attempts": 5, "on": ["node_failure"]}, budget={"max_attempts": 1})
    send(newest(task), now)
    if raised is not None:
        limit = BudgetInput(max_attempts=raised)
        budgets.set_budget(alice.pk, ("task", task.handle), limit, actor="user:alice", now=now)

    end(newest(task), now, ran_s=60, state=AttemptState.FAILED, cause=Cause.NODE_FAILURE)

    task.refresh_from_db()
    assert task.state == ends


def test_an_attempt_that_never_reached_its_site_costs_nothing(
    alice: User, anvil: System, now: datetime
) -> None:
    budget = _budget(alice, now, max_attempts=3, max_charge={"anvil": 3})
    task = submit(alice, now, project="climate")

    tasks.cancel_task(alice, task.handle, actor="user:alice", now=now)

    assert _meters(budget) == {"attempts": (0, 0), "charge": (0, 0)}
    assert Allocation.objects.get().reserved == 0
    check_ledgers()


def test_children_share_the_budget_of_their_group(alice: User, anvil: System, now: datetime) -> None:
    children = [{"command": "true", "envelope": ONE_GPU} for _ in range(3)]
    made = groups.submit_group(
        alice,
        {"children": children, "budget": {"max_node_hours": 2}, "project": "climate"},
        actor="user:alice",
        now=now,
    )
    groups.advance_group(made.group.pk, now=now)

    states = sorted(Task.objects.values_list("state", flat=True))
    assert states == ["placing", "placing", "unschedulable"]
    assert set(Task.objects.values_list("project", flat=True)) == {"climate"}
    assert _meters(Budget.objects.get(scope="group")) == {"node_hours": (2, 0)}


@pytest.mark.django_db(transaction=True)
def test_cancelling_a_group_and_settling_one_of_its_children_never_wait_for_each_other(
    alice: User, anvil: System, now: datetime
) -> None:
    children = [{"command": "true", "envelope": ONE_GPU} for _ in range(2)]
    given = {"children": children, "budget": {"max_node_hours": 9}}
    made = groups.submit_group(alice, given, actor="user:alice", now=now)
    groups.advance_group(made.group.pk, now=now)
    last = made.tasks[-1]
    send(newest(last), now)

    def cancel() -> str:
        try:
            return groups.cancel_group(alice, made.group.handle, actor="user:alice", now=now).state
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            Task.objects.select_for_update(no_key=True).get(pk=last.pk)
            other = pool.submit(cancel)
            _wait_until_somebody_waits()
            end(newest(last), now, ran_s=60)
        assert other.result(timeout=60) == "running"

    last.refresh_from_db()
    assert last.state == TaskState.SUCCEEDED
    check_ledgers()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("first", [Task, Meter])
def test_setting_a_budget_and_booking_on_it_never_wait_for_each_other(
    alice: User, anvil: System, now: datetime, first: type[Model]
) -> None:
    budget = _budget(alice, now, max_node_hours=0)
    _budget(alice, now, max_node_hours=0, max_charge={"anvil": 5})
    task = submit(alice, now, project="climate")
    assert task.state == TaskState.UNSCHEDULABLE
    by_age = list(Meter.objects.filter(budget=budget).order_by("pk").values_list("pk", flat=True))

    def raise_it() -> None:
        try:
            _budget(alice, now, max_node_hours=9, max_charge={"anvil": 9})
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            held = task.pk if first is Task else by_age[0]
            first._default_manager.select_for_update(no_key=True).get(pk=held)
            other = pool.submit(raise_it)
            _wait_until_somebody_waits()
            list(Meter.objects.select_for_update(no_key=True).filter(pk__in=by_age).order_by("pk"))
        other.result(timeout=60)

    assert {meter.limit for meter in Meter.objects.all()} == {9}
    task.refresh_from_db()
    assert task.due_at == now


@pytest.mark.django_db(transaction=True)
def test_two_who_set_the_first_budget_at_once_set_one(alice: User, anvil: System, now: datetime) -> None:
    def second() -> Budget:
        try:
            return _budget(alice, now, max_attempts=2)
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            first = _budget(alice, now, max_attempts=1)
            other = pool.submit(second)
            _wait_until_somebody_waits()
        assert other.result(timeout=60) == first

    assert Meter.objects.get().limit == 2


def _wait_until_somebody_waits() -> None:
    """Wait until another transaction waits for a lock."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
            if cursor.fetchone()[0]:
                return
        time.sleep(0.02)
    pytest.fail("nobody waits")


def test_budgets_whose_work_has_ended_keep_no_other_from_being_looked_at(
    alice: User, anvil: System, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadlines, "_AT_ONCE", 1)
    TokenDescent.objects.create(user=alice, token="tok_child", ancestor="tok_1")
    for on in (("project", "climate"), ("token", "tok_1")):
        _budget(alice, now, on, max_attempts=1, on_exhaustion="cancel")
    run(submit(alice, now, project="climate"), now)
    waits = submit(alice, now, token="tok_child")
    Meter.objects.filter(budget__scope="token").update(used=1)

    assert deadlines.sweep(now=now) == 1

    waits.refresh_from_db()
    assert waits.state == TaskState.CANCELLED


def test_a_token_spends_from_its_own_budget(alice: User, anvil: System, now: datetime) -> None:
    budget = _budget(alice, now, ("token", "tok_1"), max_node_hours=1)
    submit(alice, now)

    first = submit(alice, now, token="tok_1", actor="token:agent")
    second = submit(alice, now, token="tok_1", actor="token:agent")

    assert (first.state, second.state) == (TaskState.PLACING, TaskState.UNSCHEDULABLE)
    assert _meters(budget) == {"node_hours": (1, 0)}


def test_waiting_work_is_not_moved_to_where_its_budget_would_not_pay(
    alice: User, anvil: System, now: datetime
) -> None:
    make_system(alice, "delta", "Delta", "a100", "40G", free=3, now=now)
    policy = {"prefer": ["anvil"]}
    task = submit(
        alice,
        now,
        budget={"approve_above": {"charge": {"delta": 0}}},
        envelope={**ONE_GPU, "policy": policy},
    )
    attempt = newest(task)
    assert attempt.system.slug == "anvil"
    send(attempt, now)
    Attempt.objects.filter(pk=attempt.pk).update(
        submitted_at=now - timedelta(days=2), predicted={**attempt.predicted, "completion_s": 900_000}
    )
    task = tasks.find_task(alice, task.handle)

    assert reconsider(task, now=now) is False

    budgets.close_budget(alice, Budget.objects.get().handle, now=now)
    assert reconsider(task, now=now) is True


# --- what is set -----------------------------------------------------------------------------------


def test_setting_again_replaces_limits_and_keeps_counts(alice: User, anvil: System, now: datetime) -> None:
    first = _budget(alice, now, max_node_hours=5, max_attempts=9)
    submit(alice, now, project="climate")

    second = _budget(alice, now, max_node_hours=7)

    assert second.pk == first.pk
    shown = {each.measure: each for each in selectors.show_budget(second).meters}
    assert _figures(shown["node_hours"].limit, shown["node_hours"].reserved) == (7, 1)
    assert _figures(shown["attempts"].limit, shown["attempts"].reserved) == (None, 1)


def test_what_an_administrator_imposed_only_an_administrator_changes(
    alice: User, anvil: System, now: datetime
) -> None:
    wanted = BudgetInput.model_validate({"max_attempts": 1})
    imposed = budgets.set_budget(
        alice.pk, ("project", "x"), wanted, actor="user:root", now=now, as_admin=True
    )

    with pytest.raises(NotAuthorized, match="administrator"):
        _budget(alice, now, ("project", "x"), max_attempts=50)
    with pytest.raises(NotAuthorized, match="administrator"):
        budgets.close_budget(alice, imposed.handle, now=now)
    assert budgets.close_budget(alice, imposed.handle, now=now, as_admin=True).closed_at == now


def test_a_budget_names_what_exists_and_a_time_to_come(
    alice: User, bob: User, anvil: System, now: datetime
) -> None:
    task = submit(alice, now)

    with pytest.raises(InvalidInput) as refused:
        _budget(alice, now, max_charge={"anvill": 1}, deadline=now)
    assert [(where, code) for where, code, _ in refused.value.problems] == [
        ("/max_charge/anvill", "unknown_system"),
        ("/deadline", "in_the_past"),
    ]
    with pytest.raises(NotFound):
        _budget(bob, now, ("task", task.handle), max_attempts=1)
    with pytest.raises(NotFound):
        budgets.close_budget(bob, _budget(alice, now, max_attempts=1).handle, now=now)


# --- cost ------------------------------------------------------------------------------------------


def test_a_task_tells_what_it_costs_before_and_after(alice: User, anvil: System, now: datetime) -> None:
    given = {**ONE_GPU, "runtime": {"estimate_s": 1800}}
    task = submit(alice, now, envelope=given)

    (before,) = show_task(tasks_of(alice).get()).cost
    run(task, now, ran_s=900)
    (after,) = show_task(tasks_of(alice).get()).cost

    assert (before.system, before.unit) == ("anvil", "SU")
    assert before.predicted_p50 is not None
    assert before.predicted_p90 is not None
    assert Decimal("0.49") < before.predicted_p50 < before.predicted_p90 < 1
    assert _figures(before.predicted_most, before.reserved, before.settled) == (1, 1, 0)
    assert _figures(after.reserved, after.settled) == (0, Decimal("0.25"))
