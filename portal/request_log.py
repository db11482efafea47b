"""The outermost middleware: each request gets an id, which its log lines and chores carry, and one line."""

import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Any

import structlog
from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.decorators import sync_and_async_middleware
from structlog.contextvars import bound_contextvars

from portal.telemetry.web import count

log = structlog.get_logger(__name__)
HEADER = "X-Request-ID"
_GIVEN = re.compile(r"[A-Za-z0-9._:-]{8,64}")
_OFTEN = ("/healthz", "/readyz", "/metrics", "/static/")
"""What machines ask for all the time; told at debug level only."""


def request_id_of(request: HttpRequest) -> str:
    """Return the id that a caller or proxy gave, where it is a plain word, or a new one."""
    given = request.headers.get(HEADER, "")
    return given if _GIVEN.fullmatch(given) else f"req_{secrets.token_hex(10)}"


def _done(
    request: HttpRequest, response: HttpResponseBase, request_id: str, started: float
) -> HttpResponseBase:
    seconds = time.monotonic() - started
    response.headers.setdefault(HEADER, request_id)
    count(request, response.status_code, seconds)
    level = logging.DEBUG if request.path_info.startswith(_OFTEN) else logging.INFO
    log.log(
        level,
        "request answered",
        method=request.method,
        path=request.path_info,
        status=response.status_code,
        ms=round(seconds * 1000, 1),
    )
    return response


@sync_and_async_middleware
def watched(
    get_response: Callable[[HttpRequest], Any],
) -> Callable[[HttpRequest], HttpResponseBase] | Callable[[HttpRequest], Awaitable[HttpResponseBase]]:
    """Bind the request's id for all that is logged meanwhile; count and log the answer."""
    if iscoroutinefunction(get_response):

        async def later(request: HttpRequest) -> HttpResponseBase:
            request_id, started = request_id_of(request), time.monotonic()
            with bound_contextvars(request_id=request_id):
                return _done(request, await get_response(request), request_id, started)

        return later

    def at_once(request: HttpRequest) -> HttpResponseBase:
        request_id, started = request_id_of(request), time.monotonic()
        with bound_contextvars(request_id=request_id):
            return _done(request, get_response(request), request_id, started)

    return at_once
