"""Idempotency keys: the first answer to a request that creates is kept and given to its repetitions.

A request takes its key (`begin`), works, and keeps its answer (`finish`) or lets the key go (`abandon`). What
it made is noted in the transaction that made it (`note`), so that a request that died in between is resumed,
never repeated: whoever comes later finds the handle and answers from that.
"""

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from cryptography.fernet import Fernet, InvalidToken
from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.db import IntegrityError, transaction

from portal.models import IdempotencyRecord
from providers.errors import FacetError, IdempotencyConflict, InvalidInput

KEPT_FOR = timedelta(hours=48)
PRESUMED_DEAD_AFTER = timedelta(seconds=60)
_KEY = re.compile(r"^[\x21-\x7e]{1,200}$")


class KeyReused(IdempotencyConflict):
    """The key was used before with another body or at another place."""

    http_status = 422


class InFlight(IdempotencyConflict):
    """The first request with this key is still at work."""

    code = "idempotency_in_flight"
    retryable = True


@dataclass(frozen=True, slots=True)
class Kept:
    """An answer as it was given."""

    status: int
    body: Any
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Begun:
    """A key that is ours now. `created`: what an earlier request with it made before it died."""

    record_id: int
    started_at: datetime
    created: str = ""

    def note(self, handle: str) -> None:
        """Write down what was made; call it in the transaction that makes it.

        Raises:
            InFlight: another request has taken the key over meanwhile; raising undoes what was made.
        """
        ours = IdempotencyRecord.objects.filter(pk=self.record_id, started_at=self.started_at)
        if ours.update(created=handle) == 0:
            raise _in_flight()


def _in_flight() -> FacetError:
    return InFlight(
        "The first request with this Idempotency-Key is still at work.",
        remediation="Send the same request again in a moment.",
        retry_after_s=2,
    )


def fingerprint(route: str, body: object) -> str:
    """Return the digest of a request: where it went and what it said, key order aside."""
    said = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(f"{route}\n{said}".encode()).hexdigest()


def begin(user: AbstractBaseUser, key: str, *, route: str, body: object, now: datetime) -> Begun | Kept:
    """Take a key, or return the answer that was given under it.

    Raises:
        InvalidInput: the key is not 1 to 200 visible ASCII characters.
        KeyReused: it was used with another body.
        InFlight: its first use is at work.
    """
    if not _KEY.match(key):
        message = "Idempotency-Key must be 1 to 200 visible ASCII characters."
        raise InvalidInput(message, problems=(("", "bad_idempotency_key", message),))
    seen = fingerprint(route, body)
    try:
        with transaction.atomic():
            fresh = IdempotencyRecord.objects.create(
                user_id=user.pk, key=key, route=route[:120], body_digest=seen, created_at=now, started_at=now
            )
    except IntegrityError:
        return _known(user, key, seen=seen, now=now)
    return Begun(fresh.pk, now)


@transaction.atomic
def _known(user: AbstractBaseUser, key: str, *, seen: str, now: datetime) -> Begun | Kept:
    row = IdempotencyRecord.objects.select_for_update().filter(user_id=user.pk, key=key).first()
    if row is None:
        raise _in_flight()  # its first user let it go just now: the next try will have it
    if row.body_digest != seen:
        raise KeyReused(
            "This Idempotency-Key was used before with another request.",
            remediation="Use a fresh key for a different request.",
        )
    if row.status is not None:
        return Kept(row.status, _opened(row.body), row.headers)
    if now - row.started_at < PRESUMED_DEAD_AFTER:
        raise _in_flight()
    row.started_at = now
    row.save(update_fields=["started_at"])
    return Begun(row.pk, now, row.created)


def finish(begun: Begun, answer: Kept, *, is_secret: bool = False) -> None:
    """Keep an answer; a secret one is encrypted."""
    body = _sealed(answer.body) if is_secret else answer.body
    IdempotencyRecord.objects.filter(pk=begun.record_id, started_at=begun.started_at).update(
        status=answer.status, body=body, headers=dict(answer.headers)
    )


def abandon(begun: Begun) -> None:
    """Let a key go after a failure; where something was made, its next use resumes from that at once."""
    ours = IdempotencyRecord.objects.filter(
        pk=begun.record_id, started_at=begun.started_at, status__isnull=True
    )
    ours.filter(created="").delete()
    ours.update(started_at=begun.started_at - PRESUMED_DEAD_AFTER)


def prune(*, now: datetime) -> int:
    """Forget answers older than two days; return how many."""
    return IdempotencyRecord.objects.filter(created_at__lt=now - KEPT_FOR).delete()[0]


def _cipher() -> Fernet:
    key = hashlib.sha256(b"facet idempotency\0" + settings.SECRET_KEY.encode()).digest()
    return Fernet(base64.urlsafe_b64encode(key))


def _sealed(body: object) -> dict[str, str]:
    return {"sealed": _cipher().encrypt(json.dumps(body).encode()).decode()}


def _opened(body: Any) -> Any:
    """Return a kept body.

    Raises:
        KeyReused: it was sealed with an earlier secret key and cannot be read any more.
    """
    if not (isinstance(body, dict) and set(body) == {"sealed"}):
        return body
    try:
        return json.loads(_cipher().decrypt(body["sealed"]))
    except InvalidToken:
        raise KeyReused("The kept answer can no longer be read; use a fresh key.") from None
