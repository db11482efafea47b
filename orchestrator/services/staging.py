"""Bringing a task's inputs before its dispatch, and its outputs to their places after its end.

Every verb runs inside the caller's transaction, which holds the task's lock; nobody is asked anything here.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

from django.db import transaction

from federation import circuits
from federation.ledger import record
from federation.models import Connection
from federation.selectors import profile_of
from orchestrator import staging
from orchestrator.data_reach import held, storages_of
from orchestrator.doorbell import ring
from orchestrator.envelope.types import Data
from orchestrator.jobs import base_folder
from orchestrator.lifecycle import AttemptState, Cause, TaskState, TransferState
from orchestrator.models import Attempt, Replica, Task, Transfer, TransferPurpose
from orchestrator.move_input import DEADLINE, Item, read_item
from orchestrator.services import outputs, spending
from orchestrator.services.attempts import conclude, fail_task
from orchestrator.services.moves import attempt_event, move_attempt, move_task
from orchestrator.services.transfers import Wanted, new_transfer
from providers.movers.places import Place
from providers.movers.types import Fault

PICKED_UP_WITHIN = timedelta(seconds=10)
_SAME_EVERYWHERE = frozenset({Fault.MISSING.value, Fault.CHECKSUM.value, Fault.DEADLINE.value, "consent"})
"""What stops an input on its way to any system."""


def begin(task: Task, attempt: Attempt, *, now: datetime) -> bool:
    """Have the inputs of a planned attempt brought; return whether its dispatch must wait for them."""
    data = Data.model_validate(task.envelope.body.get("data") or {})
    if not data.inputs:
        return False
    connection, system = attempt.connection, attempt.system
    assert system.profile_id is not None  # noqa: S101  # it was placed there
    base = base_folder(
        profile_of(system.profile_id),
        home=(connection.facts or {}).get("home", ""),
        remote_user=connection.remote_user,
        account=attempt.account,
    )
    plan = staging.plan_inputs(
        staging.wanted_inputs(data, task.spec),
        storages_of(connection),
        base=base,
        held=held(task.user_id, data, system_ids=[system.pk])[system.pk],
    )
    attempt.inputs = [link.stored() for link in plan.links]
    Attempt.objects.filter(pk=attempt.pk).update(inputs=attempt.inputs)
    if plan.cannot:  # placement bars such systems; the profile was changed in between
        _fail(attempt, plan.cannot[0], is_everywhere=False, now=now)
        return True
    return bool(plan.to_move) and _bring(task, attempt, plan.to_move, now=now)


def _bring(task: Task, attempt: Attempt, items: Sequence[Item], *, now: datetime) -> bool:
    for _ends, together in groupby(sorted(items, key=_ends_of), key=_ends_of):
        wanted = Wanted(
            user_id=task.user_id,
            items=tuple(together),
            purpose=TransferPurpose.STAGE_IN,
            deadline_at=now + DEADLINE,
            task=task,
            attempt=attempt,
        )
        new_transfer(wanted, now=now)
    Attempt.objects.filter(pk=attempt.pk).update(due_at=None)
    attempt.due_at = None
    sizes = [item.bytes for item in items]
    size = "" if None in sizes else f", {sum(each or 0 for each in sizes)} bytes"
    reason = f"{len(items)} inputs are brought to {attempt.system.slug}{size}"
    move_task(task, TaskState.STAGING, now=now, reason=reason)
    return True


def _ends_of(item: Item) -> tuple[str, str, str]:
    return (item.source.scheme, item.source.collection, item.destination.collection)


def tell_task(transfer: Transfer, reason: str, *, now: datetime) -> None:
    """Say at the task why its inputs are not there yet."""
    if transfer.purpose == TransferPurpose.STAGE_IN and transfer.task_id is not None:
        Task.objects.filter(pk=transfer.task_id, state=TaskState.STAGING.value).update(
            reason=reason, updated_at=now
        )


def after_transfer(transfer: Transfer, *, now: datetime) -> None:
    """Go on with what a transfer was for, now that it has ended."""
    if transfer.state == TransferState.SUCCEEDED:
        _note_replicas(transfer, now=now)
    if transfer.purpose == TransferPurpose.STAGE_IN and transfer.attempt is not None:
        _after_stage_in(transfer, transfer.attempt, now=now)
    elif transfer.purpose in (TransferPurpose.STAGE_OUT, TransferPurpose.REPLICATE):
        outputs.note_moved(transfer)


def _after_stage_in(transfer: Transfer, attempt: Attempt, *, now: datetime) -> None:
    task = Task.objects.select_related("group", "user", "envelope").get(pk=attempt.task_id)
    attempt.refresh_from_db()
    is_waited_for = (
        task.state == TaskState.STAGING
        and task.attempt_id == attempt.pk
        and attempt.state == AttemptState.PLANNED
        and task.cancel_requested_at is None
    )
    if not is_waited_for:
        return
    attempt.task = task
    if transfer.state != TransferState.SUCCEEDED:
        reason = f"inputs could not be brought to {attempt.system.slug}: {transfer.reason}"
        _fail(attempt, reason, is_everywhere=transfer.fault in _SAME_EVERYWHERE, now=now)
    elif not attempt.transfers.exclude(state=TransferState.SUCCEEDED.value).exists():
        _go_on(task, attempt, now=now)


def _go_on(task: Task, attempt: Attempt, *, now: datetime) -> None:
    """Hand out an attempt whose inputs are all there."""
    move_task(task, TaskState.PLACING, now=now, reason=f"its inputs are at {attempt.system.slug}")
    Attempt.objects.filter(pk=attempt.pk).update(due_at=now + PICKED_UP_WITHIN)
    attempt_id = attempt.pk
    transaction.on_commit(lambda: ring("dispatch", attempt_id))


def _fail(attempt: Attempt, reason: str, *, is_everywhere: bool, now: datetime) -> None:
    """End an attempt that cannot get its inputs; another system may, unless the inputs are at fault."""
    cause = Cause.DISPATCH_REJECTED
    move_attempt(attempt, AttemptState.FAILED, now=now, cause=cause, reason_explained=reason, ended_at=now)
    event = attempt_event(
        attempt, "attempt.moved", f"attempt {attempt.number}: {reason}", data={"cause": cause}
    )
    record([event], now=now)
    spending.settle(attempt, now=now)
    circuits.note_nothing(attempt.system, attempt.handle, now=now)
    if is_everywhere:
        fail_task(attempt, reason, cause, now=now)
    else:
        conclude(attempt, now=now, is_retryable=False)


def _note_replicas(transfer: Transfer, *, now: datetime) -> None:
    """Remember every file of known size and checksum that is at a system now."""
    seen = {each["path"]: each for each in transfer.detail.get("seen", ())}
    places = _systems_of(transfer.user_id)
    for item in (read_item(doc) for doc in transfer.items):
        if item.source.is_folder:
            continue
        known = seen.get(item.destination.path, {})
        sha256, size = item.sha256 or known.get("sha256"), item.bytes or known.get("bytes")
        at = _at_a_system(item.destination, places)
        if sha256 is None or size is None or at is None:
            continue
        system_id, path = at
        Replica.objects.update_or_create(
            user_id=transfer.user_id,
            system_id=system_id,
            path=path,
            defaults={
                "uri": item.source.uri,
                "bytes": size,
                "sha256": sha256,
                "transfer": transfer,
                "seen_at": now,
            },
        )


def _systems_of(user_id: int) -> Mapping[int, tuple[staging.Storage, ...]]:
    rows = Connection.objects.filter(user_id=user_id).select_related("system", "user")
    return {row.system_id: storages_of(row) for row in rows}


def _at_a_system(place: Place, systems: Mapping[int, tuple[staging.Storage, ...]]) -> tuple[int, str] | None:
    for system_id, places in systems.items():
        for storage in places:
            path = storage.path_of(place)
            if path is not None:
                return system_id, path
    return None


def forget_copies(attempt: Attempt, gone: Sequence[str], *, now: datetime) -> None:
    """Forget copies that are not at the system any more, and bring those inputs anew."""
    task = (
        Task.objects.select_for_update(no_key=True, of=("self",))
        .select_related("group", "user", "envelope")
        .get(pk=attempt.task_id)
    )
    Replica.objects.filter(user_id=task.user_id, system_id=attempt.system_id, path__in=gone).delete()
    attempt.refresh_from_db()
    is_ours = attempt.state == AttemptState.PLANNED and task.attempt_id == attempt.pk
    if is_ours and task.state == TaskState.PLACING and task.cancel_requested_at is None:
        attempt.task = task
        begin(task, attempt, now=now)


def links_to_copies(attempt: Attempt) -> list[dict[str, Any]]:
    """Return the inputs of an attempt that rest on a copy brought earlier."""
    return [link for link in attempt.inputs if link.get("is_copy")]
