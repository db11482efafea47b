"""What must be ready at a site before work can run, as one word that equal environments share. Pure.

An image is fetched before its first use; an environment of Conda or set-up commands is built by the work that
first runs there; modules are only loaded, but the first load of large software from a cold file system takes
time too. What each takes is learned from own runs; only for images does a site profile say it beforehand.
"""

from collections.abc import Mapping
from hashlib import sha256
from json import dumps
from typing import Any

BUILT = "build:"
LOADED = "modules:"
MOST_CHARS = 300
"""Longer names of images are kept as their digest."""


def environment_of(stated: Mapping[str, Any] | None, image: str | None) -> str | None:
    """Return the word for a task's environment; None where nothing has to be ready.

    Args:
        stated: the task's `environment`, None where only an envelope is known.
        image: what the envelope's container names; the task's own goes before it.
    """
    own = stated or {}
    named = fetched(own.get("container") or image)
    if named is not None:
        return named if len(named) <= MOST_CHARS else f"image:{_digest(named)}"
    parts = {name: own[name] for name in ("modules", "conda", "setup") if own.get(name)}
    if not parts:
        return None
    return (LOADED if set(parts) == {"modules"} else BUILT) + _digest(parts)


def fetched(image: str | None) -> str | None:
    """Return an image that a site fetches before its first use; None for a file, there or not."""
    is_file = image is not None and (image.startswith(("/", "./", "~", "$")) or image.endswith(".sif"))
    return None if is_file else image


def _digest(content: object) -> str:
    return sha256(dumps(content, sort_keys=True).encode()).hexdigest()[:32]
