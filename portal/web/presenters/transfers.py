"""Transfers as rows of a list and as one whole page. Pure."""

from dataclasses import dataclass
from datetime import datetime

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from orchestrator.shown import TransferShown
from portal.web.presenters.shared import Page
from portal.web.presenters.tasks import EventRow
from portal.web.templatetags.units import size

PURPOSES = {
    "move": gettext_lazy("move"),
    "stage_in": gettext_lazy("input of a task"),
    "stage_out": gettext_lazy("output of a task"),
    "replicate": gettext_lazy("copy kept elsewhere"),
}


@dataclass(frozen=True, slots=True)
class TransferRow:
    """One transfer in the list; `percent` None = nobody knows how much there is."""

    handle: str
    state: str
    source: str
    destination: str
    purpose: str
    task: str | None
    moved: str
    percent: float | None
    hint: str
    sign_in: str | None
    created_at: datetime
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class TransferListPage:
    """The transfers of the caller; `waiting` are those that wait for a consent."""

    page: Page[TransferRow]
    q: str
    state: str
    states: tuple[str, ...]
    any_transfers: bool
    waiting: tuple[TransferRow, ...]


@dataclass(frozen=True, slots=True)
class TransferPage:
    """One transfer in full; `policy` is what was looked at before: rule, outcome, detail."""

    row: TransferRow
    transfer: TransferShown
    policy: tuple[tuple[str, str, str], ...]
    events: tuple[EventRow, ...]
    may_cancel: bool


def transfer_row(t: TransferShown) -> TransferRow:
    """Return one line of the list."""
    done = t.state == "succeeded"
    percent = None
    if done:
        percent = 100.0
    elif t.bytes_expected:
        percent = round(min(100 * t.bytes_moved / t.bytes_expected, 100), 2)
    moved = size(t.bytes_moved)
    if t.bytes_expected and not done:
        moved = _("%(moved)s of %(all)s") % {"moved": moved, "all": size(t.bytes_expected)}
    return TransferRow(
        handle=t.id,
        state=t.state,
        source=t.source,
        destination=t.destination,
        purpose=str(PURPOSES.get(t.purpose, t.purpose)),
        task=t.task,
        moved=moved,
        percent=percent,
        hint=t.reason or "",
        sign_in=t.sign_in,
        created_at=t.created_at,
        finished_at=t.finished_at,
    )
