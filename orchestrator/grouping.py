"""Groups and rounds: which children may start, which wait in vain, how the group stands. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from orchestrator.lifecycle import TASK_MOVES, GroupState, TaskState, is_terminal

Required = Literal["all", "any"] | int
"""How many children of a round must have ended before the next begins."""

STALLED_AFTER = timedelta(seconds=60)
"""A waiting child is overdue when it has also outlived its own p90; it is stalled when some of its round has
ended and all that is left is overdue as well: then distinct systems buy no parallelism."""


@dataclass(frozen=True, slots=True)
class Child:
    """One child as the group sees it."""

    key: str
    round: int
    after: tuple[str, ...]
    """Keys of siblings that must have succeeded first."""
    state: TaskState
    is_started: bool
    """It has been placed, or tried to be."""
    waiting_since: datetime | None = None
    """Since when its accepted attempt waits in a queue; None = it does not."""
    wait_p90_s: int = 0
    """What the decision expected of the wait at most."""


@dataclass(frozen=True, slots=True)
class Step:
    """What is due now."""

    start: tuple[str, ...]
    """Children whose round and siblings let them begin."""
    give_up: Mapping[str, str]
    """Children that can never begin, with the sibling that failed them."""
    stalled: tuple[str, ...]
    """Children that hold the group up although nothing of their round runs any more."""
    completed_rounds: tuple[int, ...]
    target: GroupState | None
    """The group's end, once every child has one."""


def step(children: Sequence[Child], *, required: Required, cancel_requested: bool, now: datetime) -> Step:
    """Return what is due for a group of these children."""
    by_key = {child.key: child for child in children}
    rounds = sorted({child.round for child in children})
    done = {number: _is_complete(_of(children, number), required) for number in rounds}
    open_rounds = _open_rounds(rounds, done)
    start, give_up = [], {}
    for child in children:
        if child.is_started or _ended(child) or cancel_requested:
            continue
        failed = next((key for key in child.after if _failed(by_key[key])), None)
        if failed is not None:
            give_up[child.key] = failed
        elif child.round in open_rounds and all(_succeeded(by_key[key]) for key in child.after):
            start.append(child.key)
    return Step(
        start=tuple(start),
        give_up=give_up,
        stalled=_stalled(children, now=now),
        completed_rounds=tuple(number for number in rounds if done[number]),
        target=_target(children, cancel_requested=cancel_requested),
    )


def _of(children: Sequence[Child], number: int) -> list[Child]:
    return [child for child in children if child.round == number]


def _ended(child: Child) -> bool:
    return is_terminal(TASK_MOVES, child.state)


def _succeeded(child: Child) -> bool:
    return child.state is TaskState.SUCCEEDED


def _failed(child: Child) -> bool:
    return child.state in (TaskState.FAILED, TaskState.CANCELLED)


def _is_complete(children: Sequence[Child], required: Required) -> bool:
    """Return whether enough children of a round have ended."""
    ended = sum(_ended(child) for child in children)
    if required == "all":
        return ended == len(children)
    return ended >= min(len(children), 1 if required == "any" else required)


def _open_rounds(rounds: Sequence[int], done: Mapping[int, bool]) -> set[int]:
    """Return the rounds that have begun: the first, and each whose predecessor is complete."""
    found: set[int] = set()
    for number in rounds:
        found.add(number)
        if not done[number]:
            break
    return found


def _stalled(children: Sequence[Child], *, now: datetime) -> tuple[str, ...]:
    """Return the children of rounds where something has ended and whatever is left waits, and is overdue."""
    size = Counter(child.round for child in children)
    left = [child for child in children if not _ended(child)]
    still = Counter(child.round for child in left)
    overdue = [child for child in left if _is_overdue(child, now=now)]
    late = Counter(child.round for child in overdue)
    return tuple(
        child.key for child in overdue if late[child.round] == still[child.round] < size[child.round]
    )


def _is_overdue(child: Child, *, now: datetime) -> bool:
    if child.waiting_since is None:
        return False
    waited_s = (now - child.waiting_since).total_seconds()
    return waited_s > max(STALLED_AFTER.total_seconds(), child.wait_p90_s)


def _target(children: Sequence[Child], *, cancel_requested: bool) -> GroupState | None:
    if not all(map(_ended, children)):
        return None
    succeeded = sum(map(_succeeded, children))
    if succeeded == len(children):
        return GroupState.SUCCEEDED
    if cancel_requested:
        return GroupState.CANCELLED
    if succeeded:
        return GroupState.PARTIALLY_SUCCEEDED
    all_cancelled = all(child.state is TaskState.CANCELLED for child in children)
    return GroupState.CANCELLED if all_cancelled else GroupState.FAILED
