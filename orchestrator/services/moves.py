"""Moving tasks, attempts, transfers: compare-and-swap on the state we believe in, and the event beside it."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from federation.ledger import Happening
from orchestrator.lifecycle import (
    ATTEMPT_MOVES,
    TASK_MOVES,
    TRANSFER_MOVES,
    AttemptState,
    Cause,
    TaskState,
    TransferState,
    check_move,
    is_terminal,
)
from orchestrator.models import Attempt, Group, Task, Transfer
from providers.errors import IllegalMove


def _swap(row: Task | Attempt | Transfer, believed: str, columns: Mapping[str, Any]) -> None:
    """Write the columns where the row is still in the believed state."""
    changed = type(row).objects.filter(pk=row.pk, state=believed).update(**columns)
    if changed == 0:
        raise IllegalMove(f"{row} is no longer {believed}: another worker moved first.", subject=str(row))
    for name, value in columns.items():
        setattr(row, name, value)


def move_task(
    task: Task,
    target: TaskState,
    *,
    now: datetime,
    cause: Cause | None = None,
    reason: str = "",
    due_at: datetime | None = None,
    **columns: Any,
) -> None:
    """Move a task, with whatever else changes in the same write.

    Raises:
        IllegalMove: the lifecycle has no such move, or another worker moved first.
    """
    believed = TaskState(task.state)
    check_move(TASK_MOVES, believed, target)
    written: dict[str, Any] = {
        "state": target.value,
        "cause": cause.value if cause else "",
        "reason": reason,
        "updated_at": now,
        "due_at": due_at,
        **columns,
    }
    if is_terminal(TASK_MOVES, target):
        written |= {"finished_at": now, "due_at": None}
    _swap(task, believed, written)


def move_attempt(
    attempt: Attempt, target: AttemptState, *, now: datetime, cause: Cause | None = None, **columns: Any
) -> None:
    """Move an attempt, with whatever else changes in the same write.

    Raises:
        IllegalMove: the lifecycle has no such move, or another worker moved first.
    """
    believed = AttemptState(attempt.state)
    check_move(ATTEMPT_MOVES, believed, target)
    written: dict[str, Any] = {"state": target.value, **columns}
    if cause is not None:
        written["cause"] = cause.value
    if is_terminal(ATTEMPT_MOVES, target):
        written |= {"finished_at": now, "due_at": None}
    _swap(attempt, believed, written)


def move_transfer(transfer: Transfer, target: TransferState, *, now: datetime, **columns: Any) -> None:
    """Move a transfer, with whatever else changes in the same write.

    Raises:
        IllegalMove: the lifecycle has no such move, or another worker moved first.
    """
    believed = TransferState(transfer.state)
    check_move(TRANSFER_MOVES, believed, target)
    written: dict[str, Any] = {"state": target.value, **columns}
    if is_terminal(TRANSFER_MOVES, target):
        written |= {"finished_at": now, "due_at": None}
    _swap(transfer, believed, written)


def task_event(
    task: Task,
    type_: str,
    summary: str,
    *,
    attempt: Attempt | None = None,
    actor: str = "facet",
    data: Mapping[str, Any] | None = None,
    next_actions: Sequence[Mapping[str, Any]] = (),
) -> Happening:
    """Return the event of something that happened to a task."""
    return Happening(
        type=type_,
        subject=task.handle,
        user_id=task.user_id,
        task=task.handle,
        group=task.group.handle if task.group else "",
        attempt=attempt.handle if attempt else "",
        system=attempt.system.slug if attempt else "",
        actor=actor,
        state=task.state,
        summary=summary,
        data=data or {},
        next_actions=next_actions,
    )


def attempt_event(
    attempt: Attempt, type_: str, summary: str, *, actor: str = "facet", data: Mapping[str, Any] | None = None
) -> Happening:
    """Return the event of something that happened to an attempt."""
    return Happening(
        type=type_,
        subject=attempt.handle,
        user_id=attempt.task.user_id,
        task=attempt.task.handle,
        attempt=attempt.handle,
        system=attempt.system.slug,
        actor=actor,
        state=attempt.state,
        summary=summary,
        data=data or {},
    )


def group_event(
    group: Group,
    type_: str,
    summary: str,
    *,
    actor: str = "facet",
    data: Mapping[str, Any] | None = None,
    next_actions: Sequence[Mapping[str, Any]] = (),
) -> Happening:
    """Return the event of something that happened to a group."""
    return Happening(
        type=type_,
        subject=group.handle,
        user_id=group.user_id,
        group=group.handle,
        actor=actor,
        state=group.state,
        summary=summary,
        data=data or {},
        next_actions=next_actions,
    )


def transfer_event(
    transfer: Transfer,
    type_: str,
    summary: str,
    *,
    actor: str = "facet",
    data: Mapping[str, Any] | None = None,
    next_actions: Sequence[Mapping[str, Any]] = (),
) -> Happening:
    """Return the event of something that happened to a transfer."""
    task, attempt = transfer.task, transfer.attempt
    return Happening(
        type=type_,
        subject=transfer.handle,
        user_id=transfer.user_id,
        task=task.handle if task else "",
        attempt=attempt.handle if attempt else "",
        transfer=transfer.handle,
        system=attempt.system.slug if attempt else "",
        actor=actor,
        state=transfer.state,
        summary=summary,
        data={"purpose": transfer.purpose, "source": transfer.source, "destination": transfer.destination}
        | dict(data or {}),
        next_actions=next_actions,
    )
