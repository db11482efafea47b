"""The Globus Transfer mover: collections and paths, checksums verified, faults in the collection's own words.

Not verified against the hosted service: when and how often it retries a fault, and the codes in `_meaning`.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, TypeVar

from globus_sdk import MISSING, AccessTokenAuthorizer, GlobusAPIError, TransferClient, TransferData
from globus_sdk.exc import GlobusError
from globus_sdk.transport import RequestsTransport, RetryConfig

from providers.errors import FacetError, InvalidInput, NotAuthorized, NotFound, RateLimited, SiteUnreachable
from providers.globus_words import shown
from providers.movers.types import Fault, Finding, Move, MoveState, Progress

_ANSWER_S = 10.0
_AT_ONCE = 1000
"""Moves asked for in one request (the service's page size)."""
_WAIT_FOR_429_S = 10.0
_FAULTS: Mapping[str, Fault] = {
    "FILE_NOT_FOUND": Fault.MISSING,
    "PERMISSION_DENIED": Fault.DENIED,
    "QUOTA_EXCEEDED": Fault.QUOTA,
    "NO_SPACE_LEFT": Fault.QUOTA,
    "VERIFY_CHECKSUM": Fault.CHECKSUM,
    "CHECKSUM_MISMATCH": Fault.CHECKSUM,
    "EXPIRED": Fault.DEADLINE,
}
"""Our word for the service's; what it calls otherwise stays in its own words alone."""

T = TypeVar("T")


class TransferAccess(Protocol):
    """One user's delegated access to Globus Transfer."""

    def token(self, *, refused: str | None = None) -> str:
        """Return a good access token; not the one that was just `refused`."""
        ...

    def is_there(self) -> bool:
        """Return whether the user has delegated access, as far as is known here."""
        ...

    def sign_in_needed(self, reason: str, parameters: Mapping[str, Any]) -> NotAuthorized:
        """Remember what the next sign-in has to bring and return the error that says so."""
        ...


@dataclass(frozen=True, slots=True)
class GlobusTransferMover:
    """Move data as the user whose access it is."""

    access: TransferAccess
    base_url: str | None = None
    """Of the Transfer service; None = the hosted one."""
    sleep: Callable[[float], None] = time.sleep

    def check(self, move: Move) -> tuple[Finding, ...]:
        """Return whether the user's access is there; the collections themselves are asked at submission."""
        ends = f"{move.source_collection} and {move.destination_collection}"
        if self.access.is_there():
            return (Finding(rule="access", outcome="allowed", detail=f"as your Globus identity at {ends}"),)
        said = "Globus is not connected: the move waits until you sign in and connect it"
        return (Finding(rule="access", outcome="needs_action", detail=said),)

    def new_submission_id(self) -> str:
        """Return an id of the service's, to be stored before the submission."""
        return str(self._ask(lambda client: client.get_submission_id()["value"]))

    def submit(self, move: Move, submission_id: str) -> str:
        """Ask for a move under an id that makes asking again harmless."""
        body = TransferData(
            move.source_collection,
            move.destination_collection,
            label=move.label[:128],
            submission_id=submission_id,
            sync_level="checksum",
            verify_checksum=True,
            preserve_timestamp=True,
            fail_on_quota_errors=True,
            notify_on_succeeded=False,
            notify_on_failed=False,
            notify_on_inactive=False,
            deadline=move.deadline or MISSING,
        )
        for item in move.items:
            body.add_item(
                item.source,
                item.destination,
                recursive=item.is_folder,
                external_checksum=item.sha256 or MISSING,
                checksum_algorithm="SHA256" if item.sha256 else MISSING,
            )
        return str(self._ask(lambda client: client.submit_transfer(body)["task_id"]))

    def observe(self, move_ids: Sequence[str]) -> Mapping[str, Progress]:
        """Return by id what was seen of at most 1,000 moves, in one request."""
        wanted = list(move_ids)[:_AT_ONCE]
        if not wanted:
            return {}
        filters = f"task_id:{','.join(wanted)}"
        found = self._ask(lambda client: client.task_list(limit=_AT_ONCE, filter=filters)["DATA"])
        return {str(doc["task_id"]): _progress(doc) for doc in found}

    def cancel(self, move_id: str) -> None:
        """Ask for the end of a move."""
        self._ask(lambda client: client.cancel_task(move_id).data)

    def _ask(self, request: Callable[[TransferClient], T]) -> T:
        """Make one request; again after 429 and after a refused token, else once."""
        secret, renewed, waited = self.access.token(), False, False
        while True:
            try:
                return request(self._client(secret))
            except GlobusAPIError as error:
                if error.http_status == 401 and not renewed:
                    secret, renewed = self.access.token(refused=secret), True
                elif error.http_status == 429 and not waited and _retry_after_s(error) <= _WAIT_FOR_429_S:
                    self.sleep(_retry_after_s(error))
                    waited = True
                else:
                    raise self._meaning(error) from error
            except GlobusError as error:
                raise SiteUnreachable(
                    "Globus Transfer could not be reached.", kind=type(error).__name__
                ) from error

    def _client(self, secret: str) -> TransferClient:
        return TransferClient(
            authorizer=AccessTokenAuthorizer(secret),
            base_url=self.base_url,
            transport=RequestsTransport(http_timeout=_ANSWER_S),
            retry_config=RetryConfig(max_retries=0),
        )

    def _meaning(self, error: GlobusAPIError) -> FacetError:
        said = shown(error.message or error.code or error.http_status)
        consent = error.info.consent_required
        if consent:
            scopes = list(consent.required_scopes or ())
            return self.access.sign_in_needed(
                "A collection asks for your consent to its data.", {"required_scopes": scopes}
            )
        if error.http_status == 401:
            return self.access.sign_in_needed("Globus does not accept the access to data any more.", {})
        return _refusal(error, said)


def _refusal(error: GlobusAPIError, said: str) -> FacetError:
    status = error.http_status
    if status == 429:
        wait_s = _retry_after_s(error)
        return RateLimited("Globus Transfer answers that there are too many requests.", retry_after_s=wait_s)
    if status >= 500:
        return SiteUnreachable(f"Globus Transfer answered {status} ({said}).")
    if status == 403:
        return NotAuthorized(f"The collection does not let you: {said}")
    if status == 404:
        return NotFound(f"Globus Transfer knows no such collection, path or move: {said}")
    return InvalidInput(f"Globus Transfer does not take the move: {said}")


def _retry_after_s(error: GlobusAPIError) -> float:
    try:
        return max(0.0, float((error.headers or {}).get("Retry-After", "10")))
    except ValueError:
        return 10.0


def _progress(doc: Mapping[str, Any]) -> Progress:
    """Return one task document in our words; a paused or faulting move is active and says why."""
    status, fatal = str(doc["status"]), doc.get("fatal_error") or {}
    state = {"ACTIVE": MoveState.ACTIVE, "INACTIVE": MoveState.ACTIVE, "SUCCEEDED": MoveState.SUCCEEDED}.get(
        status, MoveState.FAILED
    )
    if state is MoveState.FAILED and fatal.get("code") == "CANCELED":
        state = MoveState.CANCELLED
    reason = shown(fatal.get("description") or fatal.get("code") or "", length=500)
    nice = str(doc.get("nice_status") or "")
    if state is MoveState.ACTIVE and nice not in ("", "OK", "Queued"):
        words = doc.get("nice_status_details") or doc.get("nice_status_short_description") or nice
        reason = shown(words, length=500)
    if doc.get("is_paused"):
        reason = "paused by the collection's administrators"
    at = doc.get("completion_time")
    words = str(fatal.get("code") or nice)
    return Progress(
        state=state,
        reason=reason,
        fault=_FAULTS.get(words, Fault.OTHER) if reason else None,
        faults=int(doc.get("faults") or 0),
        files=doc.get("files"),
        files_moved=int(doc.get("files_transferred") or 0),
        files_skipped=int(doc.get("files_skipped") or 0),
        bytes_moved=int(doc.get("bytes_transferred") or 0),
        finished_at=datetime.fromisoformat(at) if at else None,
    )
