"""The lock on what must not be read from the database: Fernet keys made from the secret keys."""

import base64

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings

from providers.errors import FacetError

_PURPOSE = b"facet globus tokens v1"


class Unreadable(FacetError):
    """What is stored was sealed with a key that is not known any more."""

    code = "sealed_with_lost_key"


def _key(secret: str) -> Fernet:
    derived = HKDF(algorithm=SHA256(), length=32, salt=None, info=_PURPOSE).derive(secret.encode())
    return Fernet(base64.urlsafe_b64encode(derived))


def _keys() -> MultiFernet:
    return MultiFernet([_key(secret) for secret in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)])


def seal(text: str) -> str:
    """Return the text encrypted with the newest key."""
    return _keys().encrypt(text.encode()).decode()


def unseal(sealed: str) -> str:
    """Return the text of what `seal` made with the present key or an earlier one.

    Raises:
        Unreadable: neither SECRET_KEY nor its fallbacks open it.
    """
    try:
        return _keys().decrypt(sealed.encode()).decode()
    except InvalidToken:
        raise Unreadable(
            "A stored access was sealed with a key that is not known any more.",
            remediation="Give the earlier key in FACET_SECRET_KEY_FALLBACKS, or have the user connect again.",
        ) from None


def is_newest(sealed: str) -> bool:
    """Say whether the newest key alone opens it."""
    try:
        _key(settings.SECRET_KEY).decrypt(sealed.encode())
    except InvalidToken:
        return False
    return True
