"""The tables of moves: total, without dead ends that are not ends, and checked the same everywhere."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.lifecycle import (
    ATTEMPT_MOVES,
    GROUP_MOVES,
    TASK_MOVES,
    TRANSFER_MOVES,
    AttemptState,
    GroupState,
    TaskState,
    TransferState,
    check_move,
    is_terminal,
    pairs,
    terminal_states,
)
from providers.errors import IllegalMove

TABLES: tuple[tuple[type[StrEnum], Mapping[Any, frozenset[Any]], StrEnum], ...] = (
    (TaskState, TASK_MOVES, TaskState.ACCEPTED),
    (AttemptState, ATTEMPT_MOVES, AttemptState.PLANNED),
    (GroupState, GROUP_MOVES, GroupState.RUNNING),
    (TransferState, TRANSFER_MOVES, TransferState.REQUESTED),
)
every_table = pytest.mark.parametrize(
    ("states", "moves", "first"), TABLES, ids=lambda x: getattr(x, "__name__", "")
)


@every_table
def test_every_state_has_a_line_and_can_be_reached(
    states: type[StrEnum], moves: Mapping[Any, frozenset[Any]], first: StrEnum
) -> None:
    reached, frontier = {first}, [first]
    while frontier:
        for target in moves[frontier.pop()]:
            if target not in reached:
                reached.add(target)
                frontier.append(target)

    assert set(moves) == set(states)
    assert reached == set(states)


@every_table
def test_an_end_can_be_reached_from_everywhere(
    states: type[StrEnum], moves: Mapping[Any, frozenset[Any]], first: StrEnum
) -> None:
    ends = set(terminal_states(moves))
    leads_to_an_end = set(ends)
    while True:
        more = {state for state in states if moves[state] & leads_to_an_end} - leads_to_an_end
        if not more:
            break
        leads_to_an_end |= more

    assert leads_to_an_end == set(states)


def test_the_ends_are_these() -> None:
    assert set(terminal_states(TASK_MOVES)) == {TaskState.SUCCEEDED, TaskState.FAILED, TaskState.CANCELLED}
    assert set(terminal_states(ATTEMPT_MOVES)) == {
        AttemptState.SUCCEEDED,
        AttemptState.FAILED,
        AttemptState.CANCELLED,
        AttemptState.SUPERSEDED,
    }
    assert not is_terminal(ATTEMPT_MOVES, AttemptState.UNKNOWN)
    assert not is_terminal(TASK_MOVES, TaskState.UNSCHEDULABLE)
    assert not is_terminal(TASK_MOVES, TaskState.ATTENTION)


def test_an_illegal_move_says_what_would_be_legal() -> None:
    with pytest.raises(IllegalMove, match="No move from accepted to running; allowed from here: attention"):
        check_move(TASK_MOVES, TaskState.ACCEPTED, TaskState.RUNNING)
    with pytest.raises(IllegalMove, match="it is final"):
        check_move(TASK_MOVES, TaskState.FAILED, TaskState.PLACING)


@given(st.sampled_from(list(AttemptState)), st.sampled_from(list(AttemptState)))
def test_the_pairs_for_the_database_are_the_moves_python_allows(
    source: AttemptState, target: AttemptState
) -> None:
    is_listed = (source.value, target.value) in set(pairs(ATTEMPT_MOVES))
    try:
        check_move(ATTEMPT_MOVES, source, target)
    except IllegalMove:
        assert not is_listed
    else:
        assert is_listed
