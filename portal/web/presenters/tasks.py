"""Tasks as rows of a list and as one whole page, and events as lines."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from portal.web.presenters.allocations import ApprovalRow
from portal.web.presenters.decisions import DecisionRef, DecisionView
from portal.web.presenters.shared import Page, SystemRef
from portal.web.presenters.timeline import AttemptFacts, Timeline


@dataclass(frozen=True, slots=True)
class EventRow:
    """One event: `sequence` is its place in the log, `look` the colour class of its tag."""

    sequence: int
    type: str
    at: datetime
    summary: str
    detail: str
    look: str
    icon: str
    task: str | None = None
    system: SystemRef | None = None
    group: str | None = None
    handle: str = ""
    actor: str = ""
    """Who did it, where that was not Facet by itself."""


@dataclass(frozen=True, slots=True)
class TaskRow:
    """One task in the list."""

    handle: str
    name: str
    state: str
    ref: SystemRef | None
    partition: str
    shape: str
    attempts: int
    created_at: datetime
    changed_at: datetime
    hint: str
    """The most useful short sentence: why it waits, when it should start, how it ended."""
    group: tuple[str, str] | None = None
    """Handle and name of its group."""
    may_cancel: bool = False


@dataclass(frozen=True, slots=True)
class TaskFilters:
    """What the list was asked for; "" = everything."""

    q: str = ""
    state: str = ""
    system: str = ""
    group: str = ""
    sort: str = ""

    def as_query(self) -> dict[str, str]:
        """Return the filters by the names they have in an address."""
        return {
            "q": self.q,
            "state": self.state,
            "system": self.system,
            "group": self.group,
            "sort": self.sort,
        }


@dataclass(frozen=True, slots=True)
class BulkCancelPage:
    """The tasks that are about to be cancelled; `back` is the list they were chosen in."""

    rows: tuple[TaskRow, ...]
    running: int
    is_cut: bool
    """There are more than one call may cancel."""
    filters: TaskFilters
    back: str


@dataclass(frozen=True, slots=True)
class TaskListPage:
    """The list with its filters; `any_tasks` False = the caller has never submitted."""

    page: Page[TaskRow]
    filters: TaskFilters
    states: tuple[str, ...]
    systems: tuple[SystemRef, ...]
    any_tasks: bool
    groups: tuple[tuple[str, str], ...] = ()
    """Handle and name of the newest groups, to choose from."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Tasks by state that is not final, and `active` for all of those."""
    query: str = ""
    """The filters as a query string."""


@dataclass(frozen=True, slots=True)
class EnvelopeLine:
    """One field of the envelope: as written and as understood (both ready to read)."""

    name: str
    original: str
    normalized: str
    rationale: str

    @property
    def changed(self) -> bool:
        """Whether normalizing said more than the draft did."""
        return self.original != self.normalized

    @property
    def mark(self) -> str:
        """How the two forms differ: "added", "dropped", "changed" or "same"."""
        if not self.changed:
            return "same"
        return "added" if not self.original else "changed" if self.normalized else "dropped"


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """One file the task left: path, bytes, checksum where taken, and where it is."""

    path: str
    bytes: int | None
    sha256: str
    uri: str


@dataclass(frozen=True, slots=True)
class ManifestView:
    """What the task left behind. Times come from the site's accounting."""

    exit_code: int | None
    elapsed_s: int | None
    charge: str
    files: tuple[ManifestFile, ...]
    directory: str


STRETCH = 65_536
"""Bytes of output that one page of it shows; the skill gives no more at once."""


@dataclass(frozen=True, slots=True)
class LogTail:
    """The end of one stream: text, and how much of it is shown. `follow` while more may come."""

    stream: str
    attempt: int
    text: str
    shown_from: int
    total_bytes: int | None
    follow: bool
    problem: str = ""
    next_offset: int = 0
    """First byte after what is shown."""
    is_part: bool = False
    """A byte range that was asked for, not the end."""

    @property
    def earlier(self) -> int | None:
        """First byte of the stretch before this one; None = this begins the file."""
        return max(self.shown_from - STRETCH, 0) if self.shown_from else None

    @property
    def later(self) -> int | None:
        """First byte of the stretch after this one; None = this reaches the end."""
        return self.next_offset if self.total_bytes and 0 < self.next_offset < self.total_bytes else None


@dataclass(frozen=True, slots=True)
class CostLine:
    """What one attempt costs, each amount with the site's own unit; "" = not (yet) so."""

    attempt: int
    ref: SystemRef
    account: str
    expected: str
    reserved: str
    settled: str
    is_released: bool
    """What was reserved was given back: it never ran."""
    share: int | None
    """Settled in percent of expected."""


@dataclass(frozen=True, slots=True)
class Triage:
    """Why a task failed: the finding, what it means, what helps, and the lines that show it."""

    cause: str
    means: str
    suggestion: str
    evidence: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TaskPage:
    """One task in full."""

    handle: str
    name: str
    objective: str
    state: str
    headline: str
    created_at: datetime
    changed_at: datetime
    ref: SystemRef | None
    partition: str
    account: str
    shape: str
    command: str
    is_script: bool
    expected_start_at: datetime | None
    expected_end_at: datetime | None
    charge: str
    attempts: tuple[AttemptFacts, ...]
    timeline: Timeline | None
    decision: DecisionView | None
    envelope: tuple[EnvelopeLine, ...]
    environment: Mapping[str, str]
    manifest: ManifestView | None
    log: LogTail | None
    events: tuple[EventRow, ...]
    may_cancel: bool
    may_replan: bool
    is_final: bool
    decisions: tuple[DecisionRef, ...] = ()
    costs: tuple[CostLine, ...] = ()
    triage: Triage | None = None
    elsewhere: tuple[SystemRef, ...] = ()
    """Systems that placing again may leave out."""
    group: tuple[str, str] | None = None
    """Handle and name of its group."""
    approval: ApprovalRow | None = None
    """What it waits for, where a person must approve it."""
