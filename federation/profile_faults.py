"""Saying what to write instead, for each way a profile's field can be wrong. Pure."""

from collections.abc import Callable, Mapping
from typing import Any

from pydantic_core import ErrorDetails

from providers.reading import nearest


def explained(fault: ErrorDetails) -> str | None:
    """Return the fault in the words of a profile's writer; None where pydantic's own say it well."""
    say = _WORDS.get(fault["type"])
    return say(fault["input"], fault.get("ctx", {})) if say else None


def _shown(given: object) -> str:
    """Return the value at fault, short enough for one line."""
    if isinstance(given, dict):
        return "a mapping"
    if isinstance(given, (list, tuple)):
        return "a list"
    if given is None:
        return "nothing"
    if isinstance(given, bool):
        return str(given).lower()
    text = str(given)
    return f"`{text[:40]}…`" if len(text) > 40 else f"`{text}`"


def _instead(fix: str) -> Callable[[object, Mapping[str, Any]], str]:
    return lambda given, _: f"write {fix}, not {_shown(given)}"


def _choice(given: object, context: Mapping[str, Any]) -> str:
    known = [word.strip(" '") for word in str(context["expected"]).replace(" or ", ",").split(",")]
    words = ", ".join(known[:-1]) + f" or {known[-1]}" if len(known) > 1 else known[0]
    hint = nearest(str(given), known)
    return f"write {words}, not {_shown(given)}" + (f".{hint}" if "Did you mean" in hint else "")


def _bound(word: str, key: str) -> Callable[[object, Mapping[str, Any]], str]:
    return lambda given, context: f"must be {word} {context[key]}, not {_shown(given)}"


_PATTERNS: Mapping[str, str] = {
    r"^[a-z][a-z0-9-]{1,39}$": "2 to 40 lower-case letters, digits and dashes, beginning with a letter",
    r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,79}$": "a name of letters, digits and `. _ + -`",
    r"^(/|\{home\})[^\n\r\x00]*$": "an absolute path, or one that begins with {home}",
}


def _pattern(given: object, context: Mapping[str, Any]) -> str:
    fix = _PATTERNS.get(context["pattern"], f"a text that matches {context['pattern']}")
    return f"write {fix}, not {_shown(given)}"


_WHOLE = _instead("a whole number, such as 4")
_NUMBER = _instead("a number, such as 1.5")
_LIST = _instead("a list, such as [one, two]")
_MAPPING = _instead("a mapping of fields, one `name: value` a line, indented")
_INSTANT = _instead("an instant with its time zone, such as 2027-01-31T08:00:00Z")

_WORDS: Mapping[str, Callable[[object, Mapping[str, Any]], str]] = {
    "int_parsing": _WHOLE,
    "int_type": _WHOLE,
    "int_from_float": _WHOLE,
    "int_parsing_size": _instead("a smaller number"),
    "decimal_parsing": _NUMBER,
    "decimal_type": _NUMBER,
    "finite_number": _NUMBER,
    "bool_parsing": _instead("true or false"),
    "bool_type": _instead("true or false"),
    "string_type": _instead("a text"),
    "tuple_type": _LIST,
    "dict_type": _MAPPING,
    "model_type": _MAPPING,
    "model_attributes_type": _MAPPING,
    "datetime_parsing": _INSTANT,
    "datetime_from_date_parsing": _INSTANT,
    "datetime_type": _INSTANT,
    "timezone_aware": _INSTANT,
    "literal_error": _choice,
    "string_pattern_mismatch": _pattern,
    "greater_than_equal": _bound("at least", "ge"),
    "greater_than": _bound("more than", "gt"),
    "less_than_equal": _bound("at most", "le"),
    "string_too_long": lambda _, context: f"must have at most {context['max_length']} characters",
    "string_too_short": lambda *_: "must not be empty",
    "too_short": lambda *_: "must not be empty",
}
