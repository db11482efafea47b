"""Skills as tools: input and output schemas in the form that every client and model takes. Pure.

Root schemas are plain objects (several model APIs refuse `anyOf` there), and what is an option of the REST
route is an argument here.
"""

from typing import Any

from portal.skills.registry import Skill

Json = dict[str, Any]

DRY_RUN, WAIT, KEY = "dry_run", "wait_s", "idempotency_key"
_DESTRUCTIVE = frozenset({"cancel", "replan"})
_REPEATABLE = frozenset({"cancel"})
_UNREHEARSED = frozenset({"draft_envelope"})
"""A draft is only a proposal, and may ask a model: that is no thing to do in a transaction."""

_LIKE_SUBMIT = frozenset({"preview_placement", "relax_envelope"})
_ALSO = "Arguments as submit_task describes them; all may be left out but the envelope."
_AS_IN_SUBMIT: Json = {"type": "object", "description": "ResourceEnvelope, as submit_task describes it."}
_OF_A_TASK = frozenset({"preview_placement", "relax_envelope"})
"""What takes a task input as submit_task does, which tells it whole."""
_AS_TAKEN = "As submit_task takes it."
_AS_IN_SET_BUDGET: Json = {
    "type": "object",
    "description": "Limits, deadline, approval as set_budget describes them, without what they are set on.",
}
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
    schema = slim(_first(one.schema_in()))
    properties = {**schema.get("properties", {}), **{name: _EXTRA[name] for name in extras(one)}}
    if one.name in _LIKE_SUBMIT:
        # What submit_task describes in full is not said a second time: a model reads every tool.
        schema = {name: value for name, value in schema.items() if name != "$defs"}
        schema["description"] = _ALSO
        properties = {name: {} for name in properties}
    if one.name != "submit_task" and "envelope" in properties:
        properties["envelope"] = _AS_IN_SUBMIT
    if properties.get("budget") and properties["budget"].get("type") != "string":
        properties["budget"] = _AS_IN_SET_BUDGET
        for name in ("BudgetInput", "ApproveAbove"):
            schema.get("$defs", {}).pop(name, None)
    if one.name in _OF_A_TASK:
        schema.pop("$defs", None)
        properties = {name: _briefly(member) for name, member in properties.items()}
    return {**schema, "type": "object", "properties": properties, "additionalProperties": False}


def _briefly(member: Json) -> Json:
    """Return a member of a task input without the schema that submit_task tells of it."""
    if "$ref" in member:
        return {"type": "object", "description": _AS_TAKEN}
    if "$ref" in member.get("items", {}):
        return {"type": "array", "items": {"type": "object"}, "description": _AS_TAKEN}
    return member


def output_schema(one: Skill) -> Json:
    """Return the output schema of a tool; with side effects it may also answer what would have been.

    No member is required: what is null may be left out of a long answer.
    """
    schema = _optional(one.schema_out())
    if DRY_RUN not in extras(one):
        return {"type": "object", **schema}
    definitions = schema.pop("$defs", {})
    would = {
        "type": "object",
        "required": [DRY_RUN, "would"],
        "properties": {DRY_RUN: {"const": True}, "would": {"type": "object"}},
    }
    return {"type": "object", "anyOf": [schema, would], "$defs": definitions}


def _optional(schema: Any) -> Any:
    """Return a schema that requires no member anywhere."""
    if isinstance(schema, list):
        return [_optional(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: {word: _optional(inner) for word, inner in value.items()}
        if name in ("properties", "$defs")
        else _optional(value)
        for name, value in schema.items()
        if not (name == "required" and isinstance(value, list))
    }


def _first(schema: Json) -> Json:
    """Return the first of the alternatives at the root, with none of its properties required.

    The others are shorter spellings of the same (a bare envelope), which are still understood.
    """
    alternatives = schema.get("anyOf")
    if not alternatives:
        return dict(schema)
    kept = {name: value for name, value in schema.items() if name != "anyOf"}
    return {**kept, **{name: value for name, value in alternatives[0].items() if name != "required"}}


def slim(schema: Any) -> Any:
    """Return a schema without titles, and without saying of each optional member that it may be null.

    What remains accepts less than the input does, and costs a model half as much to read.
    """
    if isinstance(schema, list):
        return [slim(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {
        name: _slim_members(value) if name in ("properties", "$defs") else slim(value)
        for name, value in schema.items()
        if not (name == "title" and isinstance(value, str)) and not (name == "default" and value is None)
    }
    alternatives = kept.get("anyOf")
    if isinstance(alternatives, list) and {"type": "null"} in alternatives:
        others = [each for each in alternatives if each != {"type": "null"}]
        del kept["anyOf"]
        kept = {**others[0], **kept} if len(others) == 1 else {**kept, "anyOf": others}
    return kept


def _slim_members(members: Json) -> Json:
    """Slim each member; their names may be any word, `title` included."""
    return {name: slim(each) for name, each in members.items()}


def hints(one: Skill) -> dict[str, bool]:
    """Return what a client may know of a tool without calling it."""
    return {
        "read_only_hint": not one.side_effects,
        "destructive_hint": one.name in _DESTRUCTIVE,
        "idempotent_hint": not one.side_effects or one.name in _REPEATABLE,
        "open_world_hint": one.side_effects,
    }
