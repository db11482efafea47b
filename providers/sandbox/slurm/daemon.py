"""The daemon: keeps emulated clusters moving when nobody calls.

    python -m providers.sandbox.slurm.daemon DIRECTORY…

One process serves any number of clusters. It holds no state: killed at any instant, a new one goes on
where it was, and jobs run on under their own step processes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from types import FrameType

from providers.sandbox.slurm.controller import tick
from providers.sandbox.slurm.faults import is_controller_down
from providers.sandbox.slurm.store import Store

POLL_S = 0.25
BEAT_EVERY_S = 1.0


class Site:
    """One cluster under the daemon's care."""

    def __init__(self, directory: str) -> None:
        self.store = Store(directory)
        self.beat = os.path.join(directory, "daemon.beat")
        self.due = 0.0
        self.beat_at = 0.0
        self.version = -1

    def step(self, now: float) -> None:
        """Tick when something is due or somebody changed the state."""
        version = self.store.data_version()
        if (now >= self.due or version != self.version) and not is_controller_down(self.store.directory):
            self.due = tick(self.store, now)
            self.version = self.store.data_version()
        if now - self.beat_at >= BEAT_EVERY_S:
            self.beat_at = now
            with open(self.beat, "w", encoding="utf-8") as beat:
                beat.write(f"{os.getpid()}\n")

    def leave(self) -> None:
        """Say that nobody ticks this cluster any more."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.beat)
        self.store.close()


def serve(directories: list[str]) -> int:
    """Keep the clusters moving until SIGTERM or SIGINT."""
    stopped: list[int] = []

    def stop(number: int, _frame: FrameType | None) -> None:
        stopped.append(number)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    sites = [Site(directory) for directory in directories]
    while not stopped:
        for site in sites:
            site.step(time.time())
        time.sleep(POLL_S)
    for site in sites:
        site.leave()
    return 0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: python -m providers.sandbox.slurm.daemon DIRECTORY…")
    sys.exit(serve([os.path.abspath(word) for word in sys.argv[1:]]))
