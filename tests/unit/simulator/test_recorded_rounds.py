"""Recorded rounds: the same decisions from a file, in slow motion, and the reasons where ours lost."""

from datetime import timedelta
from pathlib import Path

import pytest

from benchmarks.policies import OURS, PUBLISHED, Question
from benchmarks.recorded import Copy, Kept, read, write
from benchmarks.replay_rounds import main
from benchmarks.stretch import stretched
from federation.types import PartitionQueue, UserLimits
from orchestrator.envelope.types import Runtime
from orchestrator.placement.estimate import Work
from orchestrator.placement.model import PlacementModel
from providers.types import Association, GpuPool, JobState, Node, Partition, Probe, QueueJob
from tests.property.placement.views import NOW, bounds, envelope, pending, record, running

REQUEST = envelope(walltime_s=bounds(60), runtime=Runtime(estimate_s=10))
QUEUED = {"anvil": 0, "delta": 3}


def probe(system: str, *, free: int) -> tuple[Probe, Probe]:
    """Return a look at a cluster of one node with so many free GPUs, and its full probe."""
    name = {"anvil": "ai", "delta": "gpuA100x4"}[system]
    account = {"anvil": "cis220051-ai", "delta": "bbka-delta-gpu"}[system]
    node = Node(
        name="n1",
        partitions=(name,),
        state="mixed",
        usable=True,
        cpus_total=64,
        cpus_free=free * 16,
        memory_total_mib=256_000,
        memory_free_mib=256_000,
        gpus=(GpuPool(type="a100", total=4, used=4 - free, free=free),),
    )
    jobs = tuple(
        QueueJob(
            job_id=str(number),
            state=JobState.QUEUED,
            state_raw="PENDING",
            user="bob",
            account=account,
            partitions=(name,),
            nodes=1,
            cpus=64,
            gpus=4,
            walltime_s=600,
            priority=9_000,
            reason="Priority",
        )
        for number in range(QUEUED[system])
    )
    seen = Probe(scheduler="slurm 22.05", taken_at=NOW, nodes=(node,), partitions=None, jobs=jobs)
    full = seen.model_copy(
        update={
            "nodes": (),
            "jobs": (),
            "partitions": (Partition(name=name, state="up", node_names=("n1",), nodes_total=1),),
            "associations": (Association(user="alice", account=account),),
        }
    )
    return seen, full


@pytest.fixture
def rounds() -> list[Kept]:
    """Two rounds: anvil is free, delta has three jobs of higher priority; the second time anvil was late."""
    seen = {"anvil": probe("anvil", free=4), "delta": probe("delta", free=0)}
    made = []
    for number, waits in enumerate(({"anvil": 1, "delta": 40}, {"anvil": 60, "delta": 2})):
        copies = tuple(
            Copy(system, {"anvil": "ai", "delta": "gpuA100x4"}[system], 1, "7", 0.5, wait_s)
            for system, wait_s in waits.items()
        )
        made.append(
            Kept(
                at=NOW + timedelta(seconds=32 * number),
                kind="1 gpu",
                envelope=REQUEST,
                probes={name: found[0] for name, found in seen.items()},
                fulls={name: found[1] for name, found in seen.items()},
                by_user=[("delta", "bob", (0.5, 0.5, 0.5))],
                by_partition=[],
                took_s=1.0,
                copies=copies,
            )
        )
    return made


def test_what_is_written_is_read_again(rounds: list[Kept], tmp_path: Path) -> None:
    write(tmp_path / "r.jsonl", rounds)

    assert read(tmp_path / "r.jsonl") == rounds
    assert rounds[0].use.expected("delta", "any", "bob", 0.0) == 0.5


def test_a_file_is_decided_again_and_a_lost_round_is_explained(
    rounds: list[Kept], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "r.jsonl", rounds)

    main([str(tmp_path / "r.jsonl"), "--lost", "10"])

    printed = capsys.readouterr().out
    assert "round 2 at 12:00:32, 1 gpu: chose anvil/ai" in printed
    assert "round 1 at" not in printed
    assert "2 rounds of 1 campaigns" in printed
    rows = {line[:32].strip(): line for line in printed.splitlines() if "%" in line}
    assert " 29 [0-58] " in rows[OURS]
    assert " 29 [0-58] " in rows[PUBLISHED]


def test_in_slow_motion_every_time_is_as_many_times_as_long_and_nothing_else_changes() -> None:
    queue = PartitionQueue(
        running=(running("n1", ends_in_s=100),), pending=(pending(),), beside=(running("n2", ends_in_s=5),)
    )
    view = record(queue=queue, limits=UserLimits(max_walltime_s=50), observed_at=NOW - timedelta(seconds=2))
    key = (view.system, view.partition)
    question = Question(REQUEST, Work(), NOW, {key: view}, {}, {key: 10}, PlacementModel())

    slow = stretched(question, 6)

    found = slow.records[key]
    assert stretched(question, 1) is question
    assert (slow.envelope.walltime_s.max, slow.envelope.runtime and slow.envelope.runtime.estimate_s) == (
        360,
        60,
    )
    assert found.observed_at == NOW - timedelta(seconds=12)
    [share], [beside], [job] = found.queue.running, found.queue.beside, found.queue.pending
    assert (share.start_at, share.walltime_s) == (NOW - timedelta(seconds=3600), 4200)
    assert beside.walltime_s == 6 * 605
    assert (job.walltime_s, job.submit_at) == (21_600, NOW - timedelta(seconds=360))
    assert (job.priority, job.gpus, found.nodes) == (100, 4, view.nodes)
    assert (found.max_walltime_s, found.limits.max_walltime_s) == (6 * 172_800, 300)
