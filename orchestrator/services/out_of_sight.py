"""Placing elsewhere what was last seen waiting at a system that went out of sight."""

from datetime import datetime, timedelta

from django.db import transaction

from federation.ledger import record
from federation.models import System
from federation.types import Health
from orchestrator.doorbell import ring
from orchestrator.lifecycle import AttemptState
from orchestrator.models import Attempt, Task
from orchestrator.rivals import OutOfSight, Rivalry, keeps_waiting
from orchestrator.services import staging
from orchestrator.services.moves import task_event
from orchestrator.services.placing import decide_beside, place_task
from orchestrator.services.replacement import MAX_MOVES

NOWHERE_PAUSE = timedelta(seconds=60)
"""Until elsewhere is asked again for an attempt out of sight that fits nowhere else."""


def replace_out_of_sight(system: System, task: Task, attempt: Attempt, *, now: datetime) -> bool:
    """Place a task anew whose waiting attempt is out of sight with its system; return whether it was tried.

    The attempt stays open and is watched: when its site answers again, `meet` decides which one stays.
    """
    if task.attempt_id != attempt.pk or keeps_waiting(_out_of_sight(system, task, attempt), now=now):
        return False
    was = attempt.rivalry
    with transaction.atomic():
        # Its checkpoint is out of sight, too: better begun anew than not at all.
        value = decide_beside(task, barred=(system.slug,), keeps_checkpoint=False, now=now)
        if value.selected is None:
            Attempt.objects.filter(pk=attempt.pk).update(due_at=now + NOWHERE_PAUSE)
            return True
        is_replaced = _replace(system, task, attempt, now=now)
        transaction.set_rollback(not is_replaced)
    if not is_replaced:
        # Undone in the rows, not in what was read of them.
        task.refresh_from_db()
        attempt.rivalry = was
        Attempt.objects.filter(pk=attempt.pk).update(due_at=now + NOWHERE_PAUSE)
    return True


def _replace(system: System, task: Task, attempt: Attempt, *, now: datetime) -> bool:
    Attempt.objects.filter(pk=attempt.pk).update(rivalry=Rivalry.REPLACED)
    attempt.rivalry = Rivalry.REPLACED
    place = [system.slug, attempt.partition, attempt.account]
    task.plan = {**task.plan, "avoid": [*task.plan.get("avoid", []), place]}
    task.replacements += 1
    Task.objects.filter(pk=task.pk).update(plan=task.plan, replacements=task.replacements)
    seen = attempt.observed_at.isoformat(timespec="seconds") if attempt.observed_at else "its submission"
    reason = (
        f"{system.slug} cannot be seen; job {attempt.job_id} waited there when last seen ({seen}). "
        "Another attempt is made meanwhile; the first that is seen to start stays."
    )
    event = task_event(
        task,
        "task.replaced",
        f"{task.name}: {reason}",
        attempt=attempt,
        data={"out_of_sight": system.slug, "health": system.health, "attempt": attempt.handle},
    )
    record([event], now=now)
    placed = place_task(task, purpose="replace", now=now, notes=(reason,))
    record(placed.happenings, now=now)
    if placed.attempt is None:
        return False
    successor = placed.attempt.pk
    Attempt.objects.filter(pk=successor).update(rivalry=Rivalry.SUCCESSOR)
    if not staging.begin(task, placed.attempt, now=now):
        transaction.on_commit(lambda: ring("dispatch", successor))
    return True


def _out_of_sight(system: System, task: Task, attempt: Attempt) -> OutOfSight:
    wanted = task.spec["replacement"]
    was_waiting = attempt.state in (AttemptState.PENDING, AttemptState.UNKNOWN)
    return OutOfSight(
        health=Health(system.health),
        is_wanted=wanted["enabled"] and wanted.get("on_endpoint_loss", True),
        moves_left=MAX_MOVES - task.replacements,
        was_waiting=was_waiting and bool(attempt.job_id) and bool(attempt.state_raw),
        has_started=attempt.started_at is not None,
        is_ending=attempt.cancel_requested_at is not None
        or task.cancel_requested_at is not None
        or attempt.rivalry in (Rivalry.HEDGE, Rivalry.REPLACED),
        unseen_since=attempt.unseen_since,
        expected_start_at=attempt.expected_start_at,
    )
