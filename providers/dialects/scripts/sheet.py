"""The sheet a reader fills in while it goes through a script; it ends as a `ScriptRequest`."""

import re
from collections.abc import Callable
from typing import Literal, TypeVar

from providers.dialects.scripts.quantities import Misspelled
from providers.dialects.scripts.text import ScriptText
from providers.dialects.scripts.types import Body, Dialect, Note, ScriptRequest

T = TypeVar("T")
Kind = Literal["ignored", "not_understood", "refusals", "conflicts", "warnings"]

_VARIABLE = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)\}?|\{\{\s*([\w.]+)[^}]*\}\}|<([A-Z][A-Z0-9_ ]+)>")


class Sheet:
    """Values with the lines they come from, and remarks; the last value of a field wins."""

    def __init__(self, dialect: Dialect, text: ScriptText) -> None:
        self.dialect = dialect
        self.values: dict[str, object] = {}
        self.lines: dict[str, tuple[int, ...]] = {}
        self.reasons: dict[str, str] = {}
        self.notes: dict[Kind, list[Note]] = {
            "ignored": [],
            "not_understood": [],
            "refusals": list(text.refusals),
            "conflicts": [],
            "warnings": list(text.warnings),
        }
        self.extra: list[str] = []
        self.variables: list[str] = []

    def put(self, field: str, value: object, *lines: int, why: str = "") -> None:
        """Set a field of the request; a second, different value replaces the first and is remarked."""
        if self.values.get(field, value) != value:
            was = self.lines.get(field, ())
            self.note("warnings", lines[-1] if lines else 0, field, f"given again; replaces line {was}")
        self.values[field] = value
        self.lines[field] = tuple(sorted({line for line in lines if line}))
        if why:
            self.reasons[field] = why

    def flag(self, field: str, *lines: int, why: str = "") -> None:
        """Set a yes-or-no field to yes."""
        self.put(field, True, *lines, why=why)  # noqa: FBT003  # the value, not a switch

    def note(self, kind: Kind, line: int, text: str, why: str) -> None:
        """Remark on one line."""
        self.notes[kind].append(Note(line=line, text=text[:200], why=why[:400]))

    def quantity(self, read: Callable[[str], T], value: str | None, line: int, option: str) -> T | None:
        """Return a quantity read by `read`; None, with the reason remarked, when it cannot be."""
        text = value or ""
        names = variables_in(text)
        try:
            return read(text)
        except Misspelled as fault:
            why = f"Invalid {option} specification: {fault}"
            if names:
                self.variables.extend(names)
                why = (
                    f"Invalid {option} specification: directives are not expanded; fill in {', '.join(names)}"
                )
            self.note("refusals", line, f"{option} {text}", why)
            return None

    def request(self, body: Body) -> ScriptRequest:
        """Return all that was filled in."""
        notes = {kind: tuple(found) for kind, found in self.notes.items()}
        return ScriptRequest.model_validate(
            {
                **self.values,
                **notes,
                "dialect": self.dialect,
                "body": body,
                "lines": self.lines,
                "reasons": self.reasons,
                "extra": tuple(self.extra),
                "variables": tuple(dict.fromkeys(self.variables)),
            }
        )


def variables_in(text: str) -> tuple[str, ...]:
    """Return the names of shell variables and template holes in a directive's value."""
    return tuple(next(filter(None, match.groups())) for match in _VARIABLE.finditer(text))
