"""The Tasks extension of MCP: a submission becomes a task of the protocol, under the handle it has here.

A client that declares the extension gets the handle in place of the plain answer, asks `tasks/get` without
its model, and has the result when there is one. Every other client gets the plain answer, which holds the
same handle. Nothing is kept for it: a task of the protocol is one of ours, seen through these words.
"""

from collections.abc import Mapping
from typing import Any

import mcp_types as types
from django.utils import timezone

from orchestrator.lifecycle import GroupState, TaskState
from portal.api import rates
from portal.api.resources import RESOURCES
from portal.mcp import calls
from portal.mcp.approvals import QUESTION, question_of
from portal.skills.registry import Caller, Scope, require
from providers.errors import NotFound

EXTENSION = "io.modelcontextprotocol/tasks"
SUBMITTED = "io.facet/submitted"
"""Under which name a new task's `_meta` holds the plain answer: placement, shape and decision in short."""
MAKES_TASKS = frozenset({"submit_task", "submit_group"})

_SOON = frozenset({TaskState.ACCEPTED, TaskState.STAGING, TaskState.PLACING, TaskState.SUBMITTED})
_SOON_MS = 2_000
_LATER_MS = 15_000
_STOPPED = frozenset({TaskState.UNSCHEDULABLE, TaskState.ATTENTION})
"""Nothing more happens by itself: the call is over, and its result says what may be done."""
_ENDED_WELL = frozenset({TaskState.SUCCEEDED, GroupState.SUCCEEDED})
_ENDED_ILL = frozenset({TaskState.FAILED, GroupState.PARTIALLY_SUCCEEDED, *_STOPPED})

Json = dict[str, Any]


def becomes_task(name: str, told: calls.Told, *, dry_run: bool) -> bool:
    """Return whether a call's answer is given as a task: a submission that a site has or will have."""
    if name not in MAKES_TASKS or dry_run or told.is_error:
        return False
    return status_of(str(told.value.get("state"))) == "working"


def status_of(state: str) -> str:
    """Return the protocol's word for a state of a task or group.

    What failed is `completed`: the protocol keeps `failed` for calls that could not be made at all, and the
    result of a completed one says that it is an error.
    """
    if state in (TaskState.CANCELLED, GroupState.CANCELLED):
        return "cancelled"
    return "completed" if state in _ENDED_WELL | _ENDED_ILL else "working"


def created(caller: Caller, told: calls.Told) -> Json:
    """Return a submission as a new task; `_meta` holds what the plain answer would have been."""
    shown = _shown(caller, str(told.value["id"]))
    return {"resultType": "task", **_task(shown), "_meta": {SUBMITTED: told.value}}


def got(caller: Caller, handle: str, asks: types.ElicitationCapability | None = None) -> Json:
    """Return a task as `tasks/get` answers it, with its result once there is one.

    `asks` is how the client asks its person, who may have to approve what the task would use.

    Raises:
        NotFound: no such task or group of this caller.
        NotAuthorized: the token may not read.
    """
    rates.take(caller.user.pk)
    shown = _shown(caller, handle)
    task = _task(shown)
    if task["status"] == "completed":
        task["result"] = _result(caller, handle, str(shown["state"]))
    question = question_of(caller, handle, asks) if shown["state"] == TaskState.PENDING_APPROVAL else None
    if question is not None:
        wire = question.asked().model_dump(by_alias=True, mode="json", exclude_none=True)
        task |= {"status": "input_required", "inputRequests": {QUESTION: wire}}
    return task


def cancelled(caller: Caller, handle: str) -> calls.Told:
    """Cancel a task or group, as the skill does; a site's confirmation comes later."""
    return calls.call(caller, "cancel", {_noun(handle): handle})


def _result(caller: Caller, handle: str, state: str) -> Json:
    told = calls.call(caller, "get_result", {_noun(handle): handle})
    return {
        "content": [{"type": "text", "text": told.text}],
        "structuredContent": told.value,
        "isError": told.is_error or state in _ENDED_ILL,
    }


def _noun(handle: str) -> str:
    return "group" if handle.startswith("grp_") else "task"


def _shown(caller: Caller, handle: str) -> Json:
    require(caller, Scope.READ, Scope.SUBMIT)
    resource = RESOURCES[f"{_noun(handle)}s"]
    if not handle.startswith(("task_", "grp_")):
        raise NotFound(f"No task {handle[:80]!r}.")
    value: Json = resource.one(caller, handle, now=timezone.now()).model_dump(mode="json", by_alias=True)
    return value


def _task(shown: Mapping[str, Any]) -> Json:
    state = str(shown["state"])
    place = f" on {shown['system']}" if shown.get("system") else ""
    return {
        "taskId": shown["id"],
        "status": status_of(state),
        "statusMessage": f"{state}{place}",
        "createdAt": shown["created_at"],
        "lastUpdatedAt": shown.get("updated_at") or shown["created_at"],
        "ttlMs": None,
        "pollIntervalMs": _SOON_MS if state in _SOON else _LATER_MS,
    }
