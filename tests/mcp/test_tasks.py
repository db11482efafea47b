"""The Tasks extension: a submission is a task of the protocol, under the handle it has everywhere else."""

from collections.abc import Callable
from typing import Any, Literal

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from mcp.client import Client
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim, advertise
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CallToolResult,
    CancelTaskRequest,
    ElicitResult,
    GetTaskRequest,
    Request,
    RequestParams,
    Result,
)
from mcp_types import GetTaskRequestParams as OfTask
from pydantic import ConfigDict
from pydantic.alias_generators import to_camel

from federation.models import Event, System
from orchestrator.lifecycle import TaskState
from orchestrator.models import Task
from portal.mcp.short import ROOM_BYTES
from portal.mcp.tasks import EXTENSION, SUBMITTED, status_of
from portal.skills.bounds import size
from portal.skills.registry import Scope
from portal.tokens import issue_token
from tests.api.conftest import Api
from tests.mcp.conftest import Agent

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.services]

WORK = {"command": ["echo", "done"], "envelope": {"gpus": 1, "memory_mib": "4G"}, "wait_s": 0}


class TaskMade(Result):
    """What the server answers in place of the tool's own result."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="allow")

    result_type: Literal["task"] = "task"
    task_id: str
    status: str
    poll_interval_ms: int
    ttl_ms: int | None


class TaskGot(Result):
    """What tasks/get answers."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="allow")

    task_id: str
    status: str
    status_message: str
    result: dict[str, Any] | None = None


class Tasks(ClientExtension):
    """A client that takes tasks, and remembers what it was given instead of polling for the result."""

    identifier = EXTENSION

    def __init__(self) -> None:
        self.made: list[TaskMade] = []

    def claims(self) -> list[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=TaskMade, resolve=self._resolve)]

    async def _resolve(self, made: TaskMade, _context: ClaimContext) -> CallToolResult:
        self.made.append(made)
        return CallToolResult(content=[], structured_content=(made.meta or {})[SUBMITTED])


async def _get(client: Client, handle: str) -> TaskGot:
    return await client.session.send_request(GetTaskRequest(params=OfTask(task_id=handle)), TaskGot)


class Ended(Result):
    """An empty acknowledgement."""


async def _cancel(client: Client, handle: str) -> Ended:
    request = CancelTaskRequest.model_validate({"params": {"taskId": handle}})
    return await client.session.send_request(request, Ended)


def test_a_submission_is_a_task_under_its_own_handle_and_completes_with_its_result(
    agent: Agent, api: Api, delta: System, until: Callable[..., Task]
) -> None:
    extension = Tasks()

    agent.call(api.token, "submit_task", WORK, extensions=[extension])

    (made,) = extension.made
    task = Task.objects.get()
    assert made.task_id == task.handle
    assert (made.status, made.ttl_ms) == ("working", None)
    assert made.poll_interval_ms >= 1000
    submitted = (made.meta or {})[SUBMITTED]
    assert submitted["id"] == task.handle
    assert submitted["system"] == "delta"
    assert size(submitted) <= ROOM_BYTES

    before = agent.do(api.token, lambda client: _get(client, task.handle), extensions=[Tasks()])
    until(task)
    after = agent.do(api.token, lambda client: _get(client, task.handle), extensions=[Tasks()])

    assert (before.status, before.result) == ("working", None)
    assert after.status == "completed"
    assert after.status_message == "succeeded on delta"
    assert after.result is not None
    assert after.result["isError"] is False
    assert after.result["structuredContent"]["id"] == task.handle
    assert after.result["structuredContent"]["state"] == "succeeded"


def test_a_task_that_failed_completes_with_an_error_and_its_triage(
    agent: Agent, api: Api, delta: System, until: Callable[..., Task]
) -> None:
    extension = Tasks()
    agent.call(api.token, "submit_task", {**WORK, "command": "exit 3"}, extensions=[extension])
    task = until(Task.objects.get(), TaskState.FAILED)

    got = agent.do(api.token, lambda client: _get(client, task.handle), extensions=[Tasks()])

    assert got.status == "completed"
    assert got.result is not None
    assert got.result["isError"] is True
    assert got.result["structuredContent"]["task"]["cause"] == "exit_code"
    assert got.result["structuredContent"]["triage"]["suggestion"]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_client_without_the_extension_has_the_handle_in_the_plain_answer(
    agent: Agent, api: Api, delta: System, mode: str
) -> None:
    plain = agent.call(api.token, "submit_task", WORK, mode=mode)

    assert plain.structured_content["id"] == Task.objects.get().handle
    with pytest.raises(BaseException) as refused:  # noqa: PT011  # the SDK wraps it in a group
        agent.do(api.token, lambda client: _get(client, plain.structured_content["id"]), mode=mode)
    assert _code(refused.value) == -32021


def test_what_no_system_can_run_is_answered_at_once_with_its_reasons(
    agent: Agent, api: Api, delta: System
) -> None:
    extension = Tasks()
    impossible = {**WORK, "envelope": {"gpus": 4000, "memory_mib": "4G"}}

    answer = agent.call(api.token, "submit_task", impossible, extensions=[extension])

    assert not extension.made
    assert answer.structured_content["state"] == "unschedulable"
    assert answer.structured_content["decision"]["candidates"][0]["rejections"]


def test_a_dry_run_makes_no_task_of_the_protocol(agent: Agent, api: Api, delta: System) -> None:
    extension = Tasks()

    answer = agent.call(api.token, "submit_task", {**WORK, "dry_run": True}, extensions=[extension])

    assert not extension.made
    assert answer.structured_content["dry_run"] is True


def test_a_group_is_a_task_as_well(agent: Agent, api: Api, delta: System) -> None:
    extension = Tasks()
    sweep = {
        "envelope": WORK["envelope"],
        "children": [{"name": "one", "command": ["true"]}, {"name": "two", "command": ["true"]}],
    }

    agent.call(api.token, "submit_group", sweep, extensions=[extension])
    handle = extension.made[0].task_id
    got = agent.do(api.token, lambda client: _get(client, handle), extensions=[Tasks()])

    assert handle.startswith("grp_")
    assert got.status == "working"


def test_a_task_is_cancelled_by_the_protocol_and_the_event_names_the_token(
    agent: Agent, api: Api, delta: System
) -> None:
    handle = agent.call(api.token, "submit_task", WORK).structured_content["id"]

    agent.do(api.token, lambda client: _cancel(client, handle), extensions=[Tasks()])
    got = agent.do(api.token, lambda client: _get(client, handle), extensions=[Tasks()])

    assert got.status == "cancelled"
    assert Event.objects.get(task=handle, type="task.cancelled").actor == "token:test"


class Update(Request[RequestParams, Literal["tasks/update"]]):
    """The request that answers a task's question; the SDK knows the extension's methods by name alone."""

    method: Literal["tasks/update"] = "tasks/update"
    params: Any


def test_a_task_that_waits_for_a_person_asks_and_is_answered(
    agent: Agent, api: Api, alice: User, delta: System
) -> None:
    scopes = [Scope(word) for word in ("read", "submit")]
    _, token = issue_token(alice, name="mine", scopes=scopes, now=timezone.now(), attended=True)
    paid = {**WORK, "budget": {"approve_above": {"charge": {"delta": 0}}}}
    handle = agent.call(token, "submit_task", paid).structured_content["id"]  # this client asks nobody

    async def nobody(_context: Any, _params: Any) -> ElicitResult:
        return ElicitResult(action="cancel")

    async def answer(client: Client) -> tuple[dict[str, Any], TaskGot]:
        asking = await client.session.send_request(GetTaskRequest(params=OfTask(task_id=handle)), TaskGot)
        said = {"action": "accept", "content": {"decision": "approve"}}
        params = {"taskId": handle, "inputResponses": {"approval": said}}
        await client.session.send_request(Update(params=params), Ended)
        return asking.model_dump(by_alias=True), await _get(client, handle)

    asking, after = agent.do(token, answer, extensions=[Tasks()], elicitation_callback=nobody)

    assert asking["status"] == "input_required"
    question = asking["inputRequests"]["approval"]
    assert question["method"] == "elicitation/create"
    assert handle in question["params"]["message"]
    assert after.status == "working"
    assert Event.objects.get(type="approval.granted").actor == "user:alice"


def test_another_users_task_cannot_be_asked_for(
    agent: Agent, api: Api, bob: User, caller: Callable[..., Api], delta: System
) -> None:
    handle = agent.call(api.token, "submit_task", WORK).structured_content["id"]
    other = caller(bob)

    async def both(client: Client) -> list[int]:
        codes = []
        for ask in (_get, _cancel):
            with pytest.raises(MCPError) as refused:
                await ask(client, handle)
            codes.append(refused.value.code)
        return codes

    assert agent.do(other.token, both, extensions=[Tasks()]) == [-32602, -32602]
    assert Task.objects.get().state != "cancelled"


def test_the_server_says_that_it_speaks_of_tasks(agent: Agent, api: Api) -> None:
    async def extensions(client: Client) -> Any:
        return client.session.server_capabilities

    told = agent.do(api.token, extensions, extensions=[advertise(EXTENSION)])

    assert EXTENSION in told.extensions


def test_every_state_has_a_word_of_the_protocol() -> None:
    words = {state: status_of(state) for state in TaskState}

    assert {state for state, word in words.items() if word == "completed"} == {
        TaskState.SUCCEEDED,
        TaskState.FAILED,
        TaskState.UNSCHEDULABLE,
        TaskState.ATTENTION,
    }
    assert words[TaskState.CANCELLED] == "cancelled"
    assert words[TaskState.RUNNING] == words[TaskState.ACCEPTED] == "working"


def _code(error: BaseException) -> int:
    if isinstance(error, BaseExceptionGroup):
        return next(_code(inner) for inner in error.exceptions)
    assert isinstance(error, MCPError), error
    return error.code
