"""From records of the Global Resource View to the cards, squares and rows of the federation pages. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.utils.translation import gettext as _

from federation.types import Health, NodeView, ResourceRecord
from portal.web.presenters.federation import (
    FederationPage,
    PartitionRow,
    Pool,
    QueueBar,
    SystemCard,
    on_one_scale,
)
from portal.web.presenters.shared import SystemRef, tones
from portal.web.presenters.tasks import EventRow
from portal.web.presenters.work import WorkView

FEW_NODES = 4
"""A system without GPUs and with fewer nodes is drawn in CPUs."""

Wait = tuple[int | None, int | None]
"""Expected wait in seconds: half of such jobs, nine of ten."""


@dataclass(frozen=True, slots=True)
class SystemFacts:
    """What the pages need of a system beside its records."""

    slug: str
    name: str
    centre: str
    scheduler: str
    health: Health
    reason: str
    observed_at: datetime | None
    is_connected: bool
    remote_user: str | None
    revision: int | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Waits:
    """Expected waits by (system, partition), and what they were asked for."""

    asked: str = ""
    by_partition: Mapping[tuple[str, str], Wait] | None = None

    def of(self, system: str, partition: str) -> Wait:
        """Return the wait there; (None, None) = not known."""
        return (self.by_partition or {}).get((system, partition), (None, None))

    def best(self, system: str) -> Wait:
        """Return the shortest wait of a system; (None, None) = not known anywhere there."""
        known = [w for (s, _p), w in (self.by_partition or {}).items() if s == system and w[0] is not None]
        return min(known, key=lambda w: w[0] or 0, default=(None, None))


def refs(systems: Iterable[SystemFacts]) -> dict[str, SystemRef]:
    """Return how pages name each system, by slug."""
    listed = list(systems)
    colours = tones(system.slug for system in listed)
    return {system.slug: SystemRef(system.slug, system.name, colours[system.slug]) for system in listed}


def federation_page(
    systems: Sequence[SystemFacts],
    records: Sequence[ResourceRecord],
    waits: Waits,
    *,
    active_tasks: int,
    work: WorkView | None = None,
    events: tuple[EventRow, ...] = (),
) -> FederationPage:
    """Return the first page: systems in order of their names, each with its partitions."""
    named = refs(systems)
    by_system: dict[str, list[ResourceRecord]] = defaultdict(list)
    for record in records:
        by_system[record.system].append(record)
    cards = tuple(system_card(s, by_system[s.slug], named[s.slug], waits) for s in systems)
    rows = tuple(
        row
        for s in systems
        for row in partition_rows(by_system[s.slug], named[s.slug], waits, seen=is_seen(s))
    )
    with_gpus = [card for card in cards if card.unit == "GPU"]
    seen = [s.observed_at for s in systems if s.observed_at is not None]
    return FederationPage(
        cards=cards,
        partitions=rows,
        gpus_free=sum(card.free or 0 for card in with_gpus if not card.is_faded),
        gpus_total=sum(card.total for card in with_gpus),
        systems_online=sum(s.health in {Health.ONLINE, Health.DEGRADED} for s in systems),
        centres=len({s.centre for s in systems if s.centre}),
        active_tasks=active_tasks,
        observed_at=max(seen, default=None),
        work=work,
        events=events,
    )


def is_seen(system: SystemFacts) -> bool:
    """Return whether free figures were ever observed there."""
    return system.observed_at is not None


def system_card(
    system: SystemFacts, records: Sequence[ResourceRecord], ref: SystemRef, waits: Waits
) -> SystemCard:
    """Return one system at a glance; nodes and jobs in several partitions count once."""
    nodes = unique_nodes(records)
    unit, pools = pools_of(nodes, held_by(records, system.remote_user))
    p50, p90 = waits.best(system.slug)
    return SystemCard(
        ref=ref,
        centre=system.centre,
        scheduler=system.scheduler,
        health=system.health,
        health_reason=system.reason,
        observed_at=system.observed_at,
        unit=unit,
        free=sum(pool.free for pool in pools) if is_seen(system) else None,
        total=sum(pool.total for pool in pools),
        pools=on_one_scale(pools),
        queue=queue_bar(records, system.remote_user, seen=is_seen(system)),
        wait_p50_s=p50,
        wait_p90_s=p90,
        wait_for=waits.asked,
        connected=system.is_connected,
    )


def unique_nodes(records: Iterable[ResourceRecord]) -> tuple[NodeView, ...]:
    """Return every node once, whatever the number of partitions and accounts that reach it."""
    return tuple({node.name: node for record in records for node in record.nodes}.values())


def held_by(records: Iterable[ResourceRecord], user: str | None) -> Counter[str]:
    """Return the GPUs that this remote user's running jobs hold, by node name."""
    held: Counter[str] = Counter()
    if user is None:
        return held
    seen: set[str] = set()
    for record in records:
        if record.partition in seen:
            continue  # the same queue, offered to another account
        seen.add(record.partition)
        for job in record.queue.running:
            if job.user == user:
                held.update(dict.fromkeys(job.node_names, job.gpus_per_node))
    return held


def pools_of(nodes: Sequence[NodeView], held: Mapping[str, int]) -> tuple[str, tuple[Pool, ...]]:
    """Return the unit of the squares ("GPU", "node" or "CPU") and the pools, the largest first."""
    if any(node.gpus for node in nodes):
        return "GPU", _gpu_pools(nodes, held)
    if len(nodes) < FEW_NODES:
        return "CPU", _pool_list(
            [
                (_("CPUs"), n.cpus_free, 0, n.cpus - n.cpus_free, 0)
                if n.is_up
                else (_("CPUs"), 0, 0, 0, n.cpus)
                for n in nodes
            ]
        )
    return "node", _pool_list(
        [(_("Nodes"), int(n.is_idle), 0, int(n.is_up and not n.is_idle), int(not n.is_up)) for n in nodes]
    )


def _gpu_pools(nodes: Sequence[NodeView], held: Mapping[str, int]) -> tuple[Pool, ...]:
    parts = []
    for node in nodes:
        if not node.gpus:
            continue
        if not node.is_up:
            parts.append((accelerator(node), 0, 0, 0, node.gpus))
            continue
        taken = node.gpus - node.gpus_free
        ours = min(held.get(node.name, 0), taken)
        parts.append((accelerator(node), node.gpus_free, ours, taken - ours, 0))
    return _pool_list(parts)


def _pool_list(parts: Iterable[tuple[str, int, int, int, int]]) -> tuple[Pool, ...]:
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for label, *figures in parts:
        sums[label] = [have + more for have, more in zip(sums[label], figures, strict=True)]
    pools = [Pool(label, free, ours, busy, down) for label, (free, ours, busy, down) in sums.items()]
    return tuple(sorted(pools, key=lambda pool: (-pool.total, pool.label)))


def accelerator(node: NodeView) -> str:
    """Return the GPU as people write it: "A100 40 GB"; "" where the node has none."""
    if not node.gpus:
        return ""
    name = (node.gpu_type or _("GPU")).upper()
    return f"{name} {round(node.gpu_memory_mib / 1024)} GB" if node.gpu_memory_mib else name


def queue_bar(records: Iterable[ResourceRecord], user: str | None, *, seen: bool) -> QueueBar:
    """Return who runs and waits. A job that names several partitions is counted in each of them."""
    queues = {record.partition: record.queue for record in records}.values()
    if not seen:
        return QueueBar(None, None, 0, 0)
    if queues and not any(queue.is_visible for queue in queues):
        return QueueBar(None, None, 0, 0, hidden=True)
    return QueueBar(
        pending=sum(queue.pending_count for queue in queues),
        running=sum(queue.running_count for queue in queues),
        ours_pending=sum(job.count for q in queues for job in q.pending if user and job.user == user),
        ours_running=sum(1 for q in queues for job in q.running if user and job.user == user),
    )


def partition_rows(
    records: Sequence[ResourceRecord], ref: SystemRef, waits: Waits, *, seen: bool
) -> tuple[PartitionRow, ...]:
    """Return one row per partition, its accounts named together; a row is out when every account is."""
    by_partition: dict[str, list[ResourceRecord]] = defaultdict(list)
    for record in records:
        by_partition[record.partition].append(record)
    return tuple(_row(same, ref, waits, seen=seen) for same in by_partition.values())


def _row(same: Sequence[ResourceRecord], ref: SystemRef, waits: Waits, *, seen: bool) -> PartitionRow:
    record = next((r for r in same if not (r.blocked or r.access_denied)), same[0])
    gpu_nodes = [node for node in record.nodes if node.gpus]
    kinds = sorted({accelerator(node) for node in gpu_nodes})
    visible = seen and record.queue.is_visible
    p50, p90 = waits.of(record.system, record.partition)
    return PartitionRow(
        ref=ref,
        name=record.partition,
        state=record.partition_state,
        accelerator=", ".join(kinds),
        gpus_free=sum(node.gpus_free for node in gpu_nodes) if seen else None,
        gpus_total=sum(node.gpus for node in gpu_nodes),
        largest_free=max((node.gpus_free for node in gpu_nodes), default=0) if seen else None,
        cpus_free=sum(node.cpus_free for node in record.nodes) if seen else None,
        cpus_total=sum(node.cpus for node in record.nodes),
        nodes_usable=sum(node.is_up and not node.is_part for node in record.nodes),
        nodes_total=sum(not node.is_part for node in record.nodes),
        pending=record.queue.pending_count if visible else None,
        running=record.queue.running_count if visible else None,
        max_walltime_s=record.max_walltime_s,
        wait_p50_s=p50,
        wait_p90_s=p90,
        account=", ".join(sorted({r.account for r in same if r.account and not r.access_denied})),
        blocked=_sentence(record.blocked or record.access_denied or ""),
    )


def _sentence(words: str) -> str:
    """Return the words as a sentence: a capital first, a full stop last; "" stays ""."""
    return words and words[0].upper() + words[1:].rstrip(".") + "."
