"""An envelope again, with some members said otherwise. Pure."""

from collections.abc import Mapping
from typing import Any

from orchestrator.envelope.normalize import SILENT
from orchestrator.envelope.validate import read_envelope


def with_changes(body: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored envelope as input: what is not said here is as it was, member by member.

    What was made of silences is made anew, where a change may mean something else.
    """
    kept = {name: value for name, value in body.items() if name not in ("rationale", "source")}
    return {**{name: value for name, value in kept.items() if name not in _silent(body, kept)}, **changes}


def _silent(body: Mapping[str, Any], kept: Mapping[str, Any]) -> set[str]:
    """Return the members that stand as silence alone makes them; a reason may be older than a figure."""
    reasons = body.get("rationale") or {}
    named = {name for name, reason in reasons.items() if str(reason).startswith(SILENT)} & kept.keys()
    said = {name: value for name, value in kept.items() if name not in named}
    made = read_envelope(said).model_dump(mode="json")
    return {name for name in named if made[name] == kept[name]}
