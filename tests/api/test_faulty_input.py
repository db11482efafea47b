"""Faults a caller is told of at their place: in shares of a group, in policies, budgets and checkpoints."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from federation.models import System
from orchestrator.models import Group, Task
from tests.api.conftest import Api
from tests.state.conftest import Sites

pytestmark = pytest.mark.django_db(transaction=True)

CHILD = {"command": ["true"]}
SWEEP = {"task": CHILD, "parameters": {"x": [1, 2]}}


def _faults(answer: Any) -> list[tuple[str, str]]:
    assert answer.status_code == 422, answer.content
    return [(fault["pointer"], fault["code"]) for fault in answer.json()["errors"]]


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        # More combinations than Python writes as a number in decimal.
        (
            {"matrix": {"task": CHILD, "parameters": {f"p{n}": list(range(10)) for n in range(4400)}}},
            ("/matrix/parameters", "too_long"),
        ),
        (
            {"matrix": {**SWEEP, "task": {**CHILD, "environment": {"variables": [1]}}}},
            ("/matrix/task/environment/variables", "wrong_type"),
        ),
        ({"matrix": {"task": CHILD, "parameters": {"": [1]}}}, ("/matrix/parameters", "bad_name")),
        ({"matrix": {"task": CHILD, "parameters": {"a b": [1]}}}, ("/matrix/parameters/a b", "bad_name")),
        ({"children": [CHILD], "require": True}, ("/require", "unknown_word")),
        ({"children": [CHILD], "require": "2"}, ("/require", "unknown_word")),
        ({"children": [{**CHILD, "round": True}]}, ("/children/0/round", "wrong_type")),
        ({"children": [CHILD], "name": "a\nb"}, ("/name", "not_valid")),
        # What all share is faulty once, where it stands.
        ({"children": [CHILD, CHILD], "envelope": {"gpus": -1}}, ("/envelope/gpus", "negative")),
        ({"children": [CHILD, CHILD], "policy": {"allow": []}}, ("/policy/allow", "unknown_field")),
        (
            {"children": [CHILD, CHILD], "policy": {"allow_systems": ["detla"]}},
            ("/policy/allow_systems/0", "unknown_system"),
        ),
        ({"children": [CHILD], "envelope": {"policy": "x"}}, ("/envelope/policy", "wrong_type")),
        # A policy of a child that is no object is not dropped for the group's.
        (
            {"children": [CHILD, {**CHILD, "envelope": {"policy": "x"}}], "policy": {"prefer": ["delta"]}},
            ("/children/1/envelope/policy", "wrong_type"),
        ),
        ({"children": [{**CHILD, "group": "grp_1"}]}, ("/children/0/group", "in_a_group")),
    ],
)
def test_a_faulty_group_is_refused_at_its_place(
    api: Api, delta: System, given: dict[str, Any], fault: tuple[str, str]
) -> None:
    assert _faults(api.skill("submit_group", given)) == [fault]
    assert not Group.objects.exists()


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"budget": {"max_attempts": 10**30}}, ("/budget/max_attempts", "less_than_equal")),
        ({"budget": {"max_model_tokens": 10**30}}, ("/budget/max_model_tokens", "less_than_equal")),
        (
            {"envelope": {"policy": {"max_charge": {"detla": 1}}}},
            ("/envelope/policy/max_charge/detla", "unknown_system"),
        ),
        (
            {"envelope": {"policy": {"exclude_partitions": ["delta/cpu", "detla/cpu"]}}},
            ("/envelope/policy/exclude_partitions/1", "unknown_system"),
        ),
        # Sent at once, the signal would end the work that it should save.
        (
            {"envelope": {"walltime_s": 60}, "checkpoint": {"before_s": 60}},
            ("/checkpoint/before_s", "over_walltime"),
        ),
    ],
)
def test_a_faulty_task_is_refused_at_its_place(
    api: Api, delta: System, given: dict[str, Any], fault: tuple[str, str]
) -> None:
    assert _faults(api.skill("submit_task", {**CHILD, **given})) == [fault]
    assert not Task.objects.exists()


@pytest.mark.parametrize("how", ["ended", "cancelling"])
def test_no_task_joins_a_group_that_is_over(api: Api, delta: System, how: str) -> None:
    group = api.skill("submit_group", {"children": [CHILD]}).json()["id"]
    if how == "ended":
        Group.objects.filter(handle=group).update(state="succeeded", finished_at=timezone.now())
    else:
        Group.objects.filter(handle=group).update(cancel_requested_at=timezone.now())

    answer = api.skill("submit_task", {**CHILD, "group": group})

    assert answer.status_code == 409
    assert answer.json()["code"] == "conflict"
    assert Task.objects.count() == 1


def test_the_least_risk_of_a_late_end_can_be_asked_for(api: Api, sites: Sites, alice: User) -> None:
    sites.add("delta", alice, account="bbka-delta-gpu")
    request = {"envelope": {"gpus": 1, "objective": "risk_averse"}}

    decision = api.skill("preview_placement", request).json()

    assert (decision["result"], decision["objective"]) == ("placed", "risk_averse")
    ends = [each["estimates"]["completion_p90_s"] for each in decision["candidates"] if each["feasible"]]
    assert decision["selected"]["estimates"]["completion_p90_s"] // 5 == min(ends) // 5
