"""What a shape costs in the site's own unit, and what the task may spend there."""

from collections.abc import Mapping
from decimal import ROUND_UP, Decimal

from federation.types import ResourceRecord
from orchestrator.envelope.types import Envelope
from orchestrator.placement.capacity import Layout, NodeKind
from orchestrator.placement.types import Charge

CENT = Decimal("0.0001")
"""Charges are rounded up to this, because a reservation must cover what it reserves."""
HOUR = Decimal(3600)
FREE = Charge(amount=Decimal(0), unit=None)


def charged_units(layout: Layout, record: ResourceRecord) -> tuple[int, int, int]:
    """Return the nodes, GPUs and CPUs that are charged: whole nodes where they are exclusive."""
    if not record.is_exclusive:
        return layout.nodes, layout.gpus, layout.cpus
    kind: NodeKind = layout.smallest_kind
    return layout.nodes, layout.nodes * kind.gpus, layout.nodes * kind.cpus


def charged_gib(layout: Layout, record: ResourceRecord) -> Decimal:
    """Return the memory that is charged, in GiB: that of whole nodes where they are exclusive."""
    if record.is_exclusive:
        return Decimal(layout.nodes * layout.smallest_kind.memory_mib) / 1024
    return Decimal(layout.nodes * layout.memory_per_node_mib) / 1024


def charge_for(layout: Layout, record: ResourceRecord) -> Charge:
    """Return the charge of a layout for its whole wall time; zero without a unit where nothing is charged."""
    rule = record.charge
    if rule is None:
        return FREE
    nodes, gpus, cpus = charged_units(layout, record)
    terms = [rule.per_node * nodes, rule.per_gpu * gpus, rule.per_cpu * cpus]
    if rule.per_gib:
        terms.append(rule.per_gib * charged_gib(layout, record))
    rate = max(terms) if rule.combine == "max" else sum(terms, Decimal(0))
    amount = rule.factor * rate * layout.walltime_s / HOUR
    return Charge.made(amount=amount.quantize(CENT, rounding=ROUND_UP), unit=rule.unit)


def credit_for(record: ResourceRecord, budgets: Mapping[str, Decimal]) -> Decimal | None:
    """Return what this task may use at a record's site: the smaller of credit and budget; None = all."""
    left, budget = record.credit_left, budgets.get(record.system)
    if left is None or budget is None:
        return budget if left is None else left
    return min(left, budget)


def cap_for(record: ResourceRecord, envelope: Envelope) -> Decimal | None:
    """Return the most the task's own policy lets it be charged at the record's site; None = no cap."""
    return envelope.policy.max_charge.get(record.system)


def credit_share(charge: Charge, credit: Decimal | None) -> Decimal:
    """Return the share of what is left that a charge would take: 0 where nothing is bounded or charged."""
    if credit is None or charge.amount == 0:
        return Decimal(0)
    return charge.amount / credit if credit > 0 else Decimal("Infinity")
