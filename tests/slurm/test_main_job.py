"""The main job on real Slurm: submit → place → dispatch → watch → result, held against what sacct says."""

import hashlib
from decimal import ROUND_UP, Decimal

from django.contrib.auth.models import User

from federation.ledger import verify
from federation.models import Allocation
from orchestrator.lifecycle import TaskState
from orchestrator.models import Task
from tests.slurm.federation import Federation, last_event, submit, told
from tests.slurm.lab.cluster import Cluster
from tests.stepping import all_step_until

SCRIPT = """\
#!/bin/bash -l
#SBATCH --job-name=ignored-by-rendering
#SBATCH --nodes=1 --ntasks=1 --cpus-per-task=4
#SBATCH --gres=gpu:gh200:3
#SBATCH -t 7
#SBATCH --output=/tmp/never-here.%j

echo "work of $(id -un) in job $SLURM_JOB_ID as $SLURM_JOB_NAME"
echo "$SLURM_JOB_NUM_NODES nodes, $SLURM_CPUS_PER_TASK cpus, gpus $CUDA_VISIBLE_DEVICES"
mkdir deep && printf 'exactly these bytes' > deep/result.bin
echo "to stderr" >&2
"""


def _lines(cluster: Cluster, path: str) -> list[str]:
    return cluster.ask("cat", path, user="alice").splitlines()


def test_tasks_run_to_success_with_what_was_granted_and_leave_a_manifest_equal_to_accounting(
    federation: Federation, researcher: User, delta: Cluster, deltaai: Cluster, vista: Cluster
) -> None:
    for cluster in (delta, deltaai, vista):
        federation.add(cluster, researcher)
    shown = "echo gpus $CUDA_VISIBLE_DEVICES; echo cpus $SLURM_CPUS_ON_NODE; pwd; sleep 2"
    on_delta = {"accelerator": {"types": ["a100"]}, "gpus": 2, "cpus": 8, "memory_mib": 4096}
    gpus = submit(researcher, shown, name="two gpus", envelope=on_delta | {"walltime_s": 300})
    script = submit(researcher, script=SCRIPT, envelope=None)
    whole = submit(
        researcher,
        ["sh", "-c", "echo gpus $CUDA_VISIBLE_DEVICES; echo cpus $SLURM_CPUS_ON_NODE"],
        envelope={"gpus": 1, "walltime_s": 60, "policy": {"allow_systems": ["vista"]}},
    )

    all_step_until([gpus, script, whole], timeout=60)

    for task, place in ((gpus, "delta/gpuA100x4"), (script, "deltaai/ghx4"), (whole, "vista/gh")):
        _ran_once_as_accounting_says(federation, task, place)
    _two_gpus_of_delta(federation, gpus, delta)
    _the_scripts_own_work(script, deltaai)
    attempt = whole.attempts.get()
    [row] = federation.accounted(attempt)
    assert _lines(vista, attempt.stdout_path) == ["gpus 0", "cpus 72"]
    assert row.tres >= {"cpu=72", "gres/gpu=1"}
    assert list(verify()) == []


def _ran_once_as_accounting_says(federation: Federation, task: Task, place: str) -> None:
    attempt = task.attempts.get()
    [row] = federation.accounted(attempt)
    body = task.manifest.body

    assert (task.state, task.cause) == (TaskState.SUCCEEDED, "")
    assert f"{attempt.system.slug}/{attempt.partition}" == place
    assert (row.state, row.exit_code, row.job_id) == ("COMPLETED", "0:0", attempt.job_id)
    assert (attempt.submitted_at, attempt.started_at, attempt.ended_at) == (
        row.submit_at,
        row.start_at,
        row.end_at,
    )
    assert row.start_at is not None
    assert row.end_at is not None
    assert (body["exit_code"], body["exit_signal"], body["state_raw"]) == (0, None, "COMPLETED")
    assert (body["job_id"], body["restarts"]) == (row.job_id, 0)
    assert body["times"]["started_at"] == row.start_at.isoformat()
    assert body["times"]["ended_at"] == row.end_at.isoformat()
    assert [word for word in told(task) if word.startswith("task.")] == [
        "task.accepted",
        "task.placed",
        "task.submitted",
        "task.started",
        "task.succeeded",
    ]
    assert told(task).count("attempt.dispatched") == 1
    ended = last_event(task, "task.succeeded")
    assert ended.data["ran_s"] == round((row.end_at - row.start_at).total_seconds())
    assert ended.data["manifest"] == task.manifest.handle


def _two_gpus_of_delta(federation: Federation, task: Task, delta: Cluster) -> None:
    attempt = task.attempts.get()
    [row] = federation.accounted(attempt)
    assert row.start_at is not None
    assert row.end_at is not None
    gpus, cpus, where = _lines(delta, attempt.stdout_path)

    assert gpus == "gpus 0,1"
    assert cpus == "cpus 8"
    assert where == attempt.workdir
    assert row.tres >= {"gres/gpu:a100=2", "cpu=8", "mem=4G"}
    assert task.manifest.body["nodes"] == ["gpua001"]
    allocation = Allocation.objects.get(system__slug="delta")
    hours = Decimal(str((row.end_at - row.start_at).total_seconds())) / 3600
    assert allocation.used == (2 * hours).quantize(Decimal("0.0001"), rounding=ROUND_UP)
    assert allocation.reserved == 0


def _the_scripts_own_work(task: Task, deltaai: Cluster) -> None:
    attempt = task.attempts.get()
    out = _lines(deltaai, attempt.stdout_path)
    files = {entry["path"]: entry for entry in task.manifest.body["files"]}

    assert (attempt.shape["gpus"], attempt.shape["cpus"], attempt.shape["walltime_s"]) == (3, 4, 420)
    assert out == [
        f"work of alice in job {attempt.job_id} as {attempt.submit_key}",
        "1 nodes, 4 cpus, gpus 0,1,2",
    ]
    copy = f"{attempt.submit_key}.script"
    assert sorted(files) == sorted(["deep/result.bin", copy, "stderr.log", "stdout.log"])
    assert files["deep/result.bin"]["bytes"] == 19
    assert files["deep/result.bin"]["sha256"] == hashlib.sha256(b"exactly these bytes").hexdigest()
    assert files["stderr.log"]["bytes"] == len("to stderr\n")
    assert files["stderr.log"]["sha256"] == hashlib.sha256(b"to stderr\n").hexdigest()
