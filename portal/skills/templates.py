"""Skills on templates of tasks: keep one, delete one. Reading them is /api/v1/templates."""

from typing import Any, Literal

from pydantic import Field

from portal import task_templates as verbs
from portal.skills.registry import Answer, Call, Scope, Skill, register
from portal.task_templates import TemplateShown
from providers.types import Frozen


class TemplateInput(Frozen):
    """A task input to keep, and who else may use it."""

    name: str = Field(description="One of yours of the same name is replaced.")
    body: dict[str, Any] = Field(description="A task input, as `submit_task` takes it.")
    sharing: Literal["private", "project", "everyone"] = "private"
    project: str = Field("", description="With sharing `project`: an account of yours.")


class TemplateNamed(Frozen):
    """Which template."""

    template: str


class TemplateDeleted(Frozen):
    """The template that nobody sees any more."""

    id: str
    name: str


def _save(given: TemplateInput, call: Call) -> Answer:
    row = verbs.save_template(
        call.caller.user,
        given.name,
        given.body,
        now=call.now,
        sharing=given.sharing,
        project=given.project,
    )
    return Answer(verbs.show_template(row), location=f"/api/v1/templates/{row.handle}")


def _delete(given: TemplateNamed, call: Call) -> Answer:
    row = verbs.delete_template(call.caller.user, given.template, now=call.now)
    return Answer(TemplateDeleted(id=row.handle, name=row.name))


register(
    Skill(
        "save_template",
        "Keep a task input under a name, for yourself, a project or everyone; nothing is submitted.",
        TemplateInput,
        TemplateShown,
        (Scope.SUBMIT, Scope.MANAGE),
        _save,
        side_effects=True,
    )
)
register(
    Skill(
        "delete_template",
        "Delete a template of yours.",
        TemplateNamed,
        TemplateDeleted,
        (Scope.SUBMIT, Scope.MANAGE),
        _delete,
        side_effects=True,
    )
)
