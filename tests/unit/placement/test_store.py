"""What is kept between decisions: when it is found again, when it is dropped, and how it ages."""

from dataclasses import replace
from datetime import timedelta

from federation.limit_use import UseOfLimits
from federation.types import PartitionQueue, ResourceRecord, RunningShare
from orchestrator.placement.model import PlacementModel
from orchestrator.placement.place import place
from orchestrator.placement.store import PlanStore
from orchestrator.placement.timeline import MAX_SETTLED_HEAPS, Need, NodeSteps, NodeTimelines
from orchestrator.placement.types import WaitBasis
from tests.property.placement.views import MODEL, NOW, busy, envelope, record, running


def full(*shares: RunningShare) -> ResourceRecord:
    return record(nodes=(busy("n1"),), queue=PartitionQueue(running=shares))


def basis(view: ResourceRecord, *, age_s: int) -> WaitBasis:
    decision = place(envelope(), [view], now=NOW + timedelta(seconds=age_s), model=MODEL)
    assert decision.selected is not None
    return decision.selected.estimates.wait


def test_a_planned_start_comes_nearer_as_the_snapshot_ages() -> None:
    view = full(running("n1", ends_in_s=3600))

    assert [basis(view, age_s=age).plan_limits_s for age in (0, 60, 599)] == [3600, 3540, 3001]


def test_what_nobody_saw_free_is_not_counted_on_before_half_a_minute() -> None:
    view = full(running("n1", ends_in_s=100))

    found = basis(view, age_s=300)

    assert (found.plan_limits_s, found.fits_now) == (30, False)


def test_an_outlook_is_made_once_per_snapshot_whoever_asks_and_when() -> None:
    store, view = PlanStore(), record()
    first = store.outlook_of(view, now=NOW, model=MODEL)

    other = replace(view, account="def", user="eve")

    assert store.outlook_of(other, now=NOW + timedelta(seconds=90), model=PlacementModel()) is first
    assert (store.built, len(store)) == (1, 1)


def test_another_priority_or_another_use_of_limits_has_an_outlook_of_its_own() -> None:
    store, view = PlanStore(), record()
    learned = PlacementModel(limit_use=UseOfLimits(by_partition={("delta", "gpu"): (0.1, 0.1, 0.1)}))

    found = [
        store.outlook_of(view, now=NOW, model=MODEL),
        store.outlook_of(replace(view, own_priority=7), now=NOW, model=MODEL),
        store.outlook_of(view, now=NOW, model=learned),
        store.outlook_of(replace(view, max_walltime_s=60), now=NOW, model=MODEL),
        store.outlook_of(replace(view, is_exclusive=True), now=NOW, model=MODEL),
    ]

    assert len({id(each) for each in found}) == len(store) == 5


def test_a_newer_snapshot_takes_the_place_of_the_older() -> None:
    store, view, elsewhere = PlanStore(), record(), record("vista")
    for each in (view, replace(view, own_priority=7), elsewhere):
        store.outlook_of(each, now=NOW, model=MODEL)

    store.outlook_of(replace(view, queue=PartitionQueue(running=())), now=NOW, model=MODEL)

    assert (len(store), store.weight) == (2, 2 * 3)


def test_the_outlook_not_used_for_longest_goes_first() -> None:
    store = PlanStore(max_weight=6)
    a, b, c = record("a"), record("b"), record("c")
    first = store.outlook_of(a, now=NOW, model=MODEL)
    store.outlook_of(b, now=NOW, model=MODEL)
    store.outlook_of(a, now=NOW, model=MODEL)

    store.outlook_of(c, now=NOW, model=MODEL)

    assert store.outlook_of(a, now=NOW, model=MODEL) is first
    assert (store.built, len(store), store.weight) == (3, 2, 6)


def test_a_forgetful_store_starts_over() -> None:
    store = PlanStore()
    store.outlook_of(record(), now=NOW, model=MODEL)

    store.forget()

    assert (len(store), store.weight) == (0, 0)


def test_a_fork_copies_only_the_nodes_it_takes_from() -> None:
    base = NodeTimelines([NodeSteps(0, [(0, 8, 64, 4)]) for _ in range(3)])
    base.earliest(Need(1, 1, 0, 0), 10)
    fork = base.fork()

    assert fork.reserve(Need(2, 8, 64, 4), 100) == 0

    assert [mine is theirs for mine, theirs in zip(fork.nodes, base.nodes, strict=True)] == [
        False,
        False,
        True,
    ]
    assert all(node.times == [0] for node in base.nodes)
    assert (base.earliest(Need(3, 8, 64, 4), 10), fork.earliest(Need(3, 8, 64, 4), 10)) == (0, 100)


def test_a_settled_timeline_remembers_few_kinds_of_request() -> None:
    timeline = NodeTimelines([NodeSteps(0, [(0, 8, 64, 4)])])
    timeline.settle()

    starts = [timeline.earliest(Need(1, 1 + n % 8, n, 0), 10 + n) for n in range(3 * MAX_SETTLED_HEAPS)]

    assert len(timeline._heaps) == MAX_SETTLED_HEAPS
    assert starts[:65] == [0] * 65
    assert starts[65:] == [None] * (3 * MAX_SETTLED_HEAPS - 65)
