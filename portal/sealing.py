"""The lock on what must not be readable in the database: Fernet keys made from the secret keys."""

import base64

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings

from providers.errors import FacetError


class Unreadable(FacetError):
    """What is stored was sealed with a key that is not known any more."""

    code = "sealed_with_lost_key"


def _key(secret: str, purpose: str) -> Fernet:
    info = f"facet {purpose} v1".encode()
    derived = HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(secret.encode())
    return Fernet(base64.urlsafe_b64encode(derived))


def _keys(purpose: str) -> MultiFernet:
    known = (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)
    return MultiFernet([_key(secret, purpose) for secret in known])


def seal(text: str, *, purpose: str) -> str:
    """Return the text encrypted with the newest key; what one purpose sealed no other opens."""
    return _keys(purpose).encrypt(text.encode()).decode()


def unseal(sealed: str, *, purpose: str) -> str:
    """Return the text of what `seal` made with the present key or an earlier one.

    Raises:
        Unreadable: neither SECRET_KEY nor its fallbacks open it.
    """
    try:
        return _keys(purpose).decrypt(sealed.encode()).decode()
    except InvalidToken:
        raise Unreadable(
            "A stored secret was sealed with a key that is not known any more.",
            remediation="Give the earlier key in FACET_SECRET_KEY_FALLBACKS, or connect or rotate anew.",
        ) from None


def is_newest(sealed: str, *, purpose: str) -> bool:
    """Say whether the newest key alone opens it."""
    try:
        _key(settings.SECRET_KEY, purpose).decrypt(sealed.encode())
    except InvalidToken:
        return False
    return True
