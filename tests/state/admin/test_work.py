"""Budgets, approvals, subscriptions and deliveries in the admin: each action is a verb."""

import json
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from federation.managers import appoint, is_administrator
from federation.models import System
from orchestrator.budget_input import BudgetInput
from orchestrator.budget_models import Approval, Budget
from orchestrator.models import Decision, Delivery, Envelope, Subscription, Task
from orchestrator.services.approvals import Approver, decide_approval
from orchestrator.services.budgets import set_budget
from providers.errors import NotAuthorized, NotFound
from tests.state.admin.asking import text_of

pytestmark = pytest.mark.django_db


def _add(client: Client, user: User, limits: dict[str, Any] | str, **changes: str) -> Any:
    text = limits if isinstance(limits, str) else json.dumps(limits)
    given = {
        "user": str(user.pk), "scope": "project", "subject": "fusion", "name": "autumn",
        "limits": text, **_no_inlines(0), **changes,
    }  # fmt: skip
    return client.post(reverse("admin:orchestrator_budget_add"), given)


def _no_inlines(count: int) -> dict[str, str]:
    return {"meters-TOTAL_FORMS": str(count), "meters-INITIAL_FORMS": str(count)}


def test_a_budget_is_imposed_through_its_verb(admin: Client, alice: User, delta: System) -> None:
    answer = _add(admin, alice, {"max_charge": {"delta": 500}, "max_attempts": 20, "thresholds": [0.5]})

    assert answer.status_code == 302
    budget = Budget.objects.get()
    assert (budget.user, budget.scope, budget.subject, budget.name) == (alice, "project", "fusion", "autumn")
    assert (budget.is_imposed, budget.created_by, budget.thresholds) == (True, "user:root", [0.5])
    meters = {(meter.measure, meter.system): meter.limit for meter in budget.meters.all()}
    assert meters == {("charge", "delta"): 500, ("attempts", ""): 20}


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ('{"max_charge": {"delta": -1}}', "/max_charge/delta: Input should be greater than or equal to 0"),
        ('{"max_charges": {"delta": 1}}', "Unknown field `max_charges`. Did you mean `max_charge`?"),
        ('{"max_charge": {"dleta": 1}}', "No system `dleta`. Did you mean `delta`?"),
        ('{"max_attempts": 3', "line 1, column 19: Expecting ',' delimiter"),
        ("{}", "name at least one limit"),
        ('{"deadline": "2020-01-01T00:00:00Z"}', "The deadline has passed already."),
    ],
)
def test_limits_that_cannot_be_are_told_at_the_form_and_nothing_is_kept(
    admin: Client, alice: User, delta: System, limits: str, said: str
) -> None:
    page = text_of(_add(admin, alice, limits))

    assert said in page
    assert Budget.objects.count() == 0


def test_a_budget_on_a_task_that_there_is_not_is_refused(admin: Client, alice: User, delta: System) -> None:
    page = text_of(_add(admin, alice, {"max_attempts": 3}, scope="task", subject="task_none"))

    assert "No task 'task_none'." in page


def test_limits_are_shown_as_they_would_be_given_and_changed_while_counts_stay(
    admin: Client, alice: User, delta: System
) -> None:
    limits = {"max_charge": {"delta": 500.0}, "max_attempts": 20, "approve_above": {"node_hours": 8}}
    _add(admin, alice, limits)
    budget = Budget.objects.get()
    budget.meters.filter(measure="attempts").update(used=7)
    place = reverse("admin:orchestrator_budget_change", args=(budget.pk,))
    shown = admin.get(place).context["adminform"].form["limits"].value()

    assert json.loads(shown).items() >= limits.items()
    given = {"name": "winter", "limits": '{"max_attempts": 30}', **_no_inlines(0)}
    assert admin.post(place, given).status_code == 302
    budget.refresh_from_db()
    attempts, charge = budget.meters.get(measure="attempts"), budget.meters.get(measure="charge")
    assert (budget.name, charge.limit) == ("winter", None)
    assert (attempts.limit, attempts.used) == (Decimal(30), Decimal(7))


def test_a_closed_budget_binds_nothing_and_is_not_changed_any_more(
    admin: Client, alice: User, delta: System
) -> None:
    _add(admin, alice, {"max_attempts": 3})
    budget = Budget.objects.get()
    changelist = reverse("admin:orchestrator_budget_changelist")

    admin.post(changelist, {"action": "close", "_selected_action": [budget.pk]})

    budget.refresh_from_db()
    assert budget.closed_at is not None
    place = reverse("admin:orchestrator_budget_change", args=(budget.pk,))
    assert admin.post(place, {"name": "x", "limits": '{"max_attempts": 9}'}).status_code == 403
    assert ">closed<" in "".join(text_of(admin.get(changelist)).split())


@pytest.fixture
def approval(alice: User, now: datetime) -> Approval:
    envelope = Envelope.objects.create(handle="env_1", user=alice, source="user", body={}, created_at=now)
    task = Task.objects.create(
        handle="task_1", user=alice, actor="token:t", name="t", state="pending_approval", spec={},
        envelope=envelope, created_at=now, updated_at=now,
    )  # fmt: skip
    decision = Decision.objects.create(
        handle="dec_1", user=alice, task=task, purpose="submit", input_hash="x", body={}, created_at=now
    )
    return Approval.objects.create(
        handle="apr_1", user=alice, task=task, decision=decision, asked_by="token:t", asks=[],
        needs_admin=True, created_at=now, expires_at=now + timedelta(days=1),
    )  # fmt: skip


def test_a_placement_is_rejected_by_an_action_and_its_task_cancelled(
    admin: Client, approval: Approval
) -> None:
    changelist = reverse("admin:orchestrator_approval_changelist")

    page = text_of(
        admin.post(changelist, {"action": "reject", "_selected_action": [approval.pk]}, follow=True)
    )

    approval.refresh_from_db()
    approval.task.refresh_from_db()
    assert (approval.state, approval.decided_by) == ("rejected", "user:root")
    assert approval.task.state == "cancelled"
    assert "apr_1 is rejected." in page

    again = admin.post(changelist, {"action": "approve", "_selected_action": [approval.pk]}, follow=True)
    assert "apr_1 is rejected already." in text_of(again)


def test_a_site_manager_is_no_administrator_and_decides_nothing(
    approval: Approval, delta: System, bob: User, now: datetime
) -> None:
    appoint(delta, bob, now=now, actor="user:root")
    bob.refresh_from_db()

    assert bob.is_staff
    assert not is_administrator(bob)
    with pytest.raises(NotFound):
        decide_approval(Approver(bob, "user:bob", "page"), approval.handle, "approve", now=now)


@pytest.fixture
def subscription(alice: User, now: datetime) -> Subscription:
    return Subscription.objects.create(
        handle="sub_1", user=alice, name="s", target="webhook", cursor_seq=0, acked_seq=0, created_at=now,
        updated_at=now, url="https://hooks.example.org/T0/a-secret-path", sealed_secret="sealed-secret",
    )  # fmt: skip


def test_a_subscription_is_paused_and_resumed_and_shows_no_secret(
    admin: Client, subscription: Subscription
) -> None:
    changelist = reverse("admin:orchestrator_subscription_changelist")

    admin.post(changelist, {"action": "pause", "_selected_action": [subscription.pk]})
    subscription.refresh_from_db()
    assert subscription.state == "paused"
    admin.post(changelist, {"action": "resume", "_selected_action": [subscription.pk]})
    subscription.refresh_from_db()
    assert subscription.state == "active"

    place = reverse("admin:orchestrator_subscription_change", args=(subscription.pk,))
    for page in (text_of(admin.get(changelist)), text_of(admin.get(place))):
        assert "hooks.example.org" in page
        assert "a-secret-path" not in page
        assert "sealed-secret" not in page


def test_only_what_was_given_up_is_sent_again(
    admin: Client, subscription: Subscription, now: datetime
) -> None:
    for number, state in enumerate(("dead", "delivered")):
        Delivery.objects.create(
            handle=f"dlv_{number}", subscription=subscription, seq=number, event=f"evt_{number}",
            event_type="task.failed", body="{}", state=state, attempts=9, created_at=now,
        )  # fmt: skip
    chosen = list(Delivery.objects.values_list("pk", flat=True))

    answer = admin.post(
        reverse("admin:orchestrator_delivery_changelist"),
        {"action": "send_again", "_selected_action": chosen},
        follow=True,
    )

    assert "1 of 2 will be sent again." in text_of(answer)
    states = dict(Delivery.objects.values_list("handle", "state"))
    assert states == {"dlv_0": "pending", "dlv_1": "delivered"}


def test_an_imposed_budget_is_not_the_users_own_to_change(admin: Client, alice: User, delta: System) -> None:
    _add(admin, alice, {"max_attempts": 3})
    with pytest.raises(NotAuthorized):
        set_budget(
            alice.pk, ("project", "fusion"), BudgetInput(max_attempts=99), actor="user:alice",
            now=Budget.objects.get().created_at,
        )  # fmt: skip
