"""Systems, records and ledgers as the outside sees them: counts and limits, never others' names. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import fields
from datetime import datetime
from decimal import Decimal
from typing import Any

from pydantic import Field

from federation.circuit import Circuit
from federation.merge import PreparedSystem
from federation.types import ChargeRule, Health, NodeView, ResourceRecord, Standing, UserLimits
from providers.types import Frozen

UNNAMED = "unnamed"
"""GPUs whose type the site does not tell."""


class Gpus(Frozen):
    """Whole GPUs of one type."""

    total: int
    free: int


class Figures(Frozen):
    """What some nodes hold and what of it is free now."""

    gpus_total: int
    gpus_free: int
    gpus_by_type: dict[str, Gpus]
    largest_free_gpus_on_one_node: int
    cpus_total: int
    cpus_free: int
    nodes_total: int
    nodes_up: int
    nodes_idle: int


class Queue(Frozen):
    """How many jobs there are; null where the site hides its queue."""

    running: int | None
    pending: int | None
    eligible: int | None = Field(description="Waiting for resources or priority only.")


class SystemShown(Frozen):
    """One system as it stands; nodes shared by partitions are counted once."""

    id: str
    state: str = Field(description="online, degraded, stale, offline or disabled.")
    system: str
    name: str
    centre: str
    dialect: str
    scheduler: str | None = Field(description="As the last probe named it, for example `slurm 22.05.8`.")
    architecture: str
    health: str
    reason: str
    observed_at: datetime | None
    age_s: int | None = Field(description="Age of the figures.")
    snapshot: str | None
    is_connected: bool = Field(description="You hold a working connection.")
    circuit: Circuit = Field(description="Its circuit breaker: open = no new work is sent there for now.")
    partitions: list[str]
    figures: Figures
    queue: Queue
    limit_use_unknown: str | None = Field(
        description="Why it is not known how much of their time limits jobs there use; null = it is."
    )


class CreditShown(Frozen):
    """What you may still spend there through Facet, in the site's own unit."""

    unit: str | None
    granted: Decimal | None = Field(description="Null: not limited by Facet.")
    left: Decimal | None


class RecordShown(Frozen):
    """One place where your work could run: system, partition, account."""

    system: str
    partition: str
    account: str | None
    qos: str | None
    health: str
    observed_at: datetime | None = Field(description="When the live figures were seen.")
    usable: bool = Field(description="Nothing known keeps your work away.")
    blocked: list[str] = Field(description="What keeps it away.")
    partition_state: str
    architecture: str | None
    figures: Figures
    queue: Queue
    max_walltime_s: int | None
    max_nodes: int | None
    exclusive: bool
    limits: dict[str, int] = Field(description="Limits of yours that the site told, and what you use.")
    own_priority: int | None = Field(
        description="Priority that a fresh job of yours would get there. Null: not known; waits are "
        "planned at the median of fresh waiting jobs, behind all where those are hidden."
    )
    charge: ChargeRule | None
    credit: CreditShown | None


class HistoryPoint(Frozen):
    """Means over a stretch of time that begins at `at`."""

    at: datetime
    gpus_free: float
    cpus_free: float
    running: float
    pending: float


class History(Frozen):
    """One partition over the last hours."""

    system: str
    partition: str
    points: list[HistoryPoint]


def figures(nodes: Iterable[NodeView]) -> Figures:
    """Return the figures of nodes; a node that comes twice counts once."""
    seen = list({node.name: node for node in nodes}.values())
    total: Counter[str] = Counter()
    free: Counter[str] = Counter()
    for node in seen:
        if node.gpus:
            total[node.gpu_type or UNNAMED] += node.gpus
            free[node.gpu_type or UNNAMED] += node.gpus_free
    return Figures(
        gpus_total=total.total(),
        gpus_free=free.total(),
        gpus_by_type={word: Gpus(total=total[word], free=free[word]) for word in sorted(total)},
        largest_free_gpus_on_one_node=max((node.gpus_free for node in seen), default=0),
        cpus_total=sum(node.cpus for node in seen),
        cpus_free=sum(node.cpus_free for node in seen),
        nodes_total=sum(not node.is_part for node in seen),
        nodes_up=sum(node.is_up and not node.is_part for node in seen),
        nodes_idle=sum(node.is_idle and not node.is_part for node in seen),
    )


def show_system(
    prepared: PreparedSystem,
    standing: Standing,
    *,
    names: tuple[str, str],
    dialect: str,
    is_connected: bool,
    limit_use_unknown: str | None,
    now: datetime,
) -> SystemShown:
    """Return one system; `names` are its own and its centre's."""
    probe, slug = prepared.probe, prepared.profile.system
    visible = probe is not None and probe.jobs_visible
    queues = [partition.queue for partition in prepared.partitions]
    return SystemShown(
        id=slug,
        state=standing.health,
        system=slug,
        name=names[0],
        centre=names[1],
        dialect=dialect,
        scheduler=probe.scheduler if probe else None,
        architecture=prepared.profile.architecture,
        health=standing.health,
        reason=standing.reason,
        observed_at=standing.observed_at,
        age_s=_age(standing.observed_at, now),
        snapshot=standing.snapshot_id,
        is_connected=is_connected,
        circuit=standing.circuit,
        partitions=[partition.name for partition in prepared.partitions],
        figures=figures(node for partition in prepared.partitions for node in partition.nodes),
        queue=Queue(
            running=sum(queue.running_count for queue in queues) if visible else None,
            pending=sum(queue.pending_count for queue in queues) if visible else None,
            eligible=sum(queue.eligible_count for queue in queues) if visible else None,
        ),
        limit_use_unknown=limit_use_unknown,
    )


def _age(observed_at: datetime | None, now: datetime) -> int | None:
    return None if observed_at is None else max(0, round((now - observed_at).total_seconds()))


def show_record(record: ResourceRecord) -> RecordShown:
    """Return one record."""
    queue, visible = record.queue, record.queue.is_visible
    reasons = _keeping_away(record)
    return RecordShown(
        system=record.system,
        partition=record.partition,
        account=record.account,
        qos=record.qos,
        health=record.health,
        observed_at=record.observed_at,
        usable=not reasons,
        blocked=reasons,
        partition_state=record.partition_state,
        architecture=record.architecture,
        figures=figures(record.nodes),
        queue=Queue(
            running=queue.running_count if visible else None,
            pending=queue.pending_count if visible else None,
            eligible=queue.eligible_count if visible else None,
        ),
        max_walltime_s=record.max_walltime_s,
        max_nodes=record.max_nodes,
        exclusive=record.is_exclusive,
        limits=_limits(record.limits),
        own_priority=record.own_priority,
        charge=record.charge,
        credit=_credit(record),
    )


def _credit(record: ResourceRecord) -> CreditShown | None:
    if record.charge is None and record.credit_granted is None:
        return None
    unit = record.charge.unit if record.charge else None
    return CreditShown(unit=unit, granted=record.credit_granted, left=record.credit_left)


def _keeping_away(record: ResourceRecord) -> list[str]:
    """Return every reason why work of this user would not be put here now."""
    claims = (
        (record.health not in (Health.ONLINE, Health.DEGRADED), f"the system is {record.health}"),
        (not record.is_connected, "you hold no working connection to the system"),
        (record.access_denied is not None, record.access_denied or ""),
        (record.blocked is not None, record.blocked or ""),
        (record.circuit_open is not None, record.circuit_open or ""),
        (record.partition_state != "up", f"the partition is {record.partition_state}"),
    )
    return [why for holds, why in claims if holds]


def _limits(limits: UserLimits) -> dict[str, int]:
    told: dict[str, Any] = {each.name: getattr(limits, each.name) for each in fields(limits)}
    return {name: value for name, value in told.items() if value}


def by_use(records: Sequence[RecordShown]) -> list[RecordShown]:
    """Return the records that help most first: usable ones, then by free GPUs, then by free CPUs."""
    return sorted(
        records,
        key=lambda each: (
            not each.usable,
            -each.figures.gpus_free,
            -each.figures.cpus_free,
            each.system,
            each.partition,
            each.account or "",
        ),
    )


class SnapshotShown(Frozen):
    """What one probe of a system saw, in counts."""

    id: str
    state: str = Field(description="available, scheduler_down, unreachable or unparsable.")
    system: str
    taken_at: datetime
    duration_s: float
    full: bool = Field(description="It also asked for partitions, QoS and associations.")
    scheduler: str | None
    digest: str | None = Field(description="SHA-256 of the normalized probe.")
    counts: dict[str, Any]
    error: str | None


class BalanceShown(Frozen):
    """What the site itself said of an account, when, and by which command."""

    unit: str
    granted: Decimal | None = Field(description="Null: not limited there, or not told.")
    used: Decimal | None
    left: Decimal | None
    at: datetime
    age_s: int
    source: str = Field(description="The command that told it.")
    problem: str | None = Field(description="Why the last look brought nothing newer.")
    counts: bool = Field(description="In the allocation's own unit, so placement stays within it.")


class AllocationShown(Frozen):
    """What you may spend on one account of one system, in the site's own unit."""

    id: str
    state: str = Field(description="open, or exhausted.")
    system: str
    account: str
    unit: str
    granted: Decimal | None = Field(description="Null: not limited by Facet.")
    reserved: Decimal
    used: Decimal
    left: Decimal | None = Field(description="Of what Facet granted and of what the site has left, the less.")
    site: BalanceShown | None = Field(description="The site's own balance; null: it was never told.")
    created_at: datetime


class ChargeShown(Frozen):
    """One line of an allocation's ledger."""

    id: str
    state: str = Field(description="reserved, settled, released or corrected.")
    system: str
    account: str
    allocation: str
    attempt: str
    kind: str
    amount: Decimal = Field(description="Of a correction: what it adds, below 0 where it takes back.")
    unit: str
    note: str | None = Field(description="Why a cost was corrected.")
    at: datetime
