"""Clocks that jump, sites that repeat themselves, workers that meet: nothing is lost, doubled or made up."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from decimal import Decimal

import pytest
from django.contrib.auth.models import User
from django.db import connections
from django.utils import timezone

from federation import collector
from federation.models import Charge, Event, System
from orchestrator import control
from orchestrator.dispatch import dispatch
from orchestrator.lifecycle import AttemptState, TaskState
from orchestrator.models import Attempt, Task
from orchestrator.services import tasks
from providers.links.local import LocalLink
from providers.types import Batch, BatchReply, JobRef
from tests.state.conftest import Sites

pytestmark = pytest.mark.django_db(transaction=True)

Until = Callable[..., Task]


@pytest.fixture
def delta(sites: Sites, alice: User) -> System:
    return sites.add("delta", alice, account="bbka-delta-gpu", granted=Decimal(1000))


def submit(user: User, command: str) -> Task:
    wanted = {"command": command, "envelope": {"gpus": 1, "cpus": 2, "walltime_s": 600}}
    return tasks.submit_task(user, wanted, actor="user:alice", now=timezone.now()).task


def told(task: Task, type_: str) -> int:
    return Event.objects.filter(task=task.handle, type=type_).count()


def test_a_clock_that_jumps_a_day_ahead_and_back_loses_and_doubles_nothing(
    sites: Sites, delta: System, alice: User, until: Until
) -> None:
    running = until(submit(alice, "sleep 4"), TaskState.RUNNING)
    planned = submit(alice, "true")
    tomorrow = timezone.now() + timedelta(days=1)

    control.control_system(delta.pk, now=tomorrow)
    dispatch(planned.attempts.get().pk, now=tomorrow)
    collector.refresh(delta.pk, now=tomorrow)
    assert Attempt.objects.filter(due_at__gt=timezone.now() + timedelta(hours=20)).count() == 2

    assert control.systems_with_work(now=timezone.now()) == [delta.pk]
    until(running)
    until(planned)
    assert [task.attempts.count() for task in (running, planned)] == [1, 1]
    assert {running.state, planned.state} == {TaskState.SUCCEEDED}
    assert len(sites.jobs("delta")) == 2


def test_what_was_begun_while_a_clock_was_ahead_is_not_put_off_for_a_day(
    sites: Sites, delta: System, alice: User, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    tomorrow = timezone.now() + timedelta(days=1)
    doubted = submit(alice, "true")
    with monkeypatch.context() as killed:
        killed.setattr("orchestrator.dispatch._ask", _die)
        with pytest.raises(KeyboardInterrupt):
            dispatch(doubted.attempts.get().pk, now=tomorrow)
    waiting = submit(alice, "sleep 300")
    dispatch(waiting.attempts.get().pk, now=timezone.now())
    until(waiting, TaskState.RUNNING)
    tasks.cancel_task(alice, waiting.handle, actor="user:alice", now=tomorrow)
    Attempt.objects.filter(task=waiting).update(cancel_sent_at=tomorrow)  # and was lost on its way

    later = time.monotonic() + 3600
    monkeypatch.setattr("orchestrator.steady.seconds", lambda: later)
    until(waiting)
    until(doubted)

    assert (waiting.state, sites.squeue("delta")) == (TaskState.CANCELLED, "")
    assert (doubted.state, doubted.attempts.get().dispatches) == (TaskState.SUCCEEDED, 2)


def _die(*_given: object) -> None:
    raise KeyboardInterrupt


def test_accounting_is_asked_for_a_day_where_a_submission_seems_to_lie_ahead() -> None:
    now = timezone.now()
    refs = [JobRef(submit_key=f"k{h}", job_id=None, submitted_at=now + timedelta(hours=h)) for h in (-2, 24)]

    assert control._since(refs[:1], now=now) == now - timedelta(hours=2, minutes=5)
    assert control._since(refs, now=now) == now - timedelta(days=1, minutes=5)
    assert control._since([], now=now) == now - timedelta(minutes=5)


def test_a_clock_that_jumps_back_an_hour_changes_no_state(delta: System, alice: User, until: Until) -> None:
    task = until(submit(alice, "sleep 3"), TaskState.RUNNING)
    earlier = timezone.now() - timedelta(hours=1)

    Attempt.objects.update(due_at=earlier)
    control.control_system(delta.pk, now=earlier)

    assert task.attempts.get().state == AttemptState.RUNNING
    assert until(task).state == TaskState.SUCCEEDED
    assert task.attempts.count() == 1


def test_a_site_that_answers_with_yesterdays_output_makes_nothing_up(
    sites: Sites, delta: System, alice: User, until: Until
) -> None:
    task = until(submit(alice, "sleep 2"), TaskState.RUNNING)
    sites.fault("delta", "yesterday")
    control.control_system(delta.pk, now=timezone.now() + timedelta(seconds=2))
    fresh = submit(alice, "true")
    dispatch(fresh.attempts.get().pk, now=timezone.now())
    deadline = time.monotonic() + 30
    width = 30  # another one each time: the same command would say the same for ever
    while "COMPLETED" not in sites.run(
        "delta", "sacct", "-X", "-n", "-S", "now-1hours", f"--format=State%{width}"
    ):
        assert time.monotonic() < deadline
        time.sleep(0.3)
        width += 1

    for minute in range(1, 4):
        later = timezone.now() + timedelta(minutes=minute)
        Attempt.objects.exclude(due_at=None).update(due_at=later)
        control.control_system(delta.pk, now=later)

    # An old queue beside new accounting may end the first rightly; what neither shows is out of sight.
    assert task.attempts.get().state in (AttemptState.RUNNING, AttemptState.SUCCEEDED)
    assert fresh.attempts.get().state in (
        *(AttemptState.SUBMITTED, AttemptState.PENDING, AttemptState.RUNNING),
        *(AttemptState.UNKNOWN, AttemptState.SUCCEEDED),
    )
    sites.heal("delta", "yesterday")
    Attempt.objects.exclude(due_at=None).update(due_at=timezone.now())
    for each in (task, fresh):
        assert until(each).state == TaskState.SUCCEEDED
        assert each.attempts.count() == 1


def test_a_request_that_a_restarted_service_carries_out_twice_makes_one_job(
    sites: Sites, delta: System, alice: User, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = submit(alice, "true")
    run = LocalLink.run

    def twice(link: LocalLink, batch: Batch) -> BatchReply:
        run(link, batch)
        return run(link, batch)

    with monkeypatch.context() as restarted:
        restarted.setattr(LocalLink, "run", twice)
        dispatch(task.attempts.get().pk, now=timezone.now())
    attempt = task.attempts.get()
    assert attempt.state == AttemptState.DISPATCHING
    assert "was carried out before" in attempt.reason_explained
    Attempt.objects.update(due_at=timezone.now())

    until(task)

    assert task.state == TaskState.SUCCEEDED
    assert sites.jobs("delta") == [attempt.submit_key]


def test_control_workers_that_meet_tell_each_end_once_and_book_it_once(
    delta: System, alice: User, sites: Sites
) -> None:
    work = [submit(alice, "true") for _ in range(4)]
    keys = list(Attempt.objects.values_list("pk", flat=True))

    def worker(_number: int) -> None:
        try:
            for key in keys:
                dispatch(key, now=timezone.now())
            for _turn in range(12):
                Attempt.objects.exclude(due_at=None).update(due_at=timezone.now())
                control.control_system(delta.pk, now=timezone.now())
                time.sleep(0.3)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(worker, range(2)))

    assert sorted(sites.jobs("delta")) == sorted(Attempt.objects.values_list("submit_key", flat=True))
    for task in work:
        task.refresh_from_db()
        assert (task.state, told(task, "task.succeeded")) == (TaskState.SUCCEEDED, 1)
        assert told(task, "attempt.dispatched") == 1
        handle = task.attempts.get().handle
        kinds = Charge.objects.filter(attempt_handle=handle).values_list("kind", flat=True)
        assert sorted(kinds) in (["release", "reserve"], ["reserve", "settle"])
