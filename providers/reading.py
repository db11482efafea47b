"""Reading untrusted objects into values: every fault named by JSON pointer, with the nearest known name."""

import difflib
import re
from collections.abc import Iterable
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from providers.errors import InvalidInput

M = TypeVar("M", bound=BaseModel)

_CODES = {
    "extra_forbidden": "unknown_field",
    "missing": "missing_field",
    "enum": "unknown_word",
    "literal_error": "unknown_word",
    "value_error": "not_valid",
    **{
        f"{kind}_type": "wrong_type"
        for kind in ("tuple", "list", "string", "dict", "model", "int", "float", "bool")
    },
    **{f"{kind}_parsing": "wrong_type" for kind in ("int", "float", "bool")},
    "model_attributes_type": "wrong_type",
    "int_from_float": "wrong_type",
}
_MESSAGES = {
    "tuple_type": "must be an array",
    "list_type": "must be an array",
    "string_type": "must be a string",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
}


def nearest(word: str, known: Iterable[str]) -> str:
    """Return ` Did you mean …?` for the closest known word, or what is known when none is close."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    if close:
        return f" Did you mean `{close[0]}`?"
    return f" Known: {', '.join(names)}." if len(names) <= 30 else ""


def read(model: type[M], given: object, *, pointer: str = "", what: str = "input") -> M:
    """Return `given` as a value of `model`.

    Raises:
        InvalidInput: with every fault as (JSON pointer, code, message).
    """
    if not isinstance(given, dict):
        message = f"The {what} must be a JSON object, not {_json_word(given)}."
        raise InvalidInput(message, problems=((pointer, "not_an_object", message),))
    try:
        return model.model_validate(given)
    except ValidationError as error:
        found = problems(model, error, pointer, given=given)
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        first = f"{found[0][0]}: {found[0][2]}" if found[0][0] else found[0][2]
        raise InvalidInput(f"The {what} is not valid. {first}{more}", problems=found) from None


def problems(
    model: type[BaseModel], error: ValidationError, pointer: str = "", *, given: object = None
) -> tuple[tuple[str, str, str], ...]:
    """Return pydantic's faults as (JSON pointer, code, message), one for each place.

    Where a place may hold several kinds of value, pydantic reports one fault per kind and names the kind in
    the path; `given` tells such names from members.
    """
    found: list[tuple[str, str, str]] = []
    for fault in error.errors(include_url=False):
        steps = _steps(fault["loc"], fault["type"], given)
        where = pointer + "".join(f"/{_escaped(step)}" for step in steps)
        code = _CODES.get(fault["type"], fault["type"])
        message = _sentence(model, fault)
        if found and found[-1][0] == where and given is not None:
            _, code, said = found.pop()
            message = said if message in said else f"{said}, or {message}"
        found.append((where, code, message))
    return tuple(found)


def _steps(path: tuple[int | str, ...], kind: str, given: object) -> tuple[int | str, ...]:
    """Return the steps of a fault's path that stand in the document."""
    if given is None:
        return path
    steps: list[int | str] = []
    here = given
    for number, step in enumerate(path):
        is_member = (isinstance(here, dict) and step in here) or (
            isinstance(here, list) and isinstance(step, int) and step < len(here)
        )
        if is_member:
            here = here[step]  # type: ignore[index]  # a member, as just seen
            steps.append(step)
        elif kind == "missing" and number == len(path) - 1:
            steps.append(step)
    return tuple(steps)


def _sentence(model: type[BaseModel], fault: Any) -> str:
    kind, path = fault["type"], fault["loc"]
    if kind == "extra_forbidden":
        name = str(path[-1])
        return f"Unknown field `{name[:80]}`." + nearest(name, _fields_at(model, path[:-1]))
    if kind == "missing":
        return f"`{path[-1]}` is required."
    if kind in ("enum", "literal_error") and isinstance(fault["input"], str):
        known = re.findall(r"'([^']*)'", fault["ctx"]["expected"])
        return f"`{fault['input'][:80]}` is not known here." + nearest(fault["input"], known)
    return _MESSAGES.get(kind, str(fault["msg"]).removeprefix("Value error, "))


def _escaped(step: object) -> str:
    return str(step).replace("~", "~0").replace("/", "~1")


def _json_word(given: object) -> str:
    words = {list: "an array", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
    return "null" if given is None else words.get(type(given), "something else")


def _fields_at(model: type[BaseModel], path: tuple[Any, ...]) -> list[str]:
    """Return the field names known at a place in the model, by following its annotations."""
    here: type[BaseModel] | None = model
    for step in path:
        if here is None:
            return []
        if isinstance(step, int):
            continue
        field = here.model_fields.get(str(step))
        here = _model_in(field.annotation) if field is not None else here
    return list(here.model_fields) if here is not None else []


def _model_in(annotation: object) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in get_args(annotation):
        inner = _model_in(argument)
        if inner is not None:
            return inner
    return None
