"""The pieces every description is made of: problems, parameters, headers, content."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, Field

from portal.api.paging import MAX_LIMIT
from portal.api.schemas import Json

PROBLEMS: Mapping[int, str] = {
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
    503: "Facet's database cannot be used just now, or the site's scheduler does not answer; try again.",
    504: "The site gave no answer in time.",
}


_ALWAYS = (401, 403, 422, 429, 500, 503)


WITH_BODY = (400, 409, 413, 415)


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


def response_name(status: int) -> str:
    """Return the name of the shared answer of a status."""
    return f"Problem{status}"


def problem(text: str) -> Json:
    """Return a failure's answer."""
    reference = {"$ref": "#/components/schemas/Problem"}
    return {"description": text, "content": {"application/problem+json": {"schema": reference}}}


def problems(*statuses: int) -> Json:
    """Return references to the failures of an operation: those of every one, and these."""
    found = sorted({*_ALWAYS, *statuses})
    return {str(status): {"$ref": f"#/components/responses/{response_name(status)}"} for status in found}


def shared_parameters() -> Json:
    """Return the parameters that many operations take."""
    return {
        "IdempotencyKey": {
            "name": "Idempotency-Key",
            "in": "header",
            "description": "Same key and body: the first answer again; other body: 422; in flight: 409.",
            "schema": {"type": "string", "pattern": "^[\\x21-\\x7e]{1,200}$"},
        },
        "Full": query("full", "1 = everything, however long; else at most 16 KiB.", {"enum": ["0", "1"]}),
        "Wait": query(
            "wait_s",
            "How long to wait for the site's answer; 0 = not at all.",
            {"type": "number", "minimum": 0, "maximum": 50, "default": 15},
        ),
        "Cursor": query("cursor", "`next` of the page before.", {"type": "string"}),
        "Limit": query(
            "limit", "Rows of a page.", {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": 50}
        ),
    }


def query(name: str, text: str, schema: Json) -> Json:
    """Return a query parameter."""
    return {"name": name, "in": "query", "description": text, "schema": schema}


def shared(*names: str) -> list[Json]:
    """Return references to shared parameters."""
    return [{"$ref": f"#/components/parameters/{name}"} for name in names]


def path(name: str = "handle") -> Json:
    """Return a parameter of the path."""
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def content(schema: Json) -> Json:
    """Return a body of JSON."""
    return {"content": {"application/json": {"schema": schema}}}


def whole_list(value: Json) -> Json:
    """Return the schema of a list that is never paged."""
    return {
        "type": "object",
        "required": ["results", "next"],
        "properties": {"results": {"type": "array", "items": value}, "next": {"type": "null"}},
    }


def created_headers() -> Json:
    """Return the headers of an answer to what creates."""
    return {
        "Location": {"$ref": "#/components/headers/Location"},
        "Idempotency-Replayed": {"$ref": "#/components/headers/IdempotencyReplayed"},
    }


def title(name: str) -> str:
    """Return a name as a schema's: `submit_task` is `SubmitTask`."""
    return "".join(word.title() for word in name.split("_"))
