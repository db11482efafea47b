"""What a task left behind, why it failed, and what it cost: expected, reserved and settled. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from portal.web.presenters.shared import SystemRef
from portal.web.presenters.tasks import CostLine, ManifestFile, ManifestView, Triage

if TYPE_CHECKING:
    from federation.models import Charge
    from orchestrator.models import Attempt, Manifest


def manifest_view(manifest: "Manifest | None") -> ManifestView | None:
    """Return what the task left behind, for reading; None while it has not ended."""
    if manifest is None:
        return None
    body = manifest.body
    times, charge = body.get("times") or {}, body.get("charge") or {}
    return ManifestView(
        exit_code=body.get("exit_code"),
        elapsed_s=_between(times.get("started_at"), times.get("ended_at")),
        charge=_amount(charge["amount"], charge["unit"]) if charge.get("unit") else "",
        files=tuple(
            ManifestFile(entry["path"], entry.get("bytes"), entry.get("sha256") or "", "")
            for entry in body.get("files") or ()
        ),
        directory=body.get("location") or "",
    )


def _between(start: str | None, end: str | None) -> int | None:
    if not start or not end:
        return None
    return round((datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds())


def triage_view(manifest: "Manifest | None") -> Triage | None:
    """Return why the task failed, as far as its last words tell; None where it did not."""
    found = (manifest.body.get("triage") if manifest else None) or None
    if found is None:
        return None
    return Triage(
        cause=str(found["cause"]).replace("_", " "),
        means=found["means"],
        suggestion=found["suggestion"],
        evidence=tuple(_said(line) for line in found.get("evidence") or ()),
    )


def _said(line: object) -> str:
    return str(line.get("line", "")) if isinstance(line, Mapping) else str(line)


def cost_lines(
    attempts: Sequence["Attempt"], charges: Sequence["Charge"], refs: Mapping[str, SystemRef]
) -> tuple[CostLine, ...]:
    """Return what each attempt was expected to cost, holds reserved, and was charged, in its site's unit."""
    lines = []
    for attempt in attempts:
        expected = (attempt.predicted or {}).get("charge") or {}
        found = {line.kind: line for line in charges if line.attempt_handle == attempt.handle}
        unit = expected.get("unit") or next((line.allocation.unit for line in found.values()), None)
        if not unit:
            continue
        settled = _settled(attempt, charges)
        lines.append(
            CostLine(
                attempt=attempt.number,
                ref=refs.get(attempt.system.slug) or SystemRef(attempt.system.slug, attempt.system.slug, 0),
                account=attempt.account,
                expected=_amount(expected.get("amount"), unit),
                reserved=_amount(found["reserve"].amount if "reserve" in found else None, unit),
                settled=_amount(settled, unit),
                is_released="release" in found and "correct" not in found,
                share=_share(settled, expected.get("amount")),
            )
        )
    return tuple(lines)


def _amount(amount: Decimal | str | None, unit: str) -> str:
    """Return an amount in a site's unit; empty where it is not known."""
    return "" if amount is None else f"{Decimal(amount).normalize():f} {unit}"


def _settled(attempt: "Attempt", charges: Iterable["Charge"]) -> Decimal | None:
    """Return what was booked, with its corrections; without a ledger of ours, what accounting says."""
    own = [line for line in charges if line.attempt_handle == attempt.handle]
    lines = [line.amount for line in own if line.kind in ("settle", "correct")]
    return sum(lines, Decimal(0)) if lines else None if own else attempt.charge_cost


def booked(attempts: Iterable["Attempt"]) -> str:
    """Return what attempts at one site cost together so far, in its unit; empty where nothing is charged."""
    found: dict[str, Decimal] = {}
    for attempt in attempts:
        unit = ((attempt.predicted or {}).get("charge") or {}).get("unit")
        if unit and attempt.charge_cost is not None:
            found[unit] = found.get(unit, Decimal(0)) + attempt.charge_cost
    return ", ".join(_amount(amount, unit) for unit, amount in sorted(found.items()))


def _share(settled: Decimal | None, expected: str | None) -> int | None:
    """Return what was charged in percent of what was expected; None where either is not known."""
    if settled is None or expected is None or Decimal(expected) <= 0:
        return None
    return round(100 * settled / Decimal(expected))
