"""The ledger of allocations: reserve at placement, settle from accounting, release the rest, correct.

Each verb writes one append-only line and moves the allocation's running totals in the same transaction.
"""

from datetime import datetime
from decimal import Decimal

from django.db.models import F

from federation.handles import new_handle
from federation.models import Allocation, Charge
from providers.errors import Conflict, InvalidInput


def reserve(
    *, user_id: int, system_id: int, account: str, attempt: str, amount: Decimal, now: datetime
) -> Charge | None:
    """Hold `amount` for an attempt; None when Facet keeps no allocation there or nothing is charged."""
    if amount <= 0:
        return None
    allocation = (
        Allocation.objects.select_for_update(no_key=True)
        .filter(user_id=user_id, system_id=system_id, account=account)
        .first()
    )
    if allocation is None:
        return None
    Allocation.objects.filter(pk=allocation.pk).update(reserved=F("reserved") + amount)
    return _line(allocation, "reserve", attempt, amount, now)


def settle(*, attempt: str, amount: Decimal, now: datetime) -> Charge | None:
    """Book what an attempt cost and give back what was held for it; a second call does nothing."""
    held = _open_reservation(attempt)
    if held is None:
        return None
    Allocation.objects.filter(pk=held.allocation_id).update(
        reserved=F("reserved") - held.amount, used=F("used") + amount
    )
    return _line(held.allocation, "settle", attempt, amount, now)


def release(*, attempt: str, now: datetime) -> Charge | None:
    """Give back what was held for an attempt that never ran; a second call does nothing."""
    held = _open_reservation(attempt)
    if held is None:
        return None
    Allocation.objects.filter(pk=held.allocation_id).update(reserved=F("reserved") - held.amount)
    return _line(held.allocation, "release", attempt, held.amount, now)


def correct(*, attempt: str, cost: Decimal, note: str, now: datetime) -> Charge | None:
    """Make the settled cost of an attempt what it truly is; None where it is that already.

    What was held and released without a cost had the cost 0.

    Raises:
        Conflict: the attempt was never settled.
        InvalidInput: the cost is below zero, or nothing says why.
    """
    if cost < 0 or not note.strip():
        message = "A cost is not below zero." if cost < 0 else "Say why the cost is corrected."
        raise InvalidInput(message, problems=(("/cost" if cost < 0 else "/note", "not_valid", message),))
    lines = _lines(attempt)
    booked = [line for line in lines if line.kind in ("settle", "correct")]
    ended = next((line for line in lines if line.kind in ("settle", "release")), None)
    if ended is None:
        raise Conflict(f"{attempt} has no settled charge to correct.")
    by = cost - sum((line.amount for line in booked), Decimal(0))
    if by == 0:
        return None
    Allocation.objects.filter(pk=ended.allocation_id).update(used=F("used") + by)
    return _line(ended.allocation, "correct", attempt, by, now, note=note[:200])


def _lines(attempt: str) -> list[Charge]:
    """Return an attempt's lines; the allocation is locked first, so that none is added meanwhile."""
    held = Charge.objects.filter(attempt_handle=attempt, kind="reserve").first()
    if held is None:
        return []
    allocation = Allocation.objects.select_for_update(no_key=True).get(pk=held.allocation_id)
    return list(allocation.charges.select_related("allocation").filter(attempt_handle=attempt))


def _open_reservation(attempt: str) -> Charge | None:
    lines = {line.kind: line for line in _lines(attempt)}
    held = lines.get("reserve")
    return None if held is None or len(lines) > 1 else held


def _line(
    allocation: Allocation, kind: str, attempt: str, amount: Decimal, now: datetime, *, note: str = ""
) -> Charge:
    return Charge.objects.create(
        handle=new_handle("chg", now),
        allocation=allocation,
        attempt_handle=attempt,
        kind=kind,
        amount=amount,
        note=note,
        at=now,
    )
