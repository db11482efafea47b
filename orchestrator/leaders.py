"""Fresh figures for a submit: the systems of the two leading partitions are probed once more before it.

Two minutes may lie between two probes of an idle system, and the choice between the leaders is where that
hurts. decide → probe the leaders that were last seen too long ago → the submission decides again. Nobody
waits longer than `DEADLINE_S`; no transaction is open meanwhile.
"""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from time import monotonic

import structlog
from django.contrib.auth.models import AbstractBaseUser
from django.db import connection, connections
from django.db.models import QuerySet

from federation import collector
from federation.models import System
from federation.types import Health
from orchestrator.group_input import GroupInput, children_of
from orchestrator.placement.types import Decision
from orchestrator.services.deciding import decide
from orchestrator.services.envelopes import understand
from orchestrator.services.named_systems import known_systems
from orchestrator.services.tasks import kind_of, read_task
from orchestrator.task_input import stored
from providers.errors import FacetError
from providers.reading import read

log = structlog.get_logger(__name__)

FRESH = timedelta(seconds=30)
"""Figures of this age decide as well as new ones: schedulers look at their queues about as often."""
DEADLINE_S = 3
"""What a person or an agent who submits may be kept waiting for better figures."""
SLOW_S = 2.5
"""A system whose last good probe took longer would hardly answer in time: it is not asked."""
_GRACE_S = 0.5
"""For storing what was seen after the deadline of the probe itself."""
_LEADERS = 2
_PROBED_AT_ONCE = (Health.ONLINE, Health.DEGRADED)


@dataclass(frozen=True, slots=True)
class Refreshed:
    """What to decide with: the instant after the probes, and what the decision's trace says of them."""

    now: datetime
    notes: tuple[str, ...] = ()


def refresh_leaders(user: AbstractBaseUser, given: object, *, now: datetime) -> Refreshed:
    """Probe the systems where a task would go, if they were last seen too long ago; at most two, together.

    Inside a transaction nothing is probed. What the probes find changes only what is decided next.

    Raises:
        InvalidInput: the input cannot be read.
    """
    if connection.in_atomic_block or not _may_be_stale(now):
        return Refreshed(now)
    wanted = read_task(given)
    known_systems(wanted.envelope)
    envelope = understand(wanted, user_id=user.pk).envelope
    spec = stored(wanted)
    value = decide(user, envelope, now=now, kind=kind_of(spec), environment=spec["environment"])
    stale = _stale(leading_systems(value), now=now)
    if not stale:
        return Refreshed(now)
    began = monotonic()
    fresh = _probe(stale, now=now)
    # What is planned next must be younger than the snapshots, which do not hold it.
    later = now + timedelta(seconds=monotonic() - began)
    return Refreshed(later, tuple(_note(system, is_fresh=system.slug in fresh) for system in stale))


def refresh_for_group(user: AbstractBaseUser, given: object, *, now: datetime) -> datetime:
    """Do the same for the first child of a group, mostly like its siblings; return the instant after.

    What is wrong with the group is for its submission to say.
    """
    with suppress(FacetError):
        children = children_of(read(GroupInput, given, what="group"))
        return refresh_leaders(user, children[0].task, now=now).now if children else now
    return now


def leading_systems(value: Decision) -> tuple[str, ...]:
    """Return the systems of the two best partitions, the best first; one system may hold both."""
    ranked = sorted(
        (candidate for candidate in value.candidates if candidate.rank is not None),
        key=lambda candidate: candidate.rank or 0,
    )
    places = list(dict.fromkeys((candidate.system, candidate.partition) for candidate in ranked))
    return tuple(dict.fromkeys(system for system, _partition in places[:_LEADERS]))


def _may_be_stale(now: datetime) -> bool:
    """Return whether any system is worth a first decision: most submits of a busy hour need none."""
    return _askable(now).exists()


def _askable(now: datetime) -> QuerySet[System]:
    return System.objects.filter(
        is_enabled=True,
        health__in=[health.value for health in _PROBED_AT_ONCE],
        last_probe_at__lt=now - FRESH,
        snapshot__duration_s__lte=SLOW_S,
    )


def _stale(slugs: Sequence[str], *, now: datetime) -> list[System]:
    """Return those of the systems that were not probed lately and would answer in time."""
    found = {system.slug: system for system in _askable(now).filter(slug__in=slugs)}
    return [found[slug] for slug in slugs if slug in found]


def _probe(systems: Sequence[System], *, now: datetime) -> set[str]:
    """Probe systems side by side and return those that answered in time; late ones finish on their own."""
    pool = ThreadPoolExecutor(max_workers=len(systems), thread_name_prefix="leaders")
    asked: dict[Future[bool], str] = {
        pool.submit(_probe_one, system.pk, now=now): system.slug for system in systems
    }
    done, _late = wait(asked, timeout=DEADLINE_S + _GRACE_S)
    pool.shutdown(wait=False)
    for each in done:
        if (error := each.exception()) is not None:  # better figures are no reason to refuse the work
            log.warning("leader could not be probed", system=asked[each], error=str(error))
    return {asked[each] for each in done if each.exception() is None and each.result()}


def _probe_one(system_id: int, *, now: datetime) -> bool:
    """Probe one system in a thread of its own; return whether there are new figures."""
    try:
        snapshot = collector.refresh(system_id, now=now, deadline_s=DEADLINE_S)
    finally:
        connections.close_all()
    return snapshot is not None and snapshot.availability == "available"


def _note(system: System, *, is_fresh: bool) -> str:
    if is_fresh:
        return f"The figures of {system.name} were refreshed right before this decision."
    return f"{system.name} gave no new figures within {DEADLINE_S} s: this decision rests on older ones."
