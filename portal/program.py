"""One program under the supervisor: started, watched, restarted with back-off, stopped with its group."""

import contextlib
import os
import signal
import subprocess
import time
from dataclasses import dataclass, field

from portal.embedded.bounded_log import BoundedLog
from portal.embedded.run_as import until_parent_dies

LONGEST_PAUSE_S = 30.0
STEADY_AFTER_S = 60.0


@dataclass(slots=True)
class Backoff:
    """How long to wait before the next start: 1, 2, 4 … 30 s, and from 1 s again after a steady minute."""

    failures: int = 0
    next_start_at: float = 0.0
    started_at: float = 0.0

    def note_start(self, now: float) -> None:
        """Record a start; `now` is monotonic."""
        self.started_at = now
        self.next_start_at = 0.0

    def note_end(self, now: float) -> float:
        """Record an unexpected end and return the pause before the next start, in seconds."""
        if now - self.started_at >= STEADY_AFTER_S:
            self.failures = 0
        pause_s = min(2.0**self.failures, LONGEST_PAUSE_S)
        self.failures += 1
        self.next_start_at = now + pause_s
        return pause_s


@dataclass(slots=True)
class Program:
    """A program in a session of its own, so that the terminal's Ctrl-C reaches only the supervisor."""

    name: str
    argv: list[str]
    environment: dict[str, str]
    log: BoundedLog
    process: "subprocess.Popen[bytes] | None" = None
    backoff: Backoff = field(default_factory=Backoff)

    def start(self) -> None:
        """Start it; its output goes to its log."""
        self.process = subprocess.Popen(
            until_parent_dies(self.argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self.environment,
            start_new_session=True,
        )
        self.backoff.note_start(time.monotonic())
        if self.process.stdout is not None:
            self.log.follow(self.process.stdout)

    def is_running(self) -> bool:
        """Say whether it runs; when it does not, what it left in its group is killed."""
        if self.process is None:
            return False
        if self.process.poll() is None:
            return True
        self._signal_group(signal.SIGKILL)
        return False

    def ask_to_stop(self) -> None:
        """Ask it to finish what it does and end."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()

    def make_stop(self, within_s: float) -> None:
        """Wait for its end, and kill its whole group when the time is over."""
        if self.process is None:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(max(within_s, 0.0))
        self._signal_group(signal.SIGKILL)
        self.process.wait()
        self.process = None
        self.log.close()

    def _signal_group(self, number: signal.Signals) -> None:
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, number)
