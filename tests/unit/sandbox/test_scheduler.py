"""The scheduler never promises what it has not, and says truly why the rest waits."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from providers.sandbox.slurm.engine import Pass, advance, fail_node, finish, schedule
from providers.sandbox.slurm.model import Assoc, Cluster, Job, Qos, Reservation
from providers.sandbox.slurm.packing import place
from providers.sandbox.slurm.setup import populate
from providers.sandbox.slurm.spec import DELTA, DELTAAI, build
from tests.unit.sandbox.conftest import SMALL

NOW = 1_800_000_000


def cluster(*jobs: Job) -> Cluster:
    made = build(SMALL, NOW)
    made.jobs = list(jobs)
    for number, job in enumerate(jobs, start=1):
        job.key = job.id = number
        if job.tasks:
            job.array = job.id
    made.next_id = len(jobs) + 1
    return made


def job(**fields: object) -> Job:
    usual: dict[str, object] = {
        "user": "alice",
        "account": "work",
        "partitions": ["gpu"],
        "partition": "gpu",
        "submit": NOW - 10,
        "eligible": NOW - 10,
        "limit": 600,
        "mem_cpu": 1000,
        "base_priority": 5000,
        "background": True,
        "runtime": 300,
    }
    return Job(**{**usual, **fields})


def overcommitted(made: Cluster) -> list[str]:
    """Nodes on which more is held than there is, or one GPU twice."""
    found = []
    for name, node in made.nodes.items():
        shares = [each.alloc[name] for each in made.jobs if each.holds_nodes and name in each.alloc]
        gpus = [index for share in shares for index in share[2]]
        if (
            sum(share[0] for share in shares) > node.cpus
            or sum(share[1] for share in shares) > node.mem
            or len(gpus) != len(set(gpus))
            or any(index >= len(node.gpu_types) for index in gpus)
        ):
            found.append(name)
    return found


JOBS = st.lists(
    st.builds(
        lambda part, nodes, cpus, gpus, mem, limit, boost, whole, tasks: job(
            partitions=[part],
            partition=part,
            nodes=nodes,
            cpus=cpus * nodes,
            gpus_node=gpus if part.startswith("gpu") else 0,
            mem_cpu=mem,
            limit=limit * 60,
            runtime=limit * 40,
            base_priority=5000 + boost,
            exclusive=whole,
            tasks=list(range(tasks)),
        ),
        st.sampled_from(["gpu", "gpu-low", "cpu", "whole"]),
        st.integers(1, 2),
        st.integers(1, 16),
        st.integers(0, 4),
        st.sampled_from([500, 2000, 8000]),
        st.integers(1, 60),
        st.integers(0, 100),
        st.booleans(),
        st.sampled_from([0, 0, 0, 3]),
    ),
    min_size=1,
    max_size=25,
)


@settings(max_examples=60, deadline=None)
@given(jobs=JOBS, steps=st.lists(st.integers(1, 1200), max_size=6), broken=st.booleans())
def test_no_node_is_ever_given_away_twice(jobs: list[Job], steps: list[int], broken: bool) -> None:
    made = cluster(*jobs)
    now = NOW
    schedule(made, now)
    assert overcommitted(made) == []
    for number, step in enumerate(steps):
        now += step
        if broken and number == 1:
            fail_node(made, made.nodes["g01"], now)
        advance(made, now)
        assert overcommitted(made) == []
        assert all(each.reason not in {"", "None"} for each in made.jobs if each.state == "PENDING")
        assert not any(
            "g01" in each.alloc for each in made.jobs if broken and number >= 1 and each.state == "RUNNING"
        )


@settings(max_examples=40, deadline=None)
@given(jobs=JOBS)
def test_the_first_in_the_queue_waits_only_when_it_does_not_fit(jobs: list[Job]) -> None:
    made = cluster(*jobs)
    schedule(made, NOW)
    waiting = sorted((each for each in made.jobs if each.state == "PENDING"), key=Pass(made, NOW)._rank)

    for first in waiting[:1]:
        part = made.partitions[first.partition]
        assert place(made, first, part, made.used(), NOW, kept={}) is None
        assert first.reason in {"Resources", "Nodes_required_for_job_are_DOWN"}


def test_a_small_short_job_slips_in_front_of_a_planned_one_without_delaying_it() -> None:
    running = job(cpus=16, gpus_node=4, limit=3600, runtime=3600)
    large = job(nodes=2, cpus=32, gpus_node=4, limit=3600, base_priority=9000)
    short = job(cpus=1, gpus_node=1, limit=600)
    long = job(cpus=1, gpus_node=1, limit=7200)
    made = cluster(running, large, short, long)
    large.held = "user"
    schedule(made, NOW)
    finish(made, short, "COMPLETED", NOW)
    finish(made, long, "COMPLETED", NOW)
    large.held = ""
    again_short, again_long = job(cpus=1, gpus_node=1, limit=600), job(cpus=1, gpus_node=1, limit=7200)
    for number, each in enumerate((again_short, again_long), start=10):
        each.key = each.id = number
        made.jobs.append(each)

    schedule(made, NOW)

    assert (large.state, large.reason, large.expected) == ("PENDING", "Resources", NOW + 3600)
    assert large.planned == ["g01", "g02"]
    assert again_short.state == "RUNNING"
    assert (again_long.state, again_long.reason) == ("PENDING", "Priority")
    assert again_long.expected == NOW + 7200


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"held": "user"}, "JobHeldUser"),
        ({"held": "admin"}, "JobHeldAdmin"),
        ({"begin": NOW + 60}, "BeginTime"),
        ({"limit": 90000}, "PartitionTimeLimit"),
        ({"partitions": ["closed"], "partition": "closed"}, "PartitionInactive"),
        ({"partitions": ["theirs"], "partition": "theirs"}, "PartitionConfig"),
        ({"dependency": "afterok:99"}, "DependencyNeverSatisfied"),
    ],
)
def test_a_job_that_may_not_start_says_why(fields: dict[str, object], reason: str) -> None:
    made = cluster(job(**fields))

    schedule(made, NOW)

    assert (made.jobs[0].state, made.jobs[0].reason) == ("PENDING", reason)


def test_limits_of_qos_and_account_hold_jobs_back_by_name() -> None:
    made = cluster(*(job(gpus_node=2, user=user) for user in ("alice", "alice", "bob", "bob")))
    made.qos["normal"] = Qos(name="normal", max_gpus_user=2)
    made.assocs.append(Assoc(account="work", grp_gpus=4))
    schedule(made, NOW)
    assert [each.reason for each in made.jobs] == ["None", "QOSMaxGRESPerUser", "None", "QOSMaxGRESPerUser"]

    made.qos["normal"] = Qos(name="normal")
    schedule(made, NOW)
    assert [each.reason for each in made.jobs] == ["None", "AssocGrpGRES", "None", "AssocGrpGRES"]


def test_no_job_runs_into_maintenance() -> None:
    made = cluster(job(limit=3600), job(limit=600), job(limit=3600, partitions=["cpu"], partition="cpu"))
    made.reservations = [
        Reservation(
            name="m", start=NOW + 1800, end=NOW + 5400, nodes=["g01", "g02"], flags=["MAINT"], users=["root"]
        )
    ]

    schedule(made, NOW)

    assert [each.state for each in made.jobs] == ["PENDING", "RUNNING", "RUNNING"]
    assert made.jobs[0].expected == NOW + 5400


def test_a_higher_tier_requeues_jobs_of_a_preemptible_partition() -> None:
    low = [job(partitions=["gpu-low"], partition="gpu-low", cpus=16, gpus_node=4) for _ in range(2)]
    made = cluster(*low)
    schedule(made, NOW)
    high = job(cpus=16, gpus_node=4)
    high.key = high.id = 9
    made.jobs.append(high)

    schedule(made, NOW + 5)

    states = [each.state for each in low]
    assert high.state == "RUNNING"
    assert sorted(states) == ["PENDING", "RUNNING"]
    victim = next(each for each in low if each.state == "PENDING")
    assert (victim.restarts, victim.reason) == (1, "BeginTime")
    assert [each.state for each in made.created] == ["PREEMPTED"]
    assert overcommitted(made) == []


def test_memory_is_packed_as_strictly_as_cpus() -> None:
    made = cluster(*(job(cpus=5, mem_cpu=8000, want_nodes=["g01"]) for _ in range(2)))

    schedule(made, NOW)

    assert [each.state for each in made.jobs] == ["RUNNING", "PENDING"]
    assert made.jobs[0].alloc == {"g01": (5, 40000, [])}


def test_whole_node_partitions_give_whole_nodes() -> None:
    made = cluster(job(partitions=["whole"], partition="whole"), job(partitions=["cpu"], partition="cpu"))

    schedule(made, NOW)

    whole, shared = made.jobs
    assert whole.alloc_cpus == 16
    assert set(whole.alloc).isdisjoint(shared.alloc)


def test_a_pass_over_a_thousand_waiting_jobs_takes_a_moment() -> None:
    made = build(DELTA, NOW)
    made.jobs = [
        job(
            cpus=8,
            gpus_node=1 + n % 4,
            limit=600 * (1 + n % 20),
            partitions=["gpuA100x4"],
            partition="gpuA100x4",
        )
        for n in range(1000)
    ]
    for number, each in enumerate(made.jobs, start=1):
        each.key = each.id = number
    began = time.perf_counter()
    schedule(made, NOW)
    assert time.perf_counter() - began < 1.0
    assert overcommitted(made) == []


def test_equal_seeds_make_equal_crowds() -> None:
    def crowd(seed: int) -> list[dict[str, object]]:
        made = build(DELTAAI, NOW)
        populate(made, DELTAAI, seed=seed, now=NOW)
        return [each.packed() for each in made.jobs]

    assert crowd(3) == crowd(3)
    assert crowd(3) != crowd(4)
