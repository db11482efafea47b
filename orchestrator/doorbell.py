"""Telling a worker that there is work now. A lost ring costs a moment: the clock finds the work too."""

from collections.abc import Callable

_bells: dict[str, Callable[[int], None]] = {}


def hang(name: str, bell: Callable[[int], None]) -> None:
    """Install what a ring of that name does (the queue's own call); a second one replaces the first."""
    _bells[name] = bell


def ring(name: str, row_id: int) -> None:
    """Ring; silent where no bell hangs (a command line without a queue)."""
    bell = _bells.get(name)
    if bell is not None:
        bell(row_id)
