"""One job's supervisor: starts it, holds it to its wall time, stops it when asked, records how it ended.

It is a process of its own session that outlives whoever started it. The job is one session below it; what
the job leaves behind is ended with it.
"""

import contextlib
import ctypes
import os
import signal
import time
import traceback

from providers.dialects.machine.host import facts, queue, store

GRACE_S = 2.0
"""Between TERM and KILL."""
LOOK_S = 1.0
"""How often a job is looked at that is not our own child."""
ASLEEP_S = 30.0
WATCHED = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
PR_SET_CHILD_SUBREAPER = 36
DROPPED = ("FACET_ENGINE", "FACET_MACHINE_DIR", "CUDA_VISIBLE_DEVICES")


def launch(key):
    """Start the supervisor of a job that was given its start; the caller holds the lock.

    Its sign of life is taken before the fork, so there is no moment in which it looks dead.
    """
    alive = store.take_alive(key)
    if alive is None:
        return
    child = os.fork()
    if child:
        os.close(alive)
        os.waitpid(child, 0)
        return
    try:
        os.setsid()
        if os.fork():
            os._exit(0)
        _detach(alive)
        _supervise(key)
    except BaseException:
        with open(store.place(key, "supervisor.err"), "a") as stream:
            traceback.print_exc(file=stream)
    finally:
        os._exit(0)


def _detach(alive):
    os.chdir("/")
    for name in os.listdir("/proc/self/fd"):
        if int(name) != alive:
            with contextlib.suppress(OSError):
                os.close(int(name))
    while True:
        fd = os.open(os.devnull, os.O_RDWR)
        if fd > 2:
            os.close(fd)
            break
        os.set_inheritable(fd, True)
    signal.pthread_sigmask(signal.SIG_SETMASK, WATCHED)
    with contextlib.suppress(Exception):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _supervise(key):
    job = store.read(store.place(key, "job.json"))
    start = store.read(store.place(key, "start.json"))
    process = store.read(store.place(key, "process.json"))
    is_ours = process is None
    kills = facts.oom_kills()
    error = None
    if is_ours:
        process, error = _begin(key, job, start)
    else:
        store.write(store.place(key, "process.json"), dict(process, **_supervisor()))
    if error is None:
        ending = Watch(key, job, start, process["pid"], process["ticks"], is_ours).until_it_ends()
        if ending["state"] == "failed" and was_killed(ending) and facts.oom_kills() > kills:
            ending["state"] = "oom"
    else:
        ending = {"state": "launch_failed", "error": error}
    with store.locked():
        store.end(key, **ending)
        queue.advance(launch)


def was_killed(ending):
    """Return whether a KILL that was not ours ended the program, or the last program of its shell."""
    return ending.get("signal") == signal.SIGKILL or ending.get("exit_code") == 128 + signal.SIGKILL


def _supervisor():
    return {"supervisor": os.getpid(), "supervisor_ticks": store.ticks(os.getpid())}


def _begin(key, job, start):
    """Fork the job, record its process, and only then let it go; return (process, why it could not start).

    Killed before the record, we leave a child that ends by itself, since nobody tells it to go.
    """
    go_reading, go_writing = os.pipe()
    error_reading, error_writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(go_writing)
            os.setsid()
            if os.read(go_reading, 1) == b"g":
                _become(key, job, start)
        except BaseException as error:
            os.write(error_writing, str(error).encode("utf-8", "replace")[:1000])
        finally:
            os._exit(127)
    os.close(go_reading)
    os.close(error_writing)
    process = dict({"pid": pid, "ticks": store.ticks(pid)}, **_supervisor())
    store.write(store.place(key, "process.json"), process)
    os.write(go_writing, b"g")
    os.close(go_writing)
    said = os.read(error_reading, 1000)  # closed by exec when all is well
    os.close(error_reading)
    if said:
        os.waitpid(pid, 0)
        return process, said.decode("utf-8", "replace")
    return process, None


def _become(key, job, start):
    environment = store.read(store.place(key, "environment.json"))
    for name in DROPPED:
        environment.pop(name, None)
    environment["FACET_JOB_ID"] = str(job["number"])
    environment["FACET_JOB_CPUS"] = str(job["cpus"])
    environment["CUDA_VISIBLE_DEVICES"] = ",".join(start["gpus"])
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)  # Python ignores them, and a program would inherit that
    signal.pthread_sigmask(signal.SIG_SETMASK, set())
    os.chdir(job["workdir"])
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(os.open(job["stdout"], flags | os.O_TRUNC, 0o600), 1)
    truncate = 0 if job["stderr"] == job["stdout"] else os.O_TRUNC
    os.dup2(os.open(job["stderr"], flags | truncate, 0o600), 2)
    os.execve("/bin/bash", ["bash", store.place(key, "script")], environment)


class Watch:
    """The watch over one job, from its start (or from when its first supervisor was found dead)."""

    def __init__(self, key, job, start, pid, ticks, is_ours):
        self.key = key
        self.pid = pid
        self.ticks = ticks
        self.is_ours = is_ours
        self.why = None
        self.kill_at = None
        left = start["start_at"] + job["walltime_s"] - time.time()
        self.end_at = time.monotonic() + left
        self.warning = job["warning"]
        self.warn_at = self.end_at - self.warning["before_s"] if self.warning else None

    def until_it_ends(self):
        """Return how it ended."""
        caught = None
        while not self._is_over():
            self._act(time.monotonic(), caught)
            times = [each for each in (self.end_at, self.kill_at, self.warn_at) if each is not None]
            wait = min(max(0.0, min(times) - time.monotonic()), ASLEEP_S if self.is_ours else LOOK_S)
            found = signal.sigtimedwait(WATCHED, wait)
            caught = found.si_signo if found is not None else None
        end_at = time.time()
        self._end_leftovers()
        facts_of_end = {"end_at": end_at}
        if self.is_ours:
            _, status, usage = os.wait4(self.pid, 0)
            if os.WIFSIGNALED(status):
                facts_of_end["signal"] = os.WTERMSIG(status)
            else:
                facts_of_end["exit_code"] = os.WEXITSTATUS(status)
            facts_of_end["cpu_s"] = round(usage.ru_utime + usage.ru_stime, 3)
            facts_of_end["max_rss_mib"] = -(-usage.ru_maxrss // 1024)
        facts_of_end["state"] = self.why or self._own_state(facts_of_end)
        return facts_of_end

    def _own_state(self, ending):
        if not self.is_ours:
            return "unwatched"
        return "completed" if ending.get("exit_code") == 0 else "failed"

    def _is_over(self):
        if not self.is_ours:
            return store.ticks(self.pid) != self.ticks
        while True:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if found is None:
                return False
            if found.si_pid == self.pid:
                return True  # left as a zombie, so that its number is not given away yet
            os.waitpid(found.si_pid, 0)

    def _act(self, now, caught):
        if self.why is None:
            if os.path.exists(store.place(self.key, "cancel.json")):
                self._stop("cancelled", now)
            elif self.end_at is not None and now >= self.end_at:
                self._stop("timeout", now)
            elif caught is not None and caught != signal.SIGCHLD:
                self._stop("stopped", now)
            elif self.warn_at is not None and now >= self.warn_at:
                self._warn()
        elif self.kill_at is not None and now >= self.kill_at:
            self.kill_at = now + GRACE_S
            self._send(signal.SIGKILL)

    def _stop(self, why, now):
        self.why = why
        self.warn_at = self.end_at = None
        self.kill_at = now + GRACE_S
        self._send(signal.SIGTERM)

    def _warn(self):
        self.warn_at = None
        if self.warning["leader_only"]:
            os.kill(self.pid, self.warning["signal"])
        else:
            self._send(self.warning["signal"])

    def _send(self, number):
        for pid in self._members():
            with contextlib.suppress(OSError):
                os.kill(pid, number)

    def _members(self):
        """Return the job's processes: its session, and what descends from it, orphans of it included."""
        found = {}
        for name in os.listdir("/proc"):
            about = store.stat(int(name)) if name.isdigit() else None
            if about is not None and about[0] not in ("Z", "X"):
                found[int(name)] = about
        if self.pid in found and found[self.pid][3] != self.ticks:
            return set()  # the number is another process's by now, so nothing of the job's session is left
        ours = {pid for pid, about in found.items() if pid == self.pid or about[2] == self.pid}
        roots = {self.pid, os.getpid()} if self.is_ours else {self.pid}
        while True:
            more = {pid for pid, about in found.items() if about[1] in ours | roots} - ours
            if not more:
                return ours - {os.getpid()}
            ours |= more

    def _end_leftovers(self):
        for _ in range(20):
            if not self._members():
                return
            self._send(signal.SIGKILL)
            time.sleep(0.02)
