"""The choice: objectives, ties, sizes, groups, deadlines, and what would help when there is none."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from federation.types import ChargeRule, Health, PartitionQueue, ResourceRecord, UserLimits
from orchestrator.envelope.types import (
    Accelerator,
    Container,
    Data,
    DataRef,
    Envelope,
    Policy,
    Runtime,
    Scaling,
)
from orchestrator.placement.cache import PlanCache
from orchestrator.placement.model import PlacementModel
from orchestrator.placement.place import place, reserve
from orchestrator.placement.trace import decision_bytes, decision_json
from orchestrator.placement.types import Decision
from tests.property.placement.views import (
    MODEL,
    NOW,
    bounds,
    busy,
    envelope,
    node,
    now_by_limits_alone,
    record,
    running,
)

SU = ChargeRule(unit="SU", per_gpu=Decimal(1))


def decide(request: Envelope, *views: ResourceRecord, **options: Any) -> Decision:
    return place(request, views, now=NOW, model=MODEL, **options)


def system(decision: Decision) -> str | None:
    return None if decision.selected is None else decision.selected.system


def crowded(name: str, ends_in_s: int = 3600, **changes: Any) -> ResourceRecord:
    shares = (running("n1", ends_in_s=ends_in_s), running("n2", ends_in_s=ends_in_s))
    return record(name, nodes=(busy("n1"), busy("n2")), queue=PartitionQueue(running=shares), **changes)


def test_the_earliest_completion_wins_and_the_runner_up_is_told() -> None:
    decision = decide(envelope(), crowded("anvil"), record("vista"))

    assert system(decision) == "vista"
    assert decision.runner_up is not None
    assert decision.runner_up.system == "anvil"
    assert decision.margin_s == 2546 - 5
    assert [(c.system, c.rank) for c in decision.candidates] == [("anvil", 2), ("vista", 1)]


def test_the_cheapest_wins_when_asked_although_it_waits() -> None:
    cheap = crowded("anvil", charge=ChargeRule(unit="SU", per_gpu=Decimal("0.5")))
    dear = record("vista", charge=SU)

    assert system(decide(envelope(), cheap, dear)) == "vista"
    assert system(decide(envelope(objective="lowest_charge"), cheap, dear)) == "anvil"
    assert system(decide(envelope(), cheap, dear, objective="lowest_charge")) == "anvil"


def test_the_soonest_start_wins_when_asked_although_it_runs_longer() -> None:
    slow = record("anvil", speed=Decimal("0.1"))
    fast = crowded("vista", ends_in_s=600, speed=Decimal(2))
    request = envelope(runtime=Runtime(estimate_s=1000), walltime_s=bounds(20_000))

    assert system(decide(request, slow, fast)) == "vista"
    assert system(decide(request, slow, fast, objective="soonest_start")) == "anvil"


def test_risk_is_avoided_when_asked() -> None:
    request = envelope(runtime=Runtime(estimate_s=600))
    wide = crowded("anvil", ends_in_s=400)  # 283 s between 200 s and 400 s
    steady = record("vista", dispatch_s=300)

    assert system(decide(request, wide, steady)) == "anvil"
    assert system(decide(request, wide, steady, risk_averse=True)) == "vista"


def test_who_avoids_risk_goes_by_the_worse_of_the_two_plans() -> None:
    perhaps_now, surely_later = now_by_limits_alone(), crowded("vista", ends_in_s=2400)

    assert system(decide(envelope(), perhaps_now, surely_later)) == "delta"
    assert system(decide(envelope(), perhaps_now, surely_later, objective="risk_averse")) == "vista"


def test_a_start_is_not_put_off_by_what_is_brought_while_the_job_waits() -> None:
    inputs = (DataRef(uri="globus://abc/one", bytes=300_000 << 20),)  # 3000 s
    bring, held = crowded("anvil", ends_in_s=3600), crowded("vista", ends_in_s=7200)
    held = replace(held, held_uris=frozenset({"globus://abc/one"}))
    request, meanwhile = envelope(data=Data(inputs=inputs)), PlacementModel(overlaps_transfers=True)

    def soonest(model: PlacementModel) -> str:
        decision = place(request, [bring, held], now=NOW, model=model, objective="soonest_start")
        assert decision.selected is not None
        return decision.selected.system

    waits = [c.estimates.wait_s.p50 for c in decide(request, bring, held).candidates if c.estimates]
    assert 0 < waits[1] - waits[0] < 3000
    assert (soonest(MODEL), soonest(meanwhile)) == ("vista", "anvil")


def test_preparing_the_environment_counts_to_the_wall_time() -> None:
    fetched = PlacementModel(environments={("anvil", "docker://x"): False, ("vista", "docker://x"): True})
    absent = record("anvil", containers=("apptainer",), preparation_s=400)
    slower = crowded("vista", ends_in_s=20_000, containers=("apptainer",))
    request = envelope(container=Container(image="docker://x"), runtime=Runtime(estimate_s=3500))

    decision = place(request, [absent, slower], now=NOW, model=fetched)
    alone = place(request, [absent], now=NOW, model=fetched)

    assert decision.selected is not None
    assert decision.selected.system == "vista"
    assert alone.warnings[0].startswith("The expected runtime of 3900 s exceeds the wall time of 3600 s")


def test_an_unknown_objective_is_told_and_the_default_used() -> None:
    decision = decide(envelope(objective="greenest"), record())

    assert decision.objective == "earliest_completion"
    assert decision.warnings == (
        "Objective greenest is no placement objective; earliest_completion was used.",
    )


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        (
            {"charge": SU, "credit_left": Decimal(10)},
            {"charge": SU, "credit_left": Decimal(20)},
            "credit share",
        ),
        ({"nodes": (node(gpu_memory_mib=81_920),)}, {"nodes": (node(),)}, "specialised resource"),
        ({"is_exclusive": True}, {}, "specialised resource"),
        ({"system": "bridges"}, {"system": "vista"}, "preference"),
        ({"partition": "b"}, {"partition": "a"}, "name"),
    ],
)
def test_ties_are_settled_in_order(first: dict[str, Any], second: dict[str, Any], why: str) -> None:
    loser = record(**({"system": "anvil"} | first))
    winner = record(**({"system": "anvil", "partition": "z"} | second))

    decision = decide(envelope(policy=Policy(prefer=("vista",))), loser, winner)

    assert decision.selected is not None
    assert (decision.selected.system, decision.selected.partition) == (winner.system, winner.partition)
    assert [c.tie_break for c in decision.candidates if c.rank == 2] == [why]


def test_a_deadline_prefers_who_meets_it_and_warns_when_nobody_does() -> None:
    sure = record("vista", dispatch_s=120)
    hasty = replace(sure, system="anvil", dispatch_s=0, observed_at=NOW - timedelta(seconds=590))
    hasty = replace(hasty, queue=PartitionQueue(is_visible=False))
    request = envelope(runtime=Runtime(estimate_s=600), walltime_s=bounds(600))

    assert system(decide(request, sure, hasty)) == "anvil"
    late = envelope(
        runtime=Runtime(estimate_s=600),
        walltime_s=bounds(600),
        policy=Policy(deadline=NOW + timedelta(seconds=10)),
    )
    decision = decide(late, sure, hasty)
    assert system(decision) == "anvil"
    assert decision.warnings[0].startswith("No candidate is sure to end by 2026-03-02")


def test_a_runtime_over_the_wall_time_loses_and_is_told() -> None:
    slow = record("anvil", speed=Decimal("0.5"))
    right = crowded("vista", ends_in_s=20_000)
    request = envelope(runtime=Runtime(estimate_s=3000))

    assert system(decide(request, slow, right)) == "vista"
    assert (
        decide(request, slow).warnings[0].startswith("The expected runtime of 6000 s exceeds the wall time")
    )


def test_the_size_with_the_earliest_completion_is_granted() -> None:
    request = envelope(
        gpus=bounds(1, 8),
        cpus=bounds(8, 64),
        runtime=Runtime(estimate_s=3600, scaling=Scaling(serial_fraction=0.0)),
    )
    idle = decide(request, record()).selected
    one_free = record(
        nodes=(busy("n1"), node("n2", cpus_free=16, gpus_free=2)),
        queue=PartitionQueue(
            running=(
                running("n1", ends_in_s=80_000),
                running("n2", ends_in_s=80_000, gpus_per_node=2, cpus_per_node=48),
            )
        ),
    )
    shrunk = decide(request, one_free).selected

    assert idle is not None
    assert (idle.shape.nodes, idle.shape.gpus, idle.shape.cpus, idle.shape.walltime_s) == (2, 8, 64, 3600)
    assert shrunk is not None
    assert (shrunk.shape.nodes, shrunk.shape.gpus, shrunk.shape.cpus) == (1, 2, 16)


def test_several_layouts_are_tried_where_one_node_is_taken_in_part() -> None:
    half = {"cpus_free": 32, "gpus_free": 2, "memory_free_mib": 131_072}
    share = {"gpus_per_node": 2, "cpus_per_node": 32, "memory_per_node_mib": 131_072, "ends_in_s": 9000}
    view = record(
        nodes=(node("n1", **half), node("n2", **half)),
        queue=PartitionQueue(running=(running("n1", **share), running("n2", **share))),
    )

    free = decide(envelope(gpus=bounds(4)), view).selected
    together = decide(envelope(gpus=bounds(4), nodes=bounds(1)), view).selected

    assert free is not None
    assert (free.shape.nodes, free.shape.gpus_per_node, free.estimates.wait_s.p50) == (2, 2, 5)
    assert together is not None
    assert (together.shape.nodes, together.estimates.wait.plan_limits_s) == (1, 9000)


def test_cpu_work_without_a_node_count_stays_on_the_fewest_nodes() -> None:
    decision = decide(envelope(gpus=bounds(0), cpus=bounds(32)), record())

    assert decision.candidates[0].sizing is not None
    assert [(t.nodes, t.cpus) for t in decision.candidates[0].sizing.tried] == [(1, 32)]


def test_wall_time_is_the_most_that_cap_and_credit_allow() -> None:
    request = envelope(walltime_s=bounds(3600, 90_000))
    capped = decide(request, record(max_walltime_s=7200)).selected
    poor = decide(request, record(charge=SU, credit_left=Decimal(2))).selected

    assert capped is not None
    assert capped.shape.walltime_s == 7200
    assert poor is not None
    assert poor.shape.walltime_s == 3600


def test_memory_not_asked_for_is_the_share_of_the_gpus() -> None:
    selected = decide(envelope(), record()).selected
    by_cpu = decide(envelope(), record(default_memory_per_cpu_mib=2000)).selected

    assert selected is not None
    assert selected.shape.memory_mib == 65_536
    assert by_cpu is not None
    assert by_cpu.shape.memory_mib == 16_000


def test_a_group_is_spread_by_reserving_each_choice() -> None:
    views = [record("anvil", nodes=(node("n1"),)), record("vista", nodes=(node("n1"),))]
    request, cache, chosen = envelope(gpus=bounds(4)), PlanCache(), []
    for _ in range(4):
        decision = decide(request, *views, cache=cache)
        reserve(cache, decision, envelope=request, records=views)
        chosen.append(
            (system(decision), decision.selected and decision.selected.estimates.wait.plan_limits_s)
        )

    assert chosen == [("anvil", 0), ("vista", 0), ("anvil", 3600), ("vista", 3600)]


def test_a_group_counts_towards_running_and_submit_limits() -> None:
    view = record(limits=UserLimits(max_running_jobs=1, max_submit_jobs=2))
    request, cache, waits = envelope(), PlanCache(), []
    for _ in range(3):
        decision = decide(request, view, cache=cache)
        reserve(cache, decision, envelope=request, records=[view])
        waits.append(decision.selected and decision.selected.estimates.wait.plan_limits_s)

    assert waits == [0, 3600, None]


def test_choices_in_one_partition_leave_the_limits_of_another_alone() -> None:
    shared = record(partition="shared")
    debug, cache = record(partition="debug", limits=UserLimits(max_submit_jobs=1)), PlanCache()
    reserve(cache, decide(envelope(), shared, cache=cache), envelope=envelope(), records=[shared])

    assert decide(envelope(), debug, cache=cache).result == "placed"


def test_another_users_choice_takes_nodes_and_none_of_our_limits() -> None:
    limits = UserLimits(max_running_jobs=1, max_submit_jobs=1)
    view = record(nodes=(node("n1"), node("n2")), limits=limits)
    request, cache, waits = envelope(gpus=bounds(4)), PlanCache(), []
    for _ in range(3):
        decision = decide(request, view, cache=cache)
        reserve(cache, decision, envelope=request, records=[view], is_own=False)
        waits.append(decision.selected and decision.selected.estimates.wait.plan_limits_s)

    assert waits == [0, 0, 3600]


def test_diversity_prefers_the_less_loaded_system_among_equals_only() -> None:
    tied = decide(envelope(), record("anvil"), record("vista"), diversity_load={"anvil": 1})
    apart = decide(envelope(), record("anvil"), crowded("vista"), diversity_load={"anvil": 1})

    assert (system(tied), system(apart)) == ("vista", "anvil")


def test_budgets_bound_credit_by_system() -> None:
    decision = decide(
        envelope(), record(charge=SU, credit_left=Decimal(9)), budgets={"delta": Decimal("0.5")}
    )

    assert [r.code for r in decision.candidates[0].rejections] == ["credit_exceeded"]


def test_the_smallest_change_is_found_and_verified() -> None:
    far = record("anvil", max_walltime_s=600)
    near = record("vista", max_walltime_s=3000)

    decision = decide(envelope(), far, near)

    assert decision.result == "unschedulable"
    assert decision.closest is not None
    assert (decision.closest.system, decision.closest.verified) == ("vista", True)
    assert [(c.field, c.current, c.proposed) for c in decision.closest.changes] == [
        ("walltime_s.min", 3600, 3000)
    ]


@pytest.mark.parametrize(
    ("changes", "asked", "fields"),
    [
        ({}, {"gpus": bounds(16)}, ["gpus.min"]),
        ({"max_nodes": 1}, {"gpus": bounds(8)}, ["gpus.min"]),
        ({}, {"architecture": ("aarch64",)}, ["architecture"]),
        ({}, {"accelerator": Accelerator(types=("h100",))}, ["accelerator.types"]),
        ({}, {"accelerator": Accelerator(min_memory_mib=80_000)}, ["accelerator.min_memory_mib"]),
        ({}, {"policy": Policy(exclude_systems=("delta",))}, ["policy.exclude_systems"]),
        ({}, {"gpus": bounds(8), "nodes": bounds(1)}, ["gpus.min"]),
        ({}, {"gpus": bounds(3), "nodes": bounds(2)}, ["nodes"]),
        ({"nodes": (node(gpus=0),)}, {}, ["gpus.min"]),
        ({}, {"network": ("infiniband",)}, ["network"]),
        (
            {"charge": SU},
            {"policy": Policy(max_charge={"delta": Decimal("0.5")})},
            ["policy.max_charge.delta"],
        ),
        ({"charge": SU, "credit_left": Decimal("0.5")}, {}, ["walltime_s.min"]),
        ({"max_walltime_s": 60}, {"gpus": bounds(9)}, ["gpus.min", "walltime_s.min"]),
    ],
)
def test_each_obstacle_of_the_envelope_has_an_edit_that_works(
    changes: dict[str, Any], asked: dict[str, Any], fields: list[str]
) -> None:
    closest = decide(envelope(**asked), record(**changes)).closest

    assert closest is not None
    assert ([c.field for c in closest.changes], closest.verified) == (fields, True)


def test_what_no_edit_can_help_is_an_act_outside() -> None:
    closest = decide(envelope(), record(health=Health.OFFLINE)).closest

    assert closest is not None
    assert [(c.field, c.code) for c in closest.changes] == [(None, "endpoint_offline")]
    assert closest.verified is False


def test_no_record_at_all_is_unschedulable_without_a_suggestion() -> None:
    decision = decide(envelope())

    assert (decision.result, decision.closest, decision.candidates) == ("unschedulable", None, ())


def test_the_trace_has_the_names_of_the_contract() -> None:
    decision = decision_json(decide(envelope(), record(charge=SU), record("x", health=Health.OFFLINE)))

    assert {"id", "input_hash", "snapshot_ids", "objective", "selected", "candidates", "generated_at"} <= set(
        decision
    )
    selected = decision["selected"]
    assert isinstance(selected, dict)
    assert set(selected) == {"system", "partition", "account", "qos", "shape", "estimates"}
    assert isinstance(selected["estimates"], dict)
    assert selected["estimates"]["wait_s"] == {"p50": 5, "p90": 30}
    assert selected["estimates"]["charge"] == {"amount": "1.0000", "unit": "SU"}
    first = decision["candidates"]
    assert isinstance(first, list)
    assert isinstance(first[0], dict)
    assert {
        "system",
        "partition",
        "account",
        "feasible",
        "rejections",
        "sizing",
        "estimates",
        "rank",
        "tie_break",
    } <= set(first[0])
    assert isinstance(first[0]["sizing"], dict)
    assert {"from", "to", "why"} <= set(first[0]["sizing"])
    assert isinstance(first[1], dict)
    assert isinstance(first[1]["rejections"], list)
    assert isinstance(first[1]["rejections"][0], dict)
    assert set(first[1]["rejections"][0]) == {"rule", "code", "required", "observed", "remedy"}


def test_the_hash_changes_with_every_input_and_with_nothing_else() -> None:
    views = [record(snapshot_id="snap_1"), record("x", snapshot_id="snap_2")]
    base = decide(envelope(), *views)

    assert decide(envelope(), *views[::-1]).input_hash == base.input_hash
    assert base.snapshot_ids == ("snap_1", "snap_2")
    others = [
        decide(envelope(cpus=bounds(9)), *views),
        decide(envelope(), views[0]),
        decide(envelope(), *views, objective="soonest_start"),
        decide(envelope(), *views, budgets={"x": Decimal(9)}),
        place(envelope(), views, now=NOW + timedelta(seconds=1), model=MODEL),
        place(envelope(), views, now=NOW, model=replace(MODEL, version="2")),
    ]
    hashes = {each.input_hash for each in others}
    assert len(hashes) == len(others)
    assert base.input_hash not in hashes
    assert decision_bytes(base) == decision_bytes(decide(envelope(), *views))


def test_when_the_size_needs_more_nodes_than_allowed_the_size_is_what_to_change() -> None:
    small = (node("n1", gpus=1), node("n2", gpus=1))
    one_node = record(nodes=small, limits=UserLimits(max_nodes_per_job=1))

    closest = decide(envelope(gpus=bounds(2), nodes=bounds(1, 2)), one_node).closest

    assert closest is not None
    assert [(c.field, c.current, c.proposed) for c in closest.changes] == [("gpus.min", 2, 1)]
    assert closest.verified is True
