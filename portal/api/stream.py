"""GET events/stream: the event log as server-sent events, resumable, for any number of readers.

Readers share the process's one listener; a database connection is borrowed only to find out who calls and to
catch up with what the ring no longer holds.
"""

import asyncio
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from functools import partial

from django.db import Error
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.utils import timezone
from django.views import View

from orchestrator import selectors
from portal.api import rates
from portal.api.authentication import bearer, caller_of_request, caller_of_session, session_of
from portal.api.paging import bad_parameter, refuse_unknown, words
from portal.api.problems import MethodNotAllowed, respond, translated
from portal.lent import Lent
from portal.listening import LISTENER, bell_of_loop, frame
from portal.skills.events import check_cursor, check_subject, check_types
from portal.skills.registry import Scope, check_reach, require
from portal.tokens import Unauthenticated, caller_of
from portal.waiting import Interest

HEARTBEAT_S = 12.0
RETRY_MS = 2000
ASK_AGAIN_S = 5.0
"""Pause before a reader is asked for again where the database could not say."""
TRUSTED_FOR_S = 30.0
"""How long a stream goes on before its reader is asked for again; a revoked token or signing out ends it."""
PARAMETERS = ("after", "type", "types", "subject")
"""`type` as in lists; `types` says the same."""
_BATCH = 200

LENT = Lent(4, "stream")


@dataclass(slots=True)
class Reader:
    """Who reads, what, and how far they are."""

    interest: Interest
    secret: str | None
    after: int
    session: str | None = None
    """The key of the browser's session, where there is no token."""
    trusted_at: float = field(default_factory=time.monotonic)

    def renew(self) -> None:
        """Ask again who reads, and which systems they are connected to.

        Raises:
            Unauthenticated: the token has expired or was revoked, or the session has ended meanwhile.
        """
        if self.secret is None:
            caller_of_session(self.session)
        else:
            caller_of(self.secret, now=timezone.now())
        self.interest.renew()
        self.trusted_at = time.monotonic()


def _open(request: HttpRequest) -> Reader:
    """Return the reader a request describes.

    Raises:
        FacetError: whatever the request deserves.
    """
    caller = caller_of_request(request)
    require(caller, Scope.READ)
    rates.take(caller.user.pk)
    query = request.GET
    refuse_unknown(query, PARAMETERS)
    types: tuple[str, ...] = ()
    for name in ("type", "types"):
        said = tuple(word for word in words(query, name) if word)
        check_types(said, pointer=f"?{name}")
        types += said
    check_subject(caller.user, query.get("subject"))
    check_reach(caller, query.get("subject"), name="subject")
    given = request.META.get("HTTP_LAST_EVENT_ID") or query.get("after")
    head = selectors.head_cursor()
    after = head if given is None else min(_cursor(given), head)
    if given is not None:
        check_cursor(after)
    LISTENER.start()
    secret = bearer(request.META.get("HTTP_AUTHORIZATION", ""))
    interest = Interest(caller.user, types, query.get("subject"), caller.systems)
    reader = Reader(interest, secret, after, session=None if secret else session_of(request))
    reader.renew()
    return reader


def _cursor(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise bad_parameter(
            "after", "bad_cursor", "`after` and Last-Event-ID are cursors of events: whole numbers."
        )
    return int(text)


async def _told(reader: Reader) -> AsyncGenerator[bytes]:
    """Yield the stream: what was missed, then what comes, and a sign of life in between."""
    bell = bell_of_loop()
    yield f"retry: {RETRY_MS}\n: from {reader.after}\n\n".encode()
    spoke_at = time.monotonic()
    while not LISTENER.stopping:
        heard = bell.waiting()  # before looking, so that nothing rings unheard in between
        try:
            if time.monotonic() - reader.trusted_at > TRUSTED_FOR_S and not await _renewed(reader):
                return
            sent = await _news(reader)
        except Error:
            return  # the reader comes again and is told when the database can be read
        if sent:
            spoke_at = time.monotonic()
            yield sent
            continue
        left = spoke_at + HEARTBEAT_S - time.monotonic()
        if left <= 0:
            spoke_at = time.monotonic()
            yield b": still here\n\n"
            continue
        await asyncio.wait({heard}, timeout=left)


async def _renewed(reader: Reader) -> bool:
    """Ask for the reader again. While the database is away nothing new can reach them: they may stay."""
    if LISTENER.is_away:
        reader.trusted_at += ASK_AGAIN_S
        return True
    try:
        await LENT.borrow(reader.renew)
    except Unauthenticated:
        return False
    return True


async def _news(reader: Reader) -> bytes:
    """Return the messages between the reader and the head, and move the reader there."""
    ring = LISTENER.since(reader.after)
    if ring is None:
        return await _catch_up(reader)
    if ring:
        reader.after = ring[-1].cursor
    return b"".join(heard.frame for heard in ring if reader.interest.wants(heard))


async def _catch_up(reader: Reader) -> bytes:
    head = LISTENER.head
    read = partial(reader.interest.after, reader.after, limit=_BATCH)
    found = await LENT.borrow(read)
    reader.after = found[-1].cursor if len(found) == _BATCH else max([head, *(e.cursor for e in found[-1:])])
    return b"".join(frame(event) for event in found)


class EventStream(View):
    """GET only; a failure before the stream begins is a problem like any other."""

    async def get(self, request: HttpRequest) -> HttpResponseBase:
        """Answer with the stream."""
        try:
            reader = await LENT.borrow(partial(_open, request))
        except Exception as error:  # noqa: BLE001  # every failure is answered as a problem
            return respond(translated(error))
        response = StreamingHttpResponse(_told(reader), content_type="text/event-stream")
        response["Cache-Control"] = "no-cache, no-transform"
        response["X-Accel-Buffering"] = "no"
        return response

    async def http_method_not_allowed(  # type: ignore[override]  # asynchronous as its sibling
        self, request: HttpRequest, *_args: object, **_kwargs: object
    ) -> HttpResponse:
        """Refuse every other method."""
        response = respond(MethodNotAllowed(f"{request.method} is not allowed here; allowed: GET."))
        response["Allow"] = "GET"
        return response
