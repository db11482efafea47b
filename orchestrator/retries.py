"""When a delivery that failed is tried again: soon at first, then over days. Pure."""

from datetime import datetime, timedelta

DELAYS_S = (5, 30, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400)
"""Pauses after the first, second … failed try; three days and a bit in all."""
TRIES = len(DELAYS_S) + 1
JITTER_FRAC = 0.2
_HOLD_MOST_S = 300
_ASKED_MOST_S = 86_400


def next_try_at(tried: int, *, now: datetime, chance: float, asked_s: int | None = None) -> datetime | None:
    """Return when to try again; None when it has been tried often enough.

    Args:
        tried: Tries so far, from 1.
        now: The instant of the failure.
        chance: 0..1, where within ±20 % the pause falls, so that many do not come back at once.
        asked_s: What the receiver's Retry-After says, s; heeded up to a day.
    """
    if tried >= TRIES:
        return None
    pause_s = DELAYS_S[tried - 1] * (1 + JITTER_FRAC * (2 * chance - 1))
    if asked_s is not None:
        pause_s = max(pause_s, min(asked_s, _ASKED_MOST_S))
    return now + timedelta(seconds=pause_s)


def held_until(failures: int, *, now: datetime) -> datetime:
    """Return until when a receiver that failed so many times in a row is sent nothing at all."""
    return now + timedelta(seconds=min(_HOLD_MOST_S, 2 ** min(failures, 12)))
