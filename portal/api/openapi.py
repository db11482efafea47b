"""The OpenAPI 3.1 document, made from the registry of skills and the resources: nothing else is served."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, Field, TypeAdapter

from orchestrator.provenance import MEDIA_TYPE
from orchestrator.shown import CalibrationShown, Timeline
from portal import subscriptions, tokens
from portal.api.milestones import MilestoneInput, MilestoneNoted
from portal.api.paging import MAX_LIMIT
from portal.api.resources import RESOURCES, Resource
from portal.api.schemas import Json, Schemas
from portal.api.subscriptions import VERBS
from portal.api.views import CREATED_BY
from portal.skills.every import SKILLS
from portal.skills.registry import Scope, Skill
from portal.skills.tasks import CancelInput, ReplanInput

INTRODUCTION = """One control plane over many independently run supercomputers.

Every call needs `Authorization: Bearer facet_…` (or a signed-in session with its CSRF token). Failures are
`application/problem+json`. Lists are paged by opaque cursors. A POST that creates takes `Idempotency-Key`.
Times are ISO 8601 UTC; `_s` are seconds, `_mib` MiB; charges are in each site's own unit.
"""
_PROBLEMS: Mapping[int, str] = {
    400: "The body is not JSON, or the request is broken.",
    401: "Nobody known is calling; WWW-Authenticate names the scheme.",
    403: "A scope is missing; the problem names it.",
    404: "No such object of yours.",
    405: "This route has no such method.",
    409: "It contradicts the present state, or the first request with this key is still at work.",
    410: "The cursor is older than what is kept.",
    412: "The object is no longer what If-Match says.",
    413: "The body is larger than 4 MiB.",
    415: "The body is not application/json.",
    422: "The input cannot be read; every fault has its pointer.",
    429: "Too many requests; Retry-After says when to come back.",
    500: "Facet failed; the problem holds an incident id.",
    502: "The site answered with something unknown.",
    503: "The site's scheduler does not answer.",
    504: "The site gave no answer in time.",
}
_ALWAYS = (401, 403, 422, 429, 500)
_WITH_BODY = (400, 409, 413, 415)


class ProblemError(BaseModel):
    """One faulty place."""

    pointer: str = Field(description="JSON pointer into the body, or ?name of a query parameter.")
    code: str
    message: str


class Problem(BaseModel):
    """A failure (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    retry_safe: bool = Field(description="The same request may be sent again.")
    retry_after_s: int | None = None
    errors: list[ProblemError]
    remediation: str
    next_actions: list[dict[str, Any]]
    facts: dict[str, Any] | None = None


class SkillShown(BaseModel):
    """One skill as data."""

    name: str
    summary: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any]
    scopes: list[str] = Field(description="Any one of these.")
    side_effects: bool


def document() -> Json:
    """Return the whole document; the same every time."""
    schemas = Schemas()
    schemas.of(Problem)
    paths: dict[str, Json] = {}
    _describe_skills(paths, schemas)
    for resource in RESOURCES.values():
        _describe_resource(paths, schemas, resource)
    _describe_task_routes(paths, schemas)
    paths["/api/v1/calibration"] = {"get": _calibration(schemas)}
    _describe_provenance(paths, schemas)
    _describe_tokens(paths, schemas)
    _describe_subscriptions(paths, schemas)
    paths["/api/v1/events/stream"] = {"get": _stream()}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Facet", "version": "1", "description": INTRODUCTION},
        "servers": [{"url": "/"}],
        "security": [{"bearer": []}, {"session": []}],
        "tags": [
            {"name": "skills", "description": "What agents and people do."},
            {"name": "reads", "description": "What there is."},
            {"name": "tokens", "description": "API tokens."},
            {"name": "subscriptions", "description": "Who is told of what happens."},
        ],
        "paths": dict(sorted(paths.items())),
        "components": {
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "Scopes: " + ", ".join(scope.value for scope in Scope) + ".",
                },
                "session": {"type": "apiKey", "in": "cookie", "name": "facet_session"},
            },
            "responses": {_response_name(status): _problem(text) for status, text in _PROBLEMS.items()},
            "parameters": _shared_parameters(),
            "headers": {
                "IdempotencyReplayed": {
                    "description": "`true` when this is the kept first answer.",
                    "schema": {"type": "string"},
                },
                "Location": {"description": "Where the new object is.", "schema": {"type": "string"}},
                "ETag": {"description": "The object's entity tag.", "schema": {"type": "string"}},
            },
            "schemas": dict(sorted(schemas.kept.items())),
        },
    }


def _response_name(status: int) -> str:
    return f"Problem{status}"


def _problem(text: str) -> Json:
    reference = {"$ref": "#/components/schemas/Problem"}
    return {"description": text, "content": {"application/problem+json": {"schema": reference}}}


def _problems(*statuses: int) -> Json:
    found = sorted({*_ALWAYS, *statuses})
    return {str(status): {"$ref": f"#/components/responses/{_response_name(status)}"} for status in found}


def _shared_parameters() -> Json:
    return {
        "IdempotencyKey": {
            "name": "Idempotency-Key",
            "in": "header",
            "description": "Same key and body: the first answer again; other body: 422; in flight: 409.",
            "schema": {"type": "string", "pattern": "^[\\x21-\\x7e]{1,200}$"},
        },
        "Full": _query("full", "1 = everything, however long; else at most 16 KiB.", {"enum": ["0", "1"]}),
        "Wait": _query(
            "wait_s",
            "How long to wait for the site's answer; 0 = not at all.",
            {"type": "number", "minimum": 0, "maximum": 50, "default": 15},
        ),
        "Cursor": _query("cursor", "`next` of the page before.", {"type": "string"}),
        "Limit": _query(
            "limit", "Rows of a page.", {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": 50}
        ),
    }


def _query(name: str, text: str, schema: Json) -> Json:
    return {"name": name, "in": "query", "description": text, "schema": schema}


def _shared(*names: str) -> list[Json]:
    return [{"$ref": f"#/components/parameters/{name}"} for name in names]


def _path(name: str = "handle") -> Json:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def _content(schema: Json) -> Json:
    return {"content": {"application/json": {"schema": schema}}}


def _whole_list(value: Json) -> Json:
    """Return the schema of a list that is never paged."""
    return {
        "type": "object",
        "required": ["results", "next"],
        "properties": {"results": {"type": "array", "items": value}, "next": {"type": "null"}},
    }


def _created_headers() -> Json:
    return {
        "Location": {"$ref": "#/components/headers/Location"},
        "Idempotency-Replayed": {"$ref": "#/components/headers/IdempotencyReplayed"},
    }


def _describe_skills(paths: dict[str, Json], schemas: Schemas) -> None:
    listed = _whole_list(schemas.of(SkillShown))
    paths["/api/v1/skills"] = {
        "get": {
            "operationId": "list_skills",
            "tags": ["skills"],
            "summary": "Every skill with its schemas.",
            "responses": {"200": {"description": "The registry.", **_content(listed)}, **_problems()},
        }
    }
    paths["/api/v1/skills/{name}"] = {
        "get": {
            "operationId": "show_skill",
            "tags": ["skills"],
            "summary": "One skill with its schemas.",
            "parameters": [_path("name")],
            "responses": {
                "200": {"description": "The skill.", **_content(schemas.of(SkillShown))},
                **_problems(404),
            },
        }
    }
    for one in SKILLS.values():
        given = schemas.add(one.schema_in(), _title(one.name) + "Input")
        paths[f"/api/v1/skills/{one.name}"] = {"post": _skill(one, one.name, given, schemas)}


def _title(name: str) -> str:
    return "".join(word.title() for word in name.split("_"))


_GOOD: Mapping[int, str] = {
    200: "The answer.",
    201: "It exists: handed to its site, or known to fit nowhere.",
    202: "It exists; handing it to its site outlasts the wait.",
}


def _skill(one: Skill, operation: str, given: Json, schemas: Schemas) -> Json:
    answer = schemas.add(one.schema_out(), one.output.__name__)
    parameters = _shared(
        "Full", *(("Wait",) if one.waits else ()), *(("IdempotencyKey",) if one.creates else ())
    )
    good = _content(answer)
    if one.creates:
        good["headers"] = _created_headers()
    responses: Json = {str(status): {**good, "description": _GOOD[status]} for status in one.statuses}
    return {
        "operationId": operation,
        "tags": ["skills"],
        "summary": one.summary,
        "description": "Scope: " + " or ".join(f"`{scope}`" for scope in one.scopes) + ".",
        "x-scopes": [scope.value for scope in one.scopes],
        "x-side-effects": one.side_effects,
        "parameters": parameters,
        "requestBody": {"required": True, **_content(given)},
        "responses": {**responses, **_problems(*_WITH_BODY, 404, *_site(one))},
    }


def _site(one: Skill) -> Sequence[int]:
    """Return the statuses of skills that ask a site or keep a cursor."""
    return {"read_log": (502, 503, 504), "wait_for_events": (410,)}.get(one.name, ())


def _describe_resource(paths: dict[str, Json], schemas: Schemas, resource: Resource) -> None:
    value = schemas.of(resource.value)
    page = {
        "type": "object",
        "required": ["results", "next"],
        "properties": {
            "results": {"type": "array", "items": value},
            "next": {"type": ["string", "null"], "description": "Cursor of the next page."},
        },
    }
    many = {
        "operationId": f"list_{resource.name}",
        "tags": ["reads"],
        "summary": resource.summary,
        "parameters": [*_filters(resource), *_shared("Cursor", "Limit")],
        "responses": {
            "200": {"description": "One page.", **_content(page)},
            **_problems(*((410,) if resource.name == "events" else ())),
        },
    }
    headers = {"ETag": {"$ref": "#/components/headers/ETag"}}
    one = {
        "operationId": f"show_{resource.singular}",
        "tags": ["reads"],
        "summary": f"One of: {resource.summary}",
        "parameters": [_path(), {"name": "If-None-Match", "in": "header", "schema": {"type": "string"}}],
        "responses": {
            "200": {"description": "The object.", "headers": headers, **_content(value)},
            "304": {"description": "You have it already."},
            **_problems(404),
        },
    }
    paths[f"/api/v1/{resource.name}"] = {"get": many}
    paths[f"/api/v1/{resource.name}/{{handle}}"] = {"get": one}


def _filters(resource: Resource) -> list[Json]:
    found = []
    for name in (*resource.filters, *resource.extra):
        text = "Cursor: only what came after." if name == "after" else "One value, or several with commas."
        if name == "state" and resource.states:
            text += " Of: " + ", ".join(resource.states) + "."
        found.append(_query(name, text, {"type": "string"}))
    return found


def _describe_task_routes(paths: dict[str, Json], schemas: Schemas) -> None:
    for noun, name in CREATED_BY.items():
        one = SKILLS[name]
        given = schemas.add(one.schema_in(), _title(name) + "Input")
        paths[f"/api/v1/{noun}"]["post"] = _skill(one, f"create_{noun.removesuffix('s')}", given, schemas)
    for verb, model in (("cancel", CancelInput), ("replan", ReplanInput)):
        schema = model.model_json_schema()
        for hidden in ("task", "group", "transfer"):
            schema["properties"].pop(hidden, None)
        schema.pop("required", None)
        given = schemas.add(schema, f"Task{verb.title()}Input")
        operation = _skill(SKILLS[verb], f"{verb}_task", given, schemas)
        operation["parameters"].insert(0, _path())
        operation["requestBody"]["required"] = False
        paths[f"/api/v1/tasks/{{handle}}/{verb}"] = {"post": operation}
    paths["/api/v1/tasks/{handle}/timeline"] = {
        "get": {
            "operationId": "show_task_timeline",
            "tags": ["reads"],
            "summary": "Waiting and running of every attempt, as it was and as it was expected.",
            "parameters": [_path()],
            "responses": {
                "200": {"description": "The timeline.", **_content(schemas.of(Timeline))},
                **_problems(404),
            },
        }
    }


def _describe_provenance(paths: dict[str, Json], schemas: Schemas) -> None:
    crate = {"type": "object", "required": ["@context", "@graph"]}
    paths["/api/v1/tasks/{handle}/ro-crate"] = {
        "get": {
            "operationId": "show_task_ro_crate",
            "tags": ["reads"],
            "summary": "Where the results come from, as RO-Crate 1.1 metadata.",
            "parameters": [_path()],
            "responses": {
                "200": {"description": "The document.", "content": {MEDIA_TYPE: {"schema": crate}}},
                **_problems(404),
            },
        }
    }
    given = schemas.add(MilestoneInput.model_json_schema(), "MilestoneInput")
    noted = {"description": "It is an event now.", **_content(schemas.of(MilestoneNoted))}
    plain = {"text/plain": {"schema": {"type": "string"}}}
    paths["/api/v1/milestones"] = {
        "post": {
            "operationId": "report_milestone",
            "tags": ["skills"],
            "summary": "A running job says where it is; takes the job's own token (FACET_JOB_TOKEN) alone.",
            "requestBody": {"required": True, "content": {**_content(given)["content"], **plain}},
            "responses": {"202": noted, **_problems(400, 413)},
        }
    }


def _describe_tokens(paths: dict[str, Json], schemas: Schemas) -> None:
    given = schemas.add(TypeAdapter(tokens.TokenInput).json_schema(), "TokenInput")
    made = {"description": "The token, with its secret this once.", **_content(schemas.of(tokens.TokenMade))}
    paths["/api/v1/tokens"]["post"] = {
        "operationId": "create_token",
        "tags": ["tokens"],
        "summary": "Make a token; scopes never wider than the caller's. Scope: `manage`.",
        "parameters": _shared("IdempotencyKey"),
        "requestBody": {"required": True, **_content(given)},
        "responses": {"201": {**made, "headers": _created_headers()}, **_problems(*_WITH_BODY)},
    }
    shown = _content(schemas.of(tokens.TokenShown))
    revoke = {
        "tags": ["tokens"],
        "summary": "Revoke a token for good. Scope: `manage`.",
        "parameters": [_path(), {"name": "If-Match", "in": "header", "schema": {"type": "string"}}],
        "responses": {"200": {"description": "The token as it is now.", **shown}, **_problems(404, 412)},
    }
    paths["/api/v1/tokens/{handle}"]["delete"] = {"operationId": "delete_token", **revoke}
    paths["/api/v1/tokens/{handle}/revoke"] = {"post": {"operationId": "revoke_token", **revoke}}


def _describe_subscriptions(paths: dict[str, Json], schemas: Schemas) -> None:
    shown = _content(schemas.of(subscriptions.SubscriptionShown))
    with_secret = _content(schemas.of(subscriptions.SubscriptionMade))
    match = {"name": "If-Match", "in": "header", "schema": {"type": "string"}}

    def operation(name: str, summary: str, given: type[BaseModel], good: Json, *statuses: int) -> Json:
        reference = schemas.add(given.model_json_schema(), given.__name__)
        return {
            "operationId": name,
            "tags": ["subscriptions"],
            "summary": summary,
            "requestBody": {"required": True, **_content(reference)},
            "responses": {**good, **_problems(*_WITH_BODY, *statuses)},
        }

    made = {"description": "The subscription; a webhook's secret this once.", **with_secret}
    paths["/api/v1/subscriptions"]["post"] = {
        **operation(
            "create_subscription",
            "Have a webhook, an e-mail digest or a cursor told of your events. Scope: `submit` or `manage`.",
            subscriptions.SubscriptionInput,
            {"201": {**made, "headers": _created_headers()}},
        ),
        "parameters": _shared("IdempotencyKey"),
    }
    one = paths["/api/v1/subscriptions/{handle}"]
    changed = {"200": {"description": "The subscription as it is now.", **shown}}
    one["patch"] = {
        **operation(
            "edit_subscription",
            "Change, pause or go on. Scope: `submit` or `manage`.",
            subscriptions.SubscriptionEdit,
            changed,
            404,
            412,
        ),
        "parameters": [_path(), match],
    }
    one["delete"] = {
        "operationId": "delete_subscription",
        "tags": ["subscriptions"],
        "summary": "Remove it with its delivery log. Scope: `submit` or `manage`.",
        "parameters": [_path(), match],
        "responses": {"204": {"description": "It is gone."}, **_problems(404, 412)},
    }
    for verb, kind in VERBS.items():
        answer = {"description": "The answer.", **_content(schemas.of(kind.answer))}
        paths[f"/api/v1/subscriptions/{{handle}}/{verb}"] = {
            "post": {
                **operation(f"{verb}_subscription", kind.summary, kind.given, {"200": answer}, 404, 410),
                "parameters": [_path(), *_shared("IdempotencyKey")],
            }
        }


def _calibration(schemas: Schemas) -> Json:
    listed = _whole_list(schemas.of(CalibrationShown))
    return {
        "operationId": "list_calibration",
        "tags": ["reads"],
        "summary": "How good the waits predicted for you were, by system, partition and class of wait.",
        "parameters": [
            _query(name, "One value, or several with commas.", {"type": "string"})
            for name in ("system", "partition")
        ],
        "responses": {"200": {"description": "Every place you used.", **_content(listed)}, **_problems()},
    }


def _stream() -> Json:
    last = {"name": "Last-Event-ID", "in": "header", "description": "Where a reader stopped: its cursor."}
    return {
        "operationId": "stream_events",
        "tags": ["reads"],
        "summary": "Your events as they are committed: id is the cursor, event the type, data the event.",
        "parameters": [
            _query("after", "Cursor: only what came after. Absent: from now on.", {"type": "string"}),
            _query("types", "Event types with commas; `task.*` means all of tasks.", {"type": "string"}),
            _query("subject", "A task, group, attempt, transfer or system.", {"type": "string"}),
            {**last, "schema": {"type": "string"}},
        ],
        "responses": {
            "200": {
                "description": "Server-sent events; a comment at least every 15 s.",
                "content": {"text/event-stream": {"schema": {"type": "string"}}},
            },
            **_problems(404, 405, 410),
        },
    }
