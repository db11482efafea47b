"""`python -m portal.alive control`: is this part of Facet alive? For the health check of a container.

It loads no Django: a check that runs every few seconds must be cheap. Exit code 0: heard lately; 1: silent;
2: there is no such part.
"""

import sys
import time

from redis import Redis, RedisError

from portal import env

KEYS = {"control": "facet:worker:control", "default": "facet:worker:default", "clock": "facet:clock"}
SILENT_S = 45.0


def main(words: list[str]) -> int:
    """Say on standard error why a part does not count as alive, and return the exit code."""
    if len(words) != 1 or words[0] not in KEYS:
        return _said(f"give one of {', '.join(KEYS)}.", 2)
    url = env.load().redis_url
    if url is None:
        return _said("REDIS_URL is not given.", 2)
    try:
        client = Redis.from_url(url.get_secret_value(), socket_timeout=3, socket_connect_timeout=3)
        heard = client.get(KEYS[words[0]])
    except RedisError as error:
        return _said(f"Redis does not answer: {error}", 1)
    age_s = time.time() - float(heard) if heard is not None else None
    if age_s is None or age_s > SILENT_S:
        return _said("never heard." if age_s is None else f"silent for {age_s:.0f} s.", 1)
    return 0


def _said(why: str, code: int) -> int:
    sys.stderr.write(f"facet: {why}\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
