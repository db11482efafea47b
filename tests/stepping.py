"""Driving the product by hand, as its clock would: step by step, so that nothing happens on its own."""

import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import pytest
from django.utils import timezone

from federation import collector, selectors
from federation.models import System
from orchestrator import control, experience, moving
from orchestrator.dispatch import dispatch
from orchestrator.doorbell import hang
from orchestrator.lifecycle import TASK_MOVES, TaskState, is_terminal
from orchestrator.models import Attempt, Task
from orchestrator.services import tasks

_PAUSE_S = 0.3


def forget_what_is_cached() -> None:
    """Drop what is kept of snapshots and profiles by row number: each test numbers its rows from one."""
    kept = (selectors.profile_of, selectors.probe_of, selectors._prepared, selectors._use_of_limits)
    for cached in (*kept, experience._common):
        cached.cache_clear()


def silence_the_bells() -> None:
    """Let no ring do anything: the test is the clock."""
    for name in ("dispatch", "control_system", "advance_task", "advance_group", "watch_transfers"):
        hang(name, lambda _row: None)


def step(system: System | None = None) -> None:
    """Do once what the clock would do."""
    # A group's attempts are due at once: the control cycle sends them together.
    single = Attempt.objects.filter(state="planned", due_at__gt=timezone.now())
    for attempt_id in single.values_list("pk", flat=True):
        dispatch(attempt_id, now=timezone.now())
    for system_id in [system.pk] if system else control.systems_with_work(now=timezone.now()):
        control.control_system(system_id, now=timezone.now())
    for user_id in moving.users_with_work(now=timezone.now()):
        moving.watch_transfers(user_id, now=timezone.now())
    for task_id in control.tasks_with_work(now=timezone.now()):
        tasks.advance_task(task_id, now=timezone.now())


def run_clock(is_done: Callable[[], bool], *, start: datetime, limit_s: float) -> datetime:
    """Run probes and control cycles at the instants that are due, without waiting for them; return the last.

    The sites work in real time meanwhile; only our own clock jumps from one due instant to the next.
    """
    now, limit = start, start + timedelta(seconds=limit_s)
    while not is_done():
        probes = System.objects.filter(is_enabled=True, next_probe_at__isnull=False)
        due = [*probes.values_list("next_probe_at", flat=True), *_due_attempts()]
        now = max(now, min((at for at in due if at is not None), default=limit))
        if now >= limit:
            pytest.fail(f"not done within {limit_s} s of our clock: {list(Attempt.objects.values())}")
        for system in probes.filter(next_probe_at__lte=now):
            collector.refresh(system.pk, now=now)
        for attempt_id in Attempt.objects.filter(state="planned").values_list("pk", flat=True):
            dispatch(attempt_id, now=now)
        for system_id in control.systems_with_work(now=now):
            control.control_system(system_id, now=now)
    return now


def _due_attempts() -> list[datetime | None]:
    return list(Attempt.objects.filter(due_at__isnull=False).values_list("due_at", flat=True))


def step_until(task: Task, *states: TaskState, timeout: float = 30) -> Task:
    """Step until a task reaches one of the states (none named: any end), and return it read anew."""
    return all_step_until([task], *states, timeout=timeout)[0]


def all_step_until(waited: Sequence[Task], *states: TaskState, timeout: float = 30) -> Sequence[Task]:
    """Step until every task reaches one of the states (none named: any end); one wait for all of them."""
    deadline = time.monotonic() + timeout
    while True:
        step()
        left = []
        for task in waited:
            task.refresh_from_db()
            state = TaskState(task.state)
            if state in states or (not states and is_terminal(TASK_MOVES, state)):
                continue
            left.append(task)
        if not left:
            return waited
        ended = [task for task in left if is_terminal(TASK_MOVES, TaskState(task.state))]
        if ended or time.monotonic() > deadline:
            pytest.fail("\n".join(_told(task) for task in left))
        time.sleep(_PAUSE_S)


def _told(task: Task) -> str:
    attempt = task.attempts.order_by("-number").first()
    return f"{task.name} is {task.state} ({task.reason}); its newest attempt: {attempt and attempt.__dict__}"
