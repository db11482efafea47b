"""How often one user may call: a bucket in Redis that all web processes share. Redis away: everybody may."""

import logging
import math
import time
from functools import cache

from django.conf import settings
from redis import Redis, RedisError

from providers.errors import RateLimited

_log = logging.getLogger(__name__)
_AWAY_FOR_S = 5.0
"""After a failure Redis is not asked again for that long: a dead one must not slow every request."""

# The generic cell rate algorithm: one number per user, the instant at which the bucket is empty again.
_TAKE = """
local now = redis.call('TIME')
local t = now[1] + now[2] / 1000000
local every, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local full = math.max(tonumber(redis.call('GET', KEYS[1]) or 0), t)
local wait = full - t - every * (burst - 1)
if wait > 0 then return tostring(wait) end
local life = math.ceil((full - t + every) * 1000) + 1000
redis.call('SET', KEYS[1], string.format('%.6f', full + every), 'PX', life)
return '0'
"""


class _Away:
    until = 0.0


@cache
def _client() -> Redis:
    return Redis.from_url(settings.REDIS_URL, socket_timeout=0.3, socket_connect_timeout=0.3)


def take(user_id: int) -> None:
    """Count one request of a user.

    Raises:
        RateLimited: there were too many.
    """
    if not settings.RATE_PER_MINUTE or time.monotonic() < _Away.until:
        return
    every_s = 60 / settings.RATE_PER_MINUTE
    try:
        answer = _client().eval(_TAKE, 1, f"facet:rate:{user_id}", every_s, settings.RATE_BURST)
    except RedisError as error:
        _Away.until = time.monotonic() + _AWAY_FOR_S
        _log.warning("requests are not counted for %.0f s, Redis is away: %s", _AWAY_FOR_S, error)
        return
    wait_s = float(answer)
    if wait_s > 0:
        raise RateLimited(
            f"More than {settings.RATE_PER_MINUTE} requests a minute.",
            retry_after_s=max(1, math.ceil(wait_s)),
            limit_per_minute=settings.RATE_PER_MINUTE,
        )
