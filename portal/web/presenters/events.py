"""Events as lines: what happened in words, with a colour class and an icon by type. Pure."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from portal.web.presenters.shared import SystemRef
from portal.web.presenters.tasks import EventRow

if TYPE_CHECKING:
    from federation.models import Event

LOOKS: Mapping[str, tuple[str, str]] = {
    "accepted": ("", "circle-dot"),
    "placed": ("note", "route"),
    "submitted": ("note", "send"),
    "dispatched": ("note", "send"),
    "started": ("accent", "play"),
    "moved": ("", "arrow-right"),
    "retrying": ("warn", "rotate-ccw"),
    "replaced": ("note", "arrow-left-right"),
    "replanned": ("note", "route"),
    "superseded": ("", "arrow-left-right"),
    "unseen": ("warn", "circle-help"),
    "seen": ("ok", "eye"),
    "succeeded": ("ok", "circle-check"),
    "partially_succeeded": ("warn", "circle-check"),
    "failed": ("bad", "circle-x"),
    "cancelled": ("", "ban"),
    "unschedulable": ("warn", "octagon-alert"),
    "attention": ("warn", "triangle-alert"),
    "online": ("ok", "circle-check"),
    "degraded": ("warn", "triangle-alert"),
    "stale": ("warn", "clock"),
    "offline": ("bad", "wifi-off"),
    "disabled": ("", "circle-slash"),
    "threshold": ("warn", "wallet"),
    "exhausted": ("bad", "wallet"),
    "granted": ("ok", "circle-check"),
    "rejected": ("bad", "circle-x"),
    "expired": ("warn", "clock"),
    "needs_sign_in": ("warn", "key-round"),
    "reached": ("accent", "flag"),
    "round_completed": ("ok", "layers"),
    "child_stalled": ("warn", "hourglass"),
    "constraint_relaxed": ("note", "sliders-horizontal"),
    "drafted": ("", "file-text"),
    "changed": ("", "sliders-horizontal"),
    "requested": ("", "circle-dot"),
    "corrected": ("", "wallet"),
    "appointed": ("", "key-round"),
    "dismissed": ("", "circle-slash"),
}
"""(colour class, icon) by the last part of the event type."""


def event_rows(events: Iterable["Event"], refs: Mapping[str, SystemRef]) -> tuple[EventRow, ...]:
    """Return events as lines, in the order given."""
    return tuple(_row(event, refs) for event in events)


def _row(event: "Event", refs: Mapping[str, SystemRef]) -> EventRow:
    look, icon = LOOKS.get(event.type.rpartition(".")[2], ("", "info"))
    return EventRow(
        sequence=event.position.seq,
        type=event.type,
        at=event.at,
        summary=event.summary,
        detail=str(event.data.get("detail", "")),
        look=look,
        icon=icon,
        task=event.task or None,
        system=refs.get(event.system),
        group=event.group or None,
        handle=event.handle,
        actor="" if event.actor == "facet" else event.actor,
    )
