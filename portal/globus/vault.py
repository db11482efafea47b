"""The lock on delegated access: `portal.sealing` under a purpose of its own."""

from portal import sealing

PURPOSE = "globus tokens"


def seal(text: str) -> str:
    """Return the text encrypted with the newest key."""
    return sealing.seal(text, purpose=PURPOSE)


def unseal(sealed: str) -> str:
    """Return the text of what `seal` made with the present key or an earlier one.

    Raises:
        Unreadable: neither SECRET_KEY nor its fallbacks open it.
    """
    return sealing.unseal(sealed, purpose=PURPOSE)
