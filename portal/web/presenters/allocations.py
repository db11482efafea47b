"""Balances, budgets and approvals as pages show them; amounts with their units, never summed. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from federation.shown import AllocationShown
from orchestrator.budgets_shown import ApprovalShown, BudgetShown, MeterShown
from portal.web.presenters.shared import SystemRef

Refs = Mapping[str, SystemRef]
MEASURES = {
    "charge": gettext_lazy("charge"),
    "node_hours": gettext_lazy("node-hours"),
    "accelerator_hours": gettext_lazy("GPU-hours"),
    "attempts": gettext_lazy("attempts"),
    "model_tokens": gettext_lazy("model tokens"),
}
SCOPES = {
    "task": gettext_lazy("task"),
    "group": gettext_lazy("group"),
    "project": gettext_lazy("project"),
    "token": gettext_lazy("token"),
}


@dataclass(frozen=True, slots=True)
class Gauge:
    """A bar of what is used and reserved of a limit, in percent; a limit that is not known has none."""

    used: float
    reserved: float
    marks: tuple[float, ...] = ()
    """Thresholds, in percent."""
    is_over: bool = False


@dataclass(frozen=True, slots=True)
class AllocationRow:
    """One account at one system: amounts with its unit."""

    handle: str
    ref: SystemRef
    account: str
    unit: str
    granted: str
    used: str
    reserved: str
    left: str
    is_exhausted: bool
    gauge: Gauge | None
    site_left: str
    """What the site itself said is left; "" = it never did."""
    site_at: datetime | None
    site_source: str
    site_counts: bool


@dataclass(frozen=True, slots=True)
class MeterRow:
    """One measure of a budget."""

    measure: str
    ref: SystemRef | None
    used: str
    limit: str
    left: str
    approval_above: str
    is_exhausted: bool
    gauge: Gauge | None


@dataclass(frozen=True, slots=True)
class BudgetRow:
    """One budget; `kind` is what it is set on."""

    handle: str
    name: str
    scope: str
    kind: str
    subject: str
    state: str
    meters: tuple[MeterRow, ...]
    ends: str
    deadline: datetime | None
    is_imposed: bool
    created_by: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class ApprovalRow:
    """One placement that waits, or waited, for a person; `asks` are sentences."""

    handle: str
    state: str
    task: str
    task_name: str
    ref: SystemRef | None
    partition: str
    asks: tuple[str, ...]
    asked_by: str
    needs_admin: bool
    created_at: datetime
    expires_at: datetime
    decided_by: str
    decided_at: datetime | None
    note: str


@dataclass(frozen=True, slots=True)
class AllocationsPage:
    """Everything about what the caller may spend."""

    waiting: tuple[ApprovalRow, ...]
    decided: tuple[ApprovalRow, ...]
    allocations: tuple[AllocationRow, ...]
    budgets: tuple[BudgetRow, ...]
    with_closed: bool
    now: datetime


def amount(value: Decimal | None, unit: str = "") -> str:
    """Return an amount as one writes it: "12.5 SU"; "" where there is none."""
    if value is None:
        return ""
    plain = f"{value.normalize():,f}".replace(",", "\u202f")
    return f"{plain} {unit}".strip()


def _ref(slug: str, refs: Refs) -> SystemRef:
    return refs.get(slug) or SystemRef(slug, slug, 0)


def _gauge(
    used: Decimal, reserved: Decimal, limit: Decimal | None, thresholds: tuple[float, ...] = ()
) -> Gauge | None:
    if limit is None or limit <= 0:
        return None
    share = min(float(100 * used / limit), 100)
    held = min(float(100 * reserved / limit), 100 - share)
    marks = tuple(round(100 * each, 1) for each in thresholds if 0 < each < 1)
    return Gauge(round(share, 2), round(held, 2), marks, used + reserved >= limit)


def allocation_row(a: AllocationShown, refs: Refs) -> AllocationRow:
    """Return one account at one system."""
    site = a.site
    return AllocationRow(
        handle=a.id,
        ref=_ref(a.system, refs),
        account=a.account,
        unit=a.unit,
        granted=amount(a.granted, a.unit),
        used=amount(a.used),
        reserved=amount(a.reserved),
        left=amount(a.left, a.unit),
        is_exhausted=a.state == "exhausted",
        gauge=_gauge(a.used, a.reserved, a.granted),
        site_left=amount(site.left, site.unit) if site else "",
        site_at=site.at if site else None,
        site_source=site.source if site else "",
        site_counts=bool(site and site.counts),
    )


def budget_row(b: BudgetShown, refs: Refs) -> BudgetRow:
    """Return one budget."""
    cancels = b.on_exhaustion == "cancel"
    return BudgetRow(
        handle=b.id,
        name=b.name,
        scope=b.scope,
        kind=str(SCOPES.get(b.scope, b.scope)),
        subject=b.subject,
        state=b.state,
        meters=tuple(_meter(each, tuple(b.thresholds), refs) for each in b.meters),
        ends=_("running work is ended, too") if cancels else _("nothing new starts"),
        deadline=b.deadline,
        is_imposed=b.imposed,
        created_by=b.created_by,
        created_at=b.created_at,
    )


def _meter(m: MeterShown, thresholds: tuple[float, ...], refs: Refs) -> MeterRow:
    return MeterRow(
        measure=str(MEASURES.get(m.measure, m.measure)),
        ref=_ref(m.system, refs) if m.system else None,
        used=amount(m.used + m.reserved),
        limit=amount(m.limit, m.unit if m.measure == "charge" else ""),
        left=amount(m.left),
        approval_above=amount(m.approval_above),
        is_exhausted=m.exhausted_at is not None,
        gauge=_gauge(m.used, m.reserved, m.limit, thresholds),
    )


def approval_row(a: ApprovalShown, refs: Refs) -> ApprovalRow:
    """Return one approval."""
    asks = tuple(
        _("%(amount)s, where more than %(above)s is asked about (%(kind)s %(subject)s)")
        % {
            "amount": amount(each.amount, each.unit),
            "above": amount(each.approval_above, each.unit),
            "kind": SCOPES.get(each.scope, each.scope),
            "subject": each.subject,
        }
        for each in a.asks
    )
    return ApprovalRow(
        handle=a.id,
        state=a.state,
        task=a.task,
        task_name=a.task_name,
        ref=_ref(a.system, refs) if a.system else None,
        partition=a.partition or "",
        asks=asks,
        asked_by=a.asked_by,
        needs_admin=a.needs_admin,
        created_at=a.created_at,
        expires_at=a.expires_at,
        decided_by=a.decided_by or "",
        decided_at=a.decided_at,
        note=a.note or "",
    )
