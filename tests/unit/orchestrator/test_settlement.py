"""What an attempt costs, to the fourth decimal."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from orchestrator.settlement import cost_of

START = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("held_s", "amount", "cost"),
    [(3600, "4", "4.0000"), (900, "4", "1.0000"), (1, "4", "0.0012"), (0, "4", "0"), (7200, "4", "8.0000")],
)
def test_the_charge_is_the_decisions_for_the_time_held_rounded_up(
    held_s: int, amount: str, cost: str
) -> None:
    predicted = {"charge": {"amount": amount, "unit": "SU"}}
    ended_at = START + timedelta(seconds=held_s)

    found = cost_of(predicted, walltime_s=3600, started_at=START, ended_at=ended_at)

    assert found == Decimal(cost)


def test_what_never_started_costs_nothing() -> None:
    predicted = {"charge": {"amount": "4", "unit": "SU"}}

    assert cost_of(predicted, walltime_s=3600, started_at=None, ended_at=START) == 0
    assert cost_of(predicted, walltime_s=3600, started_at=START, ended_at=None) == 0
    assert cost_of({}, walltime_s=3600, started_at=START, ended_at=START + timedelta(hours=1)) == 0
