"""Waits, runtimes, preparation, transfers and charges, to the second and the cent."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from federation.limit_use import UseOfLimits
from federation.types import ChargeRule, Maintenance, PartitionQueue, ResourceRecord, UserLimits
from orchestrator.envelope.types import (
    Accelerator,
    Container,
    Data,
    DataRef,
    Envelope,
    Runtime,
    RuntimeAt,
    Scaling,
    ScalingPoint,
)
from orchestrator.placement.choose import is_strictly_better
from orchestrator.placement.estimate import Work
from orchestrator.placement.model import PlacementModel, RuntimeSample, SpeedSample, slots_class
from orchestrator.placement.outlook import rounded_s
from orchestrator.placement.place import place
from orchestrator.placement.types import Decision, Estimates, WaitClass
from tests.property.placement.views import (
    MODEL,
    NOW,
    bounds,
    busy,
    envelope,
    node,
    now_by_limits_alone,
    pending,
    record,
    running,
)


def estimates(
    view: ResourceRecord, request: Envelope | None = None, *, model: PlacementModel = MODEL, **options: Any
) -> Estimates:
    decision = place(request or envelope(), [view], now=NOW, model=model, **options)
    assert decision.selected is not None
    return decision.selected.estimates


def full(*shares: Any, waiting: tuple[Any, ...] = (), **changes: Any) -> ResourceRecord:
    """Return a record whose two nodes are busy, with these jobs running and waiting."""
    return record(
        nodes=(busy("n1"), busy("n2")), queue=PartitionQueue(running=shares, pending=waiting), **changes
    )


def test_an_idle_partition_with_nobody_ahead_starts_in_five_seconds() -> None:
    found = estimates(record())

    assert (found.wait_s.p50, found.wait_s.p90, found.wait.wait_class) == (5, 30, WaitClass.CERTAIN)


def test_somebody_ahead_makes_a_start_now_risky() -> None:
    view = record(
        nodes=(node("n1"), node("n2"), node("n3")),
        queue=PartitionQueue(pending=(pending(),)),
        own_priority=50,
    )

    found = estimates(view)

    assert (found.wait_s.p50, found.wait.wait_class, found.wait.somebody_ahead) == (40, WaitClass.RISKY, True)


def test_a_job_behind_ours_is_nobody_ahead() -> None:
    view = record(queue=PartitionQueue(pending=(pending(priority=10),)), own_priority=50)

    assert estimates(view).wait.wait_class is WaitClass.CERTAIN


def test_a_blocked_job_is_nobody_ahead() -> None:
    view = record(queue=PartitionQueue(pending=(pending(is_eligible=False, count=500),)), own_priority=50)

    assert estimates(view).wait.wait_class is WaitClass.CERTAIN


def test_a_planned_wait_is_the_geometric_mean_of_both_plans() -> None:
    found = estimates(full(running("n1", ends_in_s=5400), running("n2", ends_in_s=9000)))

    # limit 6000 s, 600 s used; half of the rest is 2700 s
    assert (found.wait.plan_limits_s, found.wait.plan_means_s) == (5400, 2700)
    assert (found.wait_s.p50, found.wait_s.p90) == (3819, 5728)


def test_where_one_plan_alone_says_now_nine_of_ten_wait_as_long_as_the_other_says() -> None:
    found = estimates(now_by_limits_alone())

    assert (found.wait.plan_limits_s, found.wait.plan_means_s) == (0, 4500)
    assert (found.wait.wait_class, found.wait_s.p50, found.wait_s.p90) == (WaitClass.RISKY, 40, 4500)


def test_learned_runtimes_of_the_user_shorten_the_second_plan() -> None:
    model = PlacementModel(limit_use=UseOfLimits(by_user={("delta", "bob"): (0.05, 0.2, 0.2, 0.5)}))

    found = estimates(full(running("n1", ends_in_s=5400), running("n2", ends_in_s=9000)), model=model)

    # of 6000 s a tenth is used; those longer used 0.3 on average: 1800 s - 600 s
    assert found.wait.plan_means_s == 1200


@pytest.mark.parametrize(
    ("runtime_s", "is_learned", "expected"),
    [
        (0, False, 60),
        (61, False, 120),
        (3600, False, 3600),
        (0, True, 60),
        (100, True, 120),
        (3600, True, 4096),
        (3000, True, 3072),
        (50_000, True, 49_152),
    ],
)
def test_expected_runtimes_are_put_on_a_grid(runtime_s: int, is_learned: bool, expected: int) -> None:
    assert rounded_s(runtime_s, is_learned=is_learned) == expected


def test_a_job_past_its_limit_ends_in_thirty_seconds() -> None:
    assert estimates(full(running("n1", ends_in_s=-60), running("n2"))).wait.plan_limits_s == 30


def test_jobs_ahead_take_the_first_windows() -> None:
    waiting = (pending(priority=200), pending(priority=150, walltime_s=600))

    found = estimates(full(running("n1"), running("n2", ends_in_s=7200), waiting=waiting, own_priority=100))

    # n1 frees at 3600 and is taken until 7200, n2 at 7200 until 7800: n1 is ours at 7200
    assert found.wait.plan_limits_s == 7200


def test_ours_is_last_among_equals_and_before_the_lower() -> None:
    view = full(running("n1"), running("n2", ends_in_s=90_000), waiting=(pending(), pending(priority=99)))

    assert estimates(replace(view, own_priority=100)).wait.plan_limits_s == 7200


def test_thousands_of_array_tasks_in_one_record_are_planned_to_the_depth() -> None:
    view = full(running("n1"), running("n2"), waiting=(pending(count=5000, walltime_s=600),))

    # 300 tasks of 600 s on two nodes
    assert estimates(view).wait.plan_limits_s == 3600 + 150 * 600


def test_a_hidden_queue_goes_by_free_slots() -> None:
    hidden = PartitionQueue(is_visible=False)
    waits = {
        size: estimates(record(nodes=nodes, queue=hidden)).wait_s.p50
        for size, nodes in {
            "none": (busy("n1"),),
            "some": (node("n1"),),
            "many": (node("n1"), node("n2")),
        }.items()
    }

    assert waits == {"none": 5400, "some": 40, "many": 10}
    assert [slots_class(n) for n in (0, 1, 2, 3, 7, 8)] == [0, 1, 1, 2, 2, 3]


def test_a_running_limit_delays_until_an_own_job_ends() -> None:
    limits = UserLimits(max_running_jobs=1, running_jobs=1)
    view = record(
        nodes=(busy("n1"), node("n2")),
        queue=PartitionQueue(running=(running("n1", user="me"),)),
        limits=limits,
        user="me",
    )

    assert estimates(view).wait.plan_limits_s == 3600


def test_a_running_limit_with_unseen_jobs_takes_half_our_wall_time() -> None:
    view = record(limits=UserLimits(max_running_jobs=1, running_jobs=1))

    assert estimates(view).wait.plan_limits_s == 1800


def test_maintenance_ahead_moves_a_planned_start_behind_it() -> None:

    window = Maintenance(start_at=NOW + timedelta(seconds=5000), end_at=NOW + timedelta(seconds=9000))

    assert estimates(full(running("n1"), running("n2"), maintenance=(window,))).wait.plan_limits_s == 9001


def test_an_older_snapshot_widens_the_p90_only() -> None:
    found = estimates(record(observed_at=NOW - timedelta(seconds=360)))

    assert (found.wait_s.p50, found.wait_s.p90, found.wait.snapshot_age_s) == (5, 45, 360)


def test_own_starts_move_the_latency_towards_what_was_seen() -> None:
    key = ("delta", "gpu", False, True)
    model = MODEL
    for _ in range(4):
        model = model.with_start(key, 45)

    # own sum 45 s of weight near 4 against the prior pooled over all partitions
    assert 30 <= model.start_latency_s(key) <= 36
    assert MODEL.start_latency_s(key) == 5
    assert model.with_start(key, 10**9).latency[key].total_s < 3600 + 4 * 45


@pytest.mark.parametrize(
    ("runtime", "gpus", "expected"),
    [
        (Runtime(estimate_s=1000), bounds(1), 1000),
        (Runtime(estimate_s=1000, scaling=Scaling(serial_fraction=0.0)), bounds(1, 4), 250),
        (Runtime(estimate_s=1000, scaling=Scaling(serial_fraction=0.2)), bounds(1, 4), 400),
        (
            Runtime(estimate_s=1000, at=RuntimeAt(gpus=2), scaling=Scaling(serial_fraction=0.0)),
            bounds(4),
            500,
        ),
        (
            Runtime(
                scaling=Scaling(
                    points=(ScalingPoint(gpus=1, runtime_s=1600), ScalingPoint(gpus=4, runtime_s=400))
                )
            ),
            bounds(2),
            800,
        ),
        (Runtime(scaling=Scaling(points=(ScalingPoint(gpus=2, runtime_s=600),))), bounds(1), 1200),
        (Runtime(scaling=Scaling(points=(ScalingPoint(gpus=2, runtime_s=600),))), bounds(4), 600),
    ],
)
def test_a_declared_runtime_is_brought_to_the_size(runtime: Runtime, gpus: Any, expected: int) -> None:
    found = estimates(record(), envelope(runtime=runtime, gpus=gpus))

    assert (found.runtime_s, found.runtime_source) == (expected, "declared")


def test_without_a_declaration_the_median_of_the_kind_decides() -> None:
    runs = tuple(RuntimeSample(runtime_s=s, gpus=1, cpus=8) for s in (300, 500, 900))
    model = PlacementModel(runtimes={"train": runs})

    found = estimates(record(), model=model, work=Work(kind="train"))

    assert (found.runtime_s, found.runtime_p90_s, found.runtime_source) == (500, 650, "history")


def test_two_runs_are_no_history() -> None:
    model = PlacementModel(runtimes={"train": (RuntimeSample(300, 1, 8),) * 2})

    found = estimates(record(), model=model, work=Work(kind="train"))

    assert (found.runtime_s, found.runtime_p90_s, found.runtime_source) == (1800, 3600, "assumed")


def test_a_faster_accelerator_shortens_what_was_declared_for_the_first_one_named() -> None:
    fast = record(nodes=(node("n1", gpu_type="h100"),))
    request = envelope(runtime=Runtime(estimate_s=1900), accelerator=Accelerator(types=("a100", "h100")))

    assert estimates(fast, request).runtime_s == 1000
    only = request.model_copy(update={"accelerator": Accelerator(types=("h100",))})
    assert estimates(fast, only).runtime_s == 1900


def test_measured_speed_is_shrunk_to_the_default() -> None:
    model = PlacementModel(speeds={("delta", "a100"): SpeedSample(speed=2.0, runs=4)})

    assert estimates(record(), envelope(runtime=Runtime(estimate_s=1500)), model=model).runtime_s == 1000


@pytest.mark.parametrize(("known", "expected"), [(True, 0), (False, 300), (None, 150)])
def test_preparation_counts_where_the_image_is_not_known_to_be_there(
    known: bool | None, expected: int
) -> None:
    model = PlacementModel(environments={} if known is None else {("delta", "docker://x"): known})
    view = record(containers=("apptainer",), preparation_s=300)

    request = envelope(container=Container(image="docker://x"))

    assert estimates(view, request, model=model).preparation_s == expected


def test_missing_inputs_are_transferred_before_the_wait_or_during_it() -> None:
    refs = (
        DataRef(uri="globus://abc/one", bytes=1000 * 1024**2),
        DataRef(uri="globus://abc/two", bytes=1000 * 1024**2),
    )
    view = record(held_uris=frozenset({"globus://abc/two"}))
    request = envelope(data=Data(inputs=refs))
    rated = PlacementModel(pair_rates={("abc", "delta"): (1.0, 50.0, 50.0, 20.0, 60.0, 50.0)})

    first = estimates(view, request)
    assert (first.transfer_s, first.completion_s) == (10, 10 + 5 + 1800)
    assert estimates(view, request, model=rated).transfer_s == 20
    overlapped = replace(rated, overlaps_transfers=True)
    assert estimates(view, request, model=overlapped).completion_s == 20 + 1800


@pytest.mark.parametrize(
    ("rule", "exclusive", "expected"),
    [
        (ChargeRule(unit="SU", per_gpu=Decimal(3)), False, "3.0000"),
        (ChargeRule(unit="SU", per_gpu=Decimal(3)), True, "12.0000"),
        (ChargeRule(unit="SU", per_gpu=Decimal(1), per_cpu=Decimal("0.5")), False, "5.0000"),
        (ChargeRule(unit="SU", per_gpu=Decimal(1), per_cpu=Decimal("0.5"), combine="max"), False, "4.0000"),
        (ChargeRule(unit="NH", per_node=Decimal(1), factor=Decimal("1.5")), True, "1.5000"),
    ],
)
def test_the_charge_counts_whole_nodes_where_they_are_exclusive(
    rule: ChargeRule, exclusive: bool, expected: str
) -> None:
    found = estimates(record(charge=rule, is_exclusive=exclusive)).charge

    assert (str(found.amount), found.unit) == (expected, rule.unit)


@pytest.mark.parametrize(
    ("current", "fresh", "moves"), [(1000, 800, False), (1000, 799, True), (120, 0, False), (121, 0, True)]
)
def test_a_waiting_job_moves_only_past_the_margin(current: int, fresh: int, moves: bool) -> None:
    assert is_strictly_better(current, fresh) is moves


def test_decisions_name_their_model() -> None:
    decision: Decision = place(envelope(), [record()], now=NOW, model=PlacementModel(version="v7"))

    assert decision.model_version == "v7"


@pytest.mark.parametrize("limit", [None, 0, -1])
def test_a_job_without_a_sensible_limit_is_taken_to_use_the_partitions(limit: int | None) -> None:
    shares = [replace(running(name), walltime_s=limit) for name in ("n1", "n2")]

    assert estimates(full(*shares, max_walltime_s=7200)).wait.plan_limits_s == 7200 - 600


@pytest.mark.parametrize("limit", [None, 0, -1])
def test_a_waiting_job_without_a_sensible_limit_too(limit: int | None) -> None:
    view = full(running("n1"), running("n2", ends_in_s=90_000), waiting=(pending(walltime_s=limit),))

    assert estimates(replace(view, max_walltime_s=7200)).wait.plan_limits_s == 3600 + 7200


def test_a_job_that_starts_in_the_future_by_the_sites_clock_starts_now() -> None:
    shares = [replace(running(name), start_at=NOW + timedelta(hours=1)) for name in ("n1", "n2")]

    assert estimates(full(*shares)).wait.plan_limits_s == 4200


def test_hidden_priorities_put_everybody_ahead_by_submission() -> None:
    waiting = (pending(priority=None), pending(priority=None, is_eligible=False))

    found = estimates(full(running("n1"), running("n2", ends_in_s=90_000), waiting=waiting))

    assert (found.wait.plan_limits_s, found.wait.somebody_ahead) == (7200, True)


def test_what_is_taken_by_nobody_seen_is_freed_at_the_longest_wall_time() -> None:
    assert estimates(full(max_walltime_s=5000)).wait.plan_limits_s == 5000


def test_a_node_that_is_up_but_not_usable_is_back_after_ten_minutes() -> None:
    view = record(nodes=(busy("n1", is_usable=False),))

    assert estimates(view).wait.plan_limits_s == 600


def test_a_job_that_fits_no_node_holds_nothing_up() -> None:
    view = record(queue=PartitionQueue(pending=(pending(nodes=50, cpus=50, gpus=50),)), own_priority=1)

    assert estimates(view).wait.plan_limits_s == 0
