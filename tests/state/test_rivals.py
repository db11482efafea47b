"""Two open attempts of one task on emulated clusters: the one that starts first stays."""

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from federation import collector
from federation.models import Charge, Event, System
from federation.profile import ProfileDocument
from federation.services import store_profile
from orchestrator.dispatch import dispatch
from orchestrator.lifecycle import AttemptState, TaskState
from orchestrator.models import Attempt, Task
from orchestrator.services import tasks
from tests.state.conftest import PROFILES, Sites
from tests.stepping import run_clock, step_until

pytestmark = pytest.mark.django_db(transaction=True)

ANSWERS = ["sinfo", "squeue", "sacct"]
"""What garbles our view of a cluster that goes on working."""


def submit(user: User, seconds: int = 4, **given: object) -> Task:
    wanted = {"command": f"sleep {seconds}", "envelope": {"gpus": 1, "walltime_s": 600}, **given}
    return tasks.submit_task(user, wanted, actor="user:alice", now=timezone.now()).task


def hand_over(sites: Sites, attempt: Attempt, *, hold: bool = True) -> None:
    """Submit an attempt and keep its job waiting."""
    dispatch(attempt.pk, now=timezone.now())
    attempt.refresh_from_db()
    if hold:
        sites.hold(attempt.system.slug, attempt.job_id)


def due_now() -> None:
    """Let what our jumping clock put off be due at the real instant."""
    Attempt.objects.filter(due_at__isnull=False).update(due_at=timezone.now())
    System.objects.update(next_probe_at=timezone.now())


@pytest.fixture
def lost(sites: Sites, alice: User) -> tuple[Task, datetime]:
    """A task that waited at delta when delta went out of sight; its successor waits at vista."""
    sites.add("delta", alice, account="bbka-delta-gpu", granted=Decimal(1000))
    task = submit(alice)
    hand_over(sites, task.attempts.get())
    step_until(task, TaskState.PENDING)
    sites.add("vista", alice, account="ASC24001", granted=Decimal(1000))
    sites.fault("delta", "garbage", programs=ANSWERS)

    def is_replaced() -> bool:
        return task.attempts.exclude(number=1).exclude(job_id="").exists()

    now = run_clock(is_replaced, start=timezone.now(), limit_s=600)
    successor = task.attempts.get(number=2)
    sites.hold("vista", successor.job_id)
    return task, now


def test_work_that_had_started_meanwhile_is_kept_and_its_successor_gives_way(
    lost: tuple[Task, datetime], sites: Sites
) -> None:
    task, _now = lost
    old, new = task.attempts.order_by("number")
    due_now()
    Attempt.objects.filter(pk=new.pk).update(started_at=None, state=AttemptState.PENDING)
    sites.run("delta", "scontrol", "release", old.job_id)
    sites.heal("delta", "garbage")
    due_now()

    step_until(task)

    old.refresh_from_db()
    assert (task.state, task.attempt_id, old.state) == (TaskState.SUCCEEDED, old.pk, AttemptState.SUCCEEDED)
    told = Event.objects.filter(task=task.handle, type="task.replaced").order_by("id").last()
    assert told is not None
    assert told.data["accepted"] == old.handle
    run_clock(
        lambda: Attempt.objects.get(pk=new.pk).state == AttemptState.SUPERSEDED,
        start=timezone.now(),
        limit_s=300,
    )
    assert sites.squeue("vista") == ""
    assert Charge.objects.filter(attempt_handle=new.handle, kind="settle").count() == 0


def test_of_two_that_started_the_accepted_one_stays_and_the_others_cost_is_booked(
    lost: tuple[Task, datetime], sites: Sites
) -> None:
    task, _now = lost
    old, new = task.attempts.order_by("number")
    sites.run("vista", "scontrol", "release", new.job_id)
    sites.run("delta", "scontrol", "release", old.job_id)
    due_now()
    step_until(task, TaskState.RUNNING)
    assert task.attempt_id == new.pk
    sites.heal("delta", "garbage")
    deadline = time.monotonic() + 30
    while int(sites.run("delta", "sacct", "-nXPj", old.job_id, "-o", "ElapsedRaw") or 0) < 1:
        assert time.monotonic() < deadline  # accounting counts whole seconds: less than one costs nothing
        time.sleep(0.2)
    due_now()

    step_until(task)

    old.refresh_from_db()
    assert (task.state, task.attempt_id) == (TaskState.SUCCEEDED, new.pk)
    assert old.state in (AttemptState.SUPERSEDED, AttemptState.SUCCEEDED)
    assert old.started_at is not None
    kinds = Charge.objects.filter(attempt_handle=old.handle).values_list("kind", flat=True)
    assert set(kinds) == {"reserve", "settle"}


@pytest.fixture
def both(sites: Sites, alice: User) -> Sites:
    """Two systems whose sites allow hedging."""
    for slug, account in (("delta", "bbka-delta-gpu"), ("vista", "ASC24001")):
        system = sites.add(slug, alice, account=account, granted=Decimal(1000))
        document = ProfileDocument.model_validate({**PROFILES[slug], "policy": {"allow_hedging": True}})
        store_profile(document, str(document), now=timezone.now())
        collector.refresh(system.pk, now=timezone.now(), force_full=True)
    return sites


HEDGE = {"hedge": {"enabled": True, "min_wait_s": 0}}


def test_a_hedged_task_waits_at_two_systems_and_the_first_start_wins(
    both: Sites, alice: User, until: Callable[..., Task]
) -> None:
    task = submit(alice, seconds=1, **HEDGE)
    first, second = task.attempts.order_by("number")
    assert {first.system.slug, second.system.slug} == {"delta", "vista"}
    assert [decision.purpose for decision in task.decisions.order_by("id")] == ["submit", "hedge"]
    hand_over(both, first)
    hand_over(both, second, hold=False)

    until(task)

    assert (task.state, task.attempt_id) == (TaskState.SUCCEEDED, second.pk)
    run_clock(
        lambda: Attempt.objects.get(pk=first.pk).state == AttemptState.SUPERSEDED,
        start=timezone.now(),
        limit_s=300,
    )
    assert both.squeue(first.system.slug) == ""
    assert not Charge.objects.filter(attempt_handle=first.handle, kind="settle").exists()


def test_where_one_hedge_is_refused_the_other_goes_on(
    both: Sites, alice: User, until: Callable[..., Task]
) -> None:
    task = submit(alice, seconds=1, **HEDGE)
    first, second = task.attempts.order_by("number")
    both.fault(first.system.slug, "submit_refused", words="Invalid account", times=1)
    dispatch(first.pk, now=timezone.now())
    task.refresh_from_db()
    assert task.attempt_id == second.pk

    until(task)

    assert (task.state, task.attempts.count()) == (TaskState.SUCCEEDED, 2)


def test_a_running_attempt_out_of_sight_is_never_replaced(sites: Sites, alice: User) -> None:
    sites.add("delta", alice, account="bbka-delta-gpu", granted=Decimal(1000))
    task = submit(alice, seconds=8)
    hand_over(sites, task.attempts.get(), hold=False)
    step_until(task, TaskState.RUNNING)
    sites.add("vista", alice, account="ASC24001", granted=Decimal(1000))
    sites.fault("delta", "garbage", programs=ANSWERS)
    start = timezone.now()

    def is_given_up() -> bool:
        return (
            System.objects.get(slug="delta").health in ("stale", "offline")
            and Attempt.objects.get().state == AttemptState.UNKNOWN
        )

    run_clock(is_given_up, start=start, limit_s=900)
    sites.heal("delta", "garbage")
    due_now()
    step_until(task)

    assert (task.state, task.attempts.count()) == (TaskState.SUCCEEDED, 1)
    assert timezone.now() - start < timedelta(minutes=5)
