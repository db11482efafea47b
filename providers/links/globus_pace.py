"""How often one user may call Globus Compute, over all processes: a bucket in Redis, or one per process.

The hosted service takes 20 requests in 10 s of one user. The generic cell rate algorithm keeps one number
per user, the instant at which the bucket is empty again: b at once and then r a second are at most
b + 10 r in any 10 s.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from redis import Redis, RedisError

WINDOW_S = 10.0
_AWAY_FOR_S = 5.0
"""After a failure Redis is not asked again for that long."""

_TAKE = """
local now = redis.call('TIME')
local t = now[1] + now[2] / 1000000
local every, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local full = math.max(tonumber(redis.call('GET', KEYS[1]) or 0), t)
local wait = full - t - every * (burst - 1)
if wait > 0 then return tostring(wait) end
local kept_ms = math.ceil((full - t + every) * 1000) + 1000
redis.call('SET', KEYS[1], string.format('%.6f', full + every), 'PX', kept_ms)
return '0'
"""
_HOLD = """
local now = redis.call('TIME')
local t = now[1] + now[2] / 1000000
local full = math.max(tonumber(redis.call('GET', KEYS[1]) or 0), t + tonumber(ARGV[1]))
redis.call('SET', KEYS[1], string.format('%.6f', full), 'PX', math.ceil((full - t) * 1000) + 1000)
return '0'
"""


class Pace(Protocol):
    """Says when a user's next request may go out."""

    def wait_s(self, owner: str) -> float:
        """Take one place and return 0, or take none and return how many seconds to wait."""
        ...

    def hold(self, owner: str, seconds: float) -> None:
        """Let nothing of this user out for that long: the service asked for it."""
        ...


@dataclass(frozen=True, slots=True)
class Limit:
    """At most `requests` in any window of 10 s."""

    requests: int = 18

    @property
    def burst(self) -> int:
        """How many may go out at once."""
        return max(1, self.requests * 4 // 10)

    @property
    def every_s(self) -> float:
        """Seconds between two requests once the burst is used up."""
        return WINDOW_S / max(1, self.requests - self.burst)


@dataclass(slots=True)
class LocalPace:
    """The bucket of one process."""

    limit: Limit = field(default_factory=Limit)
    clock: Callable[[], float] = time.monotonic
    _full: dict[str, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def wait_s(self, owner: str) -> float:
        """Take one place and return 0, or take none and return how many seconds to wait."""
        with self._lock:
            now = self.clock()
            full = max(self._full.get(owner, 0.0), now)
            wait = full - now - self.limit.every_s * (self.limit.burst - 1)
            if wait > 0:
                return wait
            self._full[owner] = full + self.limit.every_s
            return 0.0

    def hold(self, owner: str, seconds: float) -> None:
        """Let nothing of this user out for that long."""
        with self._lock:
            until = self.clock() + seconds + self.limit.every_s * (self.limit.burst - 1)
            self._full[owner] = max(self._full.get(owner, 0.0), until)


class SharedPace:
    """The bucket of all processes, in Redis; while Redis is away each process keeps its own."""

    def __init__(self, redis: Callable[[], Redis], limit: Limit) -> None:
        self._redis = redis
        self._limit = limit
        self._own = LocalPace(limit)
        self._away_until = 0.0

    def wait_s(self, owner: str) -> float:
        """Take one place and return 0, or take none and return how many seconds to wait."""
        answer = self._ask(_TAKE, owner, self._limit.every_s, self._limit.burst)
        return self._own.wait_s(owner) if answer is None else float(answer)

    def hold(self, owner: str, seconds: float) -> None:
        """Let nothing of this user out for that long."""
        self._own.hold(owner, seconds)
        self._ask(_HOLD, owner, seconds + self._limit.every_s * (self._limit.burst - 1))

    def _ask(self, script: str, owner: str, *arguments: float) -> Any:
        if time.monotonic() < self._away_until:
            return None
        try:
            return self._redis().eval(script, 1, f"facet:globus:pace:{owner}", *arguments)
        except RedisError:
            self._away_until = time.monotonic() + _AWAY_FOR_S
            return None
