"""GET events/stream: the event log as server-sent events, resumable, for any number of readers.

Readers share the process's one listener; a database connection is borrowed only to find out who calls and to
catch up with what the ring no longer holds.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from django.contrib.auth.models import AbstractBaseUser
from django.db import connection
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.utils import timezone
from django.views import View

from federation.selectors import connected_slugs
from orchestrator import selectors
from portal.api import rates
from portal.api.authentication import bearer, caller_of_request
from portal.api.paging import bad_parameter, refuse_unknown, words
from portal.api.problems import MethodNotAllowed, respond, translated
from portal.listening import LISTENER, Bell, Heard, frame
from portal.skills.events import check_cursor, check_subject, check_types
from portal.skills.registry import Scope, check_reach, require
from portal.tokens import Unauthenticated, caller_of

HEARTBEAT_S = 12.0
RETRY_MS = 2000
TRUSTED_FOR_S = 30.0
"""How long a stream goes on before its reader is asked for again; a revoked token ends it then."""
PARAMETERS = ("after", "types", "subject")
_BATCH = 200

T = TypeVar("T")

# Few threads for many readers: each borrows one for milliseconds.
_POOL = ThreadPoolExecutor(4, thread_name_prefix="stream")
_BELLS: dict[asyncio.AbstractEventLoop, Bell] = {}


@dataclass(slots=True)
class Reader:
    """Who reads, what, and how far they are."""

    user: AbstractBaseUser
    secret: str | None
    types: tuple[str, ...]
    subject: str | None
    after: int
    systems: frozenset[str] = frozenset()
    """Those the user is connected to."""
    only: frozenset[str] | None = None
    """Those a narrowed token may hear of."""
    trusted_at: float = field(default_factory=time.monotonic)

    def renew(self) -> None:
        """Ask again who reads, and which systems they are connected to.

        Raises:
            Unauthenticated: the token has expired or was revoked meanwhile.
        """
        if self.secret is not None:
            caller_of(self.secret, now=timezone.now())
        self.systems = connected_slugs(self.user.pk)
        self.trusted_at = time.monotonic()

    def wants(self, heard: Heard) -> bool:
        """Return whether an event is this reader's to see, and asked for."""
        shown = heard.shown
        theirs = heard.user_id == self.user.pk or (
            heard.user_id is None and (shown.system is None or shown.system in self.systems)
        )
        heeded = self.only is None or not shown.system or shown.system in self.only
        return theirs and heeded and self._is_of_type(shown.type) and self._is_about(heard)

    def _is_of_type(self, word: str) -> bool:
        return not self.types or any(
            word.startswith(each[:-1]) if each.endswith(".*") else word == each for each in self.types
        )

    def _is_about(self, heard: Heard) -> bool:
        shown = heard.shown
        about = (shown.subject, shown.task, shown.group, shown.attempt, shown.transfer, shown.system)
        return self.subject is None or self.subject in about


async def _borrow(work: Callable[[], T]) -> T:
    """Run something that needs the database in one of the few threads, and give the connection back."""

    def run() -> T:
        try:
            return work()
        finally:
            connection.close()

    return await asyncio.get_running_loop().run_in_executor(_POOL, run)


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
    types = tuple(word for word in words(query, "types") if word)
    check_types(types, pointer="?types")
    check_subject(caller.user, query.get("subject"))
    check_reach(caller, query.get("subject"), name="subject")
    given = request.META.get("HTTP_LAST_EVENT_ID") or query.get("after")
    head = selectors.head_cursor()
    after = head if given is None else min(_cursor(given), head)
    if given is not None:
        check_cursor(after)
    LISTENER.start()
    secret = bearer(request.META.get("HTTP_AUTHORIZATION", ""))
    reader = Reader(caller.user, secret, types, query.get("subject"), after, only=caller.systems)
    reader.renew()
    return reader


def _cursor(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise bad_parameter(
            "after", "bad_cursor", "`after` and Last-Event-ID are cursors of events: whole numbers."
        )
    return int(text)


def _bell() -> Bell:
    loop = asyncio.get_running_loop()
    for other in [each for each in _BELLS if each.is_closed()]:
        LISTENER.unsubscribe(_BELLS.pop(other).ring)
    if loop not in _BELLS:
        _BELLS[loop] = Bell(loop)
        LISTENER.subscribe(_BELLS[loop].ring)
    return _BELLS[loop]


async def _told(reader: Reader) -> AsyncGenerator[bytes]:
    """Yield the stream: what was missed, then what comes, and a sign of life in between."""
    bell = _bell()
    yield f"retry: {RETRY_MS}\n: from {reader.after}\n\n".encode()
    spoke_at = time.monotonic()
    while not LISTENER.stopping:
        if time.monotonic() - reader.trusted_at > TRUSTED_FOR_S and not await _renewed(reader):
            return
        heard = bell.waiting()  # before looking, so that nothing rings unheard in between
        sent = await _news(reader)
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
    try:
        await _borrow(reader.renew)
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
    return b"".join(heard.frame for heard in ring if reader.wants(heard))


async def _catch_up(reader: Reader) -> bytes:
    head = LISTENER.head
    read = partial(
        selectors.events_after,
        reader.user,
        reader.after,
        types=reader.types,
        subject=reader.subject,
        systems=reader.only,
        limit=_BATCH,
    )
    found = await _borrow(read)
    reader.after = found[-1].cursor if len(found) == _BATCH else max([head, *(e.cursor for e in found[-1:])])
    return b"".join(frame(event) for event in found)


class EventStream(View):
    """GET only; a failure before the stream begins is a problem like any other."""

    async def get(self, request: HttpRequest) -> HttpResponseBase:
        """Answer with the stream."""
        try:
            reader = await _borrow(partial(_open, request))
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
