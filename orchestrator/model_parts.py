"""What the tables have in common: the choices of a lifecycle's states, and the guard of its moves."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

import pgtrigger

from orchestrator.lifecycle import pairs


def choices(states: type[StrEnum]) -> list[tuple[str, str]]:
    """Return the states as a field's choices."""
    return [(state.value, state.value) for state in states]


S = TypeVar("S", bound=StrEnum)


def only_legal_moves(name: str, moves: Mapping[S, frozenset[S]]) -> pgtrigger.FSM:
    """Return the trigger that refuses every move of `state` which the lifecycle does not know."""
    return pgtrigger.FSM(name=name, field="state", transitions=list(pairs(moves)))
