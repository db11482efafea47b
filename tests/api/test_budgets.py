"""Budgets, approvals and costs by REST: scopes, precise errors, and what an agent's token may not do."""

from collections.abc import Callable
from datetime import datetime

import pytest
from django.contrib.auth.models import User
from django.test import Client

from federation.models import System
from orchestrator.models import Approval, Task
from portal.models import ApiToken
from tests.api.conftest import ALL, Api
from tests.state.spending import ONE_GPU
from tests.web.world import make_system

pytestmark = pytest.mark.django_db

WORK = {"command": "true", "envelope": ONE_GPU, "project": "climate"}
CAREFUL = {"project": "climate", "max_charge": {"anvil": 3}, "approve_above": {"charge": {"anvil": 0.5}}}


@pytest.fixture
def anvil(alice: User, now: datetime) -> System:
    return make_system(alice, "anvil", "Anvil", "a100", "40G", free=3, now=now)


def test_a_budget_is_set_read_and_closed(api: Api, anvil: System) -> None:
    made = api.post("budgets", {"project": "climate", "max_node_hours": 12.5, "max_charge": {"anvil": "40"}})
    assert made.status_code == 200
    shown = made.json()
    assert [(m["measure"], m["system"], m["unit"], m["limit"]) for m in shown["meters"]] == [
        ("charge", "anvil", "SU", "40.0000"),
        ("node_hours", None, "node-hours", "12.5000"),
    ]
    assert api.get("budgets?scope=project&subject=climate").json()["results"] == [shown]
    assert api.get(f"budgets/{shown['id']}").json() == shown

    closed = api.post(f"budgets/{shown['id']}/close")

    assert closed.json()["state"] == "closed"


def test_faults_of_a_budget_are_named_at_their_place(api: Api, anvil: System) -> None:
    answer = api.post("budgets", {"project": "climate", "max_charge": {"anvill": 1}})

    assert answer.status_code == 422
    (fault,) = answer.json()["errors"]
    assert fault["pointer"] == "/max_charge/anvill"
    assert "anvil" in fault["message"]
    assert api.post("budgets", {"token": "tok_none", "max_attempts": 1}).status_code == 404
    given = {**WORK, "budget": {"max_charge": {"anvill": 1}}}
    assert api.post("tasks?wait_s=0", given).json()["errors"][0]["pointer"] == "/budget/max_charge/anvill"


def test_a_token_waits_for_a_person_who_approves_by_session(api: Api, alice: User, anvil: System) -> None:
    api.post("budgets", CAREFUL)

    made = api.post("tasks?wait_s=0", WORK)

    assert made.status_code == 202
    assert made.json()["state"] == "pending_approval"
    (waiting,) = api.get("approvals?state=pending").json()["results"]
    assert waiting["task"] == made.json()["id"]
    refused = api.post(f"approvals/{waiting['id']}/approve")
    assert (refused.status_code, refused.json()["code"]) == (403, "not_authorized")
    assert Approval.objects.get().state == "pending"

    session = Client()
    session.force_login(alice)
    answer = session.post(f"/api/v1/approvals/{waiting['id']}/approve", {}, content_type="application/json")

    assert answer.status_code == 200, answer.content
    assert (answer.json()["state"], answer.json()["decided_by"]) == ("approved", "user:alice")


def test_a_token_never_loosens_what_binds_itself(
    api: Api, alice: User, anvil: System, caller: Callable[..., Api]
) -> None:
    own = ApiToken.objects.get()
    other = caller(alice, "manage")

    assert api.post("budgets", {"token": own.handle, "max_attempts": 5}).status_code == 403
    assert other.post("budgets", {"token": own.handle, "max_attempts": 1}).status_code == 200
    task = api.post("tasks?wait_s=0", {**WORK, "budget": {"max_node_hours": 2}}).json()["id"]
    assert api.post("budgets", {"task": task, "max_node_hours": 50}).status_code == 403
    second = api.post("tasks?wait_s=0", WORK).json()
    assert second["state"] == "unschedulable"
    assert "attempts" in second["task"]["reason"]


def test_a_task_tells_its_cost_and_project(api: Api, anvil: System) -> None:
    made = api.post("tasks?wait_s=0", WORK).json()

    shown = api.get(f"tasks/{made['id']}").json()

    assert shown["project"] == "climate"
    (cost,) = shown["cost"]
    assert (cost["system"], cost["unit"], cost["predicted_most"], cost["reserved"]) == (
        "anvil", "SU", "1.0000", "1.0000"
    )  # fmt: skip
    assert float(cost["predicted_p50"]) < float(cost["predicted_p90"]) <= 1
    assert api.get("tasks?project=climate").json()["results"][0]["id"] == made["id"]
    assert api.get("tasks?project=weather").json()["results"] == []


def test_nobody_sees_the_budgets_of_others(
    api: Api, bob: User, anvil: System, caller: Callable[..., Api]
) -> None:
    handle = api.post("budgets", CAREFUL).json()["id"]
    api.post("tasks?wait_s=0", WORK)
    theirs = caller(bob)

    assert theirs.get("budgets").json()["results"] == []
    assert theirs.get("approvals").json()["results"] == []
    assert theirs.get(f"budgets/{handle}").status_code == 404
    assert theirs.post(f"budgets/{handle}/close").status_code == 404
    assert theirs.post(f"approvals/{Approval.objects.get().handle}/reject").status_code == 404


def test_a_token_made_with_a_token_spends_from_the_budgets_above_it(
    api: Api, anvil: System, caller: Callable[..., Api], alice: User
) -> None:
    own = ApiToken.objects.get()
    owner = caller(alice, "manage")
    child = Api(api.post("tokens", {"name": "child", "scopes": list(ALL)}).json()["token"], api.client)
    grandchild = Api(child.post("tokens", {"name": "gc", "scopes": list(ALL)}).json()["token"], api.client)
    budget = owner.post("budgets", {"token": own.handle, "max_attempts": 2}).json()["id"]

    states = [each.post("tasks?wait_s=0", WORK).json()["state"] for each in (child, grandchild, api)]

    assert states == ["placing", "placing", "unschedulable"]
    for each in (child, grandchild):
        assert each.post("budgets", {"token": own.handle, "max_attempts": 9}).status_code == 403
        assert each.post(f"budgets/{budget}/close").status_code == 403
    assert owner.post("budgets", {"token": own.handle, "max_attempts": 3}).status_code == 200
    assert Task.objects.get(state="unschedulable").due_at is not None


def test_work_of_a_token_is_not_freed_by_one_made_beside_or_below_it(
    api: Api, anvil: System, alice: User, caller: Callable[..., Api]
) -> None:
    first, second = (
        Api(api.post("tokens", {"name": name, "scopes": list(ALL)}).json()["token"], api.client)
        for name in ("first", "second")
    )
    task = first.post("tasks?wait_s=0", {**WORK, "budget": {"max_node_hours": 2}}).json()["id"]

    answers = [
        each.post("budgets", {"task": task, "max_node_hours": 50}).status_code
        for each in (first, second, api, caller(alice, "manage"))
    ]

    assert answers == [403, 403, 403, 200]
