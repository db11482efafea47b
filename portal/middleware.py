"""Middlewares that put no thread before an async view: files, policies, no NUL, a database that is away."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.core.exceptions import BadRequest
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils.decorators import sync_and_async_middleware
from whitenoise.middleware import WhiteNoiseMiddleware  # type: ignore[import-untyped]  # it has none

from portal import database_away
from portal.api.problems import without_database
from portal.listening import LISTENER

STRICT = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'"
)
# The admin theme builds Alpine expressions and styles in the page itself.
ADMIN = STRICT + "; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'"


class StaticFiles(WhiteNoiseMiddleware):  # type: ignore[misc]  # whitenoise has no types
    """WhiteNoise without its thread hop: what is not a static file goes straight on, async or not."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        super().__init__(get_response)
        self.is_async = iscoroutinefunction(get_response)
        if self.is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> Any:  # a response, or a coroutine of one
        """Answer a static path from memory, and hand everything else on."""
        if self.autorefresh:
            static_file = self.find_file(request.path_info)
        else:
            static_file = self.files.get(request.path_info)
        if static_file is None:
            return self.get_response(request)
        response = self._whole(static_file, request)
        return _soon(response) if self.is_async else response

    @staticmethod
    def _whole(static_file: Any, request: HttpRequest) -> HttpResponse:  # whitenoise has no types
        """Return the file in one piece: ours are small, and a file iterator would block the event loop."""
        answer = static_file.get_response(request.method, request.META)
        body = b""
        if answer.file is not None:
            with answer.file as file:
                body = file.read()
        response = HttpResponse(body, status=int(answer.status))
        del response["Content-Type"]
        for name, content in answer.headers:
            response[name] = content
        if answer.file is not None and response["Content-Length"] != str(len(body)):
            # The file was replaced after this process noted its length: what is sent is what counts, and the
            # old file's marks must not stand for it.
            response["Content-Length"] = str(len(body))
            del response["ETag"], response["Last-Modified"]
        return response


async def _soon(response: HttpResponse) -> HttpResponse:
    return response


class WithoutDatabase:
    """Answer 503 while the database cannot be used; what needs none is served as ever."""

    sync_capable = True
    async_capable = True
    free = (
        "/healthz",
        "/readyz",
        "/metrics",
        "/llms.txt",
        "/.well-known/",
        "/api/v1/schema",
        "/api/v1/docs",
        "/api/v1/bundle",
        "/api/v1/cli/",
    )

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self.get_response = get_response
        self.is_async = iscoroutinefunction(get_response)
        if self.is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> Any:  # a response, or a coroutine of one
        """Refuse at once while nobody reaches the database, rather than wait for a connection."""
        if LISTENER.is_away and not request.path_info.startswith(self.free):
            response = without_database(request, database_away.unavailable())
            return _soon(response) if self.is_async else response
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        """Answer a view that lost the database on its way."""
        failure = database_away.failure_of(exception)
        return None if failure is None else without_database(request, failure)


PERMISSIONS = ", ".join(
    f"{feature}=()"
    for feature in ("camera", "geolocation", "microphone", "payment", "usb", "browsing-topics")
)
"""Nothing here asks for any of these; no script that gets in may."""


def _with_policy(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    response.headers.setdefault("Permissions-Policy", PERMISSIONS)
    response.headers.setdefault("Cross-Origin-Resource-Policy", "same-origin")
    response.headers.setdefault("Content-Security-Policy", ADMIN if _is_admin(request) else STRICT)
    return response


def _is_admin(request: HttpRequest) -> bool:
    return Path(request.path_info).parts[1:2] == ("admin",)


@sync_and_async_middleware
def content_security_policy(
    get_response: Callable[[HttpRequest], Any],
) -> Callable[[HttpRequest], HttpResponseBase] | Callable[[HttpRequest], Awaitable[HttpResponseBase]]:
    """Send strict policies with every answer; a view that needs another sets its own header."""
    if iscoroutinefunction(get_response):

        async def later(request: HttpRequest) -> HttpResponseBase:
            return _with_policy(request, await get_response(request))

        return later

    def at_once(request: HttpRequest) -> HttpResponseBase:
        return _with_policy(request, get_response(request))

    return at_once


def _refuse_nul(request: HttpRequest) -> None:
    """Refuse a NUL in an address: PostgreSQL takes none, so no object and no filter can hold one.

    Raises:
        Http404: it stands in the path.
        BadRequest: it stands in a page's query; the API names the parameter itself.
    """
    if "\0" in request.path_info:
        raise Http404
    query = request.META.get("QUERY_STRING", "")
    if ("%00" in query or "\0" in query) and not request.path_info.startswith("/api/"):
        raise BadRequest("The query must not hold NUL characters.")


@sync_and_async_middleware
def without_nul(
    get_response: Callable[[HttpRequest], Any],
) -> Callable[[HttpRequest], HttpResponseBase] | Callable[[HttpRequest], Awaitable[HttpResponseBase]]:
    """Answer addresses that hold a NUL before any view asks the database with them."""
    if iscoroutinefunction(get_response):

        async def later(request: HttpRequest) -> HttpResponseBase:
            _refuse_nul(request)
            answer: HttpResponseBase = await get_response(request)
            return answer

        return later

    def at_once(request: HttpRequest) -> HttpResponseBase:
        _refuse_nul(request)
        answer: HttpResponseBase = get_response(request)
        return answer

    return at_once
