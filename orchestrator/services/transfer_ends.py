"""Watching and ending transfers: what a look brought is written here, and told to the task it belongs to."""

from datetime import datetime
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction

from federation.ledger import record
from orchestrator.continuation import transfer_actions
from orchestrator.doorbell import ring
from orchestrator.lifecycle import TRANSFER_MOVES, TransferState, is_terminal, terminal_states
from orchestrator.models import Task, Transfer, TransferPurpose
from orchestrator.move_input import mover_word
from orchestrator.services import staging
from orchestrator.services.moves import move_transfer, transfer_event
from orchestrator.services.transfers import find_transfer
from orchestrator.transfer_rules import Verdict
from providers.errors import Conflict
from providers.movers.types import Progress

_SEEN_KEPT = 200
"""Files of which size and checksum are kept with the transfer."""
_ENDED = [state.value for state in terminal_states(TRANSFER_MOVES)]


@transaction.atomic
def cancel_transfer(user: AbstractBaseUser, handle: object, *, actor: str, now: datetime) -> Transfer:
    """Cancel a transfer: at once where its storage knows nothing of it, else when that confirms it.

    Raises:
        NotFound: no such transfer for this user.
        Conflict: it brings the inputs of a task; the task is what to cancel.
    """
    transfer = find_transfer(user, handle, lock=True)
    if is_terminal(TRANSFER_MOVES, TransferState(transfer.state)) or transfer.cancel_requested_at:
        return transfer
    if transfer.purpose == TransferPurpose.STAGE_IN and transfer.task is not None:
        raise Conflict(
            f"{transfer.handle} brings the inputs of {transfer.task.handle}, which cannot run without them.",
            remediation="Cancel the task.",
            task=transfer.task.handle,
        )
    end_transfer(transfer, actor=actor, now=now)
    return transfer


def end_transfer(transfer: Transfer, *, actor: str, now: datetime) -> None:
    """Have a transfer end, inside the caller's transaction: now where nobody was asked for it yet."""
    if not transfer.submission_id or transfer.fault == "consent":  # refused: nothing was made of it
        move_transfer(
            transfer, TransferState.CANCELLED, now=now, reason="Cancelled as asked.", cancel_requested_at=now
        )
        record([transfer_event(transfer, "transfer.cancelled", _summary(transfer), actor=actor)], now=now)
        staging.after_transfer(transfer, now=now)
        return
    Transfer.objects.filter(pk=transfer.pk).update(cancel_requested_at=now, due_at=now)
    transfer.cancel_requested_at = transfer.due_at = now
    user_id = transfer.user_id
    transaction.on_commit(lambda: ring("watch_transfers", user_id))


@transaction.atomic
def note_started(transfer: Transfer, remote_id: str, *, now: datetime) -> None:
    """Record that the storage took the move."""
    move_transfer(
        transfer,
        TransferState.ACTIVE,
        now=now,
        remote_id=remote_id,
        started_at=now,
        observed_at=now,
        reason="",
        fault="",
        fault_since=None,
        tries=0,
        due_at=now,
    )
    event = transfer_event(
        transfer,
        "transfer.started",
        f"{mover_word(transfer.mover)} took the move to {transfer.destination}",
        data={"remote_id": remote_id},
    )
    record([event], now=now)


@transaction.atomic
def apply_look(
    transfer: Transfer, verdict: Verdict, seen: Progress | None, *, now: datetime, due_at: datetime
) -> None:
    """Write what one look brought, and end the transfer where it has ended."""
    lock_task(transfer)
    columns: dict[str, Any] = {
        "reason": verdict.reason,
        "fault": verdict.fault,
        "fault_since": verdict.fault_since,
        "due_at": due_at,
    }
    if seen is None:
        columns["tries"] = transfer.tries + 1
    else:
        columns |= {
            "tries": 0,
            "observed_at": now,
            "faults": seen.faults,
            "files": seen.files,
            "files_moved": seen.files_moved,
            "files_skipped": seen.files_skipped,
            "bytes_moved": seen.bytes_moved,
            "detail": {"seen": [each.model_dump(mode="json") for each in seen.seen[:_SEEN_KEPT]]},
        }
    if verdict.target is None:
        Transfer.objects.filter(pk=transfer.pk, state=transfer.state).update(**columns)
        return
    finish(transfer, verdict.target, now=now, **columns)


def finish(transfer: Transfer, target: TransferState, *, now: datetime, **columns: Any) -> None:
    """End a transfer with its event, inside the caller's transaction."""
    if target is TransferState.CANCELLED and not columns.get("reason"):
        columns["reason"] = "Cancelled as asked."
    move_transfer(transfer, target, now=now, **columns)
    event = transfer_event(
        transfer,
        f"transfer.{target}",
        _summary(transfer),
        data={
            "fault": transfer.fault or None,
            "reason": transfer.reason or None,
            "bytes_moved": transfer.bytes_moved,
            "files_moved": transfer.files_moved,
            "files_skipped": transfer.files_skipped,
        },
        next_actions=transfer_actions(transfer.handle, target),
    )
    record([event], now=now)
    staging.after_transfer(transfer, now=now)


def lock_task(transfer: Transfer) -> None:
    """Lock the task a transfer belongs to, before its own row: the order of every verb."""
    if transfer.task_id is not None:
        Task.objects.select_for_update(no_key=True, of=("self",)).get(pk=transfer.task_id)


def end_stage_in(task: Task, *, now: datetime) -> None:
    """End what is still being brought for a task, inside the caller's transaction that holds its lock."""
    rows = Transfer.objects.filter(task=task, purpose=TransferPurpose.STAGE_IN.value)
    open_rows = rows.exclude(state__in=_ENDED).filter(cancel_requested_at=None)
    for transfer in open_rows.select_related("task__group", "attempt__system"):
        end_transfer(transfer, actor="facet", now=now)


def _summary(transfer: Transfer) -> str:
    what = f"{transfer.source} → {transfer.destination}"
    if transfer.state == TransferState.SUCCEEDED:
        there = f", {transfer.files_skipped} were there already" if transfer.files_skipped else ""
        return f"moved {transfer.files_moved} files, {transfer.bytes_moved} bytes{there}: {what}"
    return f"the move is {transfer.state}: {transfer.reason} ({what})"
