"""Where each policy would send one request, given the same records at the same instant.

The published rule names no formula for its wait; two readings of "request-sized slots in free GRES and CPUs
first, then queue depth" are here. Every policy is given the same runtimes and preparation times.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Protocol

from federation.types import NodeView, ResourceRecord
from orchestrator.envelope.types import Envelope
from orchestrator.placement.cache import PlanCache
from orchestrator.placement.estimate import Work
from orchestrator.placement.model import PlacementModel
from orchestrator.placement.place import place
from orchestrator.placement.store import PlanStore
from orchestrator.placement.types import Decision, Estimates, Shape, WaitClass

Place = tuple[str, str]
"""System and partition."""
OURS = "ours"
PUBLISHED = "published, reading A"
QUEUED_S = 60
"""What one waiting job counts for where no slot is free, in the published estimator's readings."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A place and the shape asked for there."""

    place: Place
    shape: Shape
    estimates: Estimates | None = None
    """What the policy believed, where it says so."""


@dataclass(frozen=True, slots=True)
class Question:
    """One request at one instant, as every policy is asked it."""

    envelope: Envelope
    work: Work
    now: datetime
    records: Mapping[Place, ResourceRecord]
    """What is visible, by place."""
    shapes: Mapping[Place, Shape]
    """The feasible places, and the request on the fewest nodes there."""
    own_s: Mapping[Place, int]
    """Runtime and preparation by place, known to everybody."""
    facts: PlacementModel
    """Runtimes' speeds and environments as a model; nothing about waits."""


class Policy(Protocol):
    """One way to choose."""

    name: str

    def choose(self, question: Question) -> Choice:
        """Return the choice; there is at least one feasible place."""
        ...

    def learn(self, choice: Choice, *, wait_s: int, known_at: datetime) -> None:
        """Take note of what became of an own choice; it may be used from `known_at` on."""
        ...


class Unlearning:
    """A policy that keeps nothing."""

    def learn(self, choice: Choice, *, wait_s: int, known_at: datetime) -> None:
        """Forget it."""


@dataclass(slots=True)
class Fixed(Unlearning):
    """Always the same places, the first that can take it."""

    order: Sequence[Place]
    name: str = "fixed site"

    def choose(self, question: Question) -> Choice:
        first = next((each for each in self.order if each in question.shapes), min(question.shapes))
        return Choice(first, question.shapes[first])


@dataclass(slots=True)
class AtRandom(Unlearning):
    """Any feasible place."""

    random: Random
    name: str = "random feasible"

    def choose(self, question: Question) -> Choice:
        any_place = self.random.choice(sorted(question.shapes))
        return Choice(any_place, question.shapes[any_place])


@dataclass(slots=True)
class ShortestQueue(Unlearning):
    """The place with the fewest waiting jobs."""

    name: str = "shortest queue"

    def choose(self, question: Question) -> Choice:
        best = min(question.shapes, key=lambda each: (question.records[each].queue.pending_count, each))
        return Choice(best, question.shapes[best])


@dataclass(slots=True)
class Published(Unlearning):
    """The published estimator: no wait where a request-sized slot is free, else the depth of the queue.

    Reading A pools the free resources of a partition; reading C counts slots node by node.
    """

    per_node: bool
    name: str

    def choose(self, question: Question) -> Choice:
        def key(each: Place) -> tuple[int, int, Place]:
            record, shape = question.records[each], question.shapes[each]
            depth = record.queue.pending_count
            slots = slots_by_node(record, shape) if self.per_node else slots_pooled(record, shape)
            wait_s = 0 if slots else depth * QUEUED_S
            return wait_s + question.own_s[each], depth, each

        best = min(question.shapes, key=key)
        return Choice(best, question.shapes[best])


def slots_pooled(record: ResourceRecord, shape: Shape) -> int:
    """Return how many such requests the free GPUs and CPUs of a partition hold, wherever they are."""
    usable = [node for node in record.nodes if node.is_usable and node.is_up]
    slots = sum(node.cpus_free for node in usable) // max(shape.cpus, 1)
    if shape.gpus:
        slots = min(slots, sum(node.gpus_free for node in usable) // shape.gpus)
    return slots


def slots_by_node(record: ResourceRecord, shape: Shape) -> int:
    """Return how many such requests the free GPUs and CPUs hold, each node giving its share whole."""

    def shares(node: NodeView) -> int:
        each = node.cpus_free // max(shape.cpus_per_node, 1)
        return min(each, node.gpus_free // shape.gpus_per_node) if shape.gpus else each

    counts = [shares(node) for node in record.nodes if node.is_usable and node.is_up]
    return sum(counts) if shape.nodes == 1 else sum(count > 0 for count in counts) // shape.nodes


@dataclass(slots=True)
class Ours(Unlearning):
    """The product's own `place()`, with start latencies learned from its own choices only."""

    name: str
    learns: bool = True
    slowed: Callable[[Question], Question] | None = None
    """How it is asked where times are scaled down, `pace` times."""
    pace: int = 1
    model: PlacementModel = field(default_factory=PlacementModel)
    store: PlanStore = field(default_factory=PlanStore)
    due: list[tuple[datetime, Choice, int]] = field(default_factory=list)

    def choose(self, question: Question) -> Choice:
        self._learn_until(question.now)
        asked = question if self.slowed is None else self.slowed(question)
        decision = decide(asked, self._with_facts(question.facts), self.store)
        chosen = decision.selected
        if chosen is None:
            raise LookupError("no feasible place")
        walltime_s = chosen.shape.walltime_s // self.pace
        shape = chosen.shape.model_copy(update={"walltime_s": walltime_s})
        return Choice((chosen.system, chosen.partition), shape, chosen.estimates)

    def learn(self, choice: Choice, *, wait_s: int, known_at: datetime) -> None:
        if self.learns:
            self.due.append((known_at, choice, wait_s))

    def _learn_until(self, now: datetime) -> None:
        ripe = sorted((each for each in self.due if each[0] <= now), key=lambda each: each[0])
        self.due = [each for each in self.due if each[0] > now]
        for _, choice, wait_s in ripe:
            basis = choice.estimates.wait if choice.estimates else None
            if basis is None or basis.wait_class not in {WaitClass.CERTAIN, WaitClass.RISKY}:
                continue
            key = (*choice.place, bool(basis.somebody_ahead), basis.fits_now)
            self.model = self.model.with_start(key, wait_s * self.pace)

    def _with_facts(self, facts: PlacementModel) -> PlacementModel:
        return PlacementModel(
            latency=self.model.latency,
            limit_use=facts.limit_use,
            speeds=facts.speeds,
            environments=facts.environments,
            preparations=facts.preparations,
        )


def decide(question: Question, model: PlacementModel, store: PlanStore) -> Decision:
    """Return the product's decision on a question."""
    return place(
        question.envelope,
        question.records.values(),
        now=question.now,
        model=model,
        cache=PlanCache(store),
        work=question.work,
    )


def fewest_nodes(decision: Decision) -> dict[Place, Shape]:
    """Return the feasible places of a decision, each with the request on as few nodes as hold it."""
    found = {}
    for each in decision.candidates:
        if each.shape is None or each.sizing is None:
            continue
        legal = [size for size in each.sizing.tried if not size.dropped]
        least = min(legal, key=lambda size: (size.nodes, -size.gpus))
        found[each.system, each.partition] = each.shape.model_copy(
            update={"nodes": least.nodes, "gpus": least.gpus, "cpus": least.cpus}
        )
    return found


def started_at(now: datetime, wait_s: int) -> datetime:
    """Return when a choice's outcome is known."""
    return now + timedelta(seconds=wait_s)
