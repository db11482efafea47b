"""Exit codes: what a script or an agent may decide by. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum


class Exit(IntEnum):
    """How a command ended."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_AUTHORIZED = 3
    NOT_FOUND = 4
    REJECTED = 5
    UNSCHEDULABLE = 6
    CANCELLED = 7
    ATTENTION = 8
    NO_SKILL = 9
    UNREACHABLE = 10
    TIMED_OUT = 11
    SERVER_FAILED = 12
    INTERRUPTED = 130


MEANINGS = {
    Exit.OK: "done; the task succeeded",
    Exit.FAILED: "the task failed",
    Exit.USAGE: "the command line or the configuration is wrong",
    Exit.NOT_AUTHORIZED: "no token, a bad one, or a scope is missing",
    Exit.NOT_FOUND: "there is no such object of yours",
    Exit.REJECTED: "the server refused the input, or it contradicts the present state",
    Exit.UNSCHEDULABLE: "no system can run the task as described",
    Exit.CANCELLED: "the task was cancelled",
    Exit.ATTENTION: "the task needs a decision",
    Exit.NO_SKILL: "this server does not offer that skill",
    Exit.UNREACHABLE: "the server cannot be reached, or is too busy",
    Exit.TIMED_OUT: "the time given with --timeout is over",
    Exit.SERVER_FAILED: "the server itself failed; it names an incident",
    Exit.INTERRUPTED: "stopped with Ctrl-C",
}

OF_STATE = {
    "succeeded": Exit.OK,
    "failed": Exit.FAILED,
    "partially_succeeded": Exit.FAILED,
    "unschedulable": Exit.UNSCHEDULABLE,
    "cancelled": Exit.CANCELLED,
    "attention": Exit.ATTENTION,
    "pending_approval": Exit.ATTENTION,
}
"""What a state at which waiting ends means."""

_WORST_FIRST = (Exit.ATTENTION, Exit.UNSCHEDULABLE, Exit.FAILED, Exit.CANCELLED)


def of_states(states: Iterable[str]) -> Exit:
    """Return the code for several ended tasks: attention, unschedulable, failed, cancelled, else 0."""
    found = {OF_STATE[state] for state in states if state in OF_STATE}
    return next((code for code in _WORST_FIRST if code in found), Exit.OK)


def told() -> str:
    """Return the list of codes as help prints it."""
    return "\n".join(f"  {code.value:>3}  {text}" for code, text in MEANINGS.items())
