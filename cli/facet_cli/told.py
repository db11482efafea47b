"""What an agent was told by its own `facet wait`: the bridge must not wake it for the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from facet_cli.files import read_json, safe_name, state_dir, write_json

ANYBODY = "anybody"
FOR_GOOD = {"succeeded", "partially_succeeded", "failed", "cancelled"}
"""States that nothing leaves: told once, they are told."""


def _path(session: str | None, subject: str) -> Path:
    return state_dir() / "told" / safe_name(session or ANYBODY) / f"{safe_name(subject)}.json"


def mark(session: str | None, subject: str, *, cursor: int, state: str) -> None:
    """Note that a session was told this state of a subject, and everything up to a cursor."""
    write_json(_path(session, subject), {"cursor": cursor, "state": state})


def was_told(session: str | None, event: dict[str, Any]) -> bool:
    """Return whether a session, or somebody without a name, was told of an event already."""
    for name in {session, None}:
        found = read_json(_path(name, str(event["subject"]))) or {}
        if int(event["cursor"]) <= int(found.get("cursor") or 0):
            return True
        if event.get("state") in FOR_GOOD and found.get("state") == event["state"]:
            return True
    return False
