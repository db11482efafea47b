"""Reading transfers, always for one user; and what they taught of rates."""

from datetime import datetime
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db.models import QuerySet, Sum

from orchestrator.continuation import transfer_actions
from orchestrator.lifecycle import TRANSFER_MOVES, TransferState, terminal_states
from orchestrator.models import Task, Transfer
from orchestrator.shown import TransferItem, TransferShown

MIB = 1 << 20
_ENDED = [state.value for state in terminal_states(TRANSFER_MOVES)]


def transfers(user: AbstractBaseUser) -> QuerySet[Transfer]:
    """Return this user's transfers, newest first."""
    return Transfer.objects.filter(user_id=user.pk).select_related("task", "attempt").order_by("-id")


def transfers_of(task: Task) -> list[TransferShown]:
    """Return the transfers of a task, oldest first."""
    rows = Transfer.objects.filter(task=task).select_related("task", "attempt").order_by("id")
    return [show_transfer(row) for row in rows]


def open_transfers(user: AbstractBaseUser) -> QuerySet[Transfer]:
    """Return the transfers that have not ended, newest first."""
    return transfers(user).exclude(state__in=_ENDED)


def waiting_for_sign_in(user: AbstractBaseUser) -> QuerySet[Transfer]:
    """Return the transfers that wait for a consent of this user, newest first."""
    return open_transfers(user).filter(fault="consent")


def moved_bytes(user: AbstractBaseUser, *, since: datetime) -> int:
    """Return how many bytes this user's transfers moved since then."""
    rows = Transfer.objects.filter(user_id=user.pk, finished_at__gte=since)
    return int(rows.aggregate(total=Sum("bytes_moved"))["total"] or 0)


def show_transfer(transfer: Transfer) -> TransferShown:
    """Return a transfer as the outside sees it; rows of `transfers()` need no further query."""
    is_over = transfer.state in _ENDED
    sign_in = None if is_over else (transfer.detail.get("sign_in") or {}).get("url")
    state = TransferState(transfer.state)
    return TransferShown(
        id=transfer.handle,
        task=transfer.task.handle if transfer.task else None,
        attempt=transfer.attempt.handle if transfer.attempt else None,
        state=transfer.state,
        purpose=transfer.purpose,
        mover=transfer.mover,
        source=transfer.source,
        destination=transfer.destination,
        items=[TransferItem.model_validate(_known(item)) for item in transfer.items],
        reason=transfer.reason or None,
        fault=transfer.fault or None,
        faults=transfer.faults,
        files=transfer.files,
        files_moved=transfer.files_moved,
        files_skipped=transfer.files_skipped,
        bytes_expected=transfer.bytes_expected,
        bytes_moved=transfer.bytes_moved,
        rate_mib_s=rate_of(transfer),
        sign_in=sign_in,
        submitted_by=transfer.actor,
        cancel_requested=transfer.cancel_requested_at is not None,
        created_at=transfer.created_at,
        started_at=transfer.started_at,
        observed_at=transfer.observed_at,
        deadline_at=transfer.deadline_at,
        finished_at=transfer.finished_at,
        next_actions=list(transfer_actions(transfer.handle, state, sign_in=sign_in)),
    )


def _known(item: dict[str, Any]) -> dict[str, Any]:
    return {name: item.get(name) for name in TransferItem.model_fields}


def rate_of(transfer: Transfer) -> float | None:
    """Return MiB/s of a finished transfer that moved something; None for others."""
    if transfer.state != TransferState.SUCCEEDED or not transfer.bytes_moved:
        return None
    if transfer.started_at is None or transfer.finished_at is None:
        return None
    took_s = max(0.001, (transfer.finished_at - transfer.started_at).total_seconds())
    return round(transfer.bytes_moved / MIB / took_s, 3)
