"""The files that are the queue: one folder per job, a marker while it is open, one lock over all.

jobs/KEY/job.json           what was asked; the folder appears whole, by one rename
jobs/KEY/script             the batch script
jobs/KEY/environment.json   the variables it was submitted with
jobs/KEY/start.json         it was given its CPUs and GPUs
jobs/KEY/process.json       its process and its supervisor; written before the work may begin
jobs/KEY/cancel.json        somebody asked for its end
jobs/KEY/end.json           how it ended; written once
jobs/KEY/alive              locked by its supervisor for as long as that lives
open/NUMBER.KEY             it has not ended
last                        the last number given
"""

import contextlib
import errno
import fcntl
import json
import os
import shutil
import time

KEEP_S = 30 * 86400
"""How long an ended job is remembered."""


def root():
    """Return where this host keeps its queue: a home may be shared by many hosts, a queue never is."""
    base = os.environ.get("FACET_MACHINE_DIR") or os.path.join(os.path.expanduser("~"), ".facet-machine")
    return os.path.join(base, os.uname().nodename)


def make_places():
    """Make the folders that every verb needs."""
    for name in ("jobs", "open"):
        os.makedirs(os.path.join(root(), name), 0o700, exist_ok=True)


def place(key, name=""):
    """Return the path of a job's folder, or of a file in it."""
    return os.path.join(root(), "jobs", key, name) if name else os.path.join(root(), "jobs", key)


@contextlib.contextmanager
def locked():
    """Hold the one lock; a process that dies lets go of it."""
    fd = os.open(os.path.join(root(), "lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
        fcntl.flock(fd, fcntl.LOCK_UN)  # a process we started meanwhile may still hold a copy of the fd
    finally:
        os.close(fd)


def write(path, value):
    """Write a JSON file whole and durably: it is there, or it is not."""
    draft = "%s.%d" % (path, os.getpid())
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "w") as stream:
        json.dump(value, stream)
        stream.flush()
        os.fsync(stream.fileno())
    os.rename(draft, path)


def read(path):
    """Return what a JSON file holds, None where there is none."""
    try:
        with open(path) as stream:
            return json.load(stream)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            return None
        raise


def exists(key):
    """Return whether a job with this key was ever taken (and is still remembered)."""
    return os.path.exists(place(key, "job.json"))


def add(key, job, script, environment):
    """Take a job; return its number. The caller holds the lock."""
    path = os.path.join(root(), "last")
    number = (read(path) or 0) + 1
    write(path, number)
    job = dict(job, key=key, number=number, submit_at=time.time())
    draft = os.path.join(root(), "new-%d" % os.getpid())
    shutil.rmtree(draft, ignore_errors=True)
    os.mkdir(draft, 0o700)
    write(os.path.join(draft, "job.json"), job)
    write(os.path.join(draft, "environment.json"), environment)
    fd = os.open(os.path.join(draft, "script"), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8", errors="surrogateescape", newline="") as stream:
        stream.write(script)
    marker = os.path.join(root(), "open", "%012d.%s" % (number, key))
    os.close(os.open(marker, os.O_WRONLY | os.O_CREAT, 0o600))
    os.rename(draft, place(key))
    return number


def open_keys():
    """Return the keys of the jobs that have not ended, in the order they came."""
    return [name.partition(".")[2] for name in sorted(os.listdir(os.path.join(root(), "open")))]


def close(key):
    """Take an ended job off the list of open ones."""
    for name in os.listdir(os.path.join(root(), "open")):
        if name.partition(".")[2] == key:
            os.unlink(os.path.join(root(), "open", name))


def end(key, state, **facts):
    """Record how a job ended, once; the caller holds the lock."""
    if read(place(key, "end.json")) is None:
        write(place(key, "end.json"), dict(facts, state=state, end_at=facts.get("end_at", time.time())))
    close(key)
    for name in ("environment.json", "cancel.json"):
        with contextlib.suppress(OSError):
            os.unlink(place(key, name))


def take_alive(key):
    """Return the locked file that says a job has a supervisor, None where another process holds it."""
    fd = os.open(place(key, "alive"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        return None
    return fd


def forget_old():
    """Drop jobs that ended long ago."""
    for key in os.listdir(os.path.join(root(), "jobs")):
        ended = read(place(key, "end.json"))
        if ended is not None and time.time() - ended["end_at"] > KEEP_S:
            shutil.rmtree(place(key), ignore_errors=True)


def ticks(pid):
    """Return when a process started, in clock ticks since boot; None where it is no more (or a zombie).

    Process ids are recycled: the pair of both names one process of this boot.
    """
    found = stat(pid)
    return None if found is None or found[0] in ("Z", "X") else found[3]


def stat(pid):
    """Return (state, parent, session, start ticks) of a process, None where there is none."""
    try:
        with open("/proc/%d/stat" % pid, errors="replace") as stream:
            fields = stream.read().rpartition(")")[2].split()
        return fields[0], int(fields[1]), int(fields[3]), int(fields[19])
    except (OSError, IndexError, ValueError):
        return None
