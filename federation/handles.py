"""Handles: the names by which the outside knows our objects.

A handle is a kind prefix and 26 characters of Crockford base 32: 48 bits of epoch milliseconds, then 80
random bits (the ULID layout), so handles sort by the time they were made. Integer keys never leave the
database.
"""

import secrets
from datetime import datetime

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def new_handle(prefix: str, now: datetime) -> str:
    """Return a fresh handle such as `task_01jq…`; `now` must be aware."""
    number = (int(now.timestamp() * 1000) << 80) | secrets.randbits(80)
    letters = []
    for _ in range(26):
        number, digit = divmod(number, 32)
        letters.append(_ALPHABET[digit])
    return f"{prefix}_{''.join(reversed(letters))}"
