"""A run that ended well leaves word of where its environment is; what failed does not."""

from collections.abc import Callable
from decimal import Decimal

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from orchestrator.environments import environment_of
from orchestrator.lifecycle import TaskState
from orchestrator.models import EnvironmentUse, Task
from orchestrator.services import tasks
from tests.state.conftest import Sites

pytestmark = pytest.mark.django_db(transaction=True)

BUILT = {"setup": ["export BUILT=1"]}


def submit(user: User, command: str) -> Task:
    given = {
        "command": command,
        "environment": BUILT,
        "envelope": {"gpus": 1, "cpus": 2, "walltime_s": 600},
        "retry": {"max_attempts": 1},
    }
    return tasks.submit_task(user, given, actor="user:alice", now=timezone.now()).task


def test_the_first_good_run_of_an_environment_is_remembered_and_the_last_end(
    sites: Sites, alice: User, until: Callable[..., Task]
) -> None:
    sites.add("delta", alice, account="bbka-delta-gpu", granted=Decimal(1000))
    failed = submit(alice, "false")
    until(failed, TaskState.FAILED)
    assert not EnvironmentUse.objects.exists()

    first = submit(alice, "true")
    until(first, TaskState.SUCCEEDED)
    use = EnvironmentUse.objects.get()
    assert (use.user_id, use.system.slug, use.environment) == (alice.pk, "delta", environment_of(BUILT, None))
    assert use.first_attempt.task_id == first.pk
    again = submit(alice, "true")
    until(again, TaskState.SUCCEEDED)

    use.refresh_from_db()
    assert use.first_attempt.task_id == first.pk
    assert use.last_at == max(a.ended_at for t in (first, again) for a in t.attempts.all() if a.ended_at)
