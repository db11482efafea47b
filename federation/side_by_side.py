"""Refreshing several systems in one worker, side by side: the slowest site decides how long it takes."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

import structlog
from django.db import DatabaseError, connections

from federation import collector
from providers.errors import FacetError

log = structlog.get_logger(__name__)

AT_ONCE = 16
"""Sites asked at once by one worker; each costs a thread and a database connection while it answers."""


def refresh_together(system_ids: Sequence[int], *, now: datetime) -> int:
    """Probe systems side by side; return how many were probed here (others are at the rest)."""
    if len(system_ids) < 2:
        return sum(collector.refresh(system_id, now=now) is not None for system_id in system_ids)
    with ThreadPoolExecutor(min(AT_ONCE, len(system_ids)), thread_name_prefix="refresh") as pool:
        return sum(pool.map(lambda system_id: _refresh_one(system_id, now=now), system_ids))


def _refresh_one(system_id: int, *, now: datetime) -> bool:
    """Probe one system in a thread of its own; what goes wrong there costs no other system its look."""
    try:
        return collector.refresh(system_id, now=now) is not None
    except (FacetError, DatabaseError) as error:
        log.warning("system could not be refreshed", system=system_id, error=str(error))
        return False
    finally:
        connections.close_all()
