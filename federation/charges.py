"""The ledger of allocations: reserve at placement, settle from accounting, release what was not used.

Each verb writes one append-only line and moves the allocation's running totals in the same transaction.
"""

from datetime import datetime
from decimal import Decimal

from django.db.models import F

from federation.handles import new_handle
from federation.models import Allocation, Charge


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


def _open_reservation(attempt: str) -> Charge | None:
    lines = {
        line.kind: line
        for line in Charge.objects.select_related("allocation")
        .select_for_update(of=("allocation",), no_key=True)
        .filter(attempt_handle=attempt)
    }
    held = lines.get("reserve")
    return None if held is None or len(lines) > 1 else held


def _line(allocation: Allocation, kind: str, attempt: str, amount: Decimal, now: datetime) -> Charge:
    return Charge.objects.create(
        handle=new_handle("chg", now),
        allocation=allocation,
        attempt_handle=attempt,
        kind=kind,
        amount=amount,
        at=now,
    )
