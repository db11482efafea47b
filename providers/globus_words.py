"""Words of Globus services, made fit to be shown: whatever a service quotes, no token of ours is repeated."""

import re

_TOKEN = re.compile(r"\bAgr?[A-Za-z0-9_-]{30,}")
"""Access and refresh tokens, as Globus Auth makes them."""


def shown(text: object, *, length: int = 300) -> str:
    """Return a service's words on one line, without tokens, cut to a length."""
    return _TOKEN.sub("[token]", " ".join(str(text).split()))[:length]
