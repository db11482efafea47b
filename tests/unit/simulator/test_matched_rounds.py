"""Matched rounds: reproducible, fair to every policy, and blind to what no user can see."""

from dataclasses import replace
from random import Random

import pytest

from benchmarks.matched_rounds import Campaign, beside_the_study, main, run
from benchmarks.outcomes import Outcome, compare, interval, quantile, row
from benchmarks.policies import OURS, PUBLISHED, slots_by_node, slots_pooled
from benchmarks.simulator.cluster import PartitionWorld
from benchmarks.simulator.shapes import SYSTEMS, scaled
from benchmarks.simulator.suites import mixed_request, probe_request
from benchmarks.simulator.view import records_of
from benchmarks.simulator.workload import Job
from benchmarks.simulator.world import Federation
from orchestrator.placement.types import Shape
from tests.property.placement.views import node, record

SMALL = Campaign(seeds=(3,), days=1.2, warm_up_days=1.0, scale=0.2, max_rounds=3)


def federation(seed: int = 3) -> Federation:
    return Federation(seed=seed, days=1, systems=scaled(SYSTEMS, 0.2))


def test_the_same_campaign_gives_the_same_outcomes_and_another_seed_others() -> None:
    tiny = replace(SMALL, days=0.6, warm_up_days=0.5, max_rounds=2)
    first, again, other = run(tiny), run(tiny), run(replace(tiny, seeds=(4,)))

    assert first.outcomes == again.outcomes
    assert first.outcomes != other.outcomes


def test_every_policy_is_judged_on_the_same_rounds_and_none_beats_the_fastest_copy() -> None:
    results = run(SMALL)

    for suite, rounds in (("P", 3), ("M", 3)):
        by_policy = results.outcomes[suite]
        assert {len(outcomes) for outcomes in by_policy.values()} == {rounds}
        assert {OURS, PUBLISHED, "random feasible", "shortest queue", "fixed site"} <= set(by_policy)
        bests = [[each.best_s for each in outcomes] for outcomes in by_policy.values()]
        assert all(best == bests[0] for best in bests)
        assert all(each.additional_s >= 0 for outcomes in by_policy.values() for each in outcomes)


def test_what_is_visible_does_not_depend_on_true_runtimes_or_on_jobs_to_come() -> None:
    part = replace(SYSTEMS[0].partitions[0], nodes=2)
    system = replace(SYSTEMS[0], partitions=(part,))
    running = [Job(n, f"u{n}", 0, 1, 64, 1000, 4, 1000, (runs_s,)) for n, runs_s in ((1, 500), (2, 900))]
    waiting = Job(3, "u3", 100, 1, 64, 1000, 4, 1000, (700,))
    to_come = Job(4, "u4", 400, 1, 64, 1000, 4, 1000, (700,))
    quicker = [replace(each, runtimes_s=(310,)) for each in running]
    seen = []
    for jobs in ((*running, waiting, to_come), (*quicker, replace(waiting, runtimes_s=(1,)))):
        world = PartitionWorld(part, jobs)
        world.run_until(300)
        seen.append(records_of(system, {part.name: world}, now_s=300))

    assert seen[0] == seen[1]
    assert (seen[0][0].queue.running_count, seen[0][0].queue.pending_count) == (2, 1)


def test_records_count_exactly_what_is_free_running_and_waiting() -> None:
    whole = federation()
    whole.run_until(50_000)

    for each in whole.records():
        world = whole.worlds[each.system, each.partition]
        free = [world.free_on(number) for number in range(world.shape.nodes)]
        assert sum(view.gpus_free for view in each.nodes) == sum(
            gpus for _, _, gpus, down in free if not down
        )
        assert sum(view.cpus_free for view in each.nodes) == sum(
            cpus for cpus, _, _, down in free if not down
        )
        assert each.queue.running_count == len(world.running)
        assert each.queue.pending_count == sum(entry.left for entry in world.queue)
        assert each.queue.eligible_count == sum(
            entry.left for entry in world.queue if world.is_eligible(entry)
        )


def test_our_priority_in_the_records_is_what_the_scheduler_would_give_but_for_its_size_part() -> None:
    whole = federation()
    whole.run_until(50_000)

    for each in whole.records():
        world = whole.worlds[each.system, each.partition]
        assert each.own_priority == 3500 == int(world.setup.fairshare_weight * 0.35)


def test_the_suites_are_those_of_the_study() -> None:
    random = Random(1)
    probes = [probe_request(random) for _ in range(1900)]
    mixed = [mixed_request(random) for _ in range(500)]

    shares = [sum(each.kind == kind for each in probes) / 100 for kind in ("cpu", "1 gpu", "4 gpus")]
    assert shares == pytest.approx([7, 6, 6], abs=0.6)
    assert {(each.runtime_s, each.envelope.walltime_s.max) for each in probes} == {(180, 1800), (300, 1800)}
    assert {each.envelope.gpus.max for each in mixed} == {0, 1, 2, 4, 8, 16}
    assert all(1800 <= each.runtime_s <= 21_600 for each in mixed)


def test_pooled_slots_are_counted_where_no_node_could_hold_one() -> None:
    halves = record(nodes=tuple(node(f"n{n}", gpus_free=2, cpus_free=32) for n in range(3)))
    four = Shape(nodes=1, gpus=4, cpus=16, memory_mib=None, walltime_s=60)

    assert slots_pooled(halves, four) == 1
    assert slots_by_node(halves, four) == 0
    assert slots_by_node(halves, four.model_copy(update={"nodes": 2})) == 1


def test_figures_of_the_table() -> None:
    outcomes = [Outcome(0, 100, 100)] * 18 + [Outcome(4, 104, 100), Outcome(900, 1000, 100)]

    assert quantile([1, 2, 3, 4], 0.5) == 2
    assert quantile([1, 2, 3, 4], 0.95) == 4
    assert "90% (95.0%)" in row("any", outcomes)
    assert compare(outcomes, [Outcome(0, 100, 100)] * 20) == (0.0, 0.05)
    low, high = interval([float(each.additional_s) for each in outcomes], max)
    assert low <= 900 == high


def test_our_figures_stand_beside_those_of_the_study() -> None:
    lost = {OURS: 10, PUBLISHED: 40, "fixed site": 3, "random feasible": 6, "shortest queue": 0}
    by_policy = {name: [Outcome(0, 100 + lost_s, 100)] * 4 for name, lost_s in lost.items()}

    lines = beside_the_study("P", by_policy)

    assert lines[1].split()[2:] == ["100%", "3", "3", "study", "56%", "577", "3054"]
    assert lines[4].split()[3:] == ["0%", "40", "40", "study", "87%", "313", "604"]
    assert lines[5].split()[1:] == ["0%", "10", "10", "study", "98%", "31", "1"]
    assert lines[6].strip() == "ours loses 25% of what published, reading A loses; in the study 10%"


def test_a_waiting_job_says_what_holds_it_back() -> None:
    part = replace(SYSTEMS[0].partitions[0], nodes=2, max_running_per_user=1, max_gpus_per_user=4)
    one = Job(1, "bob", 0, 1, 16, 1000, 1, 3600, (3000,))
    asks = (
        one,
        replace(one, number=2),
        replace(one, number=3, user="eve", after=1),
        replace(one, number=4, user="carol", gpus=4, nodes=2, cpus=64),
        replace(one, number=5, user="dora", runtimes_s=(3000, 3000), throttle=1),
    )
    world = PartitionWorld(part, asks)
    world.run_until(300)

    reasons = {entry.job.user: world.reason_of(entry) for entry in world.queue}
    assert reasons == {
        "bob": "QOSMaxJobsPerUserLimit",
        "eve": "Dependency",
        "carol": "QOSMaxGRESPerUser",
        "dora": "JobArrayTaskLimit",
    }


def test_the_program_prints_a_table_for_each_suite(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--scale", "0.1", "--days", "0.6", "--warm-up", "0.5", "--rounds", "1", "--seeds", "2"])

    printed = capsys.readouterr().out
    assert "Suite P: 1 rounds in 1 worlds" in printed
    assert "Suite M: 1 rounds in 1 worlds" in printed
    for suite in printed.split("Suite ")[1:]:
        table = suite.split("\n\n")[0].splitlines()
        assert sum(line.startswith("published, reading A ") for line in table) == 1
