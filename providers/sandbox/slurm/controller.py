"""The shell around the engine: one transaction per tick, then programs are started or stopped.

Intent before action: a job is RUNNING in the store before its process exists. Should this process die in
between, the next tick sees a launched job that never started and launches it again; the run directory
lets only one of them run the script.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys

from providers.sandbox.slurm import processes
from providers.sandbox.slurm.engine import advance, finish, requeue
from providers.sandbox.slurm.faults import is_controller_down
from providers.sandbox.slurm.load import grow
from providers.sandbox.slurm.model import Cluster, Job
from providers.sandbox.slurm.store import Store

LAUNCH_GRACE_S = 4
"""A launched job that has not started its program by then is launched again."""
BEAT_FRESH_S = 3.0
TICK_EVERY_S = 1.0
KEEP_BACKGROUND_S = 3600
COMMAND = os.path.join(os.path.dirname(os.path.abspath(__file__)), "command.py")


def run_directory(directory: str, job: Job) -> str:
    """Return where one run of a job keeps its marks: `started`, `child`, `exit`."""
    return os.path.join(directory, "spool", job.spool, f"run-{job.key}-{job.restarts}")


def read_mark(path: str) -> dict[str, object]:
    """Return the JSON of a mark, empty when it is absent or not yet whole."""
    try:
        with open(path, encoding="utf-8") as mark:
            value = json.load(mark)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def write_mark(path: str, value: dict[str, object]) -> None:
    """Write a mark whole or not at all."""
    with open(f"{path}.new", "w", encoding="utf-8") as mark:
        json.dump(value, mark)
    os.replace(f"{path}.new", path)


def daemon_is_alive(directory: str, now: float) -> bool:
    """Return whether a daemon has ticked this cluster within the last seconds."""
    try:
        return now - os.stat(os.path.join(directory, "daemon.beat")).st_mtime < BEAT_FRESH_S
    except FileNotFoundError:
        return False


def tick_if_due(store: Store, now: float, *, force: bool = False) -> None:
    """Advance the cluster from a client, unless a daemon does it or it was done just now."""
    if daemon_is_alive(store.directory, now) or is_controller_down(store.directory):
        return
    if force or abs(now - store.number("ticked_at")) >= TICK_EVERY_S:
        tick(store, now)


def tick(store: Store, now: float) -> float:
    """Advance the cluster to `now`, start and stop programs; return when something is due next."""
    with store.change(now) as cluster:
        stale = collect(store.directory, cluster, int(now))
        grow(cluster, store, now)
        advance(cluster, int(now))
        fresh = launchable(cluster, int(now))
        store.put_meta("ticked_at", now)
        store.forget_background(int(now) - KEEP_BACKGROUND_S)
        due = min(next_due(cluster, now), max(now + 0.2, store.number("load_next") or now + 10.0))
    for job in [*fresh, *stale]:
        launch(store.directory, job)
    return due


def launchable(cluster: Cluster, now: int) -> list[Job]:
    """Mark real jobs that were started but not launched, and return them."""
    fresh = [j for j in cluster.jobs if j.state == "RUNNING" and not j.background and not j.launched_at]
    for job in fresh:
        job.launched_at = now
        cluster.touch(job)
    return fresh


def launch(directory: str, job: Job) -> None:
    """Start the step process of one run, detached from us."""
    python = sys.executable or "/usr/bin/python3"
    processes.spawn_detached(
        [python, "-I", "-S", COMMAND, "slurmstepd", directory, str(job.key), str(job.restarts)]
    )


def collect(directory: str, cluster: Cluster, now: int) -> list[Job]:
    """Bring real jobs in line with their processes; return the runs that must be launched (again)."""
    stale = []
    for job in list(cluster.jobs):
        if job.background or not job.launched_at or not (job.state == "RUNNING" or job.completing):
            continue
        run = run_directory(directory, job)
        started = read_mark(os.path.join(run, "started"))
        ended = read_mark(os.path.join(run, "exit"))
        if ended:
            settle(cluster, job, ended, now)
        elif not started:
            if job.completing:
                clear(cluster, job)
            elif os.path.exists(os.path.join(run, "started")):
                if now - job.launched_at >= 2 * LAUNCH_GRACE_S:  # it died before it could sign
                    _lost(cluster, job, run, now)
            elif now - job.launched_at >= LAUNCH_GRACE_S:
                job.launched_at = now
                cluster.touch(job)
                stale.append(job)
        elif not processes.is_alive(int(str(started["pid"])), str(started["start"])):
            _lost(cluster, job, run, now)
    return stale


def _lost(cluster: Cluster, job: Job, run: str, now: int) -> None:
    """The step process vanished: end what it left, and say that the node lost the job."""
    child = read_mark(os.path.join(run, "child"))
    if child and processes.is_alive(int(str(child["pid"])), str(child["start"])):
        processes.end_group(int(str(child["pid"])))
    if job.completing:
        clear(cluster, job)
    elif job.requeue:
        requeue(cluster, job, "NODE_FAIL", now)
    else:
        finish(cluster, job, "NODE_FAIL", now)
        job.reason = "NodeDown"


def clear(cluster: Cluster, job: Job) -> None:
    """The processes of an ended job are gone: free its nodes."""
    job.completing = False
    cluster.touch(job)


def settle(cluster: Cluster, job: Job, ended: dict[str, object], now: int) -> None:
    """Record how a run ended; a job already ended by others only becomes free."""
    if job.state != "RUNNING":
        clear(cluster, job)
        return
    job.exit, job.exit_signal = int(str(ended.get("code", 0))), int(str(ended.get("signal", 0)))
    good = job.exit == 0 and job.exit_signal == 0
    finish(cluster, job, "COMPLETED" if good else "FAILED", int(str(ended.get("at", now))))
    if not good:
        job.reason = "NonZeroExitCode" if job.exit else "JobLaunchFailure"


def stop(directory: str, job: Job, number: int = signal.SIGTERM) -> None:
    """Tell the step process of an ended job to end its programs (it would notice by itself in a second)."""
    started = read_mark(os.path.join(run_directory(directory, job), "started"))
    if started and processes.is_alive(int(str(started["pid"])), str(started["start"])):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(int(str(started["pid"])), number)


def next_due(cluster: Cluster, now: float) -> float:
    """Return the instant by which the next tick must happen (at most ten seconds ahead)."""
    due = now + 10.0
    for job in cluster.jobs:
        if job.state == "RUNNING":
            length = min(job.runtime, job.limit) if job.limit else job.runtime
            due = min(due, job.start + length if job.background else now + 2.0)
        elif job.completing:
            due = min(due, now + 1.0)
        elif job.state == "PENDING" and job.begin > now:
            due = min(due, float(job.begin))
    return max(due, now + 0.2)
