"""What is printed: JSON for programs; lines for people, in colour only on a terminal, harmless always."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

from facet_cli.errors import CliError

_COLOURS = {"green": "32", "red": "31", "yellow": "33", "blue": "34", "dim": "2", "bold": "1"}
_OF_STATE = {
    "succeeded": "green",
    "online": "green",
    "running": "blue",
    "failed": "red",
    "partially_succeeded": "red",
    "offline": "red",
    "attention": "yellow",
    "unschedulable": "yellow",
    "pending_approval": "yellow",
    "degraded": "yellow",
    "stale": "yellow",
    "cancelled": "dim",
}
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def harmless(text: object) -> str:
    """Return a text without the control characters that could take over a terminal."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", str(text))


def one_line(text: object, most: int = 200) -> str:
    """Return a harmless text on one line, cut where it is long."""
    flat = " ".join(harmless(text).split())
    return flat if len(flat) <= most else flat[: most - 1] + "…"


def duration(seconds: float | None) -> str:
    """Return seconds as people say them."""
    if seconds is None:
        return "?"
    left = round(seconds)
    parts = []
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if left >= size:
            parts.append(f"{left // size}{unit}")
            left %= size
    if left or not parts:
        parts.append(f"{left}s")
    return " ".join(parts[:2])


class Output:
    """Where things are said."""

    def __init__(self, *, as_json: bool, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self.as_json = as_json
        self.streams = False
        """One document on each line, a failure too."""
        self.out = out or sys.stdout
        self.err = err or sys.stderr
        self.colours = (
            self.out.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        )
        self.progress = self.err.isatty() and not as_json

    def document(self, value: object) -> None:
        """Print one JSON document."""
        self.out.write(json.dumps(value, ensure_ascii=False, indent=2) + "\n")
        self.out.flush()

    def record(self, value: object) -> None:
        """Print one JSON document on one line."""
        self.out.write(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n")
        self.out.flush()

    def line(self, text: str = "") -> None:
        """Print a line for people."""
        self.out.write(text + "\n")
        self.out.flush()

    def note(self, text: str) -> None:
        """Say what is going on, to people who watch."""
        if self.progress:
            self.err.write(text + "\n")
            self.err.flush()

    def paint(self, text: str, colour: str) -> str:
        """Return a text in colour on a terminal, as it is elsewhere."""
        return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m" if self.colours else text

    def state(self, word: object) -> str:
        """Return a state, painted."""
        text = one_line(word, 40)
        return self.paint(text, _OF_STATE[text]) if text in _OF_STATE else text

    def table(self, head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Print rows in columns; the cells are text of others and made harmless."""
        cells = [[one_line("-" if cell is None else cell, 60) for cell in row] for row in rows]
        widths = [max(len(row[n]) for row in [list(head), *cells]) for n in range(len(head))]
        self.line(self.paint("  ".join(f"{t:<{w}}" for t, w in zip(head, widths)).rstrip(), "bold"))
        for row in cells:
            padded = [f"{text:<{width}}" for text, width in zip(row, widths)]
            painted = [self.paint(p, _OF_STATE[t]) if t in _OF_STATE else p for p, t in zip(padded, row)]
            self.line("  ".join(painted).rstrip())

    def failure(self, error: CliError) -> None:
        """Tell a failure: the document for programs, message, places and remedy for people."""
        document = error.document()
        if self.as_json:
            say = self.record if self.streams else self.document
            say({"error": document, "exit": int(error.exit_code)})
            return
        self.err.write(f"facet: {one_line(error.message, 600)}\n")
        for fault in document.get("errors") or []:
            place = one_line(fault.get("pointer") or "/")
            if fault.get("message") != error.message or fault.get("pointer"):
                self.err.write(f"  {place}: {one_line(fault.get('message', ''), 400)}\n")
        if error.hint:
            self.err.write(f"  → {one_line(error.hint, 400)}\n")
        for action in (document.get("next_actions") or [])[:4]:
            arguments: Any = json.dumps(action.get("arguments", {}), ensure_ascii=False)
            self.err.write(f"  next: {one_line(action.get('skill', ''))} {one_line(arguments)}\n")
