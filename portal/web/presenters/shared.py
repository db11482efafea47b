"""What every page shares: how a system is named and coloured, how a state is said, how a list goes on."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

Row = TypeVar("Row")

TONES = 8
"""Number of system colours in static/css/tokens.css."""


@dataclass(frozen=True, slots=True)
class SystemRef:
    """A system as pages name it: slug for the link, its own name, and its colour (1 … 8)."""

    slug: str
    name: str
    tone: int


@dataclass(frozen=True, slots=True)
class Said:
    """A state as people read it: a word, an icon, a colour class ("" is neutral), and whether it moves."""

    word: str | Promise
    icon: str
    look: str = ""
    turning: bool = False


@dataclass(frozen=True, slots=True)
class Page(Generic[Row]):
    """One page of a list; `next_query` and `first_query` are query strings, None = no such page."""

    rows: tuple[Row, ...]
    next_query: str | None = None
    first_query: str | None = None


TASK_STATES: Mapping[str, Said] = {
    "accepted": Said(_("Accepted"), "circle-dot", "note"),
    "staging": Said(_("Staging data"), "upload", "note"),
    "placing": Said(_("Placing"), "route", "note"),
    "submitted": Said(_("Submitted"), "send", "note"),
    "pending": Said(_("Waiting in queue"), "hourglass", "note"),
    "running": Said(_("Running"), "loader", "accent", turning=True),
    "succeeded": Said(_("Succeeded"), "circle-check", "ok"),
    "failed": Said(_("Failed"), "circle-x", "bad"),
    "cancelled": Said(_("Cancelled"), "ban"),
    "unschedulable": Said(_("Nowhere to run"), "octagon-alert", "warn"),
    "pending_approval": Said(_("Waits for approval"), "wallet", "warn"),
    "attention": Said(_("Needs a decision"), "triangle-alert", "warn"),
}

ATTEMPT_STATES: Mapping[str, Said] = {
    "planned": Said(_("Planned"), "circle-dashed"),
    "dispatching": Said(_("Dispatching"), "send", "note"),
    "submitted": Said(_("Submitted"), "send", "note"),
    "pending": Said(_("Waiting in queue"), "hourglass", "note"),
    "running": Said(_("Running"), "loader", "accent", turning=True),
    "succeeded": Said(_("Succeeded"), "circle-check", "ok"),
    "failed": Said(_("Failed"), "circle-x", "bad"),
    "cancelled": Said(_("Cancelled"), "ban"),
    "superseded": Said(_("Replaced"), "arrow-left-right"),
    "unknown": Said(_("Not seen now"), "circle-help", "warn"),
}

HEALTH: Mapping[str, Said] = {
    "online": Said(_("Online"), "circle-check", "ok"),
    "degraded": Said(_("Degraded"), "triangle-alert", "warn"),
    "stale": Said(_("Old data"), "clock", "warn"),
    "offline": Said(_("Offline"), "wifi-off", "bad"),
    "disabled": Said(_("Disabled"), "circle-slash"),
}

GROUP_STATES: Mapping[str, Said] = {
    "running": Said(_("Running"), "loader", "accent", turning=True),
    "succeeded": Said(_("Succeeded"), "circle-check", "ok"),
    "partially_succeeded": Said(_("Partly succeeded"), "circle-check", "warn"),
    "failed": Said(_("Failed"), "circle-x", "bad"),
    "cancelled": Said(_("Cancelled"), "ban"),
}

TRANSFER_STATES: Mapping[str, Said] = {
    "requested": Said(_("Requested"), "circle-dot", "note"),
    "active": Said(_("Moving"), "loader", "accent", turning=True),
    "succeeded": Said(_("Succeeded"), "circle-check", "ok"),
    "failed": Said(_("Failed"), "circle-x", "bad"),
    "cancelled": Said(_("Cancelled"), "ban"),
}

TOKEN_STATES: Mapping[str, Said] = {
    "active": Said(_("Active"), "circle-check", "ok"),
    "expired": Said(_("Expired"), "clock", "warn"),
    "revoked": Said(_("Revoked"), "ban"),
}

SUBSCRIPTION_STATES: Mapping[str, Said] = {
    "active": Said(_("Active"), "circle-check", "ok"),
    "paused": Said(_("Paused"), "pause", "warn"),
    "disabled": Said(_("Disabled"), "circle-slash", "bad"),
}

DELIVERY_STATES: Mapping[str, Said] = {
    "pending": Said(_("On its way"), "hourglass", "note"),
    "delivered": Said(_("Delivered"), "circle-check", "ok"),
    "dead": Said(_("Given up"), "circle-x", "bad"),
}

BUDGET_STATES: Mapping[str, Said] = {
    "open": Said(_("Open"), "circle-check", "ok"),
    "exhausted": Said(_("Used up"), "wallet", "bad"),
    "closed": Said(_("Closed"), "ban"),
}

APPROVAL_STATES: Mapping[str, Said] = {
    "pending": Said(_("Waits for a person"), "hourglass", "warn"),
    "approved": Said(_("Approved"), "circle-check", "ok"),
    "rejected": Said(_("Rejected"), "circle-x", "bad"),
    "expired": Said(_("Expired"), "clock"),
    "withdrawn": Said(_("Withdrawn"), "ban"),
}

STATES: Mapping[str, Mapping[str, Said]] = {
    "task": TASK_STATES,
    "attempt": ATTEMPT_STATES,
    "group": GROUP_STATES,
    "transfer": TRANSFER_STATES,
    "health": HEALTH,
    "token": TOKEN_STATES,
    "subscription": SUBSCRIPTION_STATES,
    "delivery": DELIVERY_STATES,
    "budget": BUDGET_STATES,
    "approval": APPROVAL_STATES,
}

TERMINAL_TASK_STATES = frozenset({"succeeded", "failed", "cancelled"})
TERMINAL_ATTEMPT_STATES = frozenset({"succeeded", "failed", "cancelled", "superseded"})


def said(value: str, kind: str) -> Said:
    """Return how a state is said; a state without an entry keeps its own word, marked as not understood."""
    return STATES[kind].get(value) or Said(value, "circle-help", "warn")


def tones(slugs: Iterable[str]) -> dict[str, int]:
    """Return the colour (1 … 8) of each system, by alphabetical rank: neighbours never share one."""
    return {slug: rank % TONES + 1 for rank, slug in enumerate(sorted(set(slugs)))}
