"""Reading bodies: one JSON object, at most 4 MiB, in text that a database can hold."""

import json
import math
from collections.abc import Iterator
from itertools import islice
from typing import Any, NoReturn

from django.http import HttpRequest
from rest_framework.negotiation import BaseContentNegotiation

from portal.api.problems import BodyTooLarge, MalformedJson, UnsupportedMediaType
from providers.errors import InvalidInput

MAX_BODY_BYTES = 4 * 1024 * 1024
_MAX_FAULTS = 20


class AlwaysJson(BaseContentNegotiation):  # type: ignore[misc]  # no types
    """Answer JSON whatever is accepted: there is nothing else."""

    def select_parser(self, _request: Any, _parsers: Any) -> Any:
        """Return no parser: bodies are read by `read_body`."""
        return None

    def select_renderer(self, _request: Any, renderers: Any, _format_suffix: Any = None) -> Any:
        """Return the one renderer."""
        return renderers[0], renderers[0].media_type


def read_body(request: HttpRequest) -> dict[str, Any]:
    """Return the JSON object in the body of a request; an empty body is an empty object.

    Raises:
        UnsupportedMediaType: the body is something else by its own word.
        BodyTooLarge: over 4 MiB.
        MalformedJson: it is not JSON.
        InvalidInput: not an object, or holding text that cannot be kept.
    """
    if int(request.META.get("CONTENT_LENGTH") or 0) > MAX_BODY_BYTES:
        raise too_large()
    body = request.read(MAX_BODY_BYTES + 1)
    if len(body) > MAX_BODY_BYTES:
        raise too_large()
    kind = (request.content_type or "").strip().lower()
    if body.strip() and kind != "application/json" and not kind.endswith("+json"):
        raise UnsupportedMediaType(
            f"The body is {kind or 'of no stated type'}; only application/json is read."
        )
    return decode(body)


def too_large() -> BodyTooLarge:
    """Return the refusal of a long body."""
    return BodyTooLarge(f"The body is longer than {MAX_BODY_BYTES} bytes.", limit_bytes=MAX_BODY_BYTES)


def decode(body: bytes) -> dict[str, Any]:
    """Return the JSON object in some bytes.

    Raises:
        MalformedJson: they are not JSON.
        InvalidInput: not an object, or holding text that cannot be kept.
    """
    if not body.strip():
        return {}
    given = _decoded(body)
    if not isinstance(given, dict):
        message = "The body must be a JSON object."
        raise InvalidInput(message, problems=(("", "not_an_object", message),))
    check_keepable(given)
    return given


def check_keepable(value: object) -> None:
    """Refuse what PostgreSQL cannot hold, whatever wire it came by.

    Raises:
        InvalidInput: a NUL, half a surrogate pair or a number that is not finite, with its place.
    """
    faults = tuple(islice(_unkeepable(value), _MAX_FAULTS))
    if faults:
        raise InvalidInput(faults[0][2], problems=faults)


def _decoded(body: bytes) -> Any:
    try:
        return json.loads(body.decode("utf-8-sig"), parse_constant=_no_constant, object_pairs_hook=_once)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno} (character {error.pos})"
        raise MalformedJson(f"The body is not JSON: {error.msg} at {where}.", position=error.pos) from None
    except UnicodeDecodeError as error:
        raise MalformedJson(
            f"The body is not UTF-8: byte {error.start} cannot be read.", position=error.start
        ) from None
    except RecursionError:
        raise MalformedJson("The body is nested too deeply.") from None
    except ValueError as error:
        raise MalformedJson(f"The body is not JSON: {error}.") from None


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON number")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {twice[:80]!r} stands twice in one object")
    return found


def _unkeepable(value: object, pointer: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield every text or number that PostgreSQL's JSON cannot hold."""
    if isinstance(value, str):
        if "\0" in value:
            yield (pointer, "bad_text", "Text must not hold NUL characters.")
        elif any("\ud800" <= char <= "\udfff" for char in value):
            yield (pointer, "bad_text", "Text must not hold half a surrogate pair.")
    elif isinstance(value, float):
        if not math.isfinite(value):
            yield (pointer, "not_finite", "Numbers must be finite.")
    elif isinstance(value, dict):
        for name, inner in value.items():
            step = name.replace("~", "~0").replace("/", "~1")
            yield from _unkeepable(name, f"{pointer}/?")
            yield from _unkeepable(inner, f"{pointer}/{step}")
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _unkeepable(inner, f"{pointer}/{number}")
