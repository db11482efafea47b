"""What goes wrong at a site or in between: nothing is lost, doubled or stuck, and each cause is named."""

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

import orchestrator.dispatch
from federation import collector
from federation.models import Allocation, Event, System
from orchestrator import control
from orchestrator.dispatch import dispatch
from orchestrator.lifecycle import AttemptState, TaskState
from orchestrator.models import Attempt, Task
from orchestrator.services import tasks
from tests.state.conftest import Sites

pytestmark = pytest.mark.django_db(transaction=True)

Until = Callable[..., Task]


@pytest.fixture
def delta(sites: Sites, alice: User) -> System:
    return sites.add("delta", alice, account="bbka-delta-gpu", granted=Decimal(1000))


def submit(user: User, command: object = ("true",), **given: object) -> Task:
    wanted = {"command": command, "envelope": {"gpus": 1, "cpus": 2, "walltime_s": 600}, **given}
    return tasks.submit_task(user, wanted, actor="user:alice", now=timezone.now()).task


def types_of(task: Task) -> list[str]:
    return list(Event.objects.filter(task=task.handle).order_by("id").values_list("type", flat=True))


def test_an_exit_code_fails_the_task_and_is_not_retried_unasked(
    delta: System, alice: User, until: Until
) -> None:
    task = until(submit(alice, "exit 3"))

    assert (task.state, task.cause) == (TaskState.FAILED, "exit_code")
    assert task.manifest.body["exit_code"] == 3
    assert task.attempts.count() == 1
    assert types_of(task)[-1] == "task.failed"


def test_a_listed_cause_is_retried_until_the_attempts_are_used_up(
    delta: System, alice: User, until: Until
) -> None:
    task = submit(alice, "exit 3", retry={"max_attempts": 2, "on": ["exit_code"]})

    until(task)

    assert (task.state, task.attempts.count()) == (TaskState.FAILED, 2)
    assert types_of(task).count("task.retrying") == 1
    assert "All 2 attempts are used up" in task.reason


def test_work_that_lacked_memory_is_tried_again_with_more_of_what_its_envelope_allows(
    sites: Sites, delta: System, alice: User, until: Until
) -> None:
    task = submit(
        alice,
        'if [ "$FACET_ATTEMPT" = 1 ]; then sleep 600; fi',
        envelope={"gpus": 1, "cpus": 2, "walltime_s": 600, "memory_mib": {"min": 1000, "max": "1T"}},
        retry={"max_attempts": 3, "on": ["out_of_memory"]},
    )
    until(task, TaskState.RUNNING)
    sites.happen("delta", "oom", task.attempts.get().job_id)

    until(task)

    first, second = task.attempts.order_by("number")
    assert (first.cause, first.shape["memory_mib"]) == ("out_of_memory", 1000)  # no node has the most of it
    assert (second.shape["memory_mib"], task.state) == (1500, TaskState.SUCCEEDED)
    told = Event.objects.get(task=task.handle, type="task.retrying").summary
    assert "The job ran out of memory. Attempt 2 of 3 follows with 1500 MiB of memory." in told


SAVES = 'trap \'echo "$n" > "$FACET_CHECKPOINT_DIR/n"\' USR1; for n in $(seq 600); do sleep 1 & wait $!; done'
"""Work that counts seconds and writes how far it is when it is told to."""


def test_jobs_that_run_out_of_wall_time_get_more_or_go_on_from_their_checkpoint(
    sites: Sites, delta: System, alice: User, until: Until
) -> None:
    saving = submit(
        alice,
        SAVES,
        envelope={"gpus": 1, "cpus": 2, "walltime_s": 60},
        checkpoint={"signal": "USR1", "before_s": 40, "resume": 'read n < "$FACET_CHECKPOINT_DIR/n"'},
    )
    task = submit(
        alice,
        'if [ "$FACET_ATTEMPT" = 1 ]; then sleep 600; fi',
        envelope={"gpus": 1, "cpus": 2, "walltime_s": 60},
        retry={"max_attempts": 2, "on": ["timeout"], "extend_walltime_factor": 2},
    )
    until(task, timeout=110)  # a minute is the least limit there is

    first, second = task.attempts.order_by("number")
    assert (first.state, first.cause) == (AttemptState.FAILED, "timeout")
    assert second.shape["walltime_s"] == 120
    assert task.state == TaskState.SUCCEEDED
    until(saving)
    first, second = saving.attempts.order_by("number")
    assert (first.cause, second.shape["walltime_s"], saving.state) == ("timeout", 60, TaskState.SUCCEEDED)
    assert (
        "follows from its checkpoint" in Event.objects.get(task=saving.handle, type="task.retrying").summary
    )
    kept = Path(first.workdir).parent / "checkpoint" / "n"
    assert 5 <= int(kept.read_text()) <= 45


def test_a_lost_answer_is_resolved_by_asking_for_the_key(
    sites: Sites, delta: System, alice: User, until: Until
) -> None:
    sites.fault("delta", "answer_lost", seconds=2, times=1)

    task = until(submit(alice))

    assert task.state == TaskState.SUCCEEDED
    assert (task.attempts.count(), task.attempts.get().dispatches) == (1, 1)
    assert len(sites.jobs("delta")) == 1


def test_a_worker_killed_before_the_call_submits_once_the_site_denied_the_key(
    sites: Sites, delta: System, alice: User, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = submit(alice)
    with monkeypatch.context() as killed:
        killed.setattr(orchestrator.dispatch, "_ask", _killed)
        with pytest.raises(KeyboardInterrupt):
            dispatch(task.attempts.get().pk, now=timezone.now())
    attempt = task.attempts.get()
    assert attempt.state == AttemptState.DISPATCHING

    _pass_deadline(delta, attempt)
    until(task)

    assert task.state == TaskState.SUCCEEDED
    assert (task.attempts.count(), task.attempts.get().dispatches) == (1, 2)
    assert len(sites.jobs("delta")) == 1


def test_a_worker_killed_after_the_call_finds_its_job_again(
    sites: Sites, delta: System, alice: User, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = submit(alice)
    with monkeypatch.context() as killed:
        killed.setattr(orchestrator.dispatch, "_apply", _killed)
        with pytest.raises(KeyboardInterrupt):
            dispatch(task.attempts.get().pk, now=timezone.now())

    _pass_deadline(delta, task.attempts.get())
    until(task)

    assert task.state == TaskState.SUCCEEDED
    assert (task.attempts.count(), task.attempts.get().dispatches) == (1, 1)
    assert len(sites.jobs("delta")) == 1


def _killed(*_args: object, **_words: object) -> None:
    raise KeyboardInterrupt


def _pass_deadline(system: System, attempt: Attempt) -> None:
    """Look twice, as if the submit command's deadline had passed, by every clock."""
    late = timezone.now() + timedelta(minutes=2)
    Attempt.objects.filter(pk=attempt.pk).update(dispatch_deadline_at=timezone.now() - timedelta(minutes=1))
    for turn in range(2):
        Attempt.objects.filter(pk=attempt.pk).update(due_at=late)
        control.control_system(system.pk, now=late + timedelta(seconds=turn))


def test_two_dispatchers_of_one_attempt_make_one_job(
    sites: Sites, delta: System, alice: User, until: Until
) -> None:
    task = submit(alice)

    first = dispatch(task.attempts.get().pk, now=timezone.now())
    second = dispatch(task.attempts.get().pk, now=timezone.now())

    assert first is not None
    assert second is None
    until(task)
    assert len(sites.jobs("delta")) == 1


def test_a_refusal_names_the_schedulers_words_and_goes_elsewhere(
    sites: Sites, delta: System, alice: User, until: Until
) -> None:
    sites.fault(
        "delta",
        "submit_refused",
        words="Invalid account or account/partition combination specified",
        times=1,
    )

    task = until(submit(alice))

    first, second = task.attempts.order_by("number")
    assert (first.state, first.cause) == (AttemptState.FAILED, "dispatch_rejected")
    assert "account" in first.reason_explained.lower()
    assert (second.partition, task.state) != (first.partition, TaskState.FAILED)
    assert Allocation.objects.get().reserved == 0


def test_cancelling_a_running_task_is_confirmed_by_the_site(
    sites: Sites, delta: System, alice: User, until: Until
) -> None:
    task = until(submit(alice, "sleep 100"), TaskState.RUNNING)

    tasks.cancel_task(alice, task.handle, actor="user:alice", now=timezone.now())
    task.refresh_from_db()
    assert task.state == TaskState.RUNNING
    until(task)

    assert (task.state, task.cause) == (TaskState.CANCELLED, "cancelled_by_user")
    assert sites.squeue("delta") == ""


def test_cancelling_before_dispatch_ends_at_once(delta: System, alice: User) -> None:
    task = submit(alice)

    tasks.cancel_task(alice, task.handle, actor="user:alice", now=timezone.now())

    task.refresh_from_db()
    assert task.state == TaskState.CANCELLED
    assert task.attempts.get().state == AttemptState.CANCELLED
    assert Allocation.objects.get().reserved == 0


def test_a_job_cancelled_at_the_site_says_so(sites: Sites, delta: System, alice: User, until: Until) -> None:
    task = until(submit(alice, "sleep 100"), TaskState.RUNNING)

    sites.run("delta", "scancel", task.attempts.get().job_id)
    until(task)

    assert (task.state, task.cause) == (TaskState.CANCELLED, "cancelled_by_site")


def test_a_dead_scheduler_makes_attempts_unknown_and_never_runs_them_again(
    sites: Sites, delta: System, alice: User, until: Until
) -> None:
    task = until(submit(alice, "sleep 3"), TaskState.RUNNING)
    sites.fault("delta", "controller_dead", seconds=1)
    sites.fault("delta", "database_dead")

    later = timezone.now() + timedelta(minutes=2)
    Attempt.objects.update(due_at=later)
    control.control_system(delta.pk, now=later)
    attempt = task.attempts.get()
    assert attempt.state == AttemptState.UNKNOWN
    assert types_of(task)[-1] == "attempt.unseen"

    sites.heal("delta", "controller_dead")
    sites.heal("delta", "database_dead")
    Attempt.objects.update(due_at=timezone.now())
    until(task)

    assert task.state == TaskState.SUCCEEDED
    assert task.attempts.count() == 1
    assert "attempt.seen" in types_of(task)


def test_health_goes_down_step_by_step_and_comes_back_at_once(sites: Sites, delta: System) -> None:
    sites.fault("delta", "controller_dead", seconds=1)

    seen = []
    for _ in range(6):
        collector.refresh(delta.pk, now=timezone.now())
        seen.append(System.objects.get(pk=delta.pk).health)
    assert seen == ["degraded", "degraded", "stale", "stale", "stale", "offline"]

    sites.heal("delta", "controller_dead")
    collector.refresh(delta.pk, now=timezone.now())

    assert System.objects.get(pk=delta.pk).health == "online"
    told = Event.objects.filter(system="delta", type__startswith="system.").order_by("id")
    assert list(told.values_list("type", flat=True)) == [
        "system.online",
        "system.degraded",
        "system.stale",
        "system.offline",
        "system.online",
    ]


@pytest.mark.parametrize("fault", ["garbage", "truncated"])
def test_output_that_cannot_be_read_changes_nothing(
    sites: Sites, delta: System, alice: User, until: Until, fault: str
) -> None:
    task = until(submit(alice, "sleep 2"), TaskState.RUNNING)
    sites.fault("delta", fault)
    before = System.objects.get(pk=delta.pk).snapshot_id

    Attempt.objects.update(due_at=timezone.now())
    control.control_system(delta.pk, now=timezone.now())
    collector.refresh(delta.pk, now=timezone.now())

    assert task.attempts.get().state == AttemptState.RUNNING
    assert System.objects.get(pk=delta.pk).snapshot_id == before
    sites.heal("delta", fault)
    Attempt.objects.update(due_at=timezone.now())
    assert until(task).state == TaskState.SUCCEEDED


def test_an_impossible_task_says_what_would_help_and_starts_when_room_appears(
    delta: System, alice: User, until: Until
) -> None:
    Allocation.objects.update(granted=Decimal("0.01"))
    task = submit(alice)
    assert task.state == TaskState.UNSCHEDULABLE
    assert task.decisions.get().body["closest"]["changes"]

    Allocation.objects.update(granted=Decimal(1000))
    tasks.advance_task(task.pk, now=timezone.now() + timedelta(minutes=2))
    until(task)

    assert task.state == TaskState.SUCCEEDED


def test_replan_moves_a_waiting_task_after_the_site_confirmed(
    sites: Sites, delta: System, alice: User, until: Until
) -> None:
    sites.add("vista", alice, account="ASC24001", granted=Decimal(1000))
    task = submit(alice, "sleep 1")
    first = task.attempts.get()
    assert dispatch(first.pk, now=timezone.now()) is not None
    first.refresh_from_db()

    tasks.replan(
        alice, task.handle, actor="user:alice", now=timezone.now(), exclude_systems=[first.system.slug]
    )
    until(task)

    assert task.state == TaskState.SUCCEEDED
    old, new = task.attempts.order_by("number")
    assert old.state == AttemptState.SUPERSEDED
    assert new.system.slug != old.system.slug
