"""A requeued job is one job to the controller; its former run is a row of accounting only."""

import os
import subprocess
import time
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


def _until(place: Path, wanted: str, *argv: str) -> None:
    """Ask until the answer is the wanted one; a loaded machine may take its time."""
    deadline = time.monotonic() + 20
    said = _run(place, *argv)
    while said != wanted and time.monotonic() < deadline:
        time.sleep(0.2)
        said = _run(place, *argv)
    assert said == wanted


def test_a_job_cancelled_after_a_requeue_is_shown_once_and_cancelled(tmp_path: Path) -> None:
    create(tmp_path / "delta", DELTA.quiet(), seed=1)
    place = tmp_path / "delta"
    script = "#!/bin/bash\nsleep 60\n"
    job = _run(place, "sbatch", "--parsable", "-A", "bbka-delta-gpu", "-p", "gpuA100x4", stdin=script)
    _until(place, "RUNNING", "squeue", "-h", "-o", "%T")

    _run(place, "scontrol", "requeuehold", job)
    _until(place, "PENDING JobHeldUser", "squeue", "-h", "-o", "%T %r")
    _run(place, "scancel", job)

    _until(place, "CANCELLED", "squeue", "-h", "-t", "all", "-o", "%T")
    states = _run(place, "sacct", "-X", "-n", "-D", "-P", "-j", job, "--format=State").splitlines()
    assert sorted(state.split()[0] for state in states) == ["CANCELLED", "REQUEUED"]
