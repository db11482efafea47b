"""Who may use what at one system: each partition and account of this user, and what is in the way. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from federation.types import ResourceRecord


@dataclass(frozen=True, slots=True)
class AccessRow:
    """One partition by one account. `why_not` "" = may be used; credit None = not limited by Facet."""

    partition: str
    account: str
    qos: str
    why_not: str
    credit_left: Decimal | None
    unit: str
    rate: str
    """What an hour costs there: "1 SU per GPU"; "" = the site charges nothing, or it is not known."""


@dataclass(frozen=True, slots=True)
class ProbeRow:
    """One probe of a system: when, how long it took, how it went."""

    at: datetime
    duration_s: float
    state: str
    error: str


@dataclass(frozen=True, slots=True)
class AccessView:
    """What may be used, what may not, and what the system offers in words."""

    may: tuple[AccessRow, ...]
    may_not: tuple[AccessRow, ...]
    offers: tuple[tuple[str, str], ...]


def access_view(records: Iterable[ResourceRecord], labels: tuple[str, str, str, str, str]) -> AccessView:
    """Return the access of one user to one system.

    `labels` name architecture, containers, networks, file systems and software, in this order.
    """
    listed = list(records)
    rows = [_row(record) for record in listed]
    return AccessView(
        may=tuple(row for row in rows if not row.why_not),
        may_not=tuple(row for row in rows if row.why_not),
        offers=_offers(listed[0], labels) if listed else (),
    )


def _row(record: ResourceRecord) -> AccessRow:
    charge = record.charge
    return AccessRow(
        partition=record.partition,
        account=record.account or "",
        qos=record.qos or "",
        why_not=record.access_denied or record.blocked or "",
        credit_left=record.credit_left,
        unit=charge.unit if charge and charge.unit else "",
        rate=_rate(record),
    )


def _rate(record: ResourceRecord) -> str:
    charge = record.charge
    if charge is None or not charge.unit:
        return ""
    parts = [
        f"{amount.normalize():f} {charge.unit}/{word}"
        for word, amount in (("GPU", charge.per_gpu), ("CPU", charge.per_cpu), ("node", charge.per_node))
        if amount
    ]
    return " + ".join(parts)


def _offers(record: ResourceRecord, labels: tuple[str, str, str, str, str]) -> tuple[tuple[str, str], ...]:
    software = ", ".join(
        f"{name} {'/'.join(versions)}".strip() for name, versions in sorted(record.software.items())
    )
    values = (
        record.architecture or "",
        ", ".join(record.containers),
        ", ".join(record.network),
        ", ".join(record.filesystems),
        software,
    )
    return tuple((label, value) for label, value in zip(labels, values, strict=True) if value)
