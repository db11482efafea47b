"""Every background chore, one line each: the clock says when, the verb says what. Safe to run twice."""

from collections.abc import Callable
from contextvars import copy_context
from datetime import timedelta
from typing import Any

from celery import shared_task
from django.db.models import Q
from django.utils import timezone

from federation import collector
from federation.models import Connection, System
from federation.movers import moves_folder
from federation.side_by_side import refresh_together
from orchestrator import control, moving
from orchestrator.dispatch import dispatch as dispatch_attempt
from orchestrator.doorbell import hang
from orchestrator.services import approvals, deadlines, deliveries, groups, tasks
from portal import digest, heartbeat, idempotency, retention
from portal.bells import RINGER
from portal.celery import Every
from portal.webhooks import deliver as webhooks
from providers.movers.local_copy import forget_old

_MOVES_KEPT_S = 7 * 86_400.0
RHYTHM = {
    "portal.control": Every(1),
    "portal.collect": Every(1),
    "portal.access": Every(10),
    "portal.budgets": Every(15, "default"),
    "portal.deliver": Every(1, "default"),
    "portal.digest": Every(60, "default"),
    "portal.housekeeping": Every(600, "default"),
}


@shared_task(name="portal.control")
def control_tick() -> None:
    """Hand out every system and task that has work due; a heartbeat for /readyz."""
    now = timezone.now()
    for system_id in control.systems_with_work(now=now):
        control_system.apply_async((system_id,), queue="default", expires=10)
    for task_id in control.tasks_with_work(now=now):
        advance_task.apply_async((task_id,), queue="default", expires=10)
    for group_id in groups.groups_with_work(now=now):
        advance_group.apply_async((group_id,), queue="default", expires=10)
    for user_id in moving.users_with_work(now=now):
        watch_transfers.apply_async((user_id,), queue="default", expires=10)
    heartbeat.beat(heartbeat.CONTROL_CYCLE)


@shared_task(name="portal.control_system")
def control_system(system_id: int) -> None:
    """Run one control cycle of a system."""
    control.control_system(system_id, now=timezone.now())


@shared_task(name="portal.advance_task")
def advance_task(task_id: int) -> None:
    """Place a waiting task."""
    tasks.advance_task(task_id, now=timezone.now())


@shared_task(name="portal.advance_group")
def advance_group(group_id: int) -> None:
    """Start, watch and end the children of a group."""
    while groups.advance_group(group_id, now=timezone.now()):
        pass


@shared_task(name="portal.watch_transfers")
def watch_transfers(user_id: int) -> None:
    """Submit, watch and end what one user moves."""
    moving.watch_transfers(user_id, now=timezone.now())


@shared_task(name="portal.dispatch")
def dispatch(attempt_id: int) -> None:
    """Hand an attempt to its scheduler, then look at it soon."""
    attempt = dispatch_attempt(attempt_id, now=timezone.now())
    if attempt is not None:
        control_system.apply_async((attempt.system_id,), queue="default", countdown=1, expires=20)


@shared_task(name="portal.collect")
def collect() -> None:
    """Probe every system that is due, side by side."""
    now = timezone.now()
    # A probe that was made in the future was made by a clock that was ahead.
    waiting = Q(next_probe_at__gt=now) & ~Q(last_probe_at__gt=now + timedelta(minutes=1))
    rows = System.objects.filter(is_enabled=True, profile__isnull=False).exclude(waiting)
    due = list(rows.values_list("pk", flat=True))
    if due:
        refresh.apply_async((due,), queue="default", expires=5)


@shared_task(name="portal.refresh")
def refresh(system_ids: list[int]) -> None:
    """Probe systems, all at once."""
    refresh_together(system_ids, now=timezone.now())


@shared_task(name="portal.access")
def access() -> None:
    """Learn what each connection's own user may use, where that is not known or old."""
    old = timezone.now() - timedelta(minutes=15)
    for connection_id in (
        Connection.objects.filter(state="active").exclude(facts_at__gt=old).values_list("pk", flat=True)
    ):
        refresh_access.apply_async((connection_id,), queue="default", expires=50)


@shared_task(name="portal.refresh_access")
def refresh_access(connection_id: int) -> None:
    """Ask one connection's site what its user may use."""
    collector.refresh_access(connection_id, now=timezone.now())


@shared_task(name="portal.housekeeping")
def housekeeping() -> None:
    """Keep history within its bounds."""
    retention.prune_history(now=timezone.now())
    retention.archive_events(now=timezone.now())
    idempotency.prune(now=timezone.now())
    deliveries.prune(now=timezone.now())
    forget_old(moves_folder(), keep_s=_MOVES_KEPT_S)


@shared_task(name="portal.budgets")
def watch_budgets() -> None:
    """Tell of deadlines, end what is past them, and give up approvals that nobody answered."""
    deadlines.sweep(now=timezone.now())
    approvals.expire(now=timezone.now())


@shared_task(name="portal.deliver")
def deliver() -> None:
    """Send the webhooks that are due."""
    webhooks.deliver()


@shared_task(name="portal.digest")
def send_digests() -> None:
    """Send the e-mails that are due."""
    digest.send_due(now=timezone.now())


def _bell(chore: Any, **options: Any) -> Callable[[int], None]:
    """Return what hands a row to a chore without keeping the caller waiting."""

    def bell(row_id: int) -> None:
        # In the context of the request, whose id goes along with the chore.
        within = copy_context()
        RINGER.soon(lambda: within.run(chore.apply_async, (row_id,), queue="default", retry=False, **options))

    return bell


hang("dispatch", _bell(dispatch))
hang("control_system", _bell(control_system, expires=10))
hang("advance_task", _bell(advance_task, expires=30))
hang("advance_group", _bell(advance_group, expires=30))
hang("watch_transfers", _bell(watch_transfers, expires=10))
