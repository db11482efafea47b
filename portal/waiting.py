"""A long poll under way: what it waits for, and how it looks for it.

Whoever waits does so in the event loop and holds no database connection: when the process's one listener
hears of events, each poll finds its own in the ring, without a query. The database is asked at the beginning
and at the end, so that what was committed before either is never left out, and where the ring reaches not so
far.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from django.contrib.auth.models import AbstractBaseUser
from django.db import connection

from federation.selectors import connected_slugs
from orchestrator import selectors
from orchestrator.shown import EventShown
from portal.listening import LISTENER, Heard, bell_of_loop

_LOOK_S = 0.25
"""Pause between looks while the listener cannot reach the database."""


@dataclass(slots=True)
class Interest:
    """Which events somebody may see and wants to."""

    user: AbstractBaseUser
    types: tuple[str, ...] = ()
    subject: str | None = None
    only: frozenset[str] | None = None
    """The systems a narrowed token may hear of."""
    systems: frozenset[str] = frozenset()
    """Those the user is connected to."""

    def renew(self) -> None:
        """Ask again which systems the user is connected to."""
        self.systems = connected_slugs(self.user.pk)

    def wants(self, heard: Heard) -> bool:
        """Return whether an event is theirs to see, and asked for."""
        shown = heard.shown
        theirs = heard.user_id == self.user.pk or (
            heard.user_id is None and (shown.system is None or shown.system in self.systems)
        )
        heeded = self.only is None or not shown.system or shown.system in self.only
        return theirs and heeded and self._is_of_type(shown.type) and self._is_about(heard)

    def _is_of_type(self, word: str) -> bool:
        return not self.types or any(
            word.startswith(each[:-1]) if each.endswith(".*") else word == each for each in self.types
        )

    def _is_about(self, heard: Heard) -> bool:
        shown = heard.shown
        about = (shown.subject, shown.task, shown.group, shown.attempt, shown.transfer, shown.system)
        return self.subject is None or self.subject in about

    def after(self, cursor: int, *, limit: int) -> list[EventShown]:
        """Return the next events of theirs after a cursor, from the database."""
        return selectors.events_after(
            self.user, cursor, types=self.types, subject=self.subject, systems=self.only, limit=limit
        )


@dataclass(slots=True)
class Found:
    """What a look found, and the place up to which it looked."""

    events: list[EventShown]
    head: int


Borrow = Callable[[Callable[[], Found]], Awaitable[Found]]


@dataclass(slots=True)
class Wait:
    """One poll: until when, from where, for what."""

    interest: Interest
    after: int
    head: int
    """The newest event when it began."""
    limit: int
    until: float
    """Monotonic."""
    is_listening: bool = field(init=False)

    def __post_init__(self) -> None:
        self.is_listening = self.left_s > 0 and LISTENER.start()

    @property
    def left_s(self) -> float:
        """How much longer to wait."""
        return self.until - time.monotonic()

    def _nothing(self) -> Found | None:
        """Return an empty answer where there was nothing after us when we began."""
        return Found([], self.head) if self.after >= self.head else None

    def look(self) -> Found:
        """Look in the database."""
        head = selectors.head_cursor()
        found = self.interest.after(self.after, limit=self.limit)
        if not found:
            self.after = max(self.after, head)
        return Found(found, head)

    def heard(self) -> Found | None:
        """Look in the ring; None where it does not reach back to us."""
        ring = LISTENER.since(self.after)
        if ring is None:
            return None
        found = [each.shown for each in ring if self.interest.wants(each)]
        head = ring[-1].cursor if ring else self.after
        if not found:
            self.after = head
        return Found(found[: self.limit], head)

    def in_thread(self) -> Found:
        """Wait in this thread."""
        found = self._nothing() or self.look()
        while not self.is_over(found):
            if not connection.in_atomic_block:
                connection.close()  # a waiting caller holds none
            if self.is_listening:
                LISTENER.wait(self.after, timeout_s=self.left_s)
            else:
                time.sleep(max(0.0, min(_LOOK_S, self.left_s)))
            found = self.look()
        return found

    def is_over(self, found: Found) -> bool:
        """Return whether there is nothing to wait for any more."""
        return bool(found.events) or self.left_s <= 0 or LISTENER.stopping

    async def at_once(self, borrow: Borrow) -> Found:
        """Look before waiting; `borrow` runs what needs the database."""
        return self._nothing() or await borrow(self.look)

    async def in_loop(self, borrow: Borrow, found: Found) -> Found:
        """Wait in this event loop, after a first look found nothing."""
        while not self.is_over(found):
            rung = bell_of_loop().waiting()  # before looking, so that nothing rings unheard in between
            heard = self.heard() if self.is_listening else None
            if heard is None:
                found = await borrow(self.look)
            elif heard.events:
                return heard
            if not found.events:
                pause_s = self.left_s if self.is_listening else min(_LOOK_S, self.left_s)
                await asyncio.wait({rung}, timeout=max(0.0, pause_s))
                found = await borrow(self.look) if self.left_s <= 0 or LISTENER.stopping else found
        return found
