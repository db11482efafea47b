"""Reading untrusted objects into values: every fault named by JSON pointer, with the nearest known name."""

import difflib
from collections.abc import Iterable
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from providers.errors import InvalidInput

M = TypeVar("M", bound=BaseModel)

_CODES = {"extra_forbidden": "unknown_field", "missing": "missing_field"}


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
        raise InvalidInput(f"The {what} is not valid.", problems=problems(model, error, pointer)) from None


def problems(
    model: type[BaseModel], error: ValidationError, pointer: str = ""
) -> tuple[tuple[str, str, str], ...]:
    """Return pydantic's faults as (JSON pointer, code, message)."""
    found = []
    for fault in error.errors(include_url=False):
        where = pointer + "".join(f"/{_escaped(step)}" for step in fault["loc"])
        code = _CODES.get(fault["type"], fault["type"])
        message = fault["msg"].removeprefix("Value error, ")
        if fault["type"] == "extra_forbidden":
            name = str(fault["loc"][-1])
            message = f"Unknown field `{name}`." + nearest(name, _fields_at(model, fault["loc"][:-1]))
        elif fault["type"] == "missing":
            message = f"`{fault['loc'][-1]}` is required."
        found.append((where, code, message))
    return tuple(found)


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
