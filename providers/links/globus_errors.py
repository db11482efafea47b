"""What Globus Compute's refusals mean to a person, in one place.

Not verified against the hosted service, and therefore written only here: the codes and statuses of
`_MEANINGS` for an endpoint that is offline, unknown or somebody else's, and a function that is not allowed;
the names of states in flight (anything but `success` and `failed` is taken as "not yet"); and the words in
`_LOST_WORKER` by which a failed task says that its worker was lost rather than that our function raised.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from globus_sdk import GlobusAPIError, NetworkError
from globus_sdk.exc import GlobusError

from providers.errors import (
    FacetError,
    InvalidInput,
    NotAuthorized,
    RateLimited,
    SiteUnreachable,
    UnparsableOutput,
)
from providers.globus_words import shown

DONE = frozenset({"success", "failed"})
"""Task states after which nothing changes; every other word means that it is still on its way."""
LIMIT_BYTES = 10 * 1024 * 1024
"""The service's limit for what is sent and for what comes back (hosted documentation)."""

_LOST_WORKER = re.compile(r"\b(WorkerLost|ManagerLost|EndpointLost|BadStateException|ExecutorError)\b")
_TOO_LARGE = re.compile(r"\b(MaxResultSizeExceeded|ResultTooLarge)\b")
_OTHER_PYTHON = re.compile(
    r"\b(SyntaxError|DeserializationError|SerdeError|ImportError|ModuleNotFoundError)\b"
)
_NOT_MAPPED = re.compile(r"(failed|attempting) to map to a local user|mapped to a local user name, but")
"""How an agent (4.19) says that nobody at its site is the person who asks."""
_WHO = ("Globus effective identity:", "Globus username:", "Local user name:")
"""Lines by which an agent adds whom a refusal is about, after what it is."""


class SignInNeeded(Exception):
    """The access is not good enough any more; `parameters` say what the next sign-in has to satisfy."""

    def __init__(self, reason: str, *, parameters: Mapping[str, Any] | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.parameters = dict(parameters or {})


class TokenRefused(Exception):
    """The service did not accept this access token; a fresh one may do."""


class FunctionUnknown(Exception):
    """The function that we registered is no longer there."""


def _offline(endpoint: str, said: str) -> FacetError:
    return SiteUnreachable(
        f"The Globus Compute endpoint {endpoint} is not online: {said}",
        remediation="The site's administrators can start it: globus-compute-endpoint start.",
        endpoint=endpoint,
    )


def _gone(endpoint: str, said: str) -> FacetError:
    return SiteUnreachable(
        f"There is no Globus Compute endpoint {endpoint}: {said}",
        remediation="It was deleted, or the id is wrong; ask the site for the present one.",
        endpoint=endpoint,
    )


def _not_yours(endpoint: str, said: str) -> FacetError:
    return NotAuthorized(
        f"The Globus Compute endpoint {endpoint} does not let you in: {said}",
        remediation="Ask the site to map your Globus identity, or connect with the identity that it knows.",
        endpoint=endpoint,
    )


def _not_allowed(endpoint: str, said: str) -> FacetError:
    return NotAuthorized(
        f"The Globus Compute endpoint {endpoint} does not allow Facet's function: {said}",
        remediation="The site can add it to allowed_functions; see docs/howto/prepare-an-endpoint.md.",
        endpoint=endpoint,
    )


def _too_large(endpoint: str, said: str) -> FacetError:
    return InvalidInput(
        f"The request is larger than the {LIMIT_BYTES >> 20} MB that Globus Compute carries: {said}",
        remediation="Shorten the script, or move large input as data.",
        endpoint=endpoint,
    )


def _bad_config(endpoint: str, said: str) -> FacetError:
    return InvalidInput(
        f"The Globus Compute endpoint {endpoint} does not accept the connection's settings: {said}",
        remediation="An administrator can correct user_endpoint_config of this connection.",
        endpoint=endpoint,
    )


_MEANINGS: tuple[tuple[int, str, Callable[[str, str], FacetError]], ...] = (
    (404, "ENDPOINT_NOT_FOUND", _gone),
    (410, "", _gone),
    (403, "FUNCTION_NOT_PERMITTED", _not_allowed),
    (403, "", _not_yours),
    (409, "ENDPOINT_NOT_ONLINE", _offline),
    (423, "", _offline),
    (413, "", _too_large),
    (422, "", _bad_config),
)
"""(HTTP status, code or "" for any, meaning); the first that fits."""


def retry_after_s(error: GlobusAPIError) -> float | None:
    """Return what `Retry-After` asks for in seconds; None when it says nothing we can read."""
    said = error.headers.get("Retry-After", "") if error.headers else ""
    try:
        return max(0.0, float(said))
    except ValueError:
        return None


def refusal(error: GlobusAPIError, endpoint: str) -> Exception:
    """Return the exception that a refused request stands for."""
    said = shown(error.message or error.code or error.http_status)
    parameters = _step_up(error)
    if parameters is not None:
        return SignInNeeded(shown(parameters.get("session_message") or said), parameters=parameters)
    if error.http_status == 401:
        return TokenRefused(said)
    if error.http_status == 404 and error.code == "FUNCTION_NOT_FOUND":
        return FunctionUnknown(said)
    if error.http_status == 429:
        wait_s = retry_after_s(error)
        return RateLimited(
            "Globus Compute answers that there are too many requests.",
            retry_after_s=10 if wait_s is None else wait_s,
        )
    for status, code, meaning in _MEANINGS:
        if error.http_status == status and code in ("", error.code):
            return meaning(endpoint, said)
    return SiteUnreachable(
        f"Globus Compute answered {error.http_status} ({said}).",
        status=error.http_status,
        endpoint=endpoint,
    )


def _step_up(error: GlobusAPIError) -> dict[str, Any] | None:
    """Return what the next sign-in must satisfy; None when the refusal asks for none."""
    found = error.info.authorization_parameters
    if not found:
        return None
    wanted = {
        name: getattr(found, name, None)
        for name in (
            "session_message",
            "session_required_identities",
            "session_required_policies",
            "session_required_single_domain",
            "session_required_mfa",
        )
    }
    return {name: value for name, value in wanted.items() if value}


def no_answer(error: GlobusError, endpoint: str) -> SiteUnreachable:
    """Return what a request without an answer stands for."""
    what = "could not be reached" if isinstance(error, NetworkError) else "gave no usable answer"
    return SiteUnreachable(f"Globus Compute {what}.", endpoint=endpoint, kind=type(error).__name__)


def failed_task(exception: str, endpoint: str) -> FacetError:
    """Return what a failed task stands for; the work that it started may nevertheless go on."""
    lines = [line.strip() for line in exception.splitlines()]
    said = [line for line in lines if line and not line.startswith(_WHO)] or ["no reason given"]
    last = said[-1]
    if _NOT_MAPPED.search(exception):
        return _not_yours(endpoint, said[0][:200])
    if _TOO_LARGE.search(exception):
        return UnparsableOutput(
            f"The site's answer is larger than the {LIMIT_BYTES >> 20} MB that Globus Compute carries.",
            remediation="Ask for less at once, for instance fewer jobs or a shorter log.",
            endpoint=endpoint,
        )
    if _LOST_WORKER.search(exception):
        return SiteUnreachable(
            f"The endpoint {endpoint} lost the worker that ran our request: {last[:200]}", endpoint=endpoint
        )
    if _OTHER_PYTHON.search(exception):
        return SiteUnreachable(
            f"The Python of endpoint {endpoint} cannot run Facet's function: {last[:200]}",
            remediation="The endpoint's environment needs a complete Python of version 3.6 or later.",
            endpoint=endpoint,
        )
    return SiteUnreachable(f"Our request failed at endpoint {endpoint}: {last[:200]}", endpoint=endpoint)
