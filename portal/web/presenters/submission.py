"""The submit page: what was read from a script, and the preview beside the form."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from portal.web.presenters.decisions import DecisionView
from portal.web.presenters.shared import SystemRef


@dataclass(frozen=True, slots=True)
class DraftLine:
    """One field read from a script: where it came from and how sure we are (0 … 1)."""

    field: str
    value: str
    rationale: str


@dataclass(frozen=True, slots=True)
class Draft:
    """What a batch script said. `unread` are lines that were not understood, and why; nothing is invented."""

    dialect: str
    confidence: float | None
    lines: tuple[DraftLine, ...]
    unread: tuple[tuple[str, str], ...]
    conflicts: tuple[str, ...]
    from_words: bool = False
    """Read from plain words, not from a script."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault of the input: the field it belongs to ("" = the whole), its label, the sentence."""

    field: str
    label: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Preview:
    """Where it would run: a decision, or the faults that stand in the way."""

    decision: DecisionView | None
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class RelaxationRow:
    """One change that would help: what to change, where it would then run, how much sooner."""

    change: str
    ref: SystemRef
    partition: str
    wait_s: int
    finish_in_s: int
    sooner_s: int | None
    """None: as asked it fits nowhere."""
    query: str
    """The question with the change made, as a query string; "" = it cannot be asked by this form."""


@dataclass(frozen=True, slots=True)
class WhereAnswer:
    """The answer to one envelope: a decision with what would help, or the faults that stand in the way."""

    decision: DecisionView | None
    problems: tuple[Problem, ...] = ()
    relaxations: tuple[RelaxationRow, ...] = ()
    closest_query: str = ""
    """The question with the smallest change made, where it fits nowhere as asked."""
    asked: Mapping[str, Any] = field(default_factory=dict)
    """The task input that was asked about, as the API takes it."""


@dataclass(frozen=True, slots=True)
class TemplateRow:
    """A template one may begin with; `shared` says with whom in words, "" = with nobody."""

    handle: str
    name: str
    owner: str
    is_own: bool
    shared: str
    what: str
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class Change:
    """One field that says otherwise than the task it was filled from; "" = nothing."""

    field: str
    label: str
    before: str
    now: str
    of_lines: bool = False


@dataclass(frozen=True, slots=True)
class DiffLine:
    """One line of two compared scripts: added, removed, same or place (where the next lines lie)."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Earlier:
    """What the form was filled from, what it says otherwise, and what goes over that it has no field for."""

    handle: str
    name: str
    is_template: bool
    changes: tuple[Change, ...]
    script: tuple[DiffLine, ...]
    kept: tuple[tuple[str, str], ...]
