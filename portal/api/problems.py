"""Every failure under /api as `application/problem+json` (RFC 9457), from one catalogue of codes."""

import json
import logging
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.core.exceptions import PermissionDenied, RequestDataTooBig
from django.http import Http404, HttpRequest, HttpResponse, UnreadablePostError
from django.http.response import HttpResponseBase
from django.template.loader import render_to_string
from django.views import defaults
from rest_framework import exceptions

from orchestrator.job_tokens import JobTokenRefused
from portal import database_away
from portal.tokens import Unauthenticated
from providers.errors import FacetError, InvalidInput, NotAuthorized, NotFound

_log = logging.getLogger(__name__)

CONTENT_TYPE = "application/problem+json"
DOCS = "/api/v1/docs/errors"
API = "/api/"


class MethodNotAllowed(FacetError):
    """The route is there, this method is not."""

    code = "method_not_allowed"
    http_status = 405


class UnsupportedMediaType(FacetError):
    """The body is not JSON by its own word."""

    code = "unsupported_media_type"
    http_status = 415


class BodyTooLarge(FacetError):
    """The body is longer than is read."""

    code = "body_too_large"
    http_status = 413


class MalformedJson(FacetError):
    """The body is not JSON; the message says where."""

    code = "malformed_json"
    http_status = 400


class StrangeRequest(FacetError):
    """The request itself is broken."""

    code = "bad_request"
    http_status = 400


class CsrfFailed(NotAuthorized):
    """A browser's session called without its CSRF token."""

    code = "csrf_failed"


class EditedMeanwhile(FacetError):
    """The object is no longer what If-Match says."""

    code = "edited_meanwhile"
    http_status = 412


TITLES: Mapping[str, tuple[str, str]] = {
    "invalid_input": (
        "The input is not valid",
        "Mend the fields named in `errors`; each has a JSON pointer.",
    ),
    "malformed_json": (
        "The body is not JSON",
        "Send one JSON object; the detail says where reading stopped.",
    ),
    "bad_request": ("The request is broken", "Check host, path and headers."),
    "body_too_large": ("The body is too large", "Put large scripts and data into files at the site."),
    "unsupported_media_type": ("The body is not JSON", "Send Content-Type: application/json."),
    "not_authenticated": ("Nobody known is calling", "Send Authorization: Bearer with a valid token."),
    "job_token_refused": ("The job token is not good", "It ends with its attempt; nothing has to be done."),
    "not_authorized": ("A scope or permission is missing", "Use a token that has the scope named."),
    "csrf_failed": ("The CSRF token is missing or wrong", "Send X-CSRFToken, or use a bearer token."),
    "not_found": ("There is no such object", "List what there is; objects of others are not shown."),
    "gone": ("It is kept no longer", "Read the present state, then go on from the cursor named."),
    "method_not_allowed": ("This route has no such method", "Use one that the Allow header names."),
    "conflict": ("The request contradicts the present state", "Read the object again, then decide."),
    "illegal_move": ("The lifecycle has no such move", "Read the object again; it moved meanwhile."),
    "edited_meanwhile": ("The object has changed", "Read it again and send its new ETag."),
    "idempotency_conflict": ("The idempotency key was used before", "Use a fresh key for another request."),
    "idempotency_in_flight": ("The first request is still at work", "Send the same request again soon."),
    "rate_limited": (
        "Too many requests",
        "Wait as long as Retry-After says; wait_for_events spares polling.",
    ),
    "credit_exhausted": ("The charge does not fit what is left", "Ask for less, or raise the allocation."),
    "site_error": ("Something went wrong at the site", "Look at the system's health, then try again."),
    "site_unreachable": ("The site gave no answer in time", "Try again; this says nothing about work there."),
    "scheduler_down": ("The site answered, its scheduler did not", "Try again later."),
    "scheduler_rejected": ("The scheduler refused", "Read its own words in the detail."),
    "unparsable_output": ("The scheduler printed something unknown", "Nothing was assumed; try again."),
    "profile_invalid": ("The site profile is not valid", "Mend the line named."),
    "database_unavailable": (
        "Facet's database cannot be reached",
        "Send the same request again after Retry-After; with its Idempotency-Key nothing is done twice.",
    ),
    "database_busy": (
        "Too much is asked of Facet's database at once",
        "Send the same request again after Retry-After; with its Idempotency-Key nothing is done twice.",
    ),
    "internal_error": ("Facet failed", "Try again; tell the operator the incident id."),
}
"""What each code means in a line, and what to do about it."""

RETRY_AFTER_S: Mapping[str, int] = {
    "scheduler_down": 30,
    "site_unreachable": 10,
    "unparsable_output": 10,
    "database_unavailable": 5,
    "database_busy": 2,
}


@dataclass(frozen=True, slots=True)
class Problem:
    """One failure as it is sent."""

    status: int
    body: dict[str, Any]
    headers: Mapping[str, str]


def problem_of(error: FacetError) -> Problem:
    """Return what a failure looks like outside."""
    title, remedy = explained(type(error))
    retry_after_s = error.facts.get("retry_after_s", RETRY_AFTER_S.get(error.code))
    body: dict[str, Any] = {
        "type": f"{DOCS}#{error.code}",
        "title": title,
        "status": error.http_status,
        "detail": error.message,
        "code": error.code,
        "retry_safe": error.retryable,
        "errors": _errors(error),
        "remediation": error.remediation or remedy,
        "next_actions": _next_actions(error),
    }
    headers = {}
    if retry_after_s is not None:
        body["retry_after_s"] = retry_after_s
        headers["Retry-After"] = str(retry_after_s)
    facts = {name: value for name, value in error.facts.items() if name not in ("pointer", "retry_after_s")}
    if facts:
        body["facts"] = facts
    return Problem(error.http_status, body, headers | _authenticate(error))


def explained(kind: type[FacetError]) -> tuple[str, str]:
    """Return what a kind of error means and what to do about it; by its docstring where it is not listed."""
    if kind.code in TITLES:
        return TITLES[kind.code]
    said = (kind.__doc__ or kind.code).strip().splitlines()[0].rstrip(".")
    return said, "Read the detail."


def catalogue() -> dict[str, tuple[str, str]]:
    """Return every code there is with what it means, by code."""
    found: dict[str, tuple[str, str]] = dict(TITLES)
    waiting: list[type[FacetError]] = [FacetError]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        found.setdefault(kind.code, explained(kind))
    return dict(sorted(found.items()))


def _errors(error: FacetError) -> list[dict[str, str]]:
    if isinstance(error, InvalidInput):
        return [{"pointer": p, "code": code, "message": text} for p, code, text in error.problems]
    pointer = error.facts.get("pointer")
    if isinstance(pointer, str):
        return [{"pointer": pointer, "code": error.code, "message": error.message}]
    return []


def _next_actions(error: FacetError) -> Sequence[Mapping[str, Any]]:
    """Return skill calls that help from here."""
    task = error.facts.get("task")
    if isinstance(task, str):
        why = "the task that is meant"
        return [{"skill": "get_result", "arguments": {"task": task}, "why": why}]
    return []


def _authenticate(error: FacetError) -> dict[str, str]:
    """Return the challenge that RFC 6750 wants with 401 and with a missing scope."""
    if isinstance(error, Unauthenticated | JobTokenRefused):
        reason = error.facts.get("reason", "")
        known = f', error="invalid_token", error_description="{_quotable(error.message)}"'
        return {"WWW-Authenticate": 'Bearer realm="facet"' + ("" if reason == "no_token" else known)}
    scope = error.facts.get("missing_scope")
    if isinstance(error, NotAuthorized) and scope:
        return {"WWW-Authenticate": f'Bearer realm="facet", error="insufficient_scope", scope="{scope}"'}
    return {}


def _quotable(text: str) -> str:
    return "".join(char if 32 <= ord(char) < 127 and char not in '"\\' else "'" for char in text)


def respond(error: FacetError) -> HttpResponse:
    """Return the response of a failure."""
    problem = problem_of(error)
    content = json.dumps(problem.body, default=str)
    response = HttpResponse(content, status=problem.status, content_type=CONTENT_TYPE)
    for name, value in problem.headers.items():
        response[name] = value
    response["Cache-Control"] = "no-store"
    return response


def answer_exception(error: Exception, context: Mapping[str, Any]) -> HttpResponse:
    """Answer whatever a view raised; what nobody expected is logged, and only its incident id is told."""
    view = context.get("view")
    allowed = ", ".join(getattr(view, "allowed_methods", ()))
    response = respond(translated(error, allowed=allowed))
    if isinstance(error, exceptions.MethodNotAllowed):
        response["Allow"] = allowed
    return response


def translated(error: Exception, *, allowed: str = "") -> FacetError:
    """Return any exception as one of ours."""
    if isinstance(error, FacetError):
        return error
    for kinds, made in _FRAMEWORK:
        if isinstance(error, kinds):
            return made(error, allowed)
    return database_away.failure_of(error) or _unexpected(error)


def _refused(error: Any, _allowed: str) -> FacetError:
    text = str(getattr(error, "detail", error))
    return CsrfFailed(text) if text.startswith("CSRF") else NotAuthorized(text or "Not permitted.")


_FRAMEWORK: Sequence[tuple[tuple[type[Exception], ...], Callable[[Any, str], FacetError]]] = (
    (
        (exceptions.NotAuthenticated, exceptions.AuthenticationFailed),
        lambda _error, _allowed: Unauthenticated(
            "This needs a bearer token or a signed-in session.", reason="no_token"
        ),
    ),
    (
        (exceptions.MethodNotAllowed,),
        lambda _error, allowed: MethodNotAllowed(f"This method is not allowed here; allowed: {allowed}."),
    ),
    ((exceptions.PermissionDenied, PermissionDenied), _refused),
    (
        (exceptions.NotFound, Http404),
        lambda _error, _allowed: NotFound("There is no such route or object."),
    ),
    (
        (exceptions.APIException, RequestDataTooBig, UnreadablePostError),
        lambda error, _allowed: StrangeRequest(str(error)),
    ),
)
"""What Django and its REST framework raise, and what it is in our words."""


def _unexpected(error: Exception) -> FacetError:
    incident = f"inc_{secrets.token_hex(6)}"
    _log.error("incident %s: %s", incident, type(error).__name__, exc_info=error)
    return FacetError(f"Something failed inside Facet. Incident {incident}.", incident=incident)


def _is_api(request: HttpRequest) -> bool:
    return f"{request.path_info}/".startswith(API)


def strange_request(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    """Answer a request that Django itself refused (host, size, headers)."""
    if not _is_api(request):
        return defaults.bad_request(request, exception)
    why = str(exception).split(".")[0] if settings.DEBUG else type(exception).__name__
    return respond(StrangeRequest(f"The request was refused: {why}."))


def not_found(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    """Answer a path that no route has."""
    if not _is_api(request):
        return defaults.page_not_found(request, exception)
    return respond(NotFound(f"There is no {request.path_info}.", remediation="See /api/v1/docs."))


def without_database(request: HttpRequest, failure: FacetError) -> HttpResponse:
    """Answer what needs a database that cannot be used: a problem to programs, a page to people."""
    if _is_api(request):
        return respond(failure)
    problem = problem_of(failure)
    context = {"again_s": problem.body["retry_after_s"] if request.method == "GET" else None}
    response = HttpResponse(render_to_string("503.html", context), status=problem.status)
    for name, value in problem.headers.items():
        response[name] = value
    response["Cache-Control"] = "no-store"
    return response


def server_error(request: HttpRequest) -> HttpResponseBase:
    """Answer a failure that no view caught."""
    failure = database_away.failure_of(sys.exc_info()[1])
    if failure is not None:
        return without_database(request, failure)
    if not _is_api(request):
        return defaults.server_error(request)
    return respond(_unexpected(RuntimeError(f"a failure outside of every view at {request.path_info}")))
