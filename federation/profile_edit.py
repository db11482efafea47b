"""Profiles as text: comparing two of them line by line, and changing the announced downtime in one. Pure."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import yaml

from federation.profile import MaintenanceWindow


@dataclass(frozen=True, slots=True)
class DiffLine:
    """One line of a unified diff."""

    kind: Literal["same", "added", "removed", "place"]
    text: str


def diff(before: str, after: str, *, before_name: str, after_name: str) -> tuple[DiffLine, ...]:
    """Return the unified diff with three lines of context; empty when the texts are the same."""
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), before_name, after_name, lineterm="", n=3
    )
    kinds: dict[str, Literal["same", "added", "removed", "place"]] = {
        "+": "added",
        "-": "removed",
        "@": "place",
    }
    return tuple(
        DiffLine("place" if number < 2 else kinds.get(line[:1], "same"), line)
        for number, line in enumerate(lines)
    )


def counts(lines: Sequence[DiffLine]) -> tuple[int, int]:
    """Return how many lines were added and removed."""
    return (
        sum(line.kind == "added" for line in lines),
        sum(line.kind == "removed" for line in lines),
    )


def with_maintenance(text: str, windows: Sequence[MaintenanceWindow]) -> str:
    """Return a valid profile's text with these windows announced and no others; all else stays as written.

    Comments inside the old list of windows go with it.
    """
    kept = text.splitlines(keepends=True)
    start, end = _block(text, "maintenance")
    written = _written(windows)
    if start is None:
        gap = "" if not kept or kept[-1].endswith("\n") else "\n"
        return text + gap + written
    return "".join([*kept[:start], written, *kept[end:]])


def _block(text: str, field: str) -> tuple[int | None, int]:
    """Return the lines (first, one past the last) of a top-level field; None where there is none."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if not isinstance(root, yaml.MappingNode):
        return None, 0
    for key, value in root.value:
        if key.value == field:
            # PyYAML ends a block where the next field begins: what stands between belongs to that one.
            end = value.end_mark.line + (1 if value.end_mark.column > 0 else 0)
            lines = text.splitlines()
            while end > key.start_mark.line + 1 and (not lines[end - 1].strip() or lines[end - 1][0] == "#"):
                end -= 1
            return key.start_mark.line, end
    return None, 0


def _written(windows: Sequence[MaintenanceWindow]) -> str:
    if not windows:
        return ""
    rows = [
        {
            "start_at": window.start_at.isoformat(),
            "end_at": window.end_at.isoformat(),
            **({"partitions": list(window.partitions)} if window.partitions else {}),
            **({"reason": window.reason} if window.reason else {}),
        }
        for window in sorted(windows, key=lambda each: each.start_at)
    ]
    return yaml.safe_dump({"maintenance": rows}, sort_keys=False, allow_unicode=True, width=100)
