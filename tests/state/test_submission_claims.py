"""A submission whose worker was killed: whatever the clocks say and however late it comes, one job."""

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from federation.models import System
from orchestrator import control, steady
from orchestrator.dispatch import dispatch
from orchestrator.lifecycle import AttemptState, TaskState
from orchestrator.models import Attempt, Task
from orchestrator.services import tasks
from providers.links.local import LocalLink
from providers.types import Batch, BatchReply
from tests.state.conftest import Sites

pytestmark = pytest.mark.django_db(transaction=True)

Until = Callable[..., Task]


@pytest.fixture
def delta(sites: Sites, alice: User) -> System:
    return sites.add("delta", alice, account="bbka-delta-gpu", granted=Decimal(1000))


def submit(user: User, command: str = "true") -> Task:
    wanted = {"command": command, "envelope": {"gpus": 1, "cpus": 2, "walltime_s": 600}}
    return tasks.submit_task(user, wanted, actor="user:alice", now=timezone.now()).task


def killed_in_the_call(task: Task, monkeypatch: pytest.MonkeyPatch) -> tuple[LocalLink, Batch]:
    """Dispatch with a worker that is killed as its request leaves; return what was to be carried out."""
    sent: list[tuple[LocalLink, Batch]] = []

    def leave(link: LocalLink, batch: Batch) -> BatchReply:
        sent.append((link, batch))
        raise KeyboardInterrupt

    with monkeypatch.context() as killed:
        killed.setattr(LocalLink, "run", leave)
        with pytest.raises(KeyboardInterrupt):
            dispatch(task.attempts.get().pk, now=timezone.now())
    (only,) = sent
    return only


def look(system: System, at: datetime, *, times: int = 2) -> Attempt:
    for _ in range(times):
        Attempt.objects.exclude(due_at=None).update(due_at=at)
        control.control_system(system.pk, now=at)
    return Attempt.objects.get()


def let_every_clock_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    later = time.monotonic() + 3600
    monkeypatch.setattr(steady, "seconds", lambda: later)


def test_a_clock_that_jumps_ahead_while_sbatch_outlives_its_worker_makes_one_job(
    sites: Sites, delta: System, alice: User, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = submit(alice)
    link, batch = killed_in_the_call(task, monkeypatch)

    attempt = look(delta, timezone.now() + timedelta(days=1), times=3)
    assert (attempt.state, attempt.dispatches) == (AttemptState.DISPATCHING, 1)
    link.run(batch)  # only now does sbatch get through
    until(task)

    attempt = task.attempts.get()
    assert (task.state, attempt.dispatches) == (TaskState.SUCCEEDED, 1)
    assert sites.jobs("delta") == [attempt.submit_key]


def test_a_submission_that_is_cancelled_meanwhile_is_not_let_go_before_its_time_either(
    sites: Sites, delta: System, alice: User, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = submit(alice, "sleep 300")
    link, batch = killed_in_the_call(task, monkeypatch)
    tasks.cancel_task(alice, task.handle, actor="user:alice", now=timezone.now())

    assert look(delta, timezone.now() + timedelta(days=1)).state == AttemptState.DISPATCHING
    link.run(batch)
    until(task)

    assert task.state == TaskState.CANCELLED
    assert task.attempts.get().job_id
    assert sites.run("delta", "squeue", "-h") == ""


def test_a_steady_clock_of_another_machine_counts_from_its_own_first_look(
    delta: System, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_in_the_call(submit(alice), monkeypatch)
    tomorrow = timezone.now() + timedelta(days=1)
    first = steady.machine()
    at_s = steady.seconds()
    monkeypatch.setattr(steady, "machine", lambda: "another")
    monkeypatch.setattr(steady, "seconds", lambda: 5.0)

    attempt = look(delta, tomorrow)
    assert attempt.state == AttemptState.DISPATCHING
    assert attempt.dispatch_ticks["another"] == 5.0
    assert 0 <= at_s - attempt.dispatch_ticks[first] < 60
    monkeypatch.setattr(steady, "seconds", lambda: 5.0 + 104)
    assert look(delta, tomorrow, times=1).state == AttemptState.DISPATCHING
    monkeypatch.setattr(steady, "seconds", lambda: 5.0 + 106)
    assert look(delta, tomorrow).state == AttemptState.PLANNED


@pytest.mark.parametrize("late", ["before the second", "after the second"])
def test_a_request_that_comes_after_its_time_makes_no_second_job(
    late: str, sites: Sites, delta: System, alice: User, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = submit(alice)
    link, batch = killed_in_the_call(task, monkeypatch)
    with monkeypatch.context() as passed:
        let_every_clock_pass(passed)
        attempt = look(delta, timezone.now() + timedelta(minutes=3))
    assert attempt.state == AttemptState.PLANNED

    if late == "before the second":
        link.run(batch)
    dispatch(attempt.pk, now=timezone.now())
    if late == "after the second":
        link.run(batch)
    Attempt.objects.exclude(due_at=None).update(due_at=timezone.now())
    until(task)

    attempt = task.attempts.get()
    assert (task.state, attempt.dispatches, attempt.claims) == (TaskState.SUCCEEDED, 2, 0)
    assert sites.jobs("delta") == [attempt.submit_key]


def test_a_claim_that_came_to_nothing_is_waited_out_and_then_followed_by_another(
    sites: Sites, delta: System, alice: User, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = submit(alice)
    link, batch = killed_in_the_call(task, monkeypatch)
    link.run(Batch(operations=batch.operations[:-1], deadline_s=30))  # the site killed it before its sbatch
    later = timezone.now() + timedelta(minutes=3)
    with monkeypatch.context() as passed:
        let_every_clock_pass(passed)
        look(delta, later)
        dispatch(task.attempts.get().pk, now=later)

    attempt = task.attempts.get()
    assert (attempt.state, attempt.claim_is_made, attempt.claims) == (AttemptState.DISPATCHING, True, 0)
    assert "was carried out before" in attempt.reason_explained
    assert sites.jobs("delta") == []
    later += timedelta(minutes=3)
    with monkeypatch.context() as passed:
        passed.setattr(steady, "seconds", lambda: time.monotonic() + 7200)
        attempt = look(delta, later)
        assert (attempt.state, attempt.claim_is_made, attempt.claims) == (AttemptState.PLANNED, False, 1)
    dispatch(attempt.pk, now=timezone.now())
    until(task)

    attempt = task.attempts.get()
    assert (task.state, attempt.dispatches) == (TaskState.SUCCEEDED, 3)
    assert sites.jobs("delta") == [attempt.submit_key]
    made = sorted(each.name for each in (Path(attempt.stdout_path).parent / ".facet").glob("submitted-*"))
    assert made == [f"submitted-{attempt.submit_key}-{number}" for number in (1, 2)]
