"""The event log as pages show it: a list with filters, one event, and the check of its chain."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from orchestrator.shown import EventShown
from portal.web.presenters.shared import Page
from portal.web.presenters.tasks import EventRow


@dataclass(frozen=True, slots=True)
class EventFilters:
    """What the log was asked for; "" = everything. `type` may end in `.*`."""

    type: str = ""
    about: str = ""
    actor: str = ""
    wake: str = ""

    def as_query(self) -> dict[str, str]:
        """Return the filters by the names they have in an address."""
        return {"type": self.type, "about": self.about, "actor": self.actor, "wake": self.wake}

    @property
    def is_any(self) -> bool:
        """Whether anything was left out."""
        return any(self.as_query().values())


@dataclass(frozen=True, slots=True)
class EventListPage:
    """The event log of the caller, newest first."""

    page: Page[EventRow]
    types: tuple[str, ...]
    families: tuple[str, ...]
    filters: EventFilters


@dataclass(frozen=True, slots=True)
class EventPage:
    """One event in full; `data` is its JSON, "" = it has none."""

    row: EventRow
    event: EventShown
    hash: str
    """SHA-256 over the event and the hash before it, in hexadecimal."""
    data: str
    actions: tuple[tuple[str, Mapping[str, Any], str], ...]
    """Skill, arguments and reason of each next action."""


@dataclass(frozen=True, slots=True)
class VerifyPage:
    """One stretch of the chain as checked, and all before it together."""

    after: int
    upto: int
    head: int
    checked: int
    """Events checked so far, all stretches together."""
    broken: int
    """Breaks found so far."""
    breaks: tuple[tuple[int, str], ...]
    """Position and fault of each break of this stretch."""
    percent: float
    onward: str | None
    """What goes on from here; None = this was the last stretch."""
    at: datetime

    @property
    def begins(self) -> int:
        """First position of the stretch."""
        return self.after + 1
