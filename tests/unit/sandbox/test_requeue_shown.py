"""A requeued job is one job to the controller; its former run is a row of accounting only."""

import os
import subprocess
from pathlib import Path

from providers.sandbox.slurm.setup import DELTA, create, env


def _run(place: Path, *argv: str, stdin: str | None = None) -> str:
    done = subprocess.run(
        argv,
        env={**os.environ, **env(place, user="alice")},
        input=stdin,
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    return done.stdout.strip()


def test_a_job_cancelled_after_a_requeue_is_shown_once_and_cancelled(tmp_path: Path) -> None:
    create(tmp_path / "delta", DELTA.quiet(), seed=1)
    place = tmp_path / "delta"
    script = "#!/bin/bash\nsleep 60\n"
    job = _run(place, "sbatch", "--parsable", "-A", "bbka-delta-gpu", "-p", "gpuA100x4", stdin=script)
    assert _run(place, "squeue", "-h", "-o", "%T") == "RUNNING"

    _run(place, "scontrol", "requeuehold", job)
    assert _run(place, "squeue", "-h", "-o", "%T %r") == "PENDING JobHeldUser"
    _run(place, "scancel", job)

    assert _run(place, "squeue", "-h", "-t", "all", "-o", "%T") == "CANCELLED"
    states = _run(place, "sacct", "-X", "-n", "-D", "-P", "-j", job, "--format=State").splitlines()
    assert [state.split()[0] for state in states] == ["REQUEUED", "CANCELLED"]
