"""A small emulated cluster in a temporary directory, and its programs as subprocesses."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from providers.sandbox.slurm.controller import read_mark
from providers.sandbox.slurm.model import Partition, Qos
from providers.sandbox.slurm.processes import is_alive
from providers.sandbox.slurm.setup import create, env
from providers.sandbox.slurm.spec import ClusterSpec, NodeGroup

T = TypeVar("T")

SMALL = ClusterSpec(
    name="tiny",
    nodes=(
        NodeGroup("g[01-02]", 2, 8, 64000, (("a100", 4),), ("a100", "x86")),
        NodeGroup("c[01-02]", 2, 8, 32000, (), ("cpu", "x86")),
    ),
    partitions=(
        Partition(name="gpu", nodes=["g[01-02]"], default=True, max_time=86400, default_time=600, tier=10),
        Partition(name="gpu-low", nodes=["g[01-02]"], max_time=86400, default_time=600, preempt="REQUEUE"),
        Partition(name="cpu", nodes=["c[01-02]"], max_time=7200, default_time=600),
        Partition(name="whole", nodes=["c[01-02]"], max_time=7200, default_time=600, exclusive=True),
        Partition(name="debug", nodes=["c[01-02]"], max_time=3600, default_time=600, qos="debug"),
        Partition(name="closed", nodes=["c[01-02]"], max_time=3600, state="INACTIVE"),
        Partition(
            name="theirs", nodes=["c[01-02]"], max_time=3600, default_time=600, allow_accounts=["other"]
        ),
    ),
    accounts={"work": ("alice", "bob"), "other": ("carol",)},
    qos=(Qos(name="normal"), Qos(name="debug", max_jobs_user=1, max_submit_user=2, priority=100)),
    config={"AccountingStorageTRES": "cpu,mem,node,billing,gres/gpu,gres/gpu:a100"},
    requeue_delay=1,
    kill_wait_s=1,
)


class Site:
    """One emulated cluster and its commands."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.work = directory / "work"
        self.work.mkdir(exist_ok=True)

    def run(
        self, *argv: str, user: str = "alice", stdin: str = "", timeout: float = 30
    ) -> subprocess.CompletedProcess[str]:
        environ = {**os.environ, "TZ": "UTC", **env(self.directory, user=user)}
        return subprocess.run(
            argv,
            env=environ,
            cwd=self.work,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def ask(self, *argv: str, user: str = "alice") -> str:
        done = self.run(*argv, user=user)
        assert (done.returncode, done.stderr) == (0, ""), (argv, done)
        return done.stdout

    def submit(self, script: str, *options: str, user: str = "alice") -> str:
        done = self.run("sbatch", "--parsable", *options, user=user, stdin=f"#!/bin/bash\n{script}\n")
        assert (done.returncode, done.stderr) == (0, ""), done
        return done.stdout.strip()

    def state(self, job: str) -> str:
        return self.ask("sacct", "-nXPj", job, "-o", "State").strip()

    def wait(self, job: str, *states: str, seconds: float = 20) -> str:
        return eventually(
            lambda: self.state(job), lambda state: state.split(" ")[0] in states, seconds=seconds
        )

    def gone(self, job: str) -> None:
        eventually(lambda: self.ask("squeue", "-h", "-o", "%i").split(), lambda ids: job not in ids)


def eventually(read: Callable[[], T], good: Callable[[T], bool], *, seconds: float = 20) -> T:
    until = time.monotonic() + seconds
    value = read()
    while not good(value):
        assert time.monotonic() < until, f"still {value!r}"
        time.sleep(0.15)
        value = read()
    return value


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    directory = tmp_path / "tiny"
    create(directory, SMALL, seed=1)
    made = Site(directory)
    yield made
    for fault in (directory / "faults").glob("*.json"):
        fault.unlink()
    for state in ("PENDING", "RUNNING"):  # in this order: a freed node starts what waits
        made.run("scancel", "-t", state, user="root")
    eventually(lambda: running_steps(directory), lambda steps: steps == [], seconds=10)


def running_steps(directory: Path) -> list[str]:
    """The step processes of this cluster that are still there."""
    marks = (read_mark(str(mark)) for mark in directory.glob("spool/*/run-*/started"))
    return [
        str(mark["pid"]) for mark in marks if mark and is_alive(int(str(mark["pid"])), str(mark["start"]))
    ]
