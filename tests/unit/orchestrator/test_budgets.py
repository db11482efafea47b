"""What budgets refuse, ask and tell, and what may be said of them: pure, with exact figures."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from orchestrator.budget_input import BudgetInput, SetBudgetInput
from orchestrator.budgets import (
    Ask,
    Gauge,
    Need,
    asks,
    charges_left,
    held_s,
    least_left,
    needs_of,
    newly_passed,
    refusals,
    used_by,
)
from providers.errors import InvalidInput
from providers.reading import read

SHAPE = {"nodes": 2, "gpus": 8, "cpus": 16, "walltime_s": 5400}
METER = Gauge(
    meter=1,
    budget="bud_1",
    scope="project",
    subject="climate",
    measure="charge",
    system="delta",
    unit="SU",
    limit=Decimal(100),
    approval_above=None,
    reserved=Decimal(30),
    used=Decimal(50),
)


def _need(amount: str, measure: str = "charge", system: str = "delta") -> Need:
    return Need(measure, Decimal(amount), system)


def test_an_attempt_needs_its_whole_wall_time() -> None:
    assert needs_of("delta", SHAPE, Decimal("12.5")) == (
        Need("charge", Decimal("12.5"), "delta"),
        Need("node_hours", Decimal("3.0000")),
        Need("accelerator_hours", Decimal("12.0000")),
        Need("attempts", Decimal(1)),
    )


def test_what_was_used_follows_the_time_nodes_were_held_and_is_rounded_up() -> None:
    begun = datetime(2027, 1, 31, 12, tzinfo=UTC)
    seconds = held_s(begun, begun + timedelta(seconds=100))

    used = used_by("delta", SHAPE, Decimal(1), seconds=seconds)

    assert [need.amount for need in used] == [
        Decimal(1),
        Decimal("0.0556"),
        Decimal("0.2223"),
        Decimal(1),
    ]
    assert held_s(None, begun) == held_s(begun, begun - timedelta(seconds=5)) == 0


def test_a_meter_refuses_more_than_is_left_and_says_how_much_that_is() -> None:
    assert refusals([METER], [_need("20")]) == ()
    (refused,) = refusals([METER], [_need("20.0001")])

    assert refused.sentence == (
        "the budget bud_1 of project climate has 20 SU at delta left of 100; this needs 20.0001"
    )


def test_charges_of_another_site_are_never_added() -> None:
    assert refusals([METER], [_need("500", system="vista")]) == ()
    assert charges_left([METER, replace(METER, limit=Decimal(90)), replace(METER, system="vista")]) == {
        "delta": Decimal(10),
        "vista": Decimal(20),
    }


def test_a_meter_without_a_limit_only_counts() -> None:
    free = replace(METER, limit=None)

    assert refusals([free], [_need("1000000")]) == ()
    assert charges_left([free]) == {}
    assert least_left([free], "charge") is None


def test_what_is_overdrawn_leaves_nothing_and_never_less() -> None:
    overdrawn = replace(METER, used=Decimal(300))

    assert charges_left([overdrawn]) == {"delta": Decimal(0)}
    assert least_left([overdrawn], "charge") == 0
    assert refusals([overdrawn], [_need("0")]) == ()


def test_a_person_is_asked_only_above_the_threshold_and_once() -> None:
    careful = replace(METER, approval_above=Decimal(10))
    assert asks([careful], [_need("10")]) == ()

    (asked,) = asks([careful], [_need("10.5")])

    assert (asked.amount, asked.approval_above, asked.system) == (Decimal("10.5"), Decimal(10), "delta")
    assert asks([careful], [_need("10.5")], [asked]) == ()
    assert asks([careful], [_need("10.6")], [asked]) != ()
    other = Ask.model_validate({**asked.model_dump(), "budget": "bud_2"})
    assert asks([careful], [_need("10.5")], [other]) != ()


@pytest.mark.parametrize(
    ("committed", "told", "passed"),
    [
        ("49.9", 0, 0.0),
        ("80", 0, 0.8),
        ("80", 0.8, 0.0),
        ("95", 0.5, 0.9),
        ("95", 0.9, 0.0),
        ("120", 0.9, 1.0),
    ],
)
def test_a_threshold_is_told_once_and_the_largest_at_once(committed: str, told: float, passed: float) -> None:
    assert newly_passed(Decimal(committed), Decimal(100), (0.5, 0.8, 0.9, 1.0), told) == passed


def test_nothing_is_passed_without_a_limit() -> None:
    assert newly_passed(Decimal(5), None, (0.8,), 0) == 0.0
    assert newly_passed(Decimal(5), Decimal(0), (0.8,), 0) == 0.0


def test_limits_are_read_by_measure_and_system() -> None:
    given = read(
        BudgetInput,
        {
            "max_charge": {"delta": 12.5, "vista": "3"},
            "max_node_hours": 4,
            "max_attempts": 3,
            "approve_above": {"charge": {"delta": 2}, "accelerator_hours": 8},
            "thresholds": [0.9, 0.5, 0.9],
        },
        what="budget",
    )

    assert given.limits() == {
        ("charge", "delta"): Decimal("12.5"),
        ("charge", "vista"): Decimal(3),
        ("node_hours", ""): Decimal(4),
        ("attempts", ""): Decimal(3),
    }
    assert given.unasked() == {("charge", "delta"): Decimal(2), ("accelerator_hours", ""): Decimal(8)}
    assert given.thresholds == (0.5, 0.9)


@pytest.mark.parametrize(
    ("given", "pointer"),
    [
        ({}, ""),
        ({"thresholds": [0.5]}, ""),
        ({"max_node_hours": -1}, "/max_node_hours"),
        ({"max_charge": {"delta": "1.23456"}}, "/max_charge/delta"),
        ({"max_attempts": 0}, "/max_attempts"),
        ({"max_attempts": 1, "thresholds": [1.5]}, "/thresholds/0"),
        ({"max_attempts": 1, "on_exhaustion": "kill"}, "/on_exhaustion"),
        ({"deadline": "2027-01-31T12:00:00"}, "/deadline"),
        ({"max_nodehours": 1}, "/max_nodehours"),
    ],
)
def test_a_bad_budget_is_refused_at_its_place(given: dict[str, object], pointer: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        read(BudgetInput, given, what="budget")

    assert [where for where, _, _ in refused.value.problems] == [pointer]


@pytest.mark.parametrize("named", [{}, {"task": "task_1", "project": "x"}])
def test_a_budget_is_set_on_exactly_one_thing(named: dict[str, str]) -> None:
    with pytest.raises(InvalidInput, match="exactly one"):
        read(SetBudgetInput, {**named, "max_attempts": 1}, what="budget")

    assert read(SetBudgetInput, {"project": "x", "max_attempts": 1}, what="budget").on == ("project", "x")
