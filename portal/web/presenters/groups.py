"""Groups as rows of a list and as one whole page: rounds, lanes of children, what each site confirmed."""

from dataclasses import dataclass
from datetime import datetime

from portal.web.presenters.shared import Page, Said, SystemRef
from portal.web.presenters.tasks import EventRow
from portal.web.presenters.timeline import Frame, Span


@dataclass(frozen=True, slots=True)
class Share:
    """Children in one state: how many, how the state is said, and the width of the bar in percent."""

    state: str
    said: Said
    n: int
    width: float


@dataclass(frozen=True, slots=True)
class GroupRow:
    """One group in the list."""

    handle: str
    name: str
    state: str
    total: int
    shares: tuple[Share, ...]
    systems: tuple[SystemRef, ...]
    rounds: int
    completed_rounds: int
    created_at: datetime
    finished_at: datetime | None
    hint: str


@dataclass(frozen=True, slots=True)
class GroupListPage:
    """The groups of the caller; `any_groups` False = never submitted one."""

    page: Page[GroupRow]
    q: str
    state: str
    states: tuple[str, ...]
    any_groups: bool


@dataclass(frozen=True, slots=True)
class ChildSpan:
    """One attempt of a child, with the colour of its system."""

    ref: SystemRef
    span: Span


@dataclass(frozen=True, slots=True)
class ChildLane:
    """One child on the time axis: what was tried, and what is still expected of the last."""

    handle: str
    name: str
    state: str
    where: str
    hint: str
    """What it waits for, where it has not been tried."""
    expected: ChildSpan | None
    spans: tuple[ChildSpan, ...]


@dataclass(frozen=True, slots=True)
class RoundView:
    """One round: its children, and whether it is done, open, or waits for the one before."""

    number: int
    standing: str
    """done, open or waiting."""
    ended: int
    total: int
    lanes: tuple[ChildLane, ...]


@dataclass(frozen=True, slots=True)
class SystemStanding:
    """The group's children at one system, and what its site has confirmed of a cancelling."""

    ref: SystemRef
    children: int
    waiting: int
    running: int
    ended: int
    asked: int
    """Attempts there that were asked to end."""
    confirmed: int
    """Of those, how many the site says have ended."""
    charged: str = ""
    """What ended attempts there cost, in the site's own unit; empty: nothing is charged, or nothing ended."""


@dataclass(frozen=True, slots=True)
class ChildResult:
    """What one child left behind."""

    handle: str
    name: str
    state: str
    ref: SystemRef | None
    exit_code: int | None
    files: int
    bytes: int
    directory: str
    charge: str


@dataclass(frozen=True, slots=True)
class GroupPage:
    """One group in full."""

    handle: str
    name: str
    objective: str
    state: str
    headline: str
    diversity: str
    require: str
    created_at: datetime
    finished_at: datetime | None
    total: int
    shares: tuple[Share, ...]
    frame: Frame | None
    rounds: tuple[RoundView, ...]
    hidden: int
    """Children that are not drawn: there are too many."""
    systems: tuple[SystemStanding, ...]
    results: tuple[ChildResult, ...]
    files: int
    """Of all results together."""
    bytes: int
    story: tuple[EventRow, ...]
    is_cancelling: bool
    may_cancel: bool
    is_final: bool
