"""Plans and digests of one set of records, computed once and shared by every decision made on them.

Outlooks come from a `PlanStore`, which may outlive this cache and serve others.

Choices made meanwhile are reserved here, so that each task of a group is planned behind the ones before it.
"""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from federation.types import NodeView, ResourceRecord
from orchestrator.placement import trace
from orchestrator.placement.capacity import Layout, NodeKind
from orchestrator.placement.model import PlacementModel
from orchestrator.placement.outlook import Outlook
from orchestrator.placement.plan import PartitionPlan, plan_on
from orchestrator.placement.store import PlanStore


@dataclass(frozen=True, slots=True)
class Commitment:
    """A choice made since the snapshot, to be planned behind."""

    system: str
    partition: str
    account: str | None
    layout: Layout
    runtime_s: int
    amount: Decimal
    is_own: bool = True
    """Of the same user at the site. Another user's takes nodes, and nothing of this user's limits."""


class PlanCache:
    """Plans of one set of records; it keeps them alive, so identities stay unique.

    Own choices reserved here delay, count and cost for every later question to the same cache, and for no
    other: the outlooks of the store are never changed.
    """

    def __init__(self, store: PlanStore | None = None) -> None:
        """Start with no commitment, on the outlooks of a store; None = a store of its own."""
        self._store = PlanStore() if store is None else store
        self._plans: dict[tuple[object, ...], tuple[Outlook, PartitionPlan]] = {}
        self._commitments: list[Commitment] = []
        self._models: dict[int, tuple[PlacementModel, str]] = {}
        self._records: dict[int, tuple[ResourceRecord, str]] = {}
        self._live: dict[tuple[int, int], tuple[ResourceRecord, str]] = {}

    def kinds_of(self, nodes: tuple[NodeView, ...]) -> tuple[NodeKind, ...]:
        """Return the kinds of a tuple of nodes, computed once."""
        return self._store.kinds_of(nodes)

    def plan_of(self, record: ResourceRecord, *, now: datetime, model: PlacementModel) -> PartitionPlan:
        """Return this user's plan of a record's partition with every commitment made there."""
        outlook = self._store.outlook_of(record, now=now, model=model)
        limits = record.limits
        key = (
            id(outlook),
            record.user,
            limits.max_running_jobs,
            limits.running_jobs,
            limits.max_gpus_per_user,
            limits.gpus_in_use,
            tuple(
                (group.qos, group.max_jobs, group.max_gpus, group.max_cpus, group.max_nodes)
                for group in record.groups
            ),
            now,
        )
        found = self._plans.get(key)
        if found is None:
            plan = plan_on(outlook, record, now=now, model=model)
            found = self._plans[key] = (outlook, plan)
        plan = found[1]
        for commitment in self._commitments[plan.reserved :]:
            if (commitment.system, commitment.partition) == (record.system, record.partition):
                plan.reserve(commitment.layout, commitment.runtime_s, is_own=commitment.is_own)
        plan.reserved = len(self._commitments)
        return plan

    def commit(self, commitment: Commitment) -> None:
        """Put a choice into every plan of its partition, made or still to be made."""
        self._commitments.append(commitment)

    def committed_jobs(self, system: str, partition: str) -> int:
        """Return how many own choices were made in a partition, where limits on jobs are counted."""
        place = (system, partition)
        return sum(c.is_own and (c.system, c.partition) == place for c in self._commitments)

    def committed_amount(self, system: str, account: str | None) -> Decimal:
        """Return what the choices made on an account will be charged at most."""
        return sum(
            (c.amount for c in self._commitments if (c.system, c.account) == (system, account)), Decimal(0)
        )

    def digest_of(self, model: PlacementModel) -> str:
        """Return the digest of a model, computed once."""
        found = self._models.get(id(model))
        if found is None:
            found = self._models[id(model)] = (model, trace.digest(model))
        return found[1]

    def record_digest(self, record: ResourceRecord) -> str:
        """Return the digest of a record, computed once."""
        found = self._records.get(id(record))
        if found is None:
            digest = trace.record_digest(record, self.live_digest(record))
            found = self._records[id(record)] = (record, digest)
        return found[1]

    def live_digest(self, record: ResourceRecord) -> str:
        """Return the digest of a record's nodes and queue: the snapshot's handle where there is one.

        A snapshot never changes, so its handle stands for its content; computed once otherwise.
        """
        if record.snapshot_id is not None:
            return record.snapshot_id
        key = (id(record.nodes), id(record.queue))
        found = self._live.get(key)
        if found is None:
            found = self._live[key] = (record, trace.digest([record.nodes, record.queue]))
        return found[1]

    def commitments_digest(self) -> str:
        """Return the digest of every choice reserved so far."""
        return trace.digest(self._commitments)
