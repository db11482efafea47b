"""Handles: which kind of object one names. Pure."""

from __future__ import annotations

import re

from facet_cli.errors import CliError

COLLECTIONS = {
    "task": "tasks",
    "grp": "groups",
    "xfer": "transfers",
    "att": "attempts",
    "dec": "decisions",
    "env": "envelopes",
}
_WORDS = {"task": "task", "grp": "group", "xfer": "transfer"}
_HANDLE = re.compile(r"^([a-z]+)_[A-Za-z0-9]+$")
FINAL = {
    "task": {"succeeded", "failed", "cancelled", "unschedulable", "pending_approval", "attention"},
    "grp": {"succeeded", "partially_succeeded", "failed", "cancelled"},
    "xfer": {"succeeded", "failed", "cancelled"},
}
"""States at which waiting ends: final ones, and those in which only a decision helps."""


def kind_of(handle: str) -> str:
    """Return the prefix of a handle of something that runs: task, grp or xfer.

    Raises:
        CliError: it is none of these.
    """
    match = _HANDLE.match(handle)
    if match is None or match.group(1) not in _WORDS:
        raise CliError(f"`{handle}` is no handle of a task, group or transfer (task_…, grp_…, xfer_…).")
    return match.group(1)


def word_of(handle: str) -> str:
    """Return what skills call it: task, group or transfer."""
    return _WORDS[kind_of(handle)]


def path_of(handle: str) -> str:
    """Return where an object is read."""
    return f"{COLLECTIONS[kind_of(handle)]}/{handle}"


def is_final(handle: str, state: object) -> bool:
    """Return whether waiting for it ends in this state."""
    return state in FINAL[kind_of(handle)]
