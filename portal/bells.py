"""Ringing without waiting: what a request commits is told to the queue by a thread of its own.

A queue that is away or hangs costs a request nothing; rings that cannot be delivered are let go: the clock
finds the same work within seconds.
"""

import logging
import os
import queue
import threading
from collections.abc import Callable

_log = logging.getLogger(__name__)
_MOST_WAITING = 10_000


class Ringer:
    """One thread of this process that rings in order; started at the first ring, and again after a fork."""

    def __init__(self) -> None:
        self._waiting: queue.Queue[Callable[[], object]] = queue.Queue(_MOST_WAITING)
        self._thread: threading.Thread | None = None
        self._process = 0
        self._starting = threading.Lock()

    def soon(self, ring: Callable[[], object]) -> None:
        """Have `ring` called soon; forget it when far too many wait already."""
        self._start()
        try:
            self._waiting.put_nowait(ring)
        except queue.Full:
            _log.warning("a bell was not rung: %d wait already", _MOST_WAITING)

    def _start(self) -> None:
        with self._starting:
            if self._thread is None or not self._thread.is_alive() or self._process != os.getpid():
                self._process = os.getpid()
                self._thread = threading.Thread(target=self._run, name="bells", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            ring = self._waiting.get()
            try:
                ring()
            except Exception as error:  # noqa: BLE001  # whatever the queue's client raises while its server is away
                lost = 1 + self._forget()
                _log.warning("%d bells could not be rung, the clock will find the work: %s", lost, error)

    def _forget(self) -> int:
        """Let go of what waits behind a ring that failed; return how many."""
        lost = 0
        while True:
            try:
                self._waiting.get_nowait()
            except queue.Empty:
                return lost
            lost += 1


RINGER = Ringer()
