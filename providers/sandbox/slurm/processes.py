"""Processes of real jobs: who is alive, starting a detached one, ending a group.

A process is known by pid and start time, so a recycled pid is never mistaken for ours.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys


def started_at(pid: int) -> str:
    """Return the kernel's start time of a living process (clock ticks since boot), "" when it is gone.

    Zombies count as gone. Where there is no /proc, "?" stands for any living process.
    """
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
            fields = stat.read().rpartition(")")[2].split()
    except FileNotFoundError:
        if os.path.exists("/proc/self/stat"):
            return ""
        try:
            os.kill(pid, 0)
        except OSError:
            return ""
        return "?"
    except ProcessLookupError:
        return ""
    return "" if fields[0] in {"Z", "X"} else fields[19]


def is_alive(pid: int, start: str) -> bool:
    """Return whether the process of this pid and start time still runs."""
    return bool(pid) and started_at(pid) == start


def signal_group(pgid: int, number: int) -> None:
    """Send a signal to a process group; a group that is gone is no error."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pgid, number)


def end_group(pgid: int) -> None:
    """Kill a process group at once."""
    signal_group(pgid, signal.SIGCONT)
    signal_group(pgid, signal.SIGKILL)


def spawn_detached(argv: list[str]) -> None:
    """Start a program in a session of its own, adopted by init, with no open files of ours.

    Forks twice and execs at once, so it is safe in a client, a daemon or a step process.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        os.setsid()
        if os.fork():
            os._exit(0)
        null = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(null, number)
        os.closerange(3, 1024)
        os.execv(argv[0], argv)  # noqa: S606 - an argv list, no shell
    finally:
        os._exit(127)
