"""Asking a person through the client: a task that waits for approval becomes a question.

Whose answer counts is the token's matter. One that was made for a client with a person at it (`attended`)
may bring the answer itself, from a form that the client shows. For every other the client is asked to open
the page where its owner decides, signed in. A client that asks nobody gets the plain answer: the state says
`pending_approval`, and its next actions say how the decision is heard of.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import mcp_types as types
from django.conf import settings
from django.utils import timezone

from orchestrator import budget_selectors, selectors
from orchestrator.budgets import Ask, ask_words
from orchestrator.lifecycle import TaskState
from orchestrator.models import Approval
from orchestrator.plain_text import cleaned
from orchestrator.services.approvals import Approver, decide_approval
from portal.mcp.calls import Told, guarded
from portal.skills.placing import submitted_answer
from portal.skills.registry import Caller, Options, check_reach, require, skill
from providers.errors import NotFound

ASKED_AFTER = frozenset({"submit_task", "replan"})
QUESTION = "approval"
_NAME_CHARS = 80
_FORM: types.ElicitRequestedSchema = {
    "type": "object",
    "properties": {
        "decision": {"type": "string", "title": "Decision", "enum": ["approve", "reject"]},
        "note": {"type": "string", "title": "Note", "maxLength": 500},
    },
    "required": ["decision"],
}

Mode = Literal["form", "url"]


@dataclass(frozen=True, slots=True)
class Pending:
    """What a person is asked, and whether they answer in the client or on the page."""

    approval: str
    mode: Mode
    message: str
    url: str

    def asked(self) -> types.ElicitRequest:
        """Return the question as the protocol carries it."""
        params: Any
        if self.mode == "form":
            params = types.ElicitRequestFormParams(message=self.message, requested_schema=_FORM)
        else:
            params = types.ElicitRequestURLParams(message=self.message, url=self.url)
        return types.ElicitRequest(params=params)

    def request(self) -> types.InputRequiredResult:
        """Return the answer to a call that waits for this question's."""
        state = json.dumps({"approval": self.approval, "mode": self.mode})
        return types.InputRequiredResult(input_requests={QUESTION: self.asked()}, request_state=state)


def pending(
    caller: Caller, name: str, told: Told, capability: types.ElicitationCapability | None
) -> Pending | None:
    """Return what a person is to be asked after a call; None where nothing waits, or nobody can be asked."""
    value = told.value
    if name not in ASKED_AFTER or told.is_error or value.get("state") != TaskState.PENDING_APPROVAL:
        return None
    return question_of(caller, str(value.get("id")), capability)


def question_of(caller: Caller, task: str, capability: types.ElicitationCapability | None) -> Pending | None:
    """Return what a person is to be asked of a task; None where nothing waits, or nobody can be asked."""
    mode = _mode(caller, capability)
    rows = budget_selectors.approvals(caller.user).filter(task__handle=task, state="pending")
    row = rows.first() if mode is not None else None
    if mode is None or row is None:
        return None
    asks = [Ask.model_validate(each) for each in row.asks]
    name_ = cleaned(row.task.name)[:_NAME_CHARS]
    message = f"Facet: {row.task.handle} ({name_}) waits for your approval. {ask_words(asks)}."
    url = f"{settings.PUBLIC_URL}/tasks/{row.task.handle}/"
    return Pending(row.handle, mode, message, url)


def _mode(caller: Caller, capability: types.ElicitationCapability | None) -> Mode | None:
    if capability is None:
        return None
    # A client that names no mode has forms: that is how it was before there were two.
    if caller.attended and (capability.form is not None or capability.url is None):
        return "form"
    return "url" if capability.url is not None else None


def answered(caller: Caller, name: str, state: str, responses: Mapping[str, Any] | None) -> Told:
    """Carry out what a person said, and return how the task stands; nothing is submitted a second time.

    A form that is declined or put away decides nothing: the task goes on waiting.
    """
    known = json.loads(state)
    given = (responses or {}).get(QUESTION)

    def work() -> dict[str, Any]:
        row = budget_selectors.approvals(caller.user).get(handle=known["approval"])
        _decide(caller, row, given)
        return _stands(caller, name, row)

    return guarded(caller, name, work)


def updated(caller: Caller, task: str, responses: Mapping[str, Any] | None) -> Told:
    """Carry out what a person said of a task of the protocol that waits for it."""

    def work() -> dict[str, Any]:
        require(caller, *skill("decide_approval").scopes)
        check_reach(caller, task, name="task")
        rows = budget_selectors.approvals(caller.user).filter(task__handle=task, state="pending")
        row = rows.first()
        if row is None:
            raise NotFound(f"Nothing of {task[:80]!r} waits for an answer.")
        _decide(caller, row, (responses or {}).get(QUESTION))
        return {}

    return guarded(caller, "tasks/update", work)


def _decide(caller: Caller, row: Approval, given: object) -> None:
    """Decide as a form says, where the token's client is one that its owner sits at; else decide nothing."""
    says = given.content if isinstance(given, types.ElicitResult) and given.action == "accept" else None
    if not (caller.attended and says and says.get("decision") in ("approve", "reject")):
        return
    approver = Approver(caller.user, f"user:{caller.user.get_username()}", via="mcp", token=caller.token)
    word: Any = says["decision"]
    note = str(says.get("note") or "")[:500]
    decide_approval(approver, row.handle, word, now=timezone.now(), note=note)


def _stands(caller: Caller, name: str, row: Approval) -> dict[str, Any]:
    """Return the task as the call that asked would answer now."""
    task = selectors.tasks(caller.user).get(pk=row.task_id)
    if name == "replan":
        value: dict[str, Any] = selectors.show_task(task).model_dump(mode="json", by_alias=True)
        return value
    answer = submitted_answer(task, understood={}, options=Options())
    found: dict[str, Any] = answer.value.model_dump(mode="json", by_alias=True)
    return found
