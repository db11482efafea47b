"""Every error Facet raises on purpose, as one tree.

FacetError
├── InvalidInput            the caller's words cannot be read; names the field and the fix
│   └── ProfileInvalid      a site profile fails its schema; carries line and column
├── NotFound                no such object for this caller (another user's object included)
├── Gone                    it was there and is kept no longer
├── NotAuthorized           the caller is known, the scope or permission is missing
├── Conflict                the request contradicts the present state
│   ├── IllegalMove         the lifecycle has no such move, or another worker moved first
│   └── IdempotencyConflict the key was used with another body, or is in flight
├── SiteError               something at a site
│   ├── SiteUnreachable     no answer within our deadline; says nothing about the work there
│   ├── SchedulerDown       the site answered, its scheduler did not
│   ├── SchedulerRejected   the scheduler refused, in its own words
│   └── UnparsableOutput    the scheduler printed something we do not know; nothing is assumed
├── CreditExhausted         the charge does not fit what is left on that site or budget
└── RateLimited             too many requests; try again after `retry_after_s`
"""

from collections.abc import Mapping
from typing import ClassVar


class FacetError(Exception):
    """Say what happened: a stable code, an HTTP status, whether trying again is safe, and the facts."""

    code: ClassVar[str] = "internal_error"
    http_status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, remediation: str = "", **facts: object) -> None:
        super().__init__(message)
        self.message = message
        self.remediation = remediation
        self.facts: Mapping[str, object] = facts


class InvalidInput(FacetError):
    """The input cannot be read; `problems` lists every fault as (JSON pointer, code, message)."""

    code = "invalid_input"
    http_status = 422

    def __init__(
        self,
        message: str,
        *,
        problems: tuple[tuple[str, str, str], ...] = (),
        remediation: str = "",
        **facts: object,
    ) -> None:
        super().__init__(message, remediation=remediation, **facts)
        self.problems = problems


class ProfileInvalid(InvalidInput):
    """A site profile fails its schema; facts hold `line` and `column` (both from 1) of the first fault."""

    code = "profile_invalid"


class NotFound(FacetError):
    """No such object for this caller."""

    code = "not_found"
    http_status = 404


class Gone(FacetError):
    """What is asked for was there and is kept no longer."""

    code = "gone"
    http_status = 410


class NotAuthorized(FacetError):
    """The caller is known but lacks the scope or permission."""

    code = "not_authorized"
    http_status = 403


class Conflict(FacetError):
    """The request contradicts the present state."""

    code = "conflict"
    http_status = 409


class IllegalMove(Conflict):
    """The lifecycle has no such move, or another worker moved first."""

    code = "illegal_move"


class IdempotencyConflict(Conflict):
    """The idempotency key was used with another body (422) or its first use is in flight (409)."""

    code = "idempotency_conflict"


class SiteError(FacetError):
    """Something at a site went wrong."""

    code = "site_error"
    http_status = 502


class SiteUnreachable(SiteError):
    """No answer within our deadline. Says nothing about the work running there."""

    code = "site_unreachable"
    http_status = 504
    retryable = True


class SchedulerDown(SiteError):
    """The site answered, its scheduler did not."""

    code = "scheduler_down"
    http_status = 503
    retryable = True


class SchedulerRejected(SiteError):
    """The scheduler refused the request; `facts["said"]` holds its own words."""

    code = "scheduler_rejected"
    http_status = 422


class UnparsableOutput(SiteError):
    """The scheduler printed something we do not know. Nothing is assumed from it."""

    code = "unparsable_output"
    retryable = True


class CreditExhausted(FacetError):
    """The charge does not fit what is left."""

    code = "credit_exhausted"
    http_status = 409


class RateLimited(FacetError):
    """Too many requests; `facts["retry_after_s"]` says when to come back."""

    code = "rate_limited"
    http_status = 429
    retryable = True
