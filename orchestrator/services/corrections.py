"""Making what an attempt cost what its site says it truly cost: in the ledgers, on the attempt, in the log.

A site may bill otherwise than its formula says (a rebate, a job that was charged to nobody, an invoice).
The ledgers stay append-only: each gets one more line with the difference, and who asked for it and why.
"""

from datetime import datetime
from decimal import Decimal

from django.db import transaction

from federation import charges
from federation.ledger import record
from federation.models import Charge
from orchestrator.models import Attempt, BudgetLine, Task
from orchestrator.services import budgets
from orchestrator.services.moves import attempt_event
from providers.errors import Conflict, InvalidInput, NotFound

_MOST = Decimal(10) ** 13
"""Below what the ledgers' columns hold."""
_REASON_CHARS = 150


@transaction.atomic
def correct_cost(attempt: str, cost: Decimal, *, reason: str, actor: str, now: datetime) -> Attempt:
    """Make the settled cost of an attempt `cost`, in its site's unit; one that is right already stays.

    Raises:
        InvalidInput: the cost is below zero, too large or too fine, or nothing says why.
        NotFound: there is no such attempt.
        Conflict: it is not settled yet, or nothing was ever charged for it.
    """
    _check(cost, reason)
    task_id = Attempt.objects.filter(handle=attempt).values_list("task_id", flat=True).first()
    if task_id is None:
        raise NotFound(f"No attempt {attempt!r}.")
    task = Task.objects.select_for_update(no_key=True, of=("self",)).select_related("user").get(pk=task_id)
    row = Attempt.objects.select_related("system").get(handle=attempt)
    row.task = task
    before = row.charge_cost
    if before is None:
        raise Conflict(f"{attempt} is not settled yet; its cost comes from accounting when it ends.")
    note = f"{actor}: {reason.strip()}"
    budgeted = _correct_budgets(row, cost, note, now=now)
    if Charge.objects.filter(attempt_handle=attempt).exists():
        charges.correct(attempt=attempt, cost=cost, note=note, now=now)
    elif not budgeted:
        raise Conflict(f"Nothing was charged for {attempt}: there is no ledger to correct.")
    if cost != before:
        Attempt.objects.filter(pk=row.pk).update(charge_cost=cost)
        row.charge_cost = cost
        _tell(row, before, reason.strip(), actor, now=now)
    return row


def _check(cost: Decimal, reason: str) -> None:
    problems = []
    if not cost.is_finite() or cost < 0 or cost >= _MOST:
        problems.append(("/cost", "not_valid", "Give the whole cost, from 0 on, in the site's unit."))
    elif cost != cost.quantize(Decimal("0.0001")):
        problems.append(("/cost", "not_valid", "Give at most four decimals."))
    if not reason.strip():
        problems.append(("/reason", "missing", "Say why the cost is corrected."))
    elif len(reason.strip()) > _REASON_CHARS:
        problems.append(("/reason", "too_long", f"Say it in at most {_REASON_CHARS} characters."))
    if problems:
        raise InvalidInput(problems[0][2], problems=tuple(problems))


def _correct_budgets(attempt: Attempt, cost: Decimal, note: str, *, now: datetime) -> bool:
    """Correct the charge meters that the attempt was booked on; return whether there are any."""
    meters = BudgetLine.objects.filter(
        subject=attempt.handle,
        kind="reserve",
        meter__measure="charge",
        meter__system=attempt.system.slug,
    ).order_by("meter_id")
    found = list(meters.values_list("meter_id", flat=True))
    for meter in found:
        budgets.correct(meter, attempt.handle, cost, note=note, now=now)
    return bool(found)


def _tell(attempt: Attempt, before: Decimal, reason: str, actor: str, *, now: datetime) -> None:
    unit = str(attempt.predicted.get("charge", {}).get("unit") or "")
    cost = attempt.charge_cost
    assert cost is not None  # noqa: S101  # just set
    event = attempt_event(
        attempt,
        "charge.corrected",
        f"the cost of attempt {attempt.number} on {attempt.system.slug} is corrected from "
        f"{before.normalize():f} to {cost.normalize():f} {unit}".rstrip()
        + f": {reason}",
        data={"from": str(before), "to": str(cost), "unit": unit or None, "reason": reason},
        actor=actor,
    )
    record([event], now=now)
