"""An endpoint is lost while a job waits behind it: detected, left out, replaced, in order when it returns."""

from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from federation.models import Allocation, Event, System
from orchestrator.dispatch import dispatch
from orchestrator.lifecycle import AttemptState, TaskState
from orchestrator.models import Attempt, Task
from orchestrator.services import tasks
from portal.globus.connections import GlobusSettings
from portal.globus.endpoints import connect_endpoint
from providers.sandbox.globus.server import StandIn
from providers.sandbox.globus.spec import Endpoint, EndpointState
from tests.globus.conftest import ALICE, DELTA
from tests.globus.test_tokens import grant
from tests.state.conftest import Sites
from tests.stepping import run_clock, step_until

pytestmark = pytest.mark.django_db(transaction=True)

PUBLISHED_S = 34
"""From detection to replacement, as published of the system this one follows."""


@pytest.fixture
def waiting(set_up: StandIn, sites: Sites, alice: User) -> Task:
    """A task whose job is held at delta, reached through an endpoint; vista is there too."""
    delta = sites.add("delta", alice, account="bbka-delta-gpu", granted=Decimal(100))
    home = {"HOME": str(sites.root / "home"), "USER": "alice"}
    Path(home["HOME"]).mkdir(exist_ok=True)
    set_up.state.know(
        endpoints=[Endpoint(id=DELTA, name="delta", env=sites.env["delta"], users={ALICE: home})]
    )
    grant(set_up, alice)
    connect_endpoint(alice, delta, GlobusSettings(endpoint=DELTA), now=timezone.now(), remote_user="alice")
    given = {
        "command": "sleep 3",
        "envelope": {"gpus": 1, "walltime_s": 600},
    }
    task = tasks.submit_task(alice, given, actor="user:alice", now=timezone.now()).task
    attempt = dispatch(task.attempts.get().pk, now=timezone.now())
    assert attempt is not None
    sites.hold("delta", attempt.job_id)
    step_until(task, TaskState.PENDING)
    sites.add("vista", alice, account="ASC24001", granted=Decimal(100))
    return task


def at(type_: str, **fields: str) -> datetime:
    return Event.objects.filter(type=type_, **fields).order_by("id").first().at  # type: ignore[union-attr]  # it is there


def test_a_lost_endpoint_is_detected_left_out_replaced_and_put_in_order_when_it_returns(
    waiting: Task, set_up: StandIn, sites: Sites, record_property: Callable[[str, object], None]
) -> None:
    set_up.state.set_endpoint(DELTA, EndpointState.OFFLINE)

    def is_replaced() -> bool:
        newest = Attempt.objects.filter(task=waiting).order_by("-number").first()
        return newest is not None and newest.number == 2 and bool(newest.job_id)

    now = run_clock(is_replaced, start=timezone.now(), limit_s=600)

    old, new = waiting.attempts.order_by("number")
    assert (new.system.slug, old.rivalry, new.rivalry) == ("vista", "replaced", "successor")
    detected, replaced = at("system.degraded", system="delta"), at("task.replaced", task=waiting.handle)
    record_property("from detection to replacement, s", (replaced - detected).total_seconds())
    assert replaced - detected < timedelta(seconds=PUBLISHED_S)
    assert System.objects.get(slug="delta").health in ("stale", "offline")
    waiting.refresh_from_db()
    assert waiting.attempt_id == new.pk
    assert old.state != AttemptState.SUPERSEDED

    set_up.state.set_endpoint(DELTA, EndpointState.ONLINE)

    def is_in_order() -> bool:
        is_gone = Attempt.objects.get(pk=old.pk).state == AttemptState.SUPERSEDED
        return is_gone and System.objects.get(slug="delta").health == "online"

    run_clock(is_in_order, start=now, limit_s=900)

    assert sites.squeue("delta") == ""
    Attempt.objects.filter(due_at__isnull=False).update(due_at=timezone.now())
    step_until(waiting)
    assert (waiting.state, waiting.attempt_id) == (TaskState.SUCCEEDED, new.pk)
    assert Allocation.objects.get(system__slug="delta").used == 0
