"""Passwords are not guessed here: after some failures a name, from one address or from all, has to wait.

The counts live in Redis, so that all web processes share them. Redis away: nobody is counted, as with the
limits of the API.
"""

import hashlib
import logging
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from redis import RedisError

from portal import heartbeat

_log = logging.getLogger(__name__)
WINDOW_S = 900


@dataclass(frozen=True, slots=True)
class Limit:
    """How many failures within the window are let pass, counted under one key."""

    key: str
    failures: int


def limits(username: str, address: str) -> tuple[Limit, ...]:
    """Return what is counted for a try: this name there, everybody there, this name anywhere."""
    name = hashlib.sha256(username.casefold().encode()).hexdigest()[:32]
    return (
        Limit(f"facet:sign-in:{name}:{address}", 10),
        Limit(f"facet:sign-in:from:{address}", 100),
        Limit(f"facet:sign-in:name:{name}", 50),
    )


def wait_s(known: tuple[Limit, ...]) -> int:
    """Return how long to wait, s; 0: no need to."""
    client = heartbeat.redis_client()
    counts = client.mget([limit.key for limit in known])
    over = [limit for limit, count in zip(known, counts, strict=True) if int(count or 0) >= limit.failures]
    return max((max(1, int(client.ttl(limit.key))) for limit in over), default=0)


def note_failure(known: tuple[Limit, ...]) -> None:
    """Count a failure; the window begins with the first."""
    with heartbeat.redis_client().pipeline() as pipe:
        for limit in known:
            pipe.set(limit.key, 0, ex=WINDOW_S, nx=True)
            pipe.incr(limit.key)
        pipe.execute()


class LimitedModelBackend(ModelBackend):
    """Django's own check of a password, for every form that asks for one (pages and admin)."""

    def authenticate(
        self,
        request: HttpRequest | None,
        username: str | None = None,
        password: str | None = None,
        **kwargs: Any,
    ) -> User | None:
        """Return the user; None when name or password is wrong.

        Raises:
            ValidationError: too many were wrong before; the form shows how long to wait.
        """
        if request is None or username is None:
            return super().authenticate(request, username, password, **kwargs)
        known = limits(username, request.META.get("REMOTE_ADDR", ""))
        try:
            wait = wait_s(known)
            if not wait:
                found = super().authenticate(request, username, password, **kwargs)
                if found is None and password is not None:
                    note_failure(known)
                return found
        except RedisError as error:
            _log.warning("sign-ins are not counted, Redis is away: %s", error)
            return super().authenticate(request, username, password, **kwargs)
        minutes = -(-wait // 60)
        unit = "minute" if minutes == 1 else "minutes"
        said = f"Too many sign-ins failed. Try again in {minutes} {unit}, or sign in another way."
        raise ValidationError(said, code="too_many_sign_ins")
