"""The main job, step by step: submit → place → dispatch → watch → result, on an emulated cluster."""

from collections.abc import Callable
from datetime import datetime
from decimal import Decimal

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from federation.ledger import verify
from federation.models import Allocation, Event
from orchestrator.lifecycle import TaskState
from orchestrator.models import Attempt, Task
from orchestrator.services import tasks
from tests.state.conftest import Sites

pytestmark = pytest.mark.django_db(transaction=True)


def _submit(user: User, **given: object) -> Task:
    return tasks.submit_task(user, given, actor="user:alice", now=timezone.now()).task


def test_a_task_runs_to_success_and_leaves_a_manifest(
    sites: Sites, alice: User, until: Callable[..., Task], now: datetime
) -> None:
    sites.add("delta", alice, account="bbka-delta-gpu", granted=Decimal(100))

    task = _submit(
        alice,
        name="hello",
        command=["bash", "-c", "echo hello from $SLURM_JOB_ID; echo done > result.txt; sleep 2"],
        envelope={"gpus": 1, "cpus": 4, "walltime_s": 600},
    )
    assert task.state == TaskState.PLACING, task.reason
    until(task)

    assert task.state == TaskState.SUCCEEDED, task.reason
    attempt = task.attempts.get()
    body = task.manifest.body
    assert body["exit_code"] == 0
    assert body["job_id"] == attempt.job_id
    assert {entry["path"] for entry in body["files"]} == {"stdout.log", "stderr.log", "result.txt"}
    assert attempt.started_at is not None
    assert attempt.ended_at is not None
    happened = list(Event.objects.filter(task=task.handle).order_by("id").values_list("type", flat=True))
    assert happened[:4] == ["task.accepted", "task.placed", "attempt.dispatched", "task.submitted"]
    assert [word for word in happened if word.startswith("task.")][-2:] == ["task.started", "task.succeeded"]
    allocation = Allocation.objects.get()
    assert allocation.reserved == 0
    assert Decimal(0) < allocation.used < Decimal("0.1")
    assert list(verify()) == []
    assert Attempt.objects.count() == 1
