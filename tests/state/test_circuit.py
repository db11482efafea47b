"""A system that takes no jobs gets none for a while, tells why, and is tried with one attempt."""

from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from federation import selectors
from federation.circuit import CircuitState
from federation.circuits import circuit_of
from federation.models import Event, System
from orchestrator.dispatch import dispatch
from orchestrator.lifecycle import AttemptState, TaskState
from orchestrator.models import Task
from orchestrator.services import tasks
from tests.state.conftest import Sites
from tests.stepping import all_step_until

pytestmark = pytest.mark.django_db(transaction=True)

DELTA = {"policy": {"allow_systems": ["delta"]}}


def submit(user: User, command: str, *, now: datetime, **envelope: object) -> Task:
    wanted = {"command": command, "envelope": {"gpus": 1, "walltime_s": 600, **envelope}}
    return tasks.submit_task(user, wanted, actor="user:alice", now=now).task


@pytest.fixture
def stopped(sites: Sites, alice: User, until: Callable[..., Task]) -> tuple[Task, datetime]:
    """Delta runs a task of ours, then takes no more jobs: three submissions got no answer."""
    sites.add("delta", alice, account="bbka-delta-gpu", granted=Decimal(1000))
    sites.add("vista", alice, account="ASC24001", granted=Decimal(1000))
    healthy = until(submit(alice, "sleep 4", now=timezone.now(), **DELTA), TaskState.RUNNING)
    sites.fault("delta", "controller_dead", seconds=0.1, programs=["sbatch"])
    at = timezone.now()
    for number in range(3):
        at = timezone.now() + timedelta(seconds=20 * number)
        task = submit(alice, "true", now=at, **DELTA)
        dispatch(task.attempts.get().pk, now=at)
    return healthy, at


def delta() -> System:
    return System.objects.get(slug="delta")


def test_new_work_goes_elsewhere_says_why_and_running_work_is_left_alone(
    stopped: tuple[Task, datetime], alice: User
) -> None:
    healthy, at = stopped
    circuit = circuit_of(delta())
    assert circuit.state is CircuitState.OPEN
    event = Event.objects.get(system="delta", type="system.degraded")
    assert event.data["circuit"]["state"] == "open"
    shown = next(each for each in selectors.systems_shown(alice, now=at) if each.system == "delta")
    record = next(each for each in selectors.records_for(alice, now=at) if each.system == "delta")
    assert (shown.health, shown.circuit.state) == ("degraded", CircuitState.OPEN)
    assert "No new work is sent" in shown.reason
    assert "could not be handed over" in (record.circuit_open or "")

    task = submit(alice, "true", now=at)

    assert task.attempt is not None
    assert task.attempt.system.slug == "vista"
    told = [c for c in task.decisions.get().body["candidates"] if c["system"] == "delta"]
    codes = {r["code"] for c in told for r in c["rejections"] if r["rule"] == "endpoint_health"}
    assert codes == {"endpoint_offline"}
    all_step_until([healthy])
    assert (healthy.state, healthy.attempts.count()) == (TaskState.SUCCEEDED, 1)


def test_one_attempt_is_the_trial_and_its_success_lets_work_through_again(
    stopped: tuple[Task, datetime], sites: Sites, alice: User
) -> None:
    _healthy, at = stopped
    sites.heal("delta", "controller_dead")
    later = at + timedelta(seconds=61)
    cancelled = submit(alice, "true", now=later, **DELTA)
    tasks.cancel_task(alice, cancelled.handle, actor="user:alice", now=later)
    assert (circuit_of(delta()).state, circuit_of(delta()).trial) == (CircuitState.HALF_OPEN, "")

    trial = submit(alice, "true", now=later, **DELTA)
    second = submit(alice, "true", now=later, **DELTA)

    assert circuit_of(delta()).state is CircuitState.HALF_OPEN
    assert any("trial" in words for words in trial.decisions.get().body["warnings"])
    assert second.state == TaskState.UNSCHEDULABLE
    dispatch(trial.attempts.get().pk, now=later)
    assert trial.attempts.get().state == AttemptState.SUBMITTED
    assert circuit_of(delta()).is_plain
    closed = Event.objects.filter(system="delta", type="system.online").order_by("id").last()
    assert closed is not None
    assert closed.data["circuit"]["state"] == "closed"
    assert closed.summary == "Delta takes new work again"
