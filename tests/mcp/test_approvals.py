"""A person is asked through the client; whose answer counts is not for the agent to say."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from mcp_types import ElicitRequestFormParams, ElicitRequestURLParams, ElicitResult

from federation.models import Event, System
from orchestrator.models import Approval, Task
from portal.mcp.approvals import updated
from portal.skills.registry import Caller, Scope
from portal.tokens import TokenInput, create_token, issue_token
from providers.errors import NotAuthorized
from tests.api.conftest import ALL, Api
from tests.mcp.conftest import Agent

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.services]

WORK = {
    "name": "train <b>",
    "command": ["true"],
    "envelope": {"gpus": 1, "memory_mib": "4G"},
    "budget": {"approve_above": {"charge": {"delta": 0}}},
    "wait_s": 0,
}


class Person:
    """Somebody at the client: notes what they are asked, and answers as told."""

    def __init__(self, **answer: Any) -> None:
        self.asked: list[Any] = []
        self._answer = ElicitResult(**answer)

    async def __call__(self, _context: Any, params: Any) -> ElicitResult:
        self.asked.append(params)
        return self._answer


def _token(alice: User, *, attended: bool) -> str:
    scopes = [Scope(word) for word in ALL]
    return issue_token(alice, name="agent", scopes=scopes, now=timezone.now(), attended=attended)[1]


@pytest.fixture
def attended(alice: User) -> str:
    """The token of a client at which alice sits."""
    return _token(alice, attended=True)


@pytest.mark.parametrize("decision", ["approve", "reject"])
def test_what_a_person_says_in_the_client_counts_where_they_sit_at_it(
    agent: Agent, api: Api, attended: str, delta: System, decision: str
) -> None:
    person = Person(action="accept", content={"decision": decision, "note": "for the paper"})

    answer = agent.call(attended, "submit_task", WORK, elicitation_callback=person)

    (asked,) = person.asked
    task, approval = Task.objects.get(), Approval.objects.get()
    assert isinstance(asked, ElicitRequestFormParams)
    assert f"{task.handle} (train <b>) waits for your approval" in asked.message
    assert "at delta" in asked.message
    assert (approval.decided_by, approval.decided_via) == ("user:alice", "mcp")
    assert (approval.note, approval.asked_by) == ("for the paper", "token:agent")
    assert answer.structured_content["id"] == task.handle
    if decision == "approve":
        assert approval.state == "approved"
        assert answer.structured_content["state"] in {"placing", "submitted", "pending", "running"}
        assert Event.objects.get(type="approval.granted").actor == "user:alice"
    else:
        assert answer.structured_content["state"] == "cancelled"


@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_a_question_put_away_decides_nothing(
    agent: Agent, api: Api, attended: str, delta: System, action: str
) -> None:
    answer = agent.call(attended, "submit_task", WORK, elicitation_callback=Person(action=action))

    assert answer.structured_content["state"] == "pending_approval"
    assert Approval.objects.get().state == "pending"
    assert Task.objects.count() == 1


def test_an_unattended_token_cannot_answer_whatever_its_client_says(
    agent: Agent, api: Api, alice: User, delta: System
) -> None:
    token = _token(alice, attended=False)
    forging = Person(action="accept", content={"decision": "approve"})

    answer = agent.call(token, "submit_task", WORK, elicitation_callback=forging)
    approval = Approval.objects.get()
    by_skill = agent.call(token, "decide_approval", {"approval": approval.handle, "decision": "approve"})

    assert all(isinstance(asked, ElicitRequestURLParams) for asked in forging.asked)
    assert all(asked.url.endswith(f"/tasks/{Task.objects.get().handle}/") for asked in forging.asked)
    assert answer.structured_content["state"] == "pending_approval"
    assert by_skill.structured_content["code"] == "not_authorized"
    approval.refresh_from_db()
    assert approval.state == "pending"


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_where_nobody_can_be_asked_the_answer_is_plain(
    agent: Agent, api: Api, attended: str, delta: System, mode: str
) -> None:
    answer = agent.call(attended, "submit_task", WORK, mode=mode)

    assert not answer.is_error
    assert answer.structured_content["state"] == "pending_approval"
    assert answer.structured_content["task"]["next_actions"][0]["skill"] == "wait_for_events"


def test_an_attended_token_answers_only_with_the_scope_for_it(api: Api, alice: User, delta: System) -> None:
    task = api.post("tasks", {name: given for name, given in WORK.items() if name != "wait_s"}).json()["id"]
    says = {"approval": ElicitResult(action="accept", content={"decision": "approve"})}
    told = [
        updated(Caller(alice, "token:a", scopes, "tok_a", attended=True), task, says)
        for scopes in (frozenset({Scope.READ}), frozenset({Scope.SUBMIT}))
    ]

    assert [each.is_error for each in told] == [True, False]
    assert told[0].value["facts"]["missing_scope"] == "submit"
    assert Approval.objects.get().decided_via == "mcp"


def test_no_token_makes_one_that_answers_for_a_person(alice: User) -> None:
    given = TokenInput(name="mine", scopes=("read",), attended=True)
    scopes = frozenset(Scope(word) for word in ALL)

    with pytest.raises(NotAuthorized):
        create_token(Caller(alice, "token:x", scopes, token="tok_x"), given, now=timezone.now())
    assert create_token(Caller(alice, "user:alice", scopes), given, now=timezone.now()).attended
