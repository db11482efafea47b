"""The submit page: what was read from a script, and the preview beside the form."""

from dataclasses import dataclass

from portal.web.presenters.decisions import DecisionView


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
