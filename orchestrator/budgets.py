"""What work needs of its budgets, what they refuse, what a person must approve, what is to be told. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import ROUND_UP, Decimal
from typing import Any

from providers.types import Frozen

CENT = Decimal("0.0001")
"""Amounts are rounded up to this, as charges are."""
HOUR_S = 3600
THRESHOLDS = (0.8,)
"""What is told of a budget that says nothing of its own."""
UNITS: Mapping[str, str] = {
    "node_hours": "node-hours",
    "accelerator_hours": "accelerator-hours",
    "attempts": "attempts",
    "model_tokens": "model tokens",
}
"""Of the measures that are the same everywhere; a charge is in the site's own."""


@dataclass(frozen=True, slots=True)
class Need:
    """An amount of one measure; `system` names the site of a charge and is empty otherwise."""

    measure: str
    amount: Decimal
    system: str = ""


@dataclass(frozen=True, slots=True)
class Gauge:
    """One meter as it stands, with what its budget is set on."""

    meter: int
    """Its row."""
    budget: str
    scope: str
    subject: str
    measure: str
    system: str
    unit: str
    limit: Decimal | None
    approval_above: Decimal | None
    reserved: Decimal
    used: Decimal
    is_imposed: bool = False

    @property
    def left(self) -> Decimal | None:
        """Return what may still be held; None = not limited."""
        return None if self.limit is None else self.limit - self.used - self.reserved

    def amount_in(self, needs: Iterable[Need]) -> Decimal:
        """Return how much of this measure is needed."""
        same = (need.amount for need in needs if (need.measure, need.system) == (self.measure, self.system))
        return sum(same, Decimal(0))


class Ask(Frozen):
    """What one meter would hold for one attempt, and above what a person is asked."""

    budget: str
    scope: str
    subject: str
    measure: str
    system: str | None
    unit: str
    amount: Decimal
    approval_above: Decimal


@dataclass(frozen=True, slots=True)
class Refusal:
    """A meter that has not enough left."""

    gauge: Gauge
    amount: Decimal

    @property
    def sentence(self) -> str:
        """Return what is missing, as a person reads it."""
        left = max(Decimal(0), self.gauge.left or Decimal(0))
        where = f" at {self.gauge.system}" if self.gauge.system else ""
        return (
            f"the budget {self.gauge.budget} of {self.gauge.scope} {self.gauge.subject} has {plain(left)} "
            f"{self.gauge.unit}{where} left of {plain(self.gauge.limit or Decimal(0))}; "
            f"this needs {plain(self.amount)}"
        )


def plain(amount: Decimal) -> str:
    """Return an amount without an exponent or trailing zeros."""
    return f"{amount.normalize():f}" if amount else "0"


def _hours(count: int, seconds: Decimal) -> Decimal:
    return (Decimal(count) * seconds / HOUR_S).quantize(CENT, rounding=ROUND_UP)


def needs_of(system: str, shape: Mapping[str, Any], charge: Decimal) -> tuple[Need, ...]:
    """Return what an attempt of this shape holds: its whole wall time, one attempt, its charge."""
    return used_by(system, shape, charge, seconds=Decimal(int(shape["walltime_s"])))


def used_by(system: str, shape: Mapping[str, Any], charge: Decimal, *, seconds: Decimal) -> tuple[Need, ...]:
    """Return what an attempt used that held its nodes for so long and cost so much."""
    return (
        Need("charge", charge, system),
        Need("node_hours", _hours(int(shape["nodes"]), seconds)),
        Need("accelerator_hours", _hours(int(shape["gpus"]), seconds)),
        Need("attempts", Decimal(1)),
    )


def held_s(started_at: datetime | None, ended_at: datetime | None) -> Decimal:
    """Return how long nodes were held, s; 0 for what never started."""
    if started_at is None or ended_at is None:
        return Decimal(0)
    return max(Decimal(0), Decimal(str((ended_at - started_at).total_seconds())))


def refusals(gauges: Iterable[Gauge], needs: Sequence[Need]) -> tuple[Refusal, ...]:
    """Return every meter that has less left than is needed."""
    found = []
    for gauge in gauges:
        amount, left = gauge.amount_in(needs), gauge.left
        if left is not None and amount > 0 and amount > left:
            found.append(Refusal(gauge, amount))
    return tuple(found)


def charges_left(gauges: Iterable[Gauge]) -> dict[str, Decimal]:
    """Return what may still be charged by system: the least of all budgets; unlimited systems are absent."""
    found: dict[str, Decimal] = {}
    for gauge in gauges:
        if gauge.measure == "charge" and gauge.left is not None:
            left = max(Decimal(0), gauge.left)
            found[gauge.system] = min(left, found.get(gauge.system, left))
    return found


def least_left(gauges: Iterable[Gauge], measure: str) -> Decimal | None:
    """Return the least that is left of a measure; None = not limited."""
    known = [gauge.left for gauge in gauges if gauge.measure == measure and gauge.left is not None]
    return max(Decimal(0), min(known)) if known else None


def asks(gauges: Iterable[Gauge], needs: Sequence[Need], approved: Iterable[Ask] = ()) -> tuple[Ask, ...]:
    """Return what a person must approve; an approval covers an attempt that needs no more than it says."""
    covered = {(ask.budget, ask.measure, ask.system or ""): ask.amount for ask in approved}
    found = []
    for gauge in gauges:
        amount = gauge.amount_in(needs)
        if gauge.approval_above is None or amount <= gauge.approval_above:
            continue
        if amount <= covered.get((gauge.budget, gauge.measure, gauge.system), Decimal(-1)):
            continue
        found.append(
            Ask(
                budget=gauge.budget,
                scope=gauge.scope,
                subject=gauge.subject,
                measure=gauge.measure,
                system=gauge.system or None,
                unit=gauge.unit,
                amount=amount,
                approval_above=gauge.approval_above,
            )
        )
    return tuple(found)


def ask_words(found: Sequence[Ask]) -> str:
    """Return what is asked, as a person reads it."""
    return "; ".join(
        f"{plain(ask.amount)} {ask.unit}"
        + (f" at {ask.system}" if ask.system else "")
        + f" is more than the {plain(ask.approval_above)} that {ask.scope} {ask.subject} may use unasked"
        for ask in found
    )


def newly_passed(
    committed: Decimal, limit: Decimal | None, thresholds: Sequence[float], told: float
) -> float:
    """Return the largest threshold that is passed and was not told; 0 where there is none.

    `committed` is what is used and held together: what will be used up unless work ends early.
    """
    if limit is None or limit <= 0:
        return 0.0
    share = committed / limit
    passed = [each for each in thresholds if each > told and share >= Decimal(str(each))]
    return max(passed, default=0.0)
