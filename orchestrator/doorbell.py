"""Telling a worker that there is work now. A lost ring costs a moment: the clock finds the work too."""

import logging
from collections.abc import Callable

_log = logging.getLogger(__name__)
_bells: dict[str, Callable[[int], None]] = {}


def hang(name: str, bell: Callable[[int], None]) -> None:
    """Install what a ring of that name does (the queue's own call); a second one replaces the first."""
    _bells[name] = bell


def ring(name: str, row_id: int) -> None:
    """Ring; silent where no bell hangs (a command line without a queue). Never fails."""
    bell = _bells.get(name)
    if bell is None:
        return
    try:
        bell(row_id)
    except Exception:  # noqa: BLE001  # whatever the queue's client raises while its server is away
        _log.warning(
            "the bell %s could not be rung for %s; the clock will find it", name, row_id, exc_info=True
        )
