"""Outlooks kept between decisions, so that only the first one on a snapshot pays for its plans.

An outlook is a function of the nodes and the queue it was made from, the instant of the snapshot, the
partition's limits, our priority there and the learned use of time limits. It is found by all of these, nodes
and queue by identity: whoever reads the same snapshot in one process gets the same tuples. Nothing here
depends on a clock or on what was asked before, so a kept outlook answers as a fresh one does.
"""

from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime
from threading import RLock

from federation.types import NodeView, ResourceRecord
from orchestrator.placement.capacity import NodeKind, node_kinds
from orchestrator.placement.model import PlacementModel
from orchestrator.placement.outlook import Outlook, build_outlook, planned_at

MAX_WEIGHT = 40_000
"""Nodes and running jobs of all kept outlooks together: about 5 kB each, with what was remembered of them."""
MAX_KINDS = 256
"""Tuples of nodes whose kinds are kept."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """An outlook and what its key names by identity, which must live as long as the key."""

    outlook: Outlook
    record: ResourceRecord
    model: PlacementModel
    weight: int


class PlanStore:
    """Outlooks of one process; safe to share between threads.

    When a partition is seen with another queue, its older outlooks are dropped; beyond the weight, those
    not used for longest are.
    """

    def __init__(self, *, max_weight: int = MAX_WEIGHT) -> None:
        """Start empty; a single outlook heavier than `max_weight` is kept alone."""
        self._max_weight = max_weight
        self._kept: OrderedDict[tuple[object, ...], _Kept] = OrderedDict()
        self._weight = 0
        self._kinds: OrderedDict[int, tuple[tuple[NodeView, ...], tuple[NodeKind, ...]]] = OrderedDict()
        self._lock = RLock()
        self.built = 0
        """How many outlooks were made so far."""

    def __len__(self) -> int:
        """Return how many outlooks are kept."""
        return len(self._kept)

    @property
    def weight(self) -> int:
        """Return the nodes and running jobs of all kept outlooks."""
        return self._weight

    def forget(self) -> None:
        """Drop everything that is kept; answers stay the same."""
        with self._lock:
            self._kept.clear()
            self._kinds.clear()
            self._weight = 0

    def outlook_of(self, record: ResourceRecord, *, now: datetime, model: PlacementModel) -> Outlook:
        """Return the outlook of a record's partition at its snapshot, made at most once while it is kept."""
        at = planned_at(record, now=now)
        key = _key_of(record, at, model)
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
                return found.outlook
            self._drop_superseded(record)
            outlook = build_outlook(record, at=at, model=model, kinds=self.kinds_of(record.nodes))
            self.built += 1
            weight = 1 + len(record.nodes) + len(record.queue.running) + len(record.queue.beside)
            self._kept[key] = _Kept(outlook, record, model, weight)
            self._weight += weight
            while self._weight > self._max_weight and len(self._kept) > 1:
                self._weight -= self._kept.popitem(last=False)[1].weight
            return outlook

    def kinds_of(self, nodes: tuple[NodeView, ...]) -> tuple[NodeKind, ...]:
        """Return the kinds of a tuple of nodes, computed once while it is kept."""
        found = self._kinds.get(id(nodes))
        if found is not None:
            return found[1]
        with self._lock:
            kinds = node_kinds(nodes)
            self._kinds[id(nodes)] = (nodes, kinds)
            if len(self._kinds) > MAX_KINDS:
                self._kinds.popitem(last=False)
            return kinds

    def _drop_superseded(self, record: ResourceRecord) -> None:
        """Forget the outlooks of a partition on any other queue: a newer snapshot took their place."""
        place = (record.system, record.partition)
        for key, kept in list(self._kept.items()):
            if (key[0], key[1]) == place and kept.record.queue is not record.queue:
                self._weight -= kept.weight
                del self._kept[key]


def _key_of(record: ResourceRecord, at: datetime, model: PlacementModel) -> tuple[object, ...]:
    """Return everything an outlook depends on."""
    return (
        record.system,
        record.partition,
        id(record.queue),
        id(record.nodes),
        at,
        record.own_priority,
        record.max_walltime_s,
        record.is_exclusive,
        record.maintenance,
        model.limit_use.digest,
    )
