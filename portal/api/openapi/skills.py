"""Skills as operations, and the routes of tasks and groups that are skills by another name."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, Field

from orchestrator.shown import Timeline
from portal.api.openapi.pieces import (
    WITH_BODY,
    content,
    created_headers,
    path,
    problems,
    shared,
    title,
    whole_list,
)
from portal.api.schemas import Json, Schemas
from portal.api.views import CREATED_BY, OBJECT_VERBS
from portal.skills.every import SKILLS
from portal.skills.registry import Skill


class SkillShown(BaseModel):
    """One skill as data."""

    name: str
    summary: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any]
    scopes: list[str] = Field(description="Any one of these.")
    side_effects: bool


def describe_skills(paths: dict[str, Json], schemas: Schemas) -> None:
    """Add the list of skills, and each as a POST."""
    listed = whole_list(schemas.of(SkillShown))
    paths["/api/v1/skills"] = {
        "get": {
            "operationId": "list_skills",
            "tags": ["skills"],
            "summary": "Every skill with its schemas.",
            "responses": {"200": {"description": "The registry.", **content(listed)}, **problems()},
        }
    }
    paths["/api/v1/skills/{name}"] = {
        "get": {
            "operationId": "show_skill",
            "tags": ["skills"],
            "summary": "One skill with its schemas.",
            "parameters": [path("name")],
            "responses": {
                "200": {"description": "The skill.", **content(schemas.of(SkillShown))},
                **problems(404),
            },
        }
    }
    for one in SKILLS.values():
        given = schemas.add(one.schema_in(), title(one.name) + "Input")
        paths[f"/api/v1/skills/{one.name}"] = {"post": operation_of(one, one.name, given, schemas)}


_GOOD: Mapping[int, str] = {
    200: "The answer.",
    201: "It exists: handed to its site, or known to fit nowhere.",
    202: "It exists; handing it to its site outlasts the wait.",
}


def operation_of(one: Skill, operation: str, given: Json, schemas: Schemas) -> Json:
    """Return a skill as an operation."""
    answer = schemas.add(one.schema_out(), one.output.__name__)
    parameters = shared(
        "Full", *(("Wait",) if one.waits else ()), *(("IdempotencyKey",) if one.creates else ())
    )
    good = content(answer)
    if one.creates:
        good["headers"] = created_headers()
    responses: Json = {str(status): {**good, "description": _GOOD[status]} for status in one.statuses}
    return {
        "operationId": operation,
        "tags": ["skills"],
        "summary": one.summary,
        "description": "Scope: " + " or ".join(f"`{scope}`" for scope in one.scopes) + ".",
        "x-scopes": [scope.value for scope in one.scopes],
        "x-side-effects": one.side_effects,
        "parameters": parameters,
        "requestBody": {"required": True, **content(given)},
        "responses": {**responses, **problems(*WITH_BODY, 404, *_site(one))},
    }


def _site(one: Skill) -> Sequence[int]:
    """Return the statuses of skills that ask a site or keep a cursor."""
    return {"read_log": (502, 504), "wait_for_events": (410,)}.get(one.name, ())


def describe_task_routes(paths: dict[str, Json], schemas: Schemas) -> None:
    """Add the routes of tasks and groups that are skills under a noun."""
    for noun, name in CREATED_BY.items():
        one = SKILLS[name]
        given = schemas.add(one.schema_in(), title(name) + "Input")
        paths[f"/api/v1/{noun}"]["post"] = operation_of(
            one, f"create_{noun.removesuffix('s')}", given, schemas
        )
    for (noun, verb), how in OBJECT_VERBS.items():
        schema = SKILLS[how.skill].schema_in()
        for hidden in (how.names, *how.says, *how.hidden):
            schema["properties"].pop(hidden, None)
        schema.pop("required", None)
        singular = noun.removesuffix("s")
        name = f"{verb}_{singular}"
        given = schemas.add(schema, f"{singular.title()}{verb.title()}Input")
        operation = operation_of(
            SKILLS[how.skill], f"{name}_by_id" if name in SKILLS else name, given, schemas
        )
        operation["parameters"].insert(0, path())
        operation["requestBody"]["required"] = False
        paths[f"/api/v1/{noun}/{{handle}}/{verb}"] = {"post": operation}
    paths["/api/v1/tasks/{handle}/timeline"] = {
        "get": {
            "operationId": "show_task_timeline",
            "tags": ["reads"],
            "summary": "Waiting and running of every attempt, as it was and as it was expected.",
            "parameters": [path()],
            "responses": {
                "200": {"description": "The timeline.", **content(schemas.of(Timeline))},
                **problems(404),
            },
        }
    }
