"""Every state and legal move of task, attempt, group and transfer, as data.

The same tables make the Python guard, the database trigger, the check constraint and the diagram in the docs.
A terminal state is one with no way out; why it was reached lives in `cause`.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import TypeVar

from providers.errors import IllegalMove


class TaskState(StrEnum):
    """Where a task stands."""

    ACCEPTED = "accepted"
    STAGING = "staging"
    PLACING = "placing"
    SUBMITTED = "submitted"
    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    UNSCHEDULABLE = "unschedulable"
    PENDING_APPROVAL = "pending_approval"
    """Placed by a decision that a person must approve before anything is reserved or sent."""
    ATTENTION = "attention"


class AttemptState(StrEnum):
    """Where one try at one placement stands. `unknown` means it cannot be seen now; it is never terminal."""

    PLANNED = "planned"
    DISPATCHING = "dispatching"
    SUBMITTED = "submitted"
    PENDING = "pending"
    RUNNING = "running"
    UNKNOWN = "unknown"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SUPERSEDED = "superseded"


class GroupState(StrEnum):
    """Where a group stands."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    PARTIALLY_SUCCEEDED = "partially_succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class TransferState(StrEnum):
    """Where a transfer stands."""

    REQUESTED = "requested"
    ACTIVE = "active"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Cause(StrEnum):
    """Why an attempt or task ended as it did."""

    EXIT_CODE = "exit_code"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out_of_memory"
    NODE_FAILURE = "node_failure"
    PREEMPTED = "preempted"
    LAUNCH_FAILED = "launch_failed"
    CANCELLED_BY_USER = "cancelled_by_user"
    CANCELLED_BY_SITE = "cancelled_by_site"
    DEADLINE = "deadline"
    DISPATCH_REJECTED = "dispatch_rejected"
    LOST = "lost"


_T, _A, _G, _X = TaskState, AttemptState, GroupState, TransferState

_TASK_ENDS = frozenset({_T.SUCCEEDED, _T.FAILED, _T.CANCELLED})

# A task follows its accepted attempt, so a retry or a re-placement leads back to `placing`.
TASK_MOVES: Mapping[TaskState, frozenset[TaskState]] = {
    _T.ACCEPTED: frozenset(
        {_T.STAGING, _T.PLACING, _T.UNSCHEDULABLE, _T.PENDING_APPROVAL, _T.FAILED, _T.CANCELLED, _T.ATTENTION}
    ),
    _T.STAGING: frozenset({_T.PLACING, _T.FAILED, _T.CANCELLED, _T.ATTENTION}),
    _T.PLACING: frozenset(
        {
            *(_T.STAGING, _T.SUBMITTED, _T.PENDING, _T.RUNNING, _T.UNSCHEDULABLE),
            *(_T.PENDING_APPROVAL, _T.ATTENTION),
        }
        | _TASK_ENDS
    ),
    _T.SUBMITTED: frozenset(
        {_T.PLACING, _T.PENDING, _T.RUNNING, _T.UNSCHEDULABLE, _T.ATTENTION} | _TASK_ENDS
    ),
    # Back to pending from running: the scheduler itself requeued the job.
    _T.PENDING: frozenset({_T.PLACING, _T.RUNNING, _T.UNSCHEDULABLE, _T.ATTENTION} | _TASK_ENDS),
    _T.RUNNING: frozenset({_T.PLACING, _T.PENDING, _T.UNSCHEDULABLE, _T.ATTENTION} | _TASK_ENDS),
    _T.UNSCHEDULABLE: frozenset({_T.PLACING, _T.PENDING_APPROVAL, _T.FAILED, _T.CANCELLED}),
    # Approved, it is placed again: the figures of the decision may be old by then.
    _T.PENDING_APPROVAL: frozenset({_T.PLACING, _T.UNSCHEDULABLE, _T.FAILED, _T.CANCELLED}),
    _T.ATTENTION: frozenset({_T.PLACING, _T.SUBMITTED, _T.PENDING, _T.RUNNING} | _TASK_ENDS),
    _T.SUCCEEDED: frozenset(),
    _T.FAILED: frozenset(),
    _T.CANCELLED: frozenset(),
}

_ATTEMPT_ENDS = frozenset({_A.SUCCEEDED, _A.FAILED, _A.CANCELLED, _A.SUPERSEDED})

ATTEMPT_MOVES: Mapping[AttemptState, frozenset[AttemptState]] = {
    _A.PLANNED: frozenset({_A.DISPATCHING, _A.CANCELLED, _A.SUPERSEDED, _A.FAILED}),
    # Back to planned: the site was asked and holds no such job, so it may be submitted again under its key.
    _A.DISPATCHING: frozenset({_A.PLANNED, _A.SUBMITTED, _A.PENDING, _A.RUNNING, _A.UNKNOWN} | _ATTEMPT_ENDS),
    _A.SUBMITTED: frozenset({_A.PENDING, _A.RUNNING, _A.UNKNOWN} | _ATTEMPT_ENDS),
    _A.PENDING: frozenset({_A.RUNNING, _A.UNKNOWN} | _ATTEMPT_ENDS),
    _A.RUNNING: frozenset({_A.PENDING, _A.UNKNOWN} | _ATTEMPT_ENDS),
    _A.UNKNOWN: frozenset({_A.PLANNED, _A.SUBMITTED, _A.PENDING, _A.RUNNING} | _ATTEMPT_ENDS),
    _A.SUCCEEDED: frozenset(),
    _A.FAILED: frozenset(),
    _A.CANCELLED: frozenset(),
    _A.SUPERSEDED: frozenset(),
}

GROUP_MOVES: Mapping[GroupState, frozenset[GroupState]] = {
    _G.RUNNING: frozenset({_G.SUCCEEDED, _G.PARTIALLY_SUCCEEDED, _G.FAILED, _G.CANCELLED}),
    _G.SUCCEEDED: frozenset(),
    _G.PARTIALLY_SUCCEEDED: frozenset(),
    _G.FAILED: frozenset(),
    _G.CANCELLED: frozenset(),
}

TRANSFER_MOVES: Mapping[TransferState, frozenset[TransferState]] = {
    _X.REQUESTED: frozenset({_X.ACTIVE, _X.SUCCEEDED, _X.FAILED, _X.CANCELLED}),
    _X.ACTIVE: frozenset({_X.SUCCEEDED, _X.FAILED, _X.CANCELLED}),
    _X.SUCCEEDED: frozenset(),
    _X.FAILED: frozenset(),
    _X.CANCELLED: frozenset(),
}

S = TypeVar("S", bound=StrEnum)


def is_terminal(moves: Mapping[S, frozenset[S]], state: S) -> bool:
    """Return whether no move leads out of `state`."""
    return not moves[state]


def terminal_states(moves: Mapping[S, frozenset[S]]) -> tuple[S, ...]:
    """Return the states with no way out, in table order."""
    return tuple(state for state in moves if not moves[state])


def pairs(moves: Mapping[S, frozenset[S]]) -> Iterator[tuple[str, str]]:
    """Yield every legal (from, to) pair, sorted, for the database trigger and the diagram."""
    for source in moves:
        for target in sorted(moves[source]):
            yield (str(source), str(target))


def check_move(moves: Mapping[S, frozenset[S]], source: S, target: S) -> None:
    """Do nothing when the move is legal.

    Raises:
        IllegalMove: the table has no such move.
    """
    if target not in moves[source]:
        allowed = ", ".join(sorted(moves[source])) or "nothing: it is final"
        raise IllegalMove(
            f"No move from {source} to {target}; allowed from here: {allowed}.", source=source, target=target
        )
