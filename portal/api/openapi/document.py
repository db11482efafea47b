"""The OpenAPI 3.1 document, made from the registry of skills and the resources: nothing else is served."""

from portal.api.openapi.access import describe_subscriptions, describe_tokens
from portal.api.openapi.pieces import PROBLEMS, Problem, problem, response_name, shared_parameters
from portal.api.openapi.reads import calibration, describe_provenance, describe_resource, stream
from portal.api.openapi.skills import describe_skills, describe_task_routes
from portal.api.resources import RESOURCES
from portal.api.schemas import Json, Schemas
from portal.skills.registry import Scope

INTRODUCTION = """One control plane over many independently run supercomputers.

Every call needs `Authorization: Bearer facet_…` (or a signed-in session with its CSRF token). Failures are
`application/problem+json`. Lists are paged by opaque cursors. A POST that creates takes `Idempotency-Key`.
Times are ISO 8601 UTC; `_s` are seconds, `_mib` MiB; charges are in each site's own unit.
"""


def document() -> Json:
    """Return the whole document; the same every time."""
    schemas = Schemas()
    schemas.of(Problem)
    paths: dict[str, Json] = {}
    describe_skills(paths, schemas)
    for resource in RESOURCES.values():
        describe_resource(paths, schemas, resource)
    describe_task_routes(paths, schemas)
    paths["/api/v1/calibration"] = {"get": calibration(schemas)}
    describe_provenance(paths, schemas)
    describe_tokens(paths, schemas)
    describe_subscriptions(paths, schemas)
    paths["/api/v1/events/stream"] = {"get": stream()}
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
            "responses": {response_name(status): problem(text) for status, text in PROBLEMS.items()},
            "parameters": shared_parameters(),
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
