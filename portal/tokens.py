"""API tokens: made once, kept as a hash, scoped, expiring, revocable."""

import hashlib
import secrets
from collections.abc import Sequence
from datetime import datetime

from django.contrib.auth.models import AbstractBaseUser

from federation.handles import new_handle
from portal.models import ApiToken

PREFIX = "facet_"


def digest(secret: str) -> str:
    """Return what is kept of a token. It has 256 random bits, so one round of SHA-256 is enough."""
    return hashlib.sha256(secret.encode()).hexdigest()


def issue(
    user: AbstractBaseUser,
    *,
    name: str,
    scopes: Sequence[str],
    now: datetime,
    expires_at: datetime | None = None,
) -> str:
    """Make a token and return its secret, which is shown this once and never again."""
    secret = PREFIX + secrets.token_urlsafe(32)
    ApiToken.objects.create(
        handle=new_handle("tok", now),
        user_id=user.pk,
        name=name,
        prefix=secret[:12],
        digest=digest(secret),
        scopes=list(scopes),
        created_at=now,
        expires_at=expires_at,
    )
    return secret
