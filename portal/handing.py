"""Handing rows to the queue so that it stays short enough to be worked off, however slow the workers are.

The clock looks every second at what is due. What waits in the queue already is not handed out again, and of
the tasks only so many wait at once: workers that fall behind must not find the queue full of what was handed
out long ago. Nor does anything lapse for having waited for seconds: behind a long queue everything would.
"""

import contextlib
from collections.abc import Sequence

from redis import RedisError

from portal.heartbeat import redis_client

QUEUE = "default"
PATIENCE_S = 60
"""How long a chore may wait for its turn before it lapses."""
_MARK_S = 10
"""How long it is believed to wait: a worker that is killed takes what it had not begun with it."""
LONGEST = 100
"""Chores in the queue beyond which no further task is handed out."""


def room() -> int:
    """Return how many more tasks the queue may take now.

    Raises:
        redis.RedisError: Redis cannot be reached.
    """
    return max(0, LONGEST - int(redis_client().llen(QUEUE)))


def offer(name: str, rows: Sequence[int], *, most: int | None = None) -> list[int]:
    """Return those of the rows that do not wait for this chore already, and note that they do from now on.

    Raises:
        redis.RedisError: Redis cannot be reached.
    """
    if not rows or most == 0:
        return []
    client = redis_client()
    waiting = client.mget([_key(name, row) for row in rows])
    fresh = [row for row, mark in zip(rows, waiting, strict=True) if mark is None][:most]
    with client.pipeline(transaction=False) as pipe:
        for row in fresh:
            pipe.set(_key(name, row), "1", nx=True, ex=_MARK_S)
        marked = pipe.execute()
    return [row for row, is_mine in zip(fresh, marked, strict=True) if is_mine]


def begun(name: str, *rows: int) -> None:
    """Note that a chore waits no longer: from now on its row may be handed out again."""
    with contextlib.suppress(RedisError):  # the mark lapses by itself
        if rows:
            redis_client().delete(*(_key(name, row) for row in rows))


def _key(name: str, row: int) -> str:
    return f"facet:waits:{name}:{row}"
