"""One status request for everything of a user that is in flight, whichever process waits for it.

Every waiting call writes its task on the user's board. Who asks the service asks for all tasks on the board
and pins up what has ended, so the others find their answer without a request of their own. Without Redis
each call asks for its own task only.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from redis import Redis, RedisError

_KEPT_S = 120
"""How long an answer stays pinned up for the call that waits for it."""
_AT_ONCE = 100
_PIN_BYTES = 1024 * 1024
"""A larger answer is not pinned up: who waits for it asks itself."""


class Board(Protocol):
    """What is in flight for each user."""

    def watch(self, owner: str, task_id: str, *, for_s: float) -> None:
        """Put a task on the user's board."""
        ...

    def answer(self, task_id: str) -> Mapping[str, Any] | None:
        """Return what another call has found out about a task; None = nothing yet."""
        ...

    def open_tasks(self, owner: str, mine: str) -> Sequence[str]:
        """Return every task to ask for, this one first."""
        ...

    def pin(self, owner: str, ended: Mapping[str, Mapping[str, Any]]) -> None:
        """Take ended tasks off the board and keep their answers for who waits for them."""
        ...


class OwnBoard:
    """A board for one call only."""

    def watch(self, owner: str, task_id: str, *, for_s: float) -> None:
        """Nobody else looks here."""

    def answer(self, task_id: str) -> Mapping[str, Any] | None:
        """Nobody else asks."""
        del task_id
        return None

    def open_tasks(self, owner: str, mine: str) -> Sequence[str]:
        """Return this task."""
        del owner
        return (mine,)

    def pin(self, owner: str, ended: Mapping[str, Mapping[str, Any]]) -> None:
        """Nobody else looks here."""


class SharedBoard:
    """A board in Redis that all processes share; while Redis is away each call looks after itself."""

    def __init__(self, redis: Callable[[], Redis]) -> None:
        self._redis = redis

    def watch(self, owner: str, task_id: str, *, for_s: float) -> None:
        """Put a task on the user's board until its call gives up."""
        self._try(lambda r: r.zadd(_open(owner), {task_id: time.time() + for_s}))

    def answer(self, task_id: str) -> Mapping[str, Any] | None:
        """Return what another call has found out about a task, once; None = nothing yet."""
        found = self._try(lambda r: r.getdel(_pinned(task_id)))
        return None if found is None else json.loads(found)

    def open_tasks(self, owner: str, mine: str) -> Sequence[str]:
        """Return every task to ask for, this one first."""
        now = time.time()
        self._try(lambda r: r.zremrangebyscore(_open(owner), "-inf", now))
        found = self._try(lambda r: r.zrange(_open(owner), 0, _AT_ONCE - 2)) or []
        others = [word.decode() if isinstance(word, bytes) else str(word) for word in found]
        return (mine, *(task for task in others if task != mine))

    def pin(self, owner: str, ended: Mapping[str, Mapping[str, Any]]) -> None:
        """Take ended tasks off the board and keep their answers for who waits for them."""
        for task_id, found in ended.items():
            self._pin_one(owner, task_id, json.dumps(found))

    def _pin_one(self, owner: str, task_id: str, text: str) -> None:
        if len(text) <= _PIN_BYTES:
            self._try(lambda r: r.set(_pinned(task_id), text, ex=_KEPT_S))
        self._try(lambda r: r.zrem(_open(owner), task_id))

    def _try(self, command: Callable[[Redis], Any]) -> Any:
        try:
            return command(self._redis())
        except RedisError:
            return None


def _open(owner: str) -> str:
    return f"facet:globus:open:{owner}"


def _pinned(task_id: str) -> str:
    return f"facet:globus:answer:{task_id}"
