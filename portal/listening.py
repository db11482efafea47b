"""Hearing of new events: one LISTEN connection for each process, whoever waits for however many of them.

A daemon thread keeps the newest events in a ring and wakes waiters, threads and event loops alike. It starts
when first asked, looks every two seconds even unasked (a lost notification costs no more), and outlives the
database: it connects again and catches up.
"""

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import psycopg
from django.db import Error, connection

from federation.models import Event, EventPosition
from orchestrator.selectors import show_event
from orchestrator.shown import EventShown

_log = logging.getLogger(__name__)

CHANNEL = "facet_events"
LOOK_ANYWAY_S = 2.0
RING = 2000
_BATCH = 500
_SAME = (
    *("host", "port", "user", "password", "dbname", "sslmode", "sslrootcert", "connect_timeout"),
    *("tcp_user_timeout", "keepalives_idle", "keepalives_interval", "keepalives_count"),
)
"""Parameters of Django's connections that the listener's has as well."""
_PAUSE_S = 0.5


@dataclass(frozen=True, slots=True)
class Heard:
    """One event, for whom it is, and how it is sent."""

    shown: EventShown
    user_id: int | None
    frame: bytes

    @property
    def cursor(self) -> int:
        """Return its place in commit order."""
        return self.shown.cursor


def frame(event: EventShown) -> bytes:
    """Return an event as one message of a server-sent stream."""
    return f"id: {event.cursor}\nevent: {event.type}\ndata: {event.model_dump_json()}\n\n".encode()


class Listener:
    """The ring, the head of the log as far as this process knows it, and who wants to be woken."""

    def __init__(self) -> None:
        self.head = 0
        self.stopping = False
        self._ring: deque[Heard] = deque(maxlen=RING)
        self._news = threading.Condition()
        self._wakes: set[Callable[[], None]] = set()
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()
        self._is_away = False

    @property
    def is_away(self) -> bool:
        """Whether the last try to connect found no server at all."""
        return self._is_away and self._thread is not None and self._thread.is_alive()

    def start(self, *, within_s: float = 5.0) -> bool:
        """Start listening where that was not done; return whether the head of the log is known."""
        with self._news:
            if self._thread is None or not self._thread.is_alive():
                self.stopping = False
                self._ready.clear()
                self._ring.clear()
                self._thread = threading.Thread(target=self._run, name="events", daemon=True)
                self._thread.start()
        return self._ready.wait(within_s)

    def stop(self, *, within_s: float = 0.0) -> None:
        """Wake every waiter for the last time; the thread ends with its next look, waited for that long."""
        self.stopping = True
        self._wake()
        if within_s and self._thread is not None:
            self._thread.join(within_s)

    def wait(self, beyond: int, *, timeout_s: float) -> bool:
        """Wait in a thread until the head is beyond a cursor; return whether it is."""
        with self._news:
            self._news.wait_for(lambda: self.stopping or self.head > beyond, timeout_s)
            return self.head > beyond

    def since(self, cursor: int) -> list[Heard] | None:
        """Return what came after a cursor; None when the ring does not reach back so far."""
        with self._news:
            if cursor >= self.head:
                return []
            if not self._ring or self._ring[0].cursor > cursor + 1:
                return None
            new = list(takewhile(lambda heard: heard.cursor > cursor, reversed(self._ring)))
        new.reverse()
        return new

    def subscribe(self, wake: Callable[[], None]) -> None:
        """Have `wake` called (in another thread, quickly) on every change of the head."""
        with self._news:
            self._wakes.add(wake)

    def unsubscribe(self, wake: Callable[[], None]) -> None:
        """Stop calling `wake`."""
        with self._news:
            self._wakes.discard(wake)

    def _wake(self) -> None:
        with self._news:
            self._news.notify_all()
            wakes = list(self._wakes)
        for wake in wakes:
            wake()

    def _run(self) -> None:
        try:
            while not self.stopping:
                self._listen_or_pause()
        finally:
            _let_go()

    def _listen_or_pause(self) -> None:
        try:
            self._listen()
        except (Error, psycopg.Error) as error:
            _log.warning("events cannot be heard just now: %s", error)
            _let_go()
            if not self.stopping:
                threading.Event().wait(_PAUSE_S)

    def _listen(self) -> None:
        with self._connected() as heard:
            heard.execute(f"LISTEN {CHANNEL}")
            if not self._ready.is_set():
                self.head = EventPosition.objects.order_by("-seq").values_list("seq", flat=True).first() or 0
                self._ready.set()
            while not self.stopping:
                self._catch_up()
                for _ in heard.notifies(timeout=LOOK_ANYWAY_S, stop_after=1):
                    pass

    def _connected(self) -> "psycopg.Connection[Any]":
        try:
            found = psycopg.connect(autocommit=True, **_where())
        except psycopg.OperationalError as error:
            # A server that refuses only this connection (it has too many) may serve those there are.
            self._is_away = "FATAL" not in str(error)
            raise
        self._is_away = False
        return found

    def _catch_up(self) -> None:
        """Put everything beyond the head into the ring; positions have no gaps, so none is passed over."""
        while True:
            rows = Event.objects.filter(position__seq__gt=self.head).select_related("position")
            found = list(rows.order_by("position__seq")[:_BATCH])
            if not found:
                self._check_head()
                return
            fresh = [Heard(shown, row.user_id, frame(shown)) for row in found for shown in (show_event(row),)]
            with self._news:
                self._ring.extend(fresh)
                self.head = fresh[-1].cursor
            self._wake()

    def _check_head(self) -> None:
        """Begin anew where the log has become shorter: its database was restored."""
        last = EventPosition.objects.order_by("-seq").values_list("seq", flat=True).first() or 0
        if last < self.head:
            with self._news:
                self._ring.clear()
                self.head = last
            self._wake()  # who waited beyond it looks again


def _let_go() -> None:
    """Close the thread's own connection, whatever state it is in."""
    with contextlib.suppress(Error, psycopg.Error):
        connection.close()


def _where() -> dict[str, Any]:
    """Return libpq's parameters of the database that Django uses now (a test's own included)."""
    given = connection.get_connection_params()
    return {name: str(given[name]) for name in _SAME if given.get(name)}


LISTENER = Listener()


class Bell:
    """What the coroutines of one event loop wait on; rung from the listener's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._rung = loop.create_future()

    def ring(self) -> None:
        """Wake everybody who waits; safe from any thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._ring)

    def _ring(self) -> None:
        rung, self._rung = self._rung, self._loop.create_future()
        if not rung.done():
            rung.set_result(None)

    def waiting(self) -> asyncio.Future[None]:
        """Return what is done at the next ring; take it before looking for news."""
        return self._rung


_BELLS: dict[asyncio.AbstractEventLoop, Bell] = {}


def bell_of_loop() -> Bell:
    """Return the bell of the running event loop, hung up at its first use."""
    loop = asyncio.get_running_loop()
    for other in [each for each in _BELLS if each.is_closed()]:
        LISTENER.unsubscribe(_BELLS.pop(other).ring)
    if loop not in _BELLS:
        _BELLS[loop] = Bell(loop)
        LISTENER.subscribe(_BELLS[loop].ring)
    return _BELLS[loop]
