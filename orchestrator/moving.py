"""One cycle over one user's transfers: load what is due → ask the movers → apply, transfer by transfer.

The submission id is committed before anything is submitted under it, so a killed worker costs nothing: asked
again under the same id, a mover answers with the move it has. All moves of a user are seen in one request;
no transaction is open while a mover is asked.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

import structlog
from django.contrib.auth import get_user_model
from django.db import DatabaseError, transaction

from federation.ledger import Happening, record
from federation.locks import only_one
from federation.movers import open_mover
from orchestrator.continuation import transfer_actions
from orchestrator.lifecycle import TRANSFER_MOVES, TransferState, terminal_states
from orchestrator.models import Transfer
from orchestrator.services.staging import tell_task
from orchestrator.services.transfer_ends import apply_look, finish, lock_task, note_started
from orchestrator.services.transfers import move_of
from orchestrator.transfer_rules import MoveFacts, Verdict, judge, next_look_s, pause_s, without_trace
from providers.errors import FacetError, IllegalMove, InvalidInput, NotAuthorized, NotFound
from providers.movers.types import Fault, Mover, MoveState, Progress

log = structlog.get_logger(__name__)

_ENDED = [state.value for state in terminal_states(TRANSFER_MOVES)]
_AT_ONCE = 200
"""Transfers of one user looked at in one cycle; the rest is due again at once."""
_ASK_AGAIN = timedelta(minutes=10)
"""How often a move that waits for a person is tried again unasked; a sign-in makes it due at once."""
_CANCEL_AGAIN = timedelta(seconds=20)


def users_with_work(*, now: datetime) -> list[int]:
    """Return the users who have a transfer due."""
    due = Transfer.objects.filter(due_at__lte=now).exclude(state__in=_ENDED)
    return list(due.order_by("user_id").values_list("user_id", flat=True).distinct())


def watch_transfers(user_id: int, *, now: datetime) -> int:
    """Run one cycle for a user; return how many transfers were looked at (0: another worker is at it)."""
    with only_one(f"transfers:{user_id}") as mine:
        if not mine:
            return 0
        rows = (
            Transfer.objects.filter(user_id=user_id, due_at__lte=now)
            .exclude(state__in=_ENDED)
            .select_related("task__group", "attempt__system", "user")
            .order_by("due_at")[:_AT_ONCE]
        )
        by_mover: dict[str, list[Transfer]] = {}
        for transfer in rows:
            by_mover.setdefault(transfer.mover, []).append(transfer)
        for scheme, transfers in by_mover.items():
            _watch(user_id, scheme, transfers, now=now)
        return sum(map(len, by_mover.values()))


def look_again(user_id: int, *, now: datetime) -> int:
    """Make the open transfers of a user due now: what they waited for may be there."""
    rows = Transfer.objects.filter(user_id=user_id, due_at__gt=now).exclude(state__in=_ENDED)
    return rows.update(due_at=now)


def _watch(user_id: int, scheme: str, transfers: Sequence[Transfer], *, now: datetime) -> None:
    user = get_user_model().objects.get(pk=user_id)
    try:
        mover = open_mover(scheme, user)
    except FacetError as error:
        for transfer in transfers:
            _not_taken(transfer, error, now=now)
        return
    for transfer in transfers:
        if transfer.state == TransferState.REQUESTED:
            _submit(mover, transfer, now=now)
    active = [transfer for transfer in transfers if transfer.state == TransferState.ACTIVE]
    if active:
        _look(mover, active, now=now)


def _submit(mover: Mover, transfer: Transfer, *, now: datetime) -> None:
    """Ask for a move under the id that is kept; any number of times."""
    if transfer.deadline_at is not None and now >= transfer.deadline_at:
        reason = f"the deadline passed before it could begin: {transfer.reason or 'nobody took it'}"
        _end(transfer, TransferState.FAILED, reason, Fault.DEADLINE, now=now)
        return
    try:
        if not transfer.submission_id and not _keep_id(transfer, mover.new_submission_id()):
            return
        remote_id = mover.submit(move_of(transfer), transfer.submission_id)
    except FacetError as error:
        _not_taken(transfer, error, now=now)
        return
    try:
        note_started(transfer, remote_id, now=now)
    except IllegalMove:  # cancelled while its storage was asked
        _stop(mover, transfer, remote_id)


def _keep_id(transfer: Transfer, submission_id: str) -> bool:
    """Keep the id that a move is submitted under; return whether the move is wanted still."""
    open_rows = Transfer.objects.filter(pk=transfer.pk, submission_id="", state=transfer.state)
    is_kept = open_rows.update(submission_id=submission_id) == 1
    if is_kept:
        transfer.submission_id = submission_id
    return is_kept


def _stop(mover: Mover, transfer: Transfer, remote_id: str) -> None:
    """Have the storage end a move that nobody wants any more."""
    Transfer.objects.filter(pk=transfer.pk).update(remote_id=remote_id)
    try:
        mover.cancel(remote_id)
    except FacetError as error:
        log.warning("an unwanted move goes on", transfer=transfer.handle, error=error.message)


def _not_taken(transfer: Transfer, error: FacetError, *, now: datetime) -> None:
    """Wait for a person or for the service, or end the transfer, as the refusal wants it."""
    sign_in = error.facts.get("sign_in")
    if sign_in:
        _ask_a_person(transfer, error, str(sign_in), now=now)
    elif error.retryable or transfer.state == TransferState.ACTIVE:
        again = now + timedelta(seconds=pause_s(transfer.tries + 1))
        Transfer.objects.filter(pk=transfer.pk).update(
            tries=min(transfer.tries + 1, 1000), reason=error.message, due_at=again
        )
        log.info("a mover gave no answer", transfer=transfer.handle, error=error.message)
    elif transfer.cancel_requested_at is not None:
        _end(transfer, TransferState.CANCELLED, "", Fault.OTHER, now=now)
    else:
        _end(transfer, TransferState.FAILED, error.message, _fault_of(error), now=now)


def _fault_of(error: FacetError) -> Fault:
    kinds = ((NotFound, Fault.MISSING), (NotAuthorized, Fault.DENIED), (InvalidInput, Fault.OTHER))
    return next((fault for kind, fault in kinds if isinstance(error, kind)), Fault.OTHER)


@transaction.atomic
def _ask_a_person(transfer: Transfer, error: FacetError, sign_in: str, *, now: datetime) -> None:
    """Keep the transfer waiting, with a link; the event comes once for each thing that is missing."""
    lock_task(transfer)
    asked = {"url": sign_in, "required": error.facts.get("required")}
    is_new = transfer.detail.get("sign_in") != asked
    detail = {**transfer.detail, "sign_in": asked}
    Transfer.objects.filter(pk=transfer.pk).update(
        reason=error.message, detail=detail, due_at=now + _ASK_AGAIN, fault="consent"
    )
    if not is_new:
        return
    actions = transfer_actions(transfer.handle, TransferState(transfer.state), sign_in=sign_in)
    event = Happening(
        type="connection.needs_sign_in",
        subject=transfer.handle,
        user_id=transfer.user_id,
        task=transfer.task.handle if transfer.task else "",
        attempt=transfer.attempt.handle if transfer.attempt else "",
        transfer=transfer.handle,
        state=transfer.state,
        summary=f"{transfer.handle} waits for you: {error.message}",
        data={"reason": error.message, "destination": transfer.destination},
        next_actions=actions,
    )
    record([event], now=now)
    tell_task(transfer, f"its inputs wait for you: {error.message}", now=now)


def _end(transfer: Transfer, target: TransferState, reason: str, fault: Fault, *, now: datetime) -> None:
    with transaction.atomic():
        lock_task(transfer)
        finish(transfer, target, now=now, reason=reason, fault=fault.value)


def _look(mover: Mover, active: Sequence[Transfer], *, now: datetime) -> None:
    for transfer in active:
        if transfer.cancel_requested_at is not None and _cancel_is_due(transfer, now=now):
            _cancel(mover, transfer, now=now)
    try:
        found = mover.observe([transfer.remote_id for transfer in active])
    except FacetError as error:
        for transfer in active:
            _not_taken(transfer, error, now=now)
        return
    for transfer in active:
        try:
            _apply(mover, transfer, found.get(transfer.remote_id), now=now)
        except (FacetError, DatabaseError) as error:
            log.warning("transfer could not be moved", transfer=transfer.handle, error=str(error))


def _cancel_is_due(transfer: Transfer, *, now: datetime) -> bool:
    return transfer.cancel_sent_at is None or now - transfer.cancel_sent_at >= _CANCEL_AGAIN


def _cancel(mover: Mover, transfer: Transfer, *, now: datetime) -> None:
    try:
        mover.cancel(transfer.remote_id)
    except FacetError as error:  # asked again; the look below tells whether it ended all the same
        log.info("a move could not be cancelled yet", transfer=transfer.handle, error=error.message)
        return
    Transfer.objects.filter(pk=transfer.pk).update(cancel_sent_at=now)


def _apply(mover: Mover, transfer: Transfer, seen: Progress | None, *, now: datetime) -> None:
    facts = MoveFacts(
        started_at=transfer.started_at or transfer.created_at,
        deadline_at=transfer.deadline_at,
        fault=transfer.fault,
        fault_since=transfer.fault_since,
        tries=transfer.tries,
    )
    verdict = without_trace(facts) if seen is None else judge(facts, seen, now=now)
    if verdict.gives_up:
        verdict = _given_up(mover, transfer, verdict, now=now)
    due_at = now + timedelta(seconds=next_look_s(facts, now=now))
    apply_look(transfer, verdict, seen, now=now, due_at=due_at)


def _given_up(mover: Mover, transfer: Transfer, verdict: Verdict, *, now: datetime) -> Verdict:
    """Have the service end a move before we call it failed; it may have succeeded in the meantime."""
    _cancel(mover, transfer, now=now)
    try:
        later = mover.observe([transfer.remote_id]).get(transfer.remote_id)
    except FacetError:
        later = None
    if later is not None and later.state is MoveState.SUCCEEDED:
        return Verdict(TransferState.SUCCEEDED, later.reason)
    return verdict
