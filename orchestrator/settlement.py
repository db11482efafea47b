"""What an attempt cost, from the decision's own charge and the times of the scheduler's accounting. Pure."""

from collections.abc import Mapping
from datetime import datetime
from decimal import ROUND_UP, Decimal
from typing import Any

_CENT = Decimal("0.0001")


def cost_of(
    predicted: Mapping[str, Any], *, walltime_s: int, started_at: datetime | None, ended_at: datetime | None
) -> Decimal:
    """Return the charge for the time the job held its nodes, rounded up; 0 when it never started.

    The decision's charge is that of the whole wall time, and every charge formula is linear in time.
    """
    if started_at is None or ended_at is None or walltime_s <= 0:
        return Decimal(0)
    held_s = max(Decimal(0), Decimal(str((ended_at - started_at).total_seconds())))
    reserved = Decimal(str(predicted.get("charge", {}).get("amount", 0)))
    return (reserved * held_s / walltime_s).quantize(_CENT, rounding=ROUND_UP)
