"""The token a job reports milestones with: signed, for one attempt, good for nothing else.

Nothing is stored: the signature vouches for it. It ends with its attempt, an hour after the wall time at the
latest, and 60 days after it was made whatever happens (a job may wait that long).
"""

from datetime import datetime, timedelta

from django.core import signing

from orchestrator.models import Attempt
from orchestrator.plain_text import JOB_TOKEN_PREFIX
from providers.errors import FacetError

_SALT = "facet.milestone"
LONGEST = timedelta(days=60)
GRACE = timedelta(hours=1)


class JobTokenRefused(FacetError):
    """The job token is not ours, or no longer good."""

    code = "job_token_refused"
    http_status = 401


def issue(attempt: Attempt, *, now: datetime) -> str:
    """Return a token for an attempt that is about to be submitted."""
    until = int((now + LONGEST).timestamp())
    return JOB_TOKEN_PREFIX + signing.dumps([attempt.handle, until], salt=_SALT)


def attempt_of(token: str, *, now: datetime) -> str:
    """Return the handle of the attempt a token was made for.

    Raises:
        JobTokenRefused: it is not ours, or too old.
    """
    if not token.startswith(JOB_TOKEN_PREFIX):
        raise JobTokenRefused("This needs a job token.", remediation="Send FACET_JOB_TOKEN as the bearer.")
    try:
        handle, until = signing.loads(token.removeprefix(JOB_TOKEN_PREFIX), salt=_SALT)
    except (signing.BadSignature, ValueError, TypeError):
        raise JobTokenRefused("The job token is not known.") from None
    if now.timestamp() > until:
        raise JobTokenRefused("The job token is too old.")
    return str(handle)


def check_lasts(attempt: Attempt, *, now: datetime) -> None:
    """Do nothing while an attempt's token is good.

    Raises:
        JobTokenRefused: the attempt has ended, or ran for an hour longer than it may.
    """
    if attempt.finished_at is not None:
        raise JobTokenRefused("The attempt of this token has ended.")
    started = attempt.started_at
    if started is not None and now > started + timedelta(seconds=attempt.shape["walltime_s"]) + GRACE:
        raise JobTokenRefused("The wall time of this token's job is over.")
