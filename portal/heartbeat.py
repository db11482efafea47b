"""Signs of life, kept in Redis: who was last heard, and how many seconds ago.

A name is one of `WORKERS`, `CLOCK` (the beat process), or `CONTROL_CYCLE` (set by the control chore after
each full cycle).
"""

import time
from functools import cache

from django.conf import settings
from redis import Redis

CONTROL = "worker:control"
DEFAULT = "worker:default"
WORKERS = (CONTROL, DEFAULT)
CLOCK = "clock"
CONTROL_CYCLE = "control:last_cycle"


@cache
def redis_client() -> Redis:
    """Return this process's Redis client; every call on it ends within two seconds."""
    return Redis.from_url(settings.REDIS_URL, socket_timeout=2, socket_connect_timeout=2)


def key_of(name: str) -> str:
    """Return the Redis key of a sign of life; it holds epoch seconds."""
    return f"facet:{name}"


def beat(name: str) -> None:
    """Record that the named part is alive now.

    Raises:
        redis.RedisError: Redis cannot be reached.
    """
    redis_client().set(key_of(name), f"{time.time():.3f}")


def age(name: str) -> float | None:
    """Return the seconds since the named part was last heard; None when it never was.

    Raises:
        redis.RedisError: Redis cannot be reached.
    """
    heard = redis_client().get(key_of(name))
    return None if heard is None else max(0.0, time.time() - float(heard))
