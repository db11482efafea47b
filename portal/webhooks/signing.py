"""Secrets and signatures of Standard Webhooks (standardwebhooks.com, v1). Pure but for making a secret."""

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Mapping, Sequence

PREFIX = "whsec_"
_SECRET_BYTES = 32
PURPOSE = "webhook secret"
"""What the secrets are sealed for."""


def new_secret() -> str:
    """Return a fresh secret as its receiver is given it."""
    return PREFIX + base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()


def key_of(secret: str) -> bytes:
    """Return the key in a secret.

    Raises:
        ValueError: it is no `whsec_` secret.
    """
    try:
        return base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except binascii.Error as error:
        raise ValueError("not a whsec_ secret") from error


def signature(secret: str, *, id_: str, timestamp: int, body: bytes) -> str:
    """Return `v1,` and the base64 HMAC-SHA256 over `id.timestamp.body`; `timestamp` in epoch seconds."""
    signed = f"{id_}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(key_of(secret), signed, hashlib.sha256)).decode()


def headers(secrets_: Sequence[str], *, id_: str, timestamp: int, body: bytes) -> Mapping[str, str]:
    """Return the headers of one request, signed with every secret that is valid now."""
    signatures = [signature(each, id_=id_, timestamp=timestamp, body=body) for each in secrets_]
    return {
        "webhook-id": id_,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(signatures),
        "content-type": "application/json",
        "user-agent": "Facet-Webhooks/1",
    }
