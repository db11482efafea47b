"""The Globus Compute link: one batch = one task at an endpoint that the user authorized.

Submitted over REST, watched by status requests that all of a user's calls share, within one deadline. A
doubtful submission is never repeated (the site may have it): the caller asks the site for its key instead.
What an endpoint starts too late finds its deadline passed and runs nothing.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from globus_sdk import AccessTokenAuthorizer, ComputeClientV2, ComputeClientV3, GlobusAPIError
from globus_sdk.exc import GlobusError
from globus_sdk.transport import RequestsTransport, RetryConfig

from providers.errors import NotAuthorized, RateLimited, SiteUnreachable, UnparsableOutput
from providers.links import globus_errors as meaning
from providers.links import globus_wire as wire
from providers.links.globus_board import Board, OwnBoard
from providers.links.globus_pace import LocalPace, Pace
from providers.types import Batch, BatchReply

MARGIN_S = 10.0
"""What the way to the site and back may add to the batch's own deadline."""
_REQUEST_S = 10.0
"""Longest wait for one HTTP answer."""
_LONGEST_PAUSE_S = 5.0
_FAULT_PAUSE_S = 1.0
"""Before a status request is repeated that brought no answer; doubled each time."""

T = TypeVar("T")


class Access(Protocol):
    """One user's delegated access to Globus Compute; never shows a token in its repr."""

    @property
    def owner(self) -> str:
        """Whose requests these are, for pacing; never a secret."""
        ...

    def token(self, *, refused: str | None = None) -> str:
        """Return a good access token; not the one that was just `refused`.

        Raises:
            NotAuthorized: the user has to sign in again; the connection is marked so.
        """
        ...

    def sign_in_needed(self, reason: str, parameters: Mapping[str, Any]) -> NotAuthorized:
        """Mark the connection and return the error that says so."""
        ...

    def function_id(self, digest: str) -> str | None:
        """Return the id under which this source is registered for this user; None = not yet."""
        ...

    def remember_function(self, digest: str, function_id: str | None) -> None:
        """Keep the id of a registered source; None forgets it."""
        ...


@dataclass(frozen=True, slots=True)
class Rhythm:
    """When a task's state is asked for: after `first_s`, then after twice as long each time."""

    first_s: float = 0.3
    longest_s: float = _LONGEST_PAUSE_S

    def pause_s(self, number: int) -> float:
        """Return the pause before the look `number` (from 0)."""
        return min(self.first_s * 2.0 ** min(number, 16), self.longest_s)


@dataclass(frozen=True, slots=True)
class GlobusComputeLink:
    """Run batches at one endpoint, as the user whose access it is."""

    endpoint: str
    access: Access
    base_url: str | None = None
    """Of the Compute service; None = the hosted one."""
    user_endpoint_config: Mapping[str, Any] | None = None
    pace: Pace = field(default_factory=LocalPace)
    board: Board = field(default_factory=OwnBoard)
    rhythm: Rhythm = field(default_factory=Rhythm)
    sleep: Callable[[float], None] = time.sleep

    def run(self, batch: Batch) -> BatchReply:
        """Run the batch in one task and return every reply.

        Raises:
            SiteUnreachable: no answer in time, or the endpoint is offline, asleep, gone or lost its worker.
            NotAuthorized: a sign-in is needed, or the endpoint does not take this user or our function.
            InvalidInput: the request is too large or the endpoint's settings are wrong; nothing was sent on.
            UnparsableOutput: the answer is no reply of ours, or larger than the service carries.
        """
        call = _Call(self, until=time.monotonic() + batch.deadline_s + MARGIN_S)
        packed = wire.payload(batch, not_after=time.time() + batch.deadline_s)
        task_id = call.submit(packed)
        ended = call.wait_for(task_id)
        if ended.get("status") == "failed" or "result" not in ended:
            raise meaning.failed_task(str(ended.get("exception") or ""), self.endpoint)
        reply = wire.read_result(str(ended["result"]), self.endpoint)
        if batch.operations and all(said.skipped for said in reply.replies.values()):
            raise SiteUnreachable(
                f"Endpoint {self.endpoint} started our request after its {batch.deadline_s:.0f} s.",
                remediation="It may have been asleep or its workers busy; Facet asks again by itself.",
                endpoint=self.endpoint,
            )
        return reply

    def describe(self) -> Mapping[str, Any]:
        """Return what the service knows of the endpoint (name, owner, `user_config_schema` …)."""
        call = _Call(self, until=time.monotonic() + _REQUEST_S)
        return call.ask(lambda clients: clients.v2.get_endpoint(self.endpoint).data)


@dataclass(frozen=True, slots=True)
class _Clients:
    """The SDK's clients over one connection."""

    v2: ComputeClientV2
    v3: ComputeClientV3


class _Call:
    """One batch on its way: its deadline and its HTTP connection."""

    def __init__(self, link: GlobusComputeLink, *, until: float) -> None:
        self.link = link
        self.until = until
        self._transport = RequestsTransport(http_timeout=_REQUEST_S)
        self._token: str | None = None

    def left_s(self) -> float:
        return self.until - time.monotonic()

    def submit(self, packed: str) -> str:
        """Hand the task to the service once; return its id."""
        try:
            return self._submit(packed)
        except meaning.FunctionUnknown:
            # Refused before anything ran: register it again and hand the task over for the first time.
            self.link.access.remember_function(wire.source_digest(), None)
        try:
            return self._submit(packed)
        except meaning.FunctionUnknown as error:
            raise NotAuthorized(
                f"Globus Compute does not know Facet's function: {error}",
                remediation="An administrator can correct function_id of this connection.",
                endpoint=self.link.endpoint,
            ) from error

    def _submit(self, packed: str) -> str:
        link = self.link
        function_id = self._function()
        body = wire.submission(function_id, packed, user_endpoint_config=link.user_endpoint_config)
        answer = self.ask(lambda clients: clients.v3.submit(link.endpoint, body).data)
        try:
            return str(answer["tasks"][function_id][0])
        except (KeyError, IndexError, TypeError) as error:
            raise UnparsableOutput(
                "Globus Compute took the task and gave no id for it.", endpoint=link.endpoint
            ) from error

    def _function(self) -> str:
        access, digest = self.link.access, wire.source_digest()
        known = access.function_id(digest)
        if known is not None:
            return known
        document = wire.function_document()
        made = str(self.ask(lambda clients: clients.v3.register_function(document)["function_uuid"]))
        access.remember_function(digest, made)
        return made

    def wait_for(self, task_id: str) -> Mapping[str, Any]:
        """Return the task's end.

        Raises:
            SiteUnreachable: it has not ended before the deadline.
        """
        link, number, faults = self.link, 0, 0
        link.board.watch(link.access.owner, task_id, for_s=self.left_s())
        while self.left_s() > 0:
            self._sleep(
                link.rhythm.pause_s(number) if not faults else _FAULT_PAUSE_S * 2.0 ** min(faults - 1, 3)
            )
            number += 1
            found = link.board.answer(task_id)
            if found is not None:
                return found
            try:
                ended = self._look(task_id)
                faults = 0
            except SiteUnreachable:
                faults += 1  # the task goes on without us; only the deadline ends the wait
                continue
            if ended is not None:
                return ended
        raise SiteUnreachable(
            f"The endpoint {link.endpoint} took our request but did not answer in time.",
            remediation="It may be asleep, or its workers busy; Facet looks again by itself.",
            endpoint=link.endpoint,
        )

    def _look(self, task_id: str) -> Mapping[str, Any] | None:
        link = self.link
        wanted = list(link.board.open_tasks(link.access.owner, task_id))
        answer: Mapping[str, Any] = self.ask(lambda clients: clients.v2.get_task_batch(wanted).data)
        results: Mapping[str, Mapping[str, Any]] = answer.get("results", {})
        ended = {name: said for name, said in results.items() if said.get("status") in meaning.DONE}
        mine = ended.pop(task_id, None)
        link.board.pin(link.access.owner, ended)
        return mine

    def ask(self, request: Callable[[_Clients], T]) -> T:
        """Make one request: at the user's pace, again after 429 and after a refused token, else once."""
        fresh = False
        while True:
            self._keep_pace()
            if self._token is None:
                self._token = self.link.access.token()
            try:
                return request(self._clients())
            except GlobusAPIError as error:
                fresh = self._after_refusal(meaning.refusal(error, self.link.endpoint), error, fresh=fresh)
            except GlobusError as error:
                raise meaning.no_answer(error, self.link.endpoint) from error

    def _after_refusal(self, refused: Exception, error: GlobusAPIError, *, fresh: bool) -> bool:
        """Prepare another try and return whether the token is a fresh one; or raise what it stands for."""
        access = self.link.access
        if isinstance(refused, RateLimited):
            wait_s = float(str(refused.facts["retry_after_s"]))
            self.link.pace.hold(access.owner, wait_s)
            if wait_s >= self.left_s():
                raise refused from error
            self._sleep(wait_s)
            return fresh
        if isinstance(refused, meaning.TokenRefused) and not fresh:
            self._token = access.token(refused=self._token)
            return True
        if isinstance(refused, meaning.TokenRefused):
            raise access.sign_in_needed("Globus does not accept the access any more.", {}) from error
        if isinstance(refused, meaning.SignInNeeded):
            raise access.sign_in_needed(refused.reason, refused.parameters) from error
        raise refused from error

    def _keep_pace(self) -> None:
        """Wait for this user's turn.

        Raises:
            RateLimited: it does not come before the deadline.
        """
        while (wait_s := self.link.pace.wait_s(self.link.access.owner)) > 0:
            if wait_s >= self.left_s():
                raise RateLimited(
                    "Too many requests of yours to Globus Compute are waiting already.",
                    retry_after_s=round(wait_s, 1),
                )
            self.link.sleep(wait_s)

    def _clients(self) -> _Clients:
        self._transport.http_timeout = max(0.2, min(_REQUEST_S, self.left_s()))
        own: dict[str, Any] = {
            "authorizer": AccessTokenAuthorizer(self._token or ""),
            "transport": self._transport,
            "retry_config": RetryConfig(max_retries=0),
            "base_url": self.link.base_url,
        }
        return _Clients(v2=ComputeClientV2(**own), v3=ComputeClientV3(**own))

    def _sleep(self, seconds: float) -> None:
        self.link.sleep(max(0.0, min(seconds, self.left_s())))
