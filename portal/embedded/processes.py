"""Questions and orders to processes we may not have started: alive, whose, stop."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import psutil

_GONE = (psutil.NoSuchProcess, psutil.AccessDenied, OSError)
POLL_S = 0.02


def is_running(pid: int) -> bool:
    """Say whether a process runs; one that ended but was not collected (a zombie) does not."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True


def wait_until(condition: Callable[[], bool], within_s: float) -> bool:
    """Wait for a condition, asking every 20 ms; return whether it came true in time."""
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def living_in(folder: Path) -> list[int]:
    """Return the processes whose working directory is `folder`: all servers of a PostgreSQL cluster, say."""
    wanted = str(folder)
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(*_GONE):
            if process.cwd() == wanted and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
    return found


def marked(variable: str, content: str) -> list[int]:
    """Return the processes, other than this one and its parents, that carry `variable=content`."""
    mine = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(*_GONE):
            if process.pid in mine or process.status() == psutil.STATUS_ZOMBIE:
                continue
            if process.environ().get(variable) == content:
                found.append(process.pid)
    return found


def at_home_in(folder: Path) -> list[int]:
    """Return the processes whose HOME lies in `folder`, or whose command names something in it."""
    prefix = f"{folder}{os.sep}"
    mine = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(*_GONE):
            if process.pid in mine or process.status() == psutil.STATUS_ZOMBIE:
                continue
            at_home = process.environ().get("HOME", "").startswith(prefix)
            if at_home or any(word.startswith(prefix) for word in process.cmdline()):
                found.append(process.pid)
    return found


def stop(pids: Iterable[int], ladder: Iterable[tuple[signal.Signals, float]]) -> bool:
    """Signal processes up a ladder of (signal, seconds to wait) until none runs; return whether none does."""
    left = [pid for pid in pids if is_running(pid)]
    for number, seconds in ladder:
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        if wait_until(partial(_none_runs, left), seconds):
            return True
        left = [pid for pid in left if is_running(pid)]
    return not left


def _none_runs(pids: list[int]) -> bool:
    return not any(is_running(pid) for pid in pids)
