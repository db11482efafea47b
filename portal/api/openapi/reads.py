"""What can be read: resources, calibration, provenance, and the stream of events."""

from orchestrator.provenance import MEDIA_TYPE
from orchestrator.shown import CalibrationShown
from portal.api.milestones import MilestoneInput, MilestoneNoted
from portal.api.openapi.pieces import content, path, problems, query, shared, whole_list
from portal.api.resources import Resource
from portal.api.schemas import Json, Schemas


def describe_resource(paths: dict[str, Json], schemas: Schemas, resource: Resource) -> None:
    """Add the list of a resource, and one of it."""
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
        "parameters": [*_filters(resource), *shared("Cursor", "Limit")],
        "responses": {
            "200": {"description": "One page.", **content(page)},
            **problems(*((410,) if resource.name == "events" else ())),
        },
    }
    headers = {"ETag": {"$ref": "#/components/headers/ETag"}}
    one = {
        "operationId": f"show_{resource.singular}",
        "tags": ["reads"],
        "summary": f"One of: {resource.summary}",
        "parameters": [path(), {"name": "If-None-Match", "in": "header", "schema": {"type": "string"}}],
        "responses": {
            "200": {"description": "The object.", "headers": headers, **content(value)},
            "304": {"description": "You have it already."},
            **problems(404),
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
        found.append(query(name, text, {"type": "string"}))
    return found


def describe_provenance(paths: dict[str, Json], schemas: Schemas) -> None:
    """Add where results come from, and what jobs report of themselves."""
    crate = {"type": "object", "required": ["@context", "@graph"]}
    paths["/api/v1/tasks/{handle}/ro-crate"] = {
        "get": {
            "operationId": "show_task_ro_crate",
            "tags": ["reads"],
            "summary": "Where the results come from, as RO-Crate 1.1 metadata.",
            "parameters": [path()],
            "responses": {
                "200": {"description": "The document.", "content": {MEDIA_TYPE: {"schema": crate}}},
                **problems(404),
            },
        }
    }
    given = schemas.add(MilestoneInput.model_json_schema(), "MilestoneInput")
    noted = {"description": "It is an event now.", **content(schemas.of(MilestoneNoted))}
    plain = {"text/plain": {"schema": {"type": "string"}}}
    paths["/api/v1/milestones"] = {
        "post": {
            "operationId": "report_milestone",
            "tags": ["skills"],
            "summary": "A running job says where it is; takes the job's own token (FACET_JOB_TOKEN) alone.",
            "requestBody": {"required": True, "content": {**content(given)["content"], **plain}},
            "responses": {"202": noted, **problems(400, 413)},
        }
    }


def calibration(schemas: Schemas) -> Json:
    """Return the operation that lists how good predictions were."""
    listed = whole_list(schemas.of(CalibrationShown))
    return {
        "operationId": "list_calibration",
        "tags": ["reads"],
        "summary": "How good waits, runtimes and charges predicted for you were, by system and partition.",
        "parameters": [
            query(name, "One value, or several with commas.", {"type": "string"})
            for name in ("measure", "system", "partition")
        ],
        "responses": {"200": {"description": "Every place you used.", **content(listed)}, **problems()},
    }


def stream() -> Json:
    """Return the operation that streams events."""
    last = {"name": "Last-Event-ID", "in": "header", "description": "Where a reader stopped: its cursor."}
    return {
        "operationId": "stream_events",
        "tags": ["reads"],
        "summary": "Your events as they are committed: id is the cursor, event the type, data the event.",
        "parameters": [
            query("after", "Cursor: only what came after. Absent: from now on.", {"type": "string"}),
            query("type", "Event types with commas; `task.*` means all of tasks.", {"type": "string"}),
            query("types", "The same as `type`.", {"type": "string"}),
            query("subject", "A task, group, attempt, transfer or system.", {"type": "string"}),
            {**last, "schema": {"type": "string"}},
        ],
        "responses": {
            "200": {
                "description": "Server-sent events; a comment at least every 15 s.",
                "content": {"text/event-stream": {"schema": {"type": "string"}}},
            },
            **problems(404, 405, 410),
        },
    }
