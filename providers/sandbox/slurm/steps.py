"""The emulated slurmstepd: runs one job's script as a local process, and reports how it ended.

It owns the output files, the SLURM_* environment, the time limit and the killing; it outlives the daemon.
It asks the store every second whether its job is still wanted, so that no message can be lost.
"""

from __future__ import annotations

import json
import os
import signal
import time

from providers.sandbox.slurm import processes
from providers.sandbox.slurm.controller import (
    clear,
    launch,
    launchable,
    read_mark,
    run_directory,
    settle,
    write_mark,
)
from providers.sandbox.slurm.engine import advance, finish
from providers.sandbox.slurm.environment import expand_pattern, job_environment
from providers.sandbox.slurm.model import Job
from providers.sandbox.slurm.store import Store
from providers.sandbox.slurm.text import clock

POLL_S = 0.05
ASK_EVERY_S = 1.0
BAD_OUTPUT = 53
"""Slurm's exit "signal" of a job whose output file could not be opened."""


def main(directory: str, key: int, restarts: int) -> int:
    """Run one run of a job to its end; a second process for the same run leaves at once."""
    store = Store(directory)
    job = store.job(key)
    if job is None or job.state != "RUNNING" or job.restarts != restarts:
        return 0
    run = run_directory(directory, job)
    os.makedirs(run, exist_ok=True)
    try:
        os.close(os.open(os.path.join(run, "started"), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return 0
    me = os.getpid()
    write_mark(os.path.join(run, "started"), {"pid": me, "start": processes.started_at(me)})
    Step(store, job, run).run()
    return 0


class Step:
    """One run of one job."""

    def __init__(self, store: Store, job: Job, run: str) -> None:
        self.store, self.job, self.run_dir = store, job, run
        self.grace = int(store.number("kill_wait") or 2)
        self.asked = 0.0
        self.poked = False
        self.warned = False
        self.error_fd = -1
        signal.signal(signal.SIGTERM, self._poke)

    def _poke(self, _number: int, _frame: object) -> None:
        self.poked = True

    def run(self) -> None:
        """Start the script, wait for its end, report it."""
        pid = self._spawn()
        if pid == 0:
            self._report({"code": 0, "signal": BAD_OUTPUT, "at": int(time.time())})
            return
        write_mark(os.path.join(self.run_dir, "child"), {"pid": pid, "start": processes.started_at(pid)})
        status = self._wait(pid)
        processes.end_group(pid)
        ended: dict[str, object] = {"at": int(time.time())}
        if os.WIFSIGNALED(status):
            ended |= {"code": 0, "signal": os.WTERMSIG(status)}
        else:
            ended |= {"code": os.WEXITSTATUS(status), "signal": 0}
        self._report(ended)

    def _open(self, pattern: str, default: str, flags: int) -> int:
        path = expand_pattern(pattern or default, self.job)
        return os.open(os.path.join(self.job.workdir, path), flags, 0o644)

    def _spawn(self) -> int:
        job = self.job
        usual = "slurm-%A_%a.out" if job.array else "slurm-%j.out"
        write = os.O_CREAT | os.O_WRONLY | (os.O_APPEND if job.open_mode == "append" else os.O_TRUNC)
        if job.restarts and job.open_mode != "truncate!":
            write = os.O_CREAT | os.O_WRONLY | os.O_APPEND
        at_home = job.workdir if os.path.isdir(job.workdir) else "/tmp"  # noqa: S108 - what slurmstepd does
        missing = at_home != job.workdir
        wanted, self.job.workdir = job.workdir, at_home
        try:
            out = self._open(job.stdout, usual, write)
            err = self._open(job.stderr, usual, write | os.O_APPEND) if job.stderr else out
            inp = self._open(job.stdin, os.devnull, os.O_RDONLY)
        except OSError:
            return 0
        self.error_fd = err
        if missing:
            self._say(
                f"slurmstepd: error: couldn't chdir to `{wanted}': No such file or directory: "
                "going to /tmp instead"
            )
        script = os.path.join(self.store.directory, "spool", job.spool, "slurm_script")
        base = read_mark(os.path.join(self.store.directory, "spool", job.spool, "environment"))
        environ = {str(k): str(v) for k, v in base.items()}
        environ |= job_environment(self.store.read(time.time()), job)
        arguments = json.loads(environ.pop("FACET_SANDBOX_ARGUMENTS", "[]"))
        pid = os.fork()
        if pid:
            return pid
        try:
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.chdir(at_home)
            for source, target in ((inp, 0), (out, 1), (err, 2)):
                os.dup2(source, target)
            os.closerange(3, 1024)
            os.execve(script, [script, *arguments], environ)  # noqa: S606 - the job's own script
        finally:
            os._exit(127)

    def _wait(self, pid: int) -> int:
        while True:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                return status
            now = time.time()
            self._warn(pid, now)
            if self.job.limit and now >= self.job.start + self.job.limit:
                self._time_out(now)
                return self._end(pid)
            if self.poked or now - self.asked >= ASK_EVERY_S:
                self.poked, self.asked = False, now
                why = self._unwanted()
                if why:
                    self._say(f"slurmstepd: error: *** JOB {self.job.id} ON {self.job.batch_host} {why} ***")
                    return self._end(pid)
            time.sleep(POLL_S)

    def _unwanted(self) -> str:
        """Return why the run must end, "" while it is wanted; a longer limit is taken over."""
        current = self.store.job(self.job.key)
        stamp = clock(int(time.time()))
        if current is None:
            return f"CANCELLED AT {stamp}"
        if current.restarts != self.job.restarts:
            return f"CANCELLED AT {stamp} DUE TO JOB REQUEUE"
        if current.state != "RUNNING":
            node = " DUE TO NODE FAILURE" if current.state == "NODE_FAIL" else ""
            return f"CANCELLED AT {stamp}{node}"
        self.job.limit = current.limit
        return ""

    def _warn(self, pid: int, now: float) -> None:
        """Send the signal of `--signal=[B:]SIG[@seconds]` in good time."""
        if self.warned or not self.job.signal or not self.job.limit:
            return
        target, _, lead = self.job.signal.partition("@")
        if now < self.job.start + self.job.limit - int(lead or 60):
            return
        self.warned = True
        number = signal_number(target.removeprefix("B:").removeprefix("R:"))
        if target.startswith("B:"):
            os.kill(pid, number)
        else:
            processes.signal_group(pid, number)

    def _time_out(self, now: float) -> None:
        self._say(
            f"slurmstepd: error: *** JOB {self.job.id} ON {self.job.batch_host} "
            f"CANCELLED AT {clock(int(now))} DUE TO TIME LIMIT ***"
        )
        with self.store.change(now) as cluster:
            for job in cluster.jobs:
                if job.key == self.job.key and job.state == "RUNNING" and job.restarts == self.job.restarts:
                    finish(cluster, job, "TIMEOUT", int(now), completing=True)
                    job.reason = "TimeLimit"

    def _end(self, pid: int) -> int:
        """Terminate the group, kill it after the grace, and return the script's status."""
        processes.signal_group(pid, signal.SIGCONT)
        processes.signal_group(pid, signal.SIGTERM)
        until = time.monotonic() + self.grace
        while time.monotonic() < until:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                return status
            time.sleep(POLL_S)
        processes.signal_group(pid, signal.SIGKILL)
        return os.waitpid(pid, 0)[1]

    def _say(self, words: str) -> None:
        if self.error_fd >= 0:
            os.write(self.error_fd, f"{words}\n".encode())

    def _report(self, ended: dict[str, object]) -> None:
        """Write the end to disk first, then to the store, and let the scheduler use what is free."""
        write_mark(os.path.join(self.run_dir, "exit"), ended)
        now = time.time()
        with self.store.change(now) as cluster:
            for job in cluster.jobs:
                if job.key != self.job.key or job.restarts != self.job.restarts:
                    continue
                if job.state == "RUNNING":
                    settle(cluster, job, ended, int(now))
                elif job.completing:
                    clear(cluster, job)
            advance(cluster, int(now))
            fresh = launchable(cluster, int(now))
        for job in fresh:
            launch(self.store.directory, job)


def signal_number(name: str) -> int:
    """Return the number of `USR1`, `SIGUSR1` or `10`.

    Raises:
        ValueError: there is no such signal.
    """
    if name.isdigit():
        return int(signal.Signals(int(name)))
    try:
        return int(signal.Signals[f"SIG{name.upper().removeprefix('SIG')}"])
    except KeyError:
        raise ValueError(name) from None
