"""What becomes of a task with two open attempts when it is cancelled, placed anew, or loses one of them."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from federation.locks import only_one
from orchestrator.control import Looked, _apply_all, control_system
from orchestrator.dispatch import dispatch, dispatch_together
from orchestrator.lifecycle import AttemptState, TaskState
from orchestrator.models import Attempt, Task
from orchestrator.observation import AttemptFacts, absent
from orchestrator.rivals import Rivalry
from orchestrator.services import tasks
from orchestrator.services.out_of_sight import NOWHERE_PAUSE, replace_out_of_sight
from tests.state.conftest import Sites
from tests.state.test_rivals import HEDGE, both, due_now, hand_over, submit

__all__ = ["both"]  # a fixture

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_cancel_waits_for_the_one_attempt_that_was_sent(
    both: Sites, alice: User, until: Callable[..., Task]
) -> None:
    task = submit(alice, seconds=4, **HEDGE)
    first, second = task.attempts.order_by("number")
    hand_over(both, second)

    tasks.cancel_task(alice, task.handle, actor="user:alice", now=timezone.now())
    task.refresh_from_db()
    assert task.state != TaskState.CANCELLED
    until(task)

    assert task.state == TaskState.CANCELLED
    assert set(task.attempts.values_list("state", flat=True)) == {AttemptState.CANCELLED}
    assert both.squeue(second.system.slug) == ""
    assert first.pk != task.attempt_id


def test_a_cancelled_task_ends_when_both_sites_have_confirmed(
    both: Sites, alice: User, until: Callable[..., Task]
) -> None:
    task = submit(alice, seconds=4, **HEDGE)
    for attempt in task.attempts.order_by("number"):
        hand_over(both, attempt)

    tasks.cancel_task(alice, task.handle, actor="user:alice", now=timezone.now())
    until(task)

    assert task.state == TaskState.CANCELLED
    assert set(task.attempts.values_list("state", flat=True)) == {AttemptState.CANCELLED}


def test_a_task_is_placed_anew_once_the_one_attempt_that_was_sent_has_ended(
    both: Sites, alice: User, until: Callable[..., Task]
) -> None:
    task = submit(alice, seconds=1, **HEDGE)
    _first, second = task.attempts.order_by("number")
    hand_over(both, second)

    tasks.replan(alice, task.handle, actor="user:alice", now=timezone.now())
    until(task)

    assert task.state == TaskState.SUCCEEDED
    ended = task.attempts.filter(number__lte=2).values_list("state", flat=True)
    assert set(ended) == {AttemptState.SUPERSEDED}


def test_one_that_was_replaced_and_kept_and_waits_again_is_waited_for_when_it_is_placed_anew(
    both: Sites, alice: User, until: Callable[..., Task]
) -> None:
    task = submit(alice, seconds=1)
    kept = task.attempts.get()
    hand_over(both, kept)
    Attempt.objects.filter(pk=kept.pk).update(rivalry=Rivalry.REPLACED)
    until(task, TaskState.PENDING)

    tasks.replan(alice, task.handle, actor="user:alice", now=timezone.now())

    assert task.attempts.count() == 1
    until(task)
    kept.refresh_from_db()
    second = task.attempts.get(number=2)
    assert (kept.state, second.state) == (AttemptState.SUPERSEDED, AttemptState.SUCCEEDED)
    assert kept.finished_at is not None
    assert second.planned_at >= kept.finished_at


def test_an_answer_to_a_dispatch_meets_the_task_as_it_is_by_then(both: Sites, alice: User) -> None:
    task = submit(alice, seconds=4, **HEDGE)
    first, second = task.attempts.order_by("number")
    read_before = Attempt.objects.select_related(
        "task__user", "task__envelope", "task__group", "system", "connection"
    ).get(pk=first.pk)
    hand_over(both, second)
    Task.objects.filter(pk=task.pk).update(attempt=second, state=TaskState.SUBMITTED)

    dispatch_together([read_before], now=timezone.now())

    first.refresh_from_db()
    task.refresh_from_db()
    assert (first.state, bool(first.job_id)) == (AttemptState.SUBMITTED, True)
    assert (task.attempt_id, task.state) == (second.pk, TaskState.SUBMITTED)


def test_a_cancel_asked_for_meanwhile_is_not_lost_where_a_submission_left_no_job(
    both: Sites, alice: User, until: Callable[..., Task]
) -> None:
    task = submit(alice)
    attempt = task.attempts.get()
    past = timezone.now() - timedelta(minutes=10)
    Attempt.objects.filter(pk=attempt.pk).update(
        state=AttemptState.DISPATCHING, dispatch_deadline_at=past, due_at=past, dispatches=1
    )
    attempt.refresh_from_db()
    tasks.cancel_task(alice, task.handle, actor="user:alice", now=timezone.now())
    facts = AttemptFacts(AttemptState.DISPATCHING, None, None, 1, past, "")
    fold = absent(facts, now=timezone.now())
    assert fold.target is AttemptState.PLANNED

    _apply_all(attempt.system, [attempt], Looked(folds={attempt.pk: fold}), now=timezone.now())
    until(task)

    assert task.state == TaskState.CANCELLED


def test_what_was_replaced_is_taken_up_again_where_its_successor_has_failed(
    both: Sites, alice: User, until: Callable[..., Task]
) -> None:
    task = submit(alice, seconds=1, **HEDGE)
    first, second = task.attempts.order_by("number")
    hand_over(both, first)
    both.fault(second.system.slug, "submit_refused", words="Invalid account", times=1)
    dispatch(second.pk, now=timezone.now())
    Attempt.objects.filter(pk=first.pk).update(rivalry=Rivalry.REPLACED, started_at=None)
    Attempt.objects.filter(pk=second.pk).update(rivalry=Rivalry.SUCCESSOR)
    Task.objects.filter(pk=task.pk).update(attempt=second, state=TaskState.UNSCHEDULABLE, due_at=None)
    both.run(first.system.slug, "scontrol", "release", first.job_id)
    due_now()

    until(task)

    assert (task.state, task.attempt_id, task.attempts.count()) == (TaskState.SUCCEEDED, first.pk, 2)


def test_a_clock_that_jumps_ahead_submits_nothing_again_while_a_worker_waits_for_the_answer(
    sites: Sites, alice: User
) -> None:
    sites.add("delta", alice, account="bbka-delta-gpu")
    task = submit(alice)
    attempt = task.attempts.get()
    past = timezone.now() - timedelta(minutes=10)
    Attempt.objects.filter(pk=attempt.pk).update(
        state=AttemptState.DISPATCHING,
        dispatch_deadline_at=past,
        due_at=past,
        dispatches=1,
        looks_without_trace=1,
    )

    with only_one(f"dispatch:{attempt.pk}"):
        control_system(attempt.system_id, now=timezone.now())
        attempt.refresh_from_db()
        assert attempt.state == AttemptState.DISPATCHING
    control_system(attempt.system_id, now=timezone.now())

    attempt.refresh_from_db()
    assert attempt.state == AttemptState.PLANNED


def test_what_no_budget_lets_be_replaced_is_left_as_it_was_and_tried_again_later(
    both: Sites, alice: User
) -> None:
    task = submit(alice, budget={"max_attempts": 1})
    attempt = task.attempts.get()
    hand_over(both, attempt)
    now = timezone.now()
    Attempt.objects.filter(pk=attempt.pk).update(
        state=AttemptState.PENDING, state_raw="PENDING", unseen_since=now - timedelta(minutes=5)
    )
    Task.objects.filter(pk=task.pk).update(state=TaskState.PENDING)
    task.refresh_from_db()
    attempt.refresh_from_db()
    attempt.system.health = "offline"

    with transaction.atomic():
        assert replace_out_of_sight(attempt.system, task, attempt, now=now)

    stored = Attempt.objects.get(pk=attempt.pk)
    assert (task.state, task.replacements, task.attempts.count()) == (TaskState.PENDING, 0, 1)
    assert (attempt.rivalry, stored.rivalry, stored.due_at) == ("", "", now + NOWHERE_PAUSE)
