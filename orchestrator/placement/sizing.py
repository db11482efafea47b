"""Which shapes a task could be given on one record: sizes from minimum to maximum, laid out over nodes.

Sizes are the minimum, its doublings, and the maximum. GPUs lead; CPUs and memory follow inside their own
bounds. Every size is tried on the fewest nodes that hold it and, for GPU work, on a few wider layouts: a
wider one may start earlier. CPU work without a node count stays on the fewest nodes, since threads do not
span nodes. Shapes that break a cap are kept by name, with the codes that dropped them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal

from federation.types import ResourceRecord
from orchestrator.envelope.types import Envelope, Range
from orchestrator.placement.capacity import Layout, NodeKind, Target, lay_out, suitable_kinds
from orchestrator.placement.charge import cap_for, charge_for, credit_for
from orchestrator.placement.types import Charge

MAX_LAYOUTS = 3
"""Node counts tried per size."""
MAX_NODES_SCANNED = 16_384


@dataclass(frozen=True, slots=True)
class Sized:
    """One layout and the codes of the caps it breaks; none = legal."""

    layout: Layout
    charge: Charge
    dropped: tuple[str, ...]


def doublings(bounds: Range) -> list[int]:
    """Return the minimum, its doublings under the maximum, and the maximum; 0 doubles to 1."""
    sizes = [bounds.min]
    size = bounds.min * 2 or 1
    while size < bounds.max:
        sizes.append(size)
        size *= 2
    return sizes if bounds.is_fixed else [*sizes, bounds.max]


def targets(envelope: Envelope) -> list[Target]:
    """Return the sizes to try, smallest first."""
    sizes: list[Target] = []
    gpus, cpus, memory = envelope.gpus, envelope.cpus, envelope.memory_mib
    if not gpus.is_fixed:
        base = max(gpus.min, 1)
        for count in doublings(gpus):
            scale = max(count, 1)
            sizes.append(
                Target(count, _scaled(cpus, scale, base), _scaled(memory, scale, base) if memory else None)
            )
    elif not cpus.is_fixed:
        base = max(cpus.min, 1)
        for count in doublings(cpus):
            scale = max(count, 1)
            sizes.append(Target(gpus.min, count, _scaled(memory, scale, base) if memory else None))
    else:
        sizes.append(Target(gpus.min, cpus.min, memory.min if memory else None))
        if memory and not memory.is_fixed:
            sizes.append(Target(gpus.min, cpus.min, memory.max))
    return sizes


def _scaled(bounds: Range, scale: int, base: int) -> int:
    """Return the minimum grown in proportion, inside the bounds."""
    return min(bounds.max, -(-bounds.min * scale // base))


def node_counts(
    target: Target, *, envelope: Envelope, kinds: tuple[NodeKind, ...], record: ResourceRecord
) -> Iterator[Layout]:
    """Yield every layout of a target, fewest nodes first; even shares before rounded ones."""
    least = max(1, envelope.nodes.min if envelope.nodes else 1)
    if not kinds:
        return
    widest = (max(k.gpus for k in kinds), max(k.cpus for k in kinds), max(k.memory_mib for k in kinds))
    for total, per_node in zip((target.gpus, target.cpus, target.memory_mib or 0), widest, strict=True):
        if total and not per_node:
            return
        least = max(least, -(-total // per_node) if total else 1)
    most = envelope.nodes.max if envelope.nodes else max(envelope.gpus.max, envelope.cpus.max, least)
    most = min(most, sum(kind.up for kind in kinds), MAX_NODES_SCANNED)
    if target.gpus:
        most = min(most, envelope.gpus.max)
    rounded: list[int] = []
    for nodes in range(least, most + 1):
        if target.gpus % nodes:
            rounded.append(nodes)
        elif layout := lay_out(target, nodes, envelope=envelope, kinds=kinds, record=record):
            yield layout
    for nodes in rounded:
        if layout := lay_out(target, nodes, envelope=envelope, kinds=kinds, record=record):
            yield layout


def shapes(
    envelope: Envelope,
    record: ResourceRecord,
    *,
    kinds: tuple[NodeKind, ...],
    budgets: Mapping[str, Decimal],
    now: datetime,
) -> list[Sized]:
    """Return every size tried on a record, legal or dropped, in a fixed order and without doubles."""
    tried: dict[tuple[int, int, int, int | None, int], Sized] = {}
    longest_s = walltime_granted(envelope, record)
    for target in targets(envelope):
        legal = 0
        suitable = suitable_kinds(kinds, envelope, gpus=target.gpus)
        wide = target.gpus > 0 or envelope.nodes is not None
        for layout in node_counts(target, envelope=envelope, kinds=suitable, record=record):
            if legal and layout.gpus != target.gpus:
                break
            for sized in _with_walltimes(
                layout, envelope, record, longest_s=longest_s, budgets=budgets, now=now
            ):
                found = sized.layout
                key = (found.nodes, found.gpus, found.cpus, found.memory_mib, found.walltime_s)
                tried.setdefault(key, sized)
                legal += not sized.dropped
            if legal >= (MAX_LAYOUTS if wide else 1) or layout.nodes > MAX_LAYOUTS * 64:
                break
    return list(tried.values())


def _with_walltimes(
    layout: Layout,
    envelope: Envelope,
    record: ResourceRecord,
    *,
    longest_s: int,
    budgets: Mapping[str, Decimal],
    now: datetime,
) -> list[Sized]:
    """Return the layout at the longest wall time allowed, and where that breaks a cap, at the shortest."""
    shortest_s = envelope.walltime_s.min
    longer = layout if longest_s == shortest_s else replace(layout, walltime_s=longest_s)
    sized = checked(longer, envelope, record, budgets=budgets, now=now)
    if not sized.dropped or longest_s == shortest_s:
        return [sized]
    return [sized, checked(layout, envelope, record, budgets=budgets, now=now)]


def walltime_granted(envelope: Envelope, record: ResourceRecord) -> int:
    """Return the most wall time within the envelope's range and every cap, never under its minimum."""
    caps = [cap for cap in (record.max_walltime_s, record.limits.max_walltime_s) if cap is not None]
    return max(envelope.walltime_s.min, min([envelope.walltime_s.max, *caps]))


def checked(
    layout: Layout,
    envelope: Envelope,
    record: ResourceRecord,
    *,
    budgets: Mapping[str, Decimal],
    now: datetime,
) -> Sized:
    """Return the layout with the codes of every cap it breaks."""
    codes = []
    if record.max_nodes is not None and layout.nodes > record.max_nodes:
        codes.append("nodes")
    codes.extend(limit_codes(layout, record))
    charge = charge_for(layout, record)
    credit, cap = credit_for(record, budgets), cap_for(record, envelope)
    if credit is not None and charge.amount > credit:
        codes.append("credit_exceeded")
    if cap is not None and charge.amount > cap:
        codes.append("charge_over_cap")
    if closes_too_soon(layout, record, now=now):
        codes.append("maintenance_window")
    return Sized(layout, charge, tuple(codes))


def limit_codes(layout: Layout, record: ResourceRecord) -> list[str]:
    """Return the codes of the per-job and per-user sizes that a layout exceeds."""
    limits, codes = record.limits, []
    if _over(layout.gpus, limits.max_gpus_per_job, limits.max_gpus_per_user):
        codes.append("max_gpus")
    if _over(layout.nodes, limits.max_nodes_per_job, limits.max_nodes_per_user):
        codes.append("max_nodes")
    if _over(layout.cpus, limits.max_cpus_per_job, limits.max_cpus_per_user):
        codes.append("qos_limit")
    return codes


def _over(asked: int, per_job: int | None, per_user: int | None) -> bool:
    return (per_job is not None and asked > per_job) or (per_user is not None and asked > per_user)


def closes_too_soon(layout: Layout, record: ResourceRecord, *, now: datetime) -> bool:
    """Return whether, even if it started now, maintenance would leave too few nodes before it ended."""
    if not record.maintenance:
        return False
    ends_at = now + timedelta(seconds=layout.walltime_s)
    fitting = {(k.cpus, k.gpus, k.gpu_type, k.gpu_memory_mib) for k in layout.kinds}
    closed: set[str] = set()
    for window in record.maintenance:
        if window.start_at >= ends_at or (window.end_at is not None and window.end_at <= now):
            continue
        if not window.node_names:
            return True
        closed |= window.node_names
    if not closed:
        return False
    left = sum(
        node.is_up
        and node.name not in closed
        and (node.cpus, node.gpus, node.gpu_type, node.gpu_memory_mib) in fitting
        for node in record.nodes
    )
    return left < layout.nodes
