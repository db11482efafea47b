"""Above a threshold a person decides: nothing is held before, no token decides, silence ends in a cancel."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User

from federation.models import Allocation, Event, System
from orchestrator.budget_input import BudgetInput
from orchestrator.lifecycle import Cause, TaskState
from orchestrator.models import Approval, Attempt, Budget, Task
from orchestrator.services import approvals, budgets, deadlines, tasks
from orchestrator.services.approvals import Approver
from providers.errors import Conflict, NotAuthorized, NotFound
from tests.state.spending import ONE_GPU, newest, send, start, submit
from tests.web.world import make_system

pytestmark = pytest.mark.django_db


@pytest.fixture
def anvil(alice: User, now: datetime) -> System:
    return make_system(alice, "anvil", "Anvil", "a100", "40G", free=3, now=now)


def _careful(user: User, now: datetime, *, as_admin: bool = False, **more: Any) -> Budget:
    """Set a budget under which more than half a unit of charge waits for a person."""
    given = BudgetInput.model_validate({"approve_above": {"charge": {"anvil": 0.5}}, **more})
    on = ("project", "climate")
    return budgets.set_budget(user.pk, on, given, actor="user:x", now=now, as_admin=as_admin)


def _person(user: User) -> Approver:
    return Approver(user, f"user:{user.get_username()}", via="page")


def _types(task: Task) -> list[str]:
    return list(Event.objects.filter(task=task.handle).order_by("id").values_list("type", flat=True))


def test_above_the_threshold_a_task_waits_and_holds_nothing(
    alice: User, anvil: System, now: datetime
) -> None:
    _careful(alice, now)

    task = submit(alice, now, project="climate", token="tok_1", actor="token:agent")

    assert task.state == TaskState.PENDING_APPROVAL
    assert task.attempts.count() == 0
    assert Allocation.objects.get().reserved == 0
    approval = Approval.objects.get()
    (asked,) = approval.asks
    assert (asked["amount"], asked["approval_above"], asked["unit"]) == ("1.0000", "0.5000", "SU")
    assert (approval.asked_by, approval.asked_token) == ("token:agent", "tok_1")
    assert _types(task) == ["task.accepted", "approval.requested"]
    event = Event.objects.get(type="approval.requested")
    assert (event.subject, event.wake) == (approval.handle, "exception")
    assert "1 SU at anvil is more than the 0.5" in event.summary


def test_what_is_approved_is_placed_at_once_and_retries_need_no_second_answer(
    alice: User, anvil: System, now: datetime
) -> None:
    _careful(alice, now)
    task = submit(alice, now, project="climate")
    handle = Approval.objects.get().handle

    approvals.decide_approval(_person(alice), handle, "approve", now=now, note="go")
    tasks.advance_task(task.pk, now=now)

    task.refresh_from_db()
    assert (task.state, task.attempts.count()) == (TaskState.PLACING, 1)
    approval = Approval.objects.get()
    assert (approval.state, approval.decided_by, approval.decided_via) == ("approved", "user:alice", "page")
    assert _types(task)[-2:] == ["approval.granted", "task.placed"]

    tasks.replan(alice, task.handle, actor="user:alice", now=now)
    task.refresh_from_db()
    assert (task.state, Approval.objects.count()) == (TaskState.PLACING, 1)


def test_a_dearer_placement_than_was_approved_is_asked_anew(
    alice: User, anvil: System, now: datetime
) -> None:
    _careful(alice, now)
    task = submit(alice, now, project="climate")
    approvals.decide_approval(_person(alice), Approval.objects.get().handle, "approve", now=now)
    tasks.advance_task(task.pk, now=now)

    two = {**ONE_GPU, "gpus": 2}
    tasks.replan(alice, task.handle, actor="user:alice", now=now, envelope=two)

    task.refresh_from_db()
    assert task.state == TaskState.PENDING_APPROVAL
    assert [row.state for row in Approval.objects.order_by("id")] == ["approved", "pending"]


def test_what_is_rejected_is_cancelled_with_the_reason(alice: User, anvil: System, now: datetime) -> None:
    _careful(alice, now)
    task = submit(alice, now, project="climate")

    approvals.decide_approval(
        _person(alice), Approval.objects.get().handle, "reject", now=now, note="too dear"
    )

    task.refresh_from_db()
    assert (task.state, task.cause) == (TaskState.CANCELLED, Cause.CANCELLED_BY_USER)
    assert "did not approve" in task.reason
    assert "too dear" in task.reason
    assert _types(task)[-2:] == ["approval.rejected", "task.cancelled"]


def test_nobody_but_the_owner_as_a_person_decides(
    alice: User, bob: User, anvil: System, now: datetime
) -> None:
    _careful(alice, now)
    submit(alice, now, project="climate", token="tok_1", actor="token:agent")
    handle = Approval.objects.get().handle
    admin = User.objects.create_user("root", is_staff=True)

    def decide(approver: Approver) -> None:
        approvals.decide_approval(approver, handle, "approve", now=now)

    with pytest.raises(NotAuthorized, match="token that asked"):
        decide(Approver(alice, "token:agent", via="api", token="tok_1", is_person=False))
    with pytest.raises(NotAuthorized, match="Only a person"):
        decide(Approver(alice, "token:other", via="api", token="tok_2", is_person=False))
    with pytest.raises(NotFound):
        decide(_person(bob))
    with pytest.raises(NotAuthorized, match="owner"):
        decide(_person(admin))
    assert Approval.objects.get().state == "pending"


def test_beyond_an_imposed_budget_only_an_administrator_approves(
    alice: User, anvil: System, now: datetime
) -> None:
    _careful(alice, now, as_admin=True)
    task = submit(alice, now, project="climate")
    handle = Approval.objects.get().handle
    admin = User.objects.create_user("root", is_staff=True)

    with pytest.raises(NotAuthorized, match="administrator"):
        approvals.decide_approval(_person(alice), handle, "approve", now=now)
    approvals.decide_approval(_person(admin), handle, "approve", now=now)

    tasks.advance_task(task.pk, now=now)
    task.refresh_from_db()
    assert task.state == TaskState.PLACING


def test_an_answer_is_given_once(alice: User, anvil: System, now: datetime) -> None:
    _careful(alice, now)
    submit(alice, now, project="climate")
    handle = Approval.objects.get().handle
    approvals.decide_approval(_person(alice), handle, "approve", now=now)

    again = approvals.decide_approval(_person(alice), handle, "approve", now=now + timedelta(hours=1))

    assert again.decided_at == now
    with pytest.raises(Conflict, match="approved already"):
        approvals.decide_approval(_person(alice), handle, "reject", now=now)
    assert Event.objects.filter(type__startswith="approval.").count() == 2


def test_silence_ends_in_a_cancel(alice: User, anvil: System, now: datetime) -> None:
    _careful(alice, now)
    task = submit(alice, now, project="climate")
    late = now + approvals.LASTS

    assert approvals.expire(now=late - timedelta(seconds=1)) == 0
    with pytest.raises(Conflict, match="expired"):
        approvals.decide_approval(_person(alice), Approval.objects.get().handle, "approve", now=late)
    assert approvals.expire(now=late) == 1
    assert approvals.expire(now=late) == 0

    task.refresh_from_db()
    assert (task.state, task.cause) == (TaskState.CANCELLED, Cause.DEADLINE)
    assert Approval.objects.get().state == "expired"


def test_a_cancelled_task_takes_its_request_back(alice: User, anvil: System, now: datetime) -> None:
    _careful(alice, now)
    task = submit(alice, now, project="climate")

    tasks.cancel_task(alice, task.handle, actor="user:alice", now=now)

    assert Approval.objects.get().state == "withdrawn"
    with pytest.raises(Conflict, match="withdrawn"):
        approvals.decide_approval(_person(alice), Approval.objects.get().handle, "approve", now=now)


# --- deadlines -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("policy", "ends"), [("hold", False), ("cancel", True)])
def test_at_the_deadline_what_waits_ends_and_what_runs_ends_only_if_the_budget_says_so(
    alice: User, anvil: System, now: datetime, policy: str, ends: bool
) -> None:
    deadline = now + timedelta(hours=10)
    given = BudgetInput.model_validate({"deadline": deadline, "on_exhaustion": policy})
    budgets.set_budget(alice.pk, ("project", "climate"), given, actor="user:alice", now=now)
    unsent, queued, running = (submit(alice, now, project="climate") for _ in range(3))
    send(newest(queued), now)
    send(newest(running), now)
    start(newest(running), now)

    assert deadlines.sweep(now=now + timedelta(hours=9)) == 0
    assert deadlines.sweep(now=deadline) == (3 if ends else 2)
    assert deadlines.sweep(now=deadline) == 0

    for task in (unsent, queued, running):
        task.refresh_from_db()
    assert (unsent.state, unsent.cause) == (TaskState.CANCELLED, Cause.DEADLINE)
    reasons = list(Attempt.objects.order_by("id").values_list("cancel_reason", flat=True))
    assert reasons == ["", "deadline", "deadline" if ends else ""]
    told = Event.objects.filter(type__startswith="budget.").order_by("id")
    assert [(each.type, each.data["threshold"]) for each in told] == [
        ("budget.threshold", 0.8),
        ("budget.exhausted", 1.0),
    ]


def test_after_the_deadline_nothing_new_starts(alice: User, anvil: System, now: datetime) -> None:
    given = BudgetInput.model_validate({"deadline": now + timedelta(seconds=5)})
    budgets.set_budget(alice.pk, ("project", "climate"), given, actor="user:alice", now=now)
    later = now + timedelta(seconds=6)

    task = submit(alice, later, project="climate")
    assert (task.state, task.attempts.count()) == (TaskState.UNSCHEDULABLE, 0)
    assert "deadline" in task.reason
    tasks.advance_task(task.pk, now=later)

    task.refresh_from_db()
    assert (task.state, task.cause) == (TaskState.CANCELLED, Cause.DEADLINE)


def test_a_limit_lowered_under_what_was_used_ends_work_only_where_that_was_asked(
    alice: User, anvil: System, now: datetime
) -> None:
    budget = _careful(alice, now, approve_above={}, max_charge={"anvil": 50})
    done, running = (submit(alice, now, project="climate") for _ in range(2))
    send(newest(running), now)
    start(newest(running), now)
    budget.meters.update(used=5)

    _careful(alice, now, approve_above={}, max_charge={"anvil": 4})
    assert deadlines.sweep(now=now) == 0
    _careful(alice, now, approve_above={}, max_charge={"anvil": 4}, on_exhaustion="cancel")

    assert deadlines.sweep(now=now) == 2
    done.refresh_from_db()
    assert done.state == TaskState.CANCELLED
    assert newest(running).cancel_reason == "deadline"
