"""What a waking agent is told it may do next, as skill calls with arguments. Pure."""

from collections.abc import Sequence
from typing import Any, TypeAlias

from orchestrator.lifecycle import Cause, TaskState, TransferState

Action: TypeAlias = dict[str, Any]


def _call(skill: str, why: str, **arguments: Any) -> Action:
    return {"skill": skill, "arguments": arguments, "why": why}


def next_actions(task: str, state: TaskState, cause: Cause | None = None) -> Sequence[Action]:
    """Return the useful skill calls for a task in this state; never more than four."""
    result = _call("get_result", "manifest, attempts and times", task=task)
    log = _call("read_log", "the end of the error output", task=task, stream="stderr", offset=-8192)
    stop = _call("cancel", "give the task up", task=task)
    found: dict[TaskState, Sequence[Action]] = {
        TaskState.SUCCEEDED: (result, _call("read_log", "the output", task=task, stream="stdout")),
        TaskState.FAILED: (result, log)
        if cause is not Cause.DISPATCH_REJECTED
        else (result, _call("preview_placement", "see where the same work would run now", like=task)),
        TaskState.UNSCHEDULABLE: (
            result,
            _call("replan", "try again, with a changed envelope or fewer exclusions", task=task),
            stop,
        ),
        TaskState.PENDING_APPROVAL: (
            _call("wait_for_events", "a person decides; `approval.*` tells", subject=task),
            _call("replan", "ask for less, or place it elsewhere", task=task),
            stop,
        ),
        TaskState.ATTENTION: (result, log, _call("replan", "place it anew", task=task), stop),
        TaskState.CANCELLED: (result,),
    }
    return found.get(state, (_call("cancel", "stop it", task=task),))


def transfer_actions(transfer: str, state: TransferState, *, sign_in: str | None = None) -> Sequence[Action]:
    """Return what may be done about a transfer; `sign_in`: where a person gives the consent it waits for."""
    cancel = _call("cancel", "stop it", transfer=transfer)
    if state in (TransferState.REQUESTED, TransferState.ACTIVE):
        if sign_in is None:
            return (cancel,)
        return ({"action": "sign_in", "url": sign_in, "why": "give the consent it waits for"}, cancel)
    return ()
