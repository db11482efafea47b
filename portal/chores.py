"""Every background chore, one line each: the clock says when, the verb says what. Safe to run twice."""

from collections.abc import Callable, Sequence
from contextvars import copy_context
from datetime import timedelta
from time import monotonic
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
from portal import digest, handing, heartbeat, idempotency, retention
from portal.bells import RINGER
from portal.celery import Every
from portal.webhooks import deliver as webhooks
from providers.movers.local_copy import forget_old

_MOVES_KEPT_S = 7 * 86_400.0
AT_A_STRETCH_S = 15.0
"""After so long a chore that has more to do leaves its worker to others; the clock finds the rest."""
RHYTHM = {
    "portal.control": Every(1),
    "portal.collect": Every(1),
    "portal.access": Every(10),
    "portal.budgets": Every(15, "default"),
    "portal.deliver": Every(1, "delivery", patience_s=30),
    "portal.digest": Every(60, "delivery"),
    "portal.housekeeping": Every(600, "default"),
}


@shared_task(name="portal.control")
def control_tick() -> None:
    """Hand out every system and task that has work due; a heartbeat for /readyz."""
    now = timezone.now()
    _hand_out(control_system, control.systems_with_work(now=now))
    _hand_out(advance_group, groups.groups_with_work(now=now))
    _hand_out(watch_transfers, moving.users_with_work(now=now))
    _hand_out(advance_task, control.tasks_with_work(now=now), most=handing.room())
    heartbeat.beat(heartbeat.CONTROL_CYCLE)


def _hand_out(chore: Any, rows: Sequence[int], *, most: int | None = None, **options: Any) -> None:
    """Have a worker take up each row that does not wait for one already."""
    for row in handing.offer(chore.name, rows, most=most):
        chore.apply_async((row,), queue=handing.QUEUE, expires=handing.PATIENCE_S, **options)


@shared_task(name="portal.control_system")
def control_system(system_id: int) -> None:
    """Run one control cycle of a system."""
    handing.begun(control_system.name, system_id)
    control.control_system(system_id, now=timezone.now())


@shared_task(name="portal.advance_task")
def advance_task(task_id: int) -> None:
    """Place a waiting task."""
    handing.begun(advance_task.name, task_id)
    tasks.advance_task(task_id, now=timezone.now())


@shared_task(name="portal.advance_group")
def advance_group(group_id: int) -> None:
    """Start, watch and end the children of a group."""
    handing.begun(advance_group.name, group_id)
    until = monotonic() + AT_A_STRETCH_S
    while groups.advance_group(group_id, now=timezone.now()) and monotonic() < until:
        pass


@shared_task(name="portal.watch_transfers")
def watch_transfers(user_id: int) -> None:
    """Submit, watch and end what one user moves."""
    handing.begun(watch_transfers.name, user_id)
    moving.watch_transfers(user_id, now=timezone.now())


@shared_task(name="portal.dispatch")
def dispatch(attempt_id: int) -> None:
    """Hand an attempt to its scheduler, then look at it soon."""
    attempt = dispatch_attempt(attempt_id, now=timezone.now())
    if attempt is not None:
        _hand_out(control_system, [attempt.system_id], countdown=1)


@shared_task(name="portal.collect")
def collect() -> None:
    """Probe every system that is due, side by side."""
    now = timezone.now()
    # A probe that was made in the future was made by a clock that was ahead.
    waiting = Q(next_probe_at__gt=now) & ~Q(last_probe_at__gt=now + timedelta(minutes=1))
    rows = System.objects.filter(is_enabled=True, profile__isnull=False).exclude(waiting)
    due = handing.offer(refresh.name, list(rows.values_list("pk", flat=True)))
    if due:
        refresh.apply_async((due,), queue=handing.QUEUE, expires=handing.PATIENCE_S)


@shared_task(name="portal.refresh")
def refresh(system_ids: list[int]) -> None:
    """Probe systems, all at once."""
    handing.begun(refresh.name, *system_ids)
    refresh_together(system_ids, now=timezone.now())


@shared_task(name="portal.access")
def access() -> None:
    """Learn what each connection's own user may use, where that is not known or old."""
    old = timezone.now() - timedelta(minutes=15)
    rows = Connection.objects.filter(state="active").exclude(facts_at__gt=old)
    _hand_out(refresh_access, list(rows.values_list("pk", flat=True)))


@shared_task(name="portal.refresh_access")
def refresh_access(connection_id: int) -> None:
    """Ask one connection's site what its user may use."""
    handing.begun(refresh_access.name, connection_id)
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
hang("control_system", _bell(control_system, expires=handing.PATIENCE_S))
hang("advance_task", _bell(advance_task, expires=handing.PATIENCE_S))
hang("advance_group", _bell(advance_group, expires=handing.PATIENCE_S))
hang("watch_transfers", _bell(watch_transfers, expires=handing.PATIENCE_S))
