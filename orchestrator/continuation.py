"""What a waking agent is told it may do next, as skill calls with arguments. Pure."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, TypeAlias

from orchestrator.lifecycle import Cause, TaskState, TransferState

Action: TypeAlias = dict[str, Any]


def _call(skill: str, why: str, **arguments: Any) -> Action:
    return {"skill": skill, "arguments": arguments, "why": why}


def next_actions(
    task: str, state: TaskState, cause: Cause | None = None, change: Mapping[str, Any] | None = None
) -> Sequence[Action]:
    """Return the useful skill calls for a task in this state; never more than four.

    `change` is what `helping_change` found for a task that fits nowhere.
    """
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
            _call("replan", f"place it anew: {change['says']}", task=task, changes=change["envelope"])
            if change
            else _call("replan", "try again, with a changed envelope or fewer exclusions", task=task),
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


def helping_change(envelope: Mapping[str, Any], closest: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the members of an envelope as the smallest change makes them, and what it says in words.

    Args:
        envelope: as it is stored.
        closest: of the decision, as JSON.

    Returns:
        None where placement did not find that the changes help, or one of them is no edit of the envelope.
    """
    if not closest or not closest["verified"] or not closest["changes"]:
        return None
    changed = deepcopy(dict(envelope))
    for each in closest["changes"]:
        *above, last = (each["field"] or "").split(".", 2)
        place: Any = changed
        for name in above:
            place = place.get(name) if isinstance(place, dict) else None
        if not last or not isinstance(place, dict):
            return None
        place[last] = each["proposed"]
    members = {name: value for name, value in changed.items() if value != envelope.get(name)}
    says = " ".join(str(each["sentence"]) for each in closest["changes"])
    return {"envelope": members, "says": says} if members else None


def transfer_actions(transfer: str, state: TransferState, *, sign_in: str | None = None) -> Sequence[Action]:
    """Return what may be done about a transfer; `sign_in`: where a person gives the consent it waits for."""
    cancel = _call("cancel", "stop it", transfer=transfer)
    if state in (TransferState.REQUESTED, TransferState.ACTIVE):
        if sign_in is None:
            return (cancel,)
        return ({"action": "sign_in", "url": sign_in, "why": "give the consent it waits for"}, cancel)
    return ()
