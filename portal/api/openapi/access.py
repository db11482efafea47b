"""Tokens and subscriptions: who may call, and who is told."""

from pydantic import BaseModel, TypeAdapter

from portal import subscriptions, tokens
from portal.api.openapi.pieces import WITH_BODY, content, created_headers, path, problems, shared
from portal.api.schemas import Json, Schemas
from portal.api.subscriptions import VERBS


def describe_tokens(paths: dict[str, Json], schemas: Schemas) -> None:
    """Add the routes that make and end tokens."""
    given = schemas.add(TypeAdapter(tokens.TokenInput).json_schema(), "TokenInput")
    made = {"description": "The token, with its secret this once.", **content(schemas.of(tokens.TokenMade))}
    paths["/api/v1/tokens"]["post"] = {
        "operationId": "create_token",
        "tags": ["tokens"],
        "summary": "Make a token; scopes never wider than the caller's. Scope: `manage`.",
        "parameters": shared("IdempotencyKey"),
        "requestBody": {"required": True, **content(given)},
        "responses": {"201": {**made, "headers": created_headers()}, **problems(*WITH_BODY)},
    }
    shown = content(schemas.of(tokens.TokenShown))
    revoke = {
        "tags": ["tokens"],
        "summary": "Revoke a token for good. Scope: `manage`.",
        "parameters": [path(), {"name": "If-Match", "in": "header", "schema": {"type": "string"}}],
        "responses": {"200": {"description": "The token as it is now.", **shown}, **problems(404, 412)},
    }
    paths["/api/v1/tokens/{handle}"]["delete"] = {"operationId": "delete_token", **revoke}
    paths["/api/v1/tokens/{handle}/revoke"] = {"post": {"operationId": "revoke_token", **revoke}}


def describe_subscriptions(paths: dict[str, Json], schemas: Schemas) -> None:
    """Add the routes of subscriptions and of what can be asked of one."""
    shown = content(schemas.of(subscriptions.SubscriptionShown))
    with_secret = content(schemas.of(subscriptions.SubscriptionMade))
    match = {"name": "If-Match", "in": "header", "schema": {"type": "string"}}

    def operation(name: str, summary: str, given: type[BaseModel], good: Json, *statuses: int) -> Json:
        reference = schemas.add(given.model_json_schema(), given.__name__)
        return {
            "operationId": name,
            "tags": ["subscriptions"],
            "summary": summary,
            "requestBody": {"required": True, **content(reference)},
            "responses": {**good, **problems(*WITH_BODY, *statuses)},
        }

    made = {"description": "The subscription; a webhook's secret this once.", **with_secret}
    paths["/api/v1/subscriptions"]["post"] = {
        **operation(
            "create_subscription",
            "Tell a webhook, an e-mail or a cursor of your events. Scopes: `read`, and `submit` or `manage`.",
            subscriptions.SubscriptionInput,
            {"201": {**made, "headers": created_headers()}},
        ),
        "parameters": shared("IdempotencyKey"),
    }
    one = paths["/api/v1/subscriptions/{handle}"]
    changed = {"200": {"description": "The subscription as it is now.", **shown}}
    one["patch"] = {
        **operation(
            "edit_subscription",
            "Change, pause or go on. Scopes: `read`, and `submit` or `manage`.",
            subscriptions.SubscriptionEdit,
            changed,
            404,
            412,
        ),
        "parameters": [path(), match],
    }
    one["delete"] = {
        "operationId": "delete_subscription",
        "tags": ["subscriptions"],
        "summary": "Remove it with its delivery log. Scopes: `read`, and `submit` or `manage`.",
        "parameters": [path(), match],
        "responses": {"204": {"description": "It is gone."}, **problems(404, 412)},
    }
    for verb, kind in VERBS.items():
        answer = {"description": "The answer.", **content(schemas.of(kind.answer))}
        paths[f"/api/v1/subscriptions/{{handle}}/{verb}"] = {
            "post": {
                **operation(f"{verb}_subscription", kind.summary, kind.given, {"200": answer}, 404, 410),
                "parameters": [path(), *shared("IdempotencyKey")],
            }
        }
