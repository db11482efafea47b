"""How far to trust a system: a fold over probe outcomes. Pure.

The first failures only degrade it (a lost packet is no outage); the third in a row makes it stale, which
takes no new work; the sixth makes it offline. One good probe brings it back.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from federation.types import Health

STALE_AFTER_FAILURES = 3
OFFLINE_AFTER_FAILURES = 6
_UNHEALTHY_INTERVALS_S = (5, 10, 10, 15, 30, 60, 120)
"""Seconds to the next probe after the 1st, 2nd … failure in a row: quick at first, then backing off."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The health after one probe, and why."""

    health: Health
    reason: str
    consecutive_failures: int
    next_probe_in_s: int


def after_success(*, warnings: tuple[str, ...], accounting_up: bool, interval_s: int) -> Verdict:
    """Return the health after a good probe; degraded while accounting is down: final states need it."""
    if not accounting_up:
        reason = "the scheduler's accounting does not answer; final states may come late"
        return Verdict(Health.DEGRADED, reason, 0, interval_s)
    return Verdict(Health.ONLINE, "; ".join(warnings)[:300], 0, interval_s)


def after_failure(reason: str, *, failures_before: int, never_seen: bool) -> Verdict:
    """Return the health after a probe that brought nothing."""
    failures = failures_before + 1
    if never_seen or failures >= OFFLINE_AFTER_FAILURES:
        health = Health.OFFLINE
    elif failures >= STALE_AFTER_FAILURES:
        health = Health.STALE
    else:
        health = Health.DEGRADED
    wait = _UNHEALTHY_INTERVALS_S[min(failures, len(_UNHEALTHY_INTERVALS_S)) - 1]
    return Verdict(health, reason[:300], failures, wait)


def as_read(health: Health, observed_at: datetime | None, *, max_age_s: int, now: datetime) -> Health:
    """Return the health a reader may rely on: old figures are stale whoever failed to refresh them."""
    if health in (Health.OFFLINE, Health.DISABLED):
        return health
    if observed_at is None:
        return Health.OFFLINE
    return Health.STALE if now - observed_at > timedelta(seconds=max_age_s) else health
