"""Asking for transfers: a move that somebody wants, or the data of a task."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from os.path import commonpath
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction

from federation.handles import new_handle
from federation.ledger import record
from federation.movers import open_mover
from orchestrator.continuation import transfer_actions
from orchestrator.doorbell import ring
from orchestrator.lifecycle import TransferState
from orchestrator.models import Attempt, Task, Transfer, TransferPurpose
from orchestrator.move_input import Item, MoveInput, deadline_of, item_of, mover_word, read_item
from orchestrator.services.moves import transfer_event
from providers.errors import NotFound
from providers.movers.types import Finding, Move, MoveItem
from providers.reading import read


@dataclass(frozen=True, slots=True)
class Wanted:
    """A transfer that is to be made."""

    user_id: int
    items: tuple[Item, ...]
    purpose: TransferPurpose
    deadline_at: datetime
    actor: str = "facet"
    task: Task | None = None
    attempt: Attempt | None = None
    options: Mapping[str, Any] | None = None
    policy: Sequence[Finding] = ()


def move_data(
    user: AbstractBaseUser,
    given: object,
    *,
    actor: str,
    now: datetime,
    created: Callable[[str], None] | None = None,
) -> Transfer:
    """Accept a movement of data; its storage hears of it only after the commit.

    `created` is called with the handle in the transaction that makes the transfer; what it raises undoes it.

    Raises:
        InvalidInput: the input cannot be read, or nothing moves between two such places.
        NotAuthorized: a path lies outside the folders that the user may move files in.
        NotFound: no such task of this user.
    """
    wanted = read(MoveInput, given, what="move")
    item = item_of(wanted)
    deadline_at = deadline_of(wanted.options, now=now)
    task = _task_of(user, wanted.task)
    mover = open_mover(item.source.scheme, user)
    asked = Wanted(
        user_id=user.pk,
        items=(item,),
        purpose=TransferPurpose.MOVE,
        deadline_at=deadline_at,
        actor=actor,
        task=task,
        options=wanted.options.model_dump(mode="json", exclude_defaults=True),
        policy=(*mover.check(_move((item,), label="", deadline_at=deadline_at)), *_always(item, deadline_at)),
    )
    with transaction.atomic():
        transfer = new_transfer(asked, now=now)
        if created is not None:
            created(transfer.handle)
    return transfer


def new_transfer(wanted: Wanted, *, now: datetime) -> Transfer:
    """Write a requested transfer and its event, inside the caller's transaction; rung for on commit."""
    ends = [_above([getattr(item, end).uri for item in wanted.items]) for end in ("source", "destination")]
    sizes = [item.bytes for item in wanted.items]
    transfer = Transfer.objects.create(
        handle=new_handle("xfer", now),
        user_id=wanted.user_id,
        actor=wanted.actor,
        task=wanted.task,
        attempt=wanted.attempt,
        purpose=wanted.purpose.value,
        mover=wanted.items[0].source.scheme,
        source=ends[0],
        destination=ends[1],
        items=[item.stored() for item in wanted.items],
        options=dict(wanted.options or {}),
        policy=[finding.model_dump(mode="json") for finding in wanted.policy],
        state=TransferState.REQUESTED.value,
        bytes_expected=None if None in sizes else sum(size or 0 for size in sizes),
        created_at=now,
        deadline_at=wanted.deadline_at,
        due_at=now,
    )
    what = f"{ends[0]} → {ends[1]}"
    event = transfer_event(
        transfer,
        "transfer.requested",
        f"{_PURPOSES[wanted.purpose]} asked for: {what}",
        actor=wanted.actor,
        data={"files": len(wanted.items), "bytes": transfer.bytes_expected},
        next_actions=transfer_actions(transfer.handle, TransferState.REQUESTED),
    )
    record([event], now=now)
    user_id = wanted.user_id
    transaction.on_commit(lambda: ring("watch_transfers", user_id))
    return transfer


_PURPOSES: Mapping[TransferPurpose, str] = {
    TransferPurpose.MOVE: "a move was",
    TransferPurpose.STAGE_IN: "inputs are",
    TransferPurpose.STAGE_OUT: "outputs are",
    TransferPurpose.REPLICATE: "a further copy is",
}


def find_transfer(user: AbstractBaseUser, handle: object, *, lock: bool = False) -> Transfer:
    """Return a transfer of this user.

    Raises:
        NotFound: no such transfer for this user.
    """
    rows = Transfer.objects.select_related("task__group", "attempt__system")
    if lock:
        rows = rows.select_for_update(no_key=True, of=("self",))
    transfer = rows.filter(handle=handle, user_id=user.pk).first() if isinstance(handle, str) else None
    if transfer is None:
        raise NotFound(f"No transfer {handle!r}.", pointer="/transfer")
    return transfer


def move_of(transfer: Transfer) -> Move:
    """Return what its mover is asked for."""
    items = tuple(read_item(item) for item in transfer.items)
    label = transfer.options.get("label") or (transfer.task.name if transfer.task else "Facet")
    return _move(items, label=f"{label} {transfer.handle}", deadline_at=transfer.deadline_at)


def _move(items: Sequence[Item], *, label: str, deadline_at: datetime | None) -> Move:
    return Move(
        source_collection=items[0].source.collection,
        destination_collection=items[0].destination.collection,
        items=tuple(
            MoveItem(
                source=item.source.path,
                destination=item.destination.path,
                is_folder=item.source.is_folder,
                sha256=item.sha256,
            )
            for item in items
        ),
        label=label,
        deadline=deadline_at,
    )


def _always(item: Item, deadline_at: datetime) -> tuple[Finding, ...]:
    return (
        Finding(rule="mover", outcome="info", detail=f"done by {mover_word(item.source.scheme)}"),
        Finding(
            rule="verification",
            outcome="info",
            detail="checksums are compared after the copy; a file that is equal there is not sent again",
        ),
        Finding(rule="deadline", outcome="info", detail=f"tried until {deadline_at:%Y-%m-%dT%H:%M:%SZ}"),
    )


def _task_of(user: AbstractBaseUser, handle: str | None) -> Task | None:
    if handle is None:
        return None
    task = Task.objects.select_related("group").filter(handle=handle, user_id=user.pk).first()
    if task is None:
        raise NotFound(f"No task {handle!r}.", pointer="/task")
    return task


def _above(uris: Sequence[str]) -> str:
    """Return the one URI, or the folder above them all."""
    if len(uris) == 1:
        return uris[0]
    scheme, _, _ = uris[0].partition("://")
    return f"{scheme}://{commonpath([uri.partition('://')[2] for uri in uris]).rstrip('/')}/"
