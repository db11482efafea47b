"""The skill on groups: submit."""

from typing import Any

from orchestrator import selectors
from orchestrator.group_input import GroupInput
from orchestrator.leaders import refresh_for_group
from orchestrator.models import Group
from orchestrator.services import groups
from orchestrator.shown import GroupShown
from portal.skills.placing import submit_schema
from portal.skills.registry import Answer, Call, Scope, Skill, register
from providers.types import Frozen

_CHILDREN_SHOWN = 60


class SubmittedGroup(Frozen):
    """The group's handle, its children in order, and the state of its rounds."""

    id: str
    state: str
    group: GroupShown
    more: str | None


def group_schema() -> dict[str, Any]:
    """Return the group input's schema with the task input's own inside."""
    schema = GroupInput.model_json_schema()
    task = submit_schema()
    schema["properties"]["envelope"] = task["properties"]["envelope"]
    return schema


class GroupGiven(Frozen):
    """A group input, read by the verb so that every fault has its pointer."""

    model_config = Frozen.model_config | {"extra": "allow"}


def _submit_group(given: GroupGiven, call: Call) -> Answer:
    wanted = given.model_extra or {}
    made = groups.submit_group(
        call.caller.user,
        wanted,
        actor=call.caller.actor,
        systems=call.caller.systems,
        token=call.caller.token,
        now=refresh_for_group(call.caller.user, wanted, now=call.now),
        created=call.options.created,
    )
    made.group.refresh_from_db()
    return _answer(made.group, call)


def _submit_again(handle: str, call: Call) -> Answer:
    """Return the answer to a submission whose group exists, but whose first answer was never given."""
    return _answer(groups.find_group(call.caller.user, handle), call)


def _answer(group: Group, call: Call) -> Answer:
    shown = selectors.show_group(group)
    more = None
    if shown.children and len(shown.children) > _CHILDREN_SHOWN and not call.options.full:
        more = f"/api/v1/tasks?group={shown.id}"
        shown = shown.model_copy(update={"children": shown.children[:_CHILDREN_SHOWN]})
    value = SubmittedGroup(id=shown.id, state=shown.state, group=shown, more=more)
    return Answer(value, status=201, location=f"/api/v1/groups/{shown.id}")


register(
    Skill(
        "submit_group",
        "Submit many tasks as one: listed children or a parameter sweep, in rounds, spread over systems.",
        GroupGiven,
        SubmittedGroup,
        (Scope.SUBMIT,),
        _submit_group,
        side_effects=True,
        creates=True,
        statuses=(201,),
        resume=_submit_again,
        input_schema=group_schema,
    )
)
