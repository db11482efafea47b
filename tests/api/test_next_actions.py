"""What an answer says may be done next are skill calls that work as they stand."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from django.utils import timezone

from federation.models import Event, System
from orchestrator.continuation import next_actions
from orchestrator.lifecycle import TASK_MOVES, Cause, TaskState, is_terminal
from orchestrator.models import Task
from orchestrator.services.moves import move_task
from portal.skills.every import SKILLS
from portal.skills.registry import Scope
from providers.reading import read
from tests.api.conftest import Api
from tests.stepping import all_step_until

TERMINAL = [state for state in TaskState if is_terminal(TASK_MOVES, state)]


@pytest.mark.parametrize("state", list(TaskState))
@pytest.mark.parametrize("cause", [None, *Cause])
def test_every_action_is_a_skill_with_its_own_input_and_never_a_move_out_of_an_end(
    state: TaskState, cause: Cause | None
) -> None:
    actions = next_actions("task_x", state, cause)

    assert 1 <= len(actions) <= 4
    for action in actions:
        assert action.keys() == {"skill", "arguments", "why"}
        skill = SKILLS[action["skill"]]
        read(skill.input, action["arguments"])
        if state in TERMINAL:
            assert action["skill"] not in {"replan", "cancel"}, "an ended task neither moves nor stops"


def _found(value: object) -> Iterator[dict[str, Any]]:
    """Yield every action anywhere in an answer."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from inner if name == "next_actions" else _found(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _found(inner)


@pytest.mark.django_db(transaction=True)
@pytest.mark.services
def test_every_action_told_of_a_task_works_as_it_stands(
    api: Api, delta: System, until: Callable[..., Task]
) -> None:
    def submit(name: str, command: str, **envelope: Any) -> Task:
        work = {"name": name, "command": command, "envelope": {"gpus": 1, "memory_mib": "4G", **envelope}}
        return Task.objects.get(handle=api.post("tasks?wait_s=0", work).json()["id"])

    good, bad = submit("good", "true"), submit("bad", "echo std::bad_alloc >&2; exit 1")
    nowhere = submit("nowhere", "true", gpus=4000)
    all_step_until([good])
    all_step_until([bad], TaskState.FAILED)
    stuck = submit("stuck", "sleep 60")
    until(stuck, TaskState.PENDING, TaskState.RUNNING)
    stuck.refresh_from_db()
    move_task(stuck, TaskState.ATTENTION, now=timezone.now())

    actions: list[dict[str, Any]] = []
    for task in (good, bad, nowhere, stuck):
        actions += _found(api.get(f"tasks/{task.handle}").json())
        actions += _found(api.skill("get_result", {"task": task.handle}).json())
    actions += [action for row in Event.objects.order_by("pk") for action in row.next_actions]
    order = {"replan": 1, "cancel": 2}
    unlike = {json.dumps(each, sort_keys=True): each for each in actions}.values()
    ordered = sorted(unlike, key=lambda each: order.get(each["skill"], 0))

    assert {each["skill"] for each in actions} >= {
        "get_result",
        "read_log",
        "replan",
        "cancel",
        "submit_task",
    }
    for action in ordered:
        name, arguments = action["skill"], dict(action["arguments"])
        if name == "wait_for_events":
            arguments["timeout_s"] = 0
        answer = api.skill(f"{name}?wait_s=0" if SKILLS[name].waits else name, arguments)
        assert answer.status_code < 300, (action, answer.json())


def test_scopes_a_submitting_agent_holds_are_enough_for_every_action() -> None:
    held = {Scope.READ, Scope.SUBMIT}
    for state in TaskState:
        for action in next_actions("task_x", state):
            assert held & set(SKILLS[action["skill"]].scopes)
