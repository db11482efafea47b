"""What an attempt may hold, holds and cost: the site's credit and the task's budgets, kept together."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import ROUND_DOWN, Decimal

from federation import charges
from federation.ledger import Happening, record
from federation.selectors import credit_left
from orchestrator.budget_selectors import gauges
from orchestrator.budgets import (
    HOUR_S,
    Ask,
    Gauge,
    Need,
    Refusal,
    asks,
    charges_left,
    held_s,
    least_left,
    needs_of,
    refusals,
    used_by,
)
from orchestrator.envelope.types import Envelope, Range
from orchestrator.models import Attempt, Budget, Task
from orchestrator.placement.types import Decision as DecisionValue
from orchestrator.placement.types import Selected
from orchestrator.services import budgets
from orchestrator.services.approvals import granted
from orchestrator.settlement import cost_of


@dataclass(frozen=True, slots=True)
class Purse:
    """What binds the spending of one task, read at one instant."""

    budgets: Sequence[Budget] = ()
    gauges: Sequence[Gauge] = ()
    approved: Sequence[Ask] = ()

    def charges_left(self) -> dict[str, Decimal]:
        """Return what may be charged by system; unlimited systems are absent."""
        return charges_left(self.gauges)

    def too_late(self, now: datetime) -> Budget | None:
        """Return a budget whose deadline has passed."""
        late = (each for each in self.budgets if each.deadline_at is not None and each.deadline_at <= now)
        return next(late, None)

    def refusals(self, chosen: Selected) -> tuple[Refusal, ...]:
        """Return the meters with too little left for a placement."""
        return refusals(self.gauges, needs(chosen))

    def asks(self, chosen: Selected) -> tuple[Ask, ...]:
        """Return what of a placement a person must approve first."""
        return asks(self.gauges, needs(chosen), self.approved)

    def is_imposed(self, asked: Sequence[Ask]) -> bool:
        """Return whether an administrator imposed one of the budgets that ask."""
        imposed = {gauge.budget for gauge in self.gauges if gauge.is_imposed}
        return any(each.budget in imposed for each in asked)


def purse_of(task: Task, *, without: str = "") -> Purse:
    """Return what binds a task now; `without` names an attempt whose holdings are to be given back."""
    rows = budgets.budgets_of(task)
    if not rows:
        return Purse()
    found = gauges(rows)
    if without:
        held = budgets.open_holdings(without)
        found = tuple(
            replace(each, reserved=each.reserved - held.get(each.meter, Decimal(0))) for each in found
        )
    return Purse(tuple(rows), found, tuple(granted(task)))


def needs(chosen: Selected) -> tuple[Need, ...]:
    """Return what an attempt at a placement would hold."""
    shape = chosen.shape
    return needs_of(
        chosen.system,
        {"nodes": shape.nodes, "gpus": shape.gpus, "walltime_s": shape.walltime_s},
        chosen.estimates.charge.amount,
    )


def within(envelope: Envelope, purse: Purse) -> Envelope:
    """Return the envelope without the sizes that its budgets could not pay for; never under its minimum."""
    hours = {name: least_left(purse.gauges, name) for name in ("accelerator_hours", "node_hours")}
    walltime_s = envelope.walltime_s.max or envelope.walltime_s.min
    changes = {}
    for name, field in (("accelerator_hours", "gpus"), ("node_hours", "nodes")):
        left, asked = hours[name], getattr(envelope, field)
        if left is None or asked is None or not walltime_s:
            continue
        most = int((left * HOUR_S / walltime_s).to_integral_value(rounding=ROUND_DOWN))
        if asked.min <= most < asked.max:
            changes[field] = Range(min=asked.min, max=most)
    return envelope.model_copy(update=changes) if changes else envelope


def fits(task: Task, chosen: Selected, purse: Purse) -> bool:
    """Return whether a placement's charge is covered by the site's credit and by every budget, read now."""
    amount = chosen.estimates.charge.amount
    left = credit_left(task.user_id, chosen.system, chosen.account or "")
    if left is not None and amount > left:
        return False
    budgeted = purse.charges_left().get(chosen.system)
    return budgeted is None or amount <= budgeted


def refused_charges(value: DecisionValue, purse: Purse) -> tuple[Refusal, ...]:
    """Return the budgets for lack of which candidates were rejected, by the cheapest of each system."""
    needed: dict[str, Decimal] = {}
    for candidate in value.candidates:
        for rejection in candidate.rejections:
            if rejection.code == "credit_exceeded" and rejection.required:
                amount = Decimal(str(rejection.required))
                needed[candidate.system] = min(amount, needed.get(candidate.system, amount))
    return refusals(purse.gauges, [Need("charge", amount, slug) for slug, amount in needed.items()])


def hold(task: Task, attempt: Attempt, chosen: Selected, purse: Purse, *, now: datetime) -> list[Happening]:
    """Hold an attempt's charge at its site and what it needs of its budgets; under the spender's lock."""
    amount = chosen.estimates.charge.amount
    line = charges.reserve(
        user_id=task.user_id,
        system_id=attempt.system_id,
        account=attempt.account,
        attempt=attempt.handle,
        amount=amount,
        now=now,
    )
    told = budgets.hold(task, attempt.handle, purse.gauges, needs(chosen), now=now)
    counted = any(gauge.measure == "charge" and gauge.system == chosen.system for gauge in purse.gauges)
    if line is not None or counted:
        Attempt.objects.filter(pk=attempt.pk).update(charge_held=amount)
        attempt.charge_held = amount
    return told


def settle(attempt: Attempt, *, now: datetime) -> None:
    """Turn what was held into what accounting says it cost; a second call does nothing."""
    cost = cost_of(
        attempt.predicted,
        walltime_s=attempt.shape["walltime_s"],
        started_at=attempt.started_at,
        ended_at=attempt.ended_at,
    )
    if cost == Decimal(0):
        charges.release(attempt=attempt.handle, now=now)
    else:
        charges.settle(attempt=attempt.handle, amount=cost, now=now)
    used = used_by(
        attempt.system.slug, attempt.shape, cost, seconds=held_s(attempt.started_at, attempt.ended_at)
    )
    if attempt.dispatches == 0:
        used = tuple(need for need in used if need.measure != "attempts")
    record(budgets.settle(attempt.task, attempt.handle, used, now=now), now=now)
    Attempt.objects.filter(pk=attempt.pk).update(charge_held=0, charge_cost=cost)
    attempt.charge_held, attempt.charge_cost = Decimal(0), cost


def give_back(attempt: Attempt, *, now: datetime) -> None:
    """Give back everything held for an attempt that never reached its site."""
    charges.release(attempt=attempt.handle, now=now)
    budgets.give_back(attempt.handle, now=now)
    Attempt.objects.filter(pk=attempt.pk).update(charge_held=0, charge_cost=0)
    attempt.charge_held = attempt.charge_cost = Decimal(0)
