"""Skills as tools: input and output schemas in the form that every client and model takes. Pure.

Root schemas are plain objects (several model APIs refuse `anyOf` there), and what is an option of the REST route
is an argument here.
"""

from typing import Any

from portal.skills.registry import Skill

Json = dict[str, Any]

DRY_RUN, WAIT, KEY = "dry_run", "wait_s", "idempotency_key"
_DESTRUCTIVE = frozenset({"cancel", "replan"})
_REPEATABLE = frozenset({"cancel"})
_UNREHEARSED = frozenset({"draft_envelope"})
"""A draft is only a proposal, and may ask a model: that is no thing to do in a transaction."""

_EXTRA: dict[str, Json] = {
    DRY_RUN: {
        "type": "boolean",
        "default": False,
        "description": "True: check everything and answer what would be, but change nothing.",
    },
    WAIT: {
        "type": "number",
        "minimum": 0,
        "maximum": 50,
        "default": 15,
        "description": "How long to wait for the site's own answer, s. The handle is answered in any case.",
    },
    KEY: {
        "type": "string",
        "pattern": "^[\\x21-\\x7e]{1,200}$",
        "description": "Same key and arguments: the first answer again, nothing is made twice.",
    },
}


def extras(one: Skill) -> tuple[str, ...]:
    """Return the arguments of a tool besides its skill's own."""
    found = [DRY_RUN] if one.side_effects and one.name not in _UNREHEARSED else []
    if one.waits:
        found.append(WAIT)
    if one.creates:
        found.append(KEY)
    return tuple(found)


def input_schema(one: Skill) -> Json:
    """Return the input schema of a tool."""
    schema = flattened(one.schema_in())
    properties = {**schema.get("properties", {}), **{name: _EXTRA[name] for name in extras(one)}}
    return {**schema, "type": "object", "properties": properties, "additionalProperties": False}


def output_schema(one: Skill) -> Json:
    """Return the output schema of a tool; with side effects it may also answer what would have been."""
    schema = one.schema_out()
    if DRY_RUN not in extras(one):
        return {"type": "object", **schema}
    definitions = schema.pop("$defs", {})
    would = {
        "type": "object",
        "required": [DRY_RUN, "would"],
        "properties": {DRY_RUN: {"const": True}, "would": {"type": "object"}},
    }
    return {"type": "object", "anyOf": [schema, would], "$defs": definitions}


def flattened(schema: Json) -> Json:
    """Return a schema whose root is one object: of alternatives, every property of each, none required."""
    alternatives = schema.get("anyOf")
    if not alternatives:
        return dict(schema)
    properties: Json = {}
    for each in alternatives:
        properties = {**each.get("properties", {}), **properties}
    kept = {name: value for name, value in schema.items() if name not in ("anyOf", "required")}
    return {**kept, "properties": properties}


def hints(one: Skill) -> dict[str, bool]:
    """Return what a client may know of a tool without calling it."""
    return {
        "read_only_hint": not one.side_effects,
        "destructive_hint": one.name in _DESTRUCTIVE,
        "idempotent_hint": not one.side_effects or one.name in _REPEATABLE,
        "open_world_hint": one.side_effects,
    }
