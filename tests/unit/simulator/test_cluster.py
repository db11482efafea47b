"""The simulated scheduler does what a Slurm-like one does, to the second."""

from dataclasses import replace
from random import Random

import pytest

from benchmarks.simulator.cluster import OWN_USER, START_S, PartitionWorld
from benchmarks.simulator.shapes import DAY, HOUR, SYSTEMS, Load, PartitionShape, scaled
from benchmarks.simulator.state import Setup
from benchmarks.simulator.suites import OWN_NUMBER
from benchmarks.simulator.workload import Job, Outage, jobs_of

SHAPE = PartitionShape("gpu", 2, 64, 256_000, 4, "a100", Load(1.0, 10, HOUR, ((1, 1, 16),)))


def job(
    number: int = 0, *, submit_s: int = 0, runs_s: int = 1000, limit_s: int = 1000, **changes: object
) -> Job:
    """Return a job of one whole node."""
    plain = Job(number, f"u{number}", submit_s, 1, 64, 1000, 4, limit_s, (runs_s,))
    return replace(plain, **changes)  # type: ignore[arg-type]  # fields by name


def own(at_s: int, **changes: object) -> Job:
    """Return our own job, one GPU of one node for ten minutes."""
    plain = Job(OWN_NUMBER, OWN_USER, at_s, 1, 16, 1000, 1, 600, (300,))
    return replace(plain, **changes)  # type: ignore[arg-type]  # as above


def world(*jobs: Job, shape: PartitionShape = SHAPE, outages: tuple[Outage, ...] = ()) -> PartitionWorld:
    return PartitionWorld(shape, tuple(sorted(jobs, key=lambda each: each.submit_s)), outages)


def starts(after: PartitionWorld, until_s: int) -> dict[int, int]:
    """Return the first start of every job by number."""
    seen: dict[int, int] = {}

    def look() -> bool:
        for run in after.running.values():
            seen.setdefault(run.job.number, run.start_s)
        return False

    after.run_until(until_s, stop=look)
    return seen


def test_a_job_that_fits_starts_with_the_next_main_pass() -> None:
    assert starts(world(job(1, submit_s=100)), 200) == {1: 100 + START_S}


def test_a_job_ends_when_it_is_done_and_at_its_limit_at_the_latest() -> None:
    after = world(job(1, runs_s=500, limit_s=1000), job(2, runs_s=5000, limit_s=1000))

    after.run_until(10_000)

    assert [(each.user, each.end_s, each.runtime_s) for each in after.ended] == [
        ("u1", 502, 500),
        ("u2", 1002, 1000),
    ]


def test_a_blocked_job_holds_back_those_behind_it_unless_they_end_before_it_can_start() -> None:
    running = job(1, runs_s=9000, limit_s=9000)
    wide = job(2, submit_s=10, nodes=2)
    short = job(3, submit_s=20, limit_s=600, runs_s=600)
    long = job(4, submit_s=30, limit_s=20_000, runs_s=600)

    found = starts(world(running, wide, short, long), 30_000)

    assert found[3] == 60  # backfill on its beat, into the hole before 9002
    assert found[2] == 9002 + START_S
    assert found[4] > found[2]


def test_an_array_keeps_to_its_throttle() -> None:
    array = job(1, cpus=1, gpus=0, runtimes_s=(100,) * 6, throttle=2)
    after = world(array)
    most = 0

    def look() -> bool:
        nonlocal most
        most = max(most, len(after.running))
        return False

    after.run_until(5000, stop=look)

    assert most == 2
    assert len(after.ended) == 6


def test_a_dependent_job_waits_for_the_other_to_end() -> None:
    assert starts(world(job(1, runs_s=700), job(2, after=1)), 5000)[2] == 702 + START_S


def test_users_keep_to_their_limits() -> None:
    one_each = replace(SHAPE, max_running_per_user=1)
    few_gpus = replace(SHAPE, max_gpus_per_user=4)
    both = (job(1, user="eve"), job(2, user="eve"))

    assert starts(world(*both, shape=one_each), 5000)[2] == 1002 + START_S
    assert starts(world(*both, shape=few_gpus), 5000)[2] == 1002 + START_S
    assert starts(world(*both), 5000)[2] == START_S


def test_a_drained_node_finishes_its_job_and_takes_none_until_it_is_back() -> None:
    drained = Outage(0, 50, 4000), Outage(1, 50, 4000)

    found = starts(world(job(1), job(2, submit_s=100), outages=drained), 9000)

    assert found == {1: 2, 2: 4000 + START_S}


def test_an_exclusive_node_is_given_whole() -> None:
    exclusive = replace(SHAPE, is_exclusive=True, nodes=1)
    small = job(1, cpus=1, gpus=0), job(2, cpus=1, gpus=0)

    assert starts(world(*small, shape=exclusive), 5000) == {1: 2, 2: 1002 + START_S}


def test_who_used_less_goes_first() -> None:
    jobs = (
        job(1, user="eve", nodes=2, runs_s=3000, limit_s=3000),
        job(2, user="eve", submit_s=10, nodes=2),
        job(3, user="bob", submit_s=20, nodes=2),
    )

    found = starts(world(*jobs), 20_000)

    assert found[3] < found[2]


def test_a_probe_tells_the_true_wait_and_leaves_the_world_as_it_was() -> None:
    jobs = job(1, runs_s=700, limit_s=3000), job(2, runs_s=900, limit_s=3000)
    asked, untouched = world(*jobs), world(*jobs)
    asked.run_until(100)
    untouched.run_until(100)

    waits = [asked.probe(own(100), horizon_s=DAY) for _ in range(3)]

    assert waits == [702 + START_S - 100] * 3  # the plan by limits would say 2902
    assert starts(asked, 5000) == starts(untouched, 5000)
    assert [each.end_s for each in asked.ended] == [each.end_s for each in untouched.ended]


def test_a_probe_that_outlasts_the_horizon_has_no_answer() -> None:
    asked = world(job(1, nodes=2, runs_s=9000, limit_s=9000))
    asked.run_until(10)

    assert asked.probe(own(10), horizon_s=3600) is None


@pytest.mark.parametrize("system", scaled(SYSTEMS, 0.2), ids=lambda system: system.name)
def test_no_node_ever_holds_more_than_it_has(system: object) -> None:
    parts = getattr(system, "partitions", ())
    for part in parts:
        busy = PartitionWorld(part, jobs_of(part, days=1, random=Random(3)), setup=Setup())

        def holds(busy: PartitionWorld = busy, part: PartitionShape = part) -> bool:
            for node in range(part.nodes):
                cpus, memory_mib, gpus, _ = busy.free_on(node)
                held = [run.ask for run in busy.running.values() if node in run.nodes]
                assert cpus == part.cpus - sum(ask.cpus for ask in held) >= 0
                assert gpus == part.gpus - sum(ask.gpus for ask in held) >= 0
                assert memory_mib == part.memory_mib - sum(ask.memory_mib for ask in held) >= 0
            return False

        busy.run_until(DAY // 2, stop=holds)
        assert busy.ended
