"""The lifecycles hold in the database as in Python, and two workers never both win."""

import pytest
from django.contrib.auth.models import User
from django.db import DatabaseError, transaction
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.lifecycle import TASK_MOVES, TaskState
from orchestrator.models import Decision, Envelope, Task
from orchestrator.services.moves import move_task
from providers.errors import IllegalMove

pytestmark = pytest.mark.django_db(transaction=True)

SPEC = {"retry": {"max_attempts": 1, "on": []}, "replacement": {"enabled": False}}


def a_task(user: User, state: TaskState = TaskState.ACCEPTED) -> Task:
    now = timezone.now()
    number = Task.objects.count()
    envelope = Envelope.objects.create(
        handle=f"env_{number}", user=user, source="user", body={}, created_at=now
    )
    return Task.objects.create(
        handle=f"task_{number}",
        user=user,
        actor="user:alice",
        name="x",
        state=state.value,
        spec=SPEC,
        envelope=envelope,
        created_at=now,
        updated_at=now,
    )


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(source=st.sampled_from(list(TaskState)), target=st.sampled_from(list(TaskState)))
def test_the_database_allows_exactly_the_moves_of_the_table(
    alice: User, source: TaskState, target: TaskState
) -> None:
    task = a_task(alice, source)

    def change() -> None:
        with transaction.atomic():
            Task.objects.filter(pk=task.pk).update(state=target.value)

    if target in TASK_MOVES[source] or source is target:
        change()
        assert Task.objects.get(pk=task.pk).state == target
    else:
        with pytest.raises(DatabaseError, match="Invalid transition"):
            change()
        assert Task.objects.get(pk=task.pk).state == source


def test_the_second_worker_loses(alice: User) -> None:
    task = a_task(alice)
    mine, theirs = Task.objects.get(pk=task.pk), Task.objects.get(pk=task.pk)

    move_task(mine, TaskState.PLACING, now=timezone.now())

    with pytest.raises(IllegalMove, match="another worker moved first"):
        move_task(theirs, TaskState.CANCELLED, now=timezone.now())
    assert Task.objects.get(pk=task.pk).state == TaskState.PLACING


def test_a_state_that_is_in_no_table_is_refused(alice: User) -> None:
    task = a_task(alice)

    with pytest.raises(DatabaseError):
        Task.objects.filter(pk=task.pk).update(state="done")


def test_a_decision_is_never_changed_or_deleted(alice: User) -> None:
    decision = Decision.objects.create(
        handle="dec_1", user=alice, purpose="submit", input_hash="x", body={}, created_at=timezone.now()
    )

    with pytest.raises(DatabaseError, match="Cannot update or delete"):
        Decision.objects.filter(pk=decision.pk).update(body={"forged": True})
    with pytest.raises(DatabaseError, match="Cannot update or delete"):
        Decision.objects.filter(pk=decision.pk).delete()
