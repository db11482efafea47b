"""Pages of a list: by place in the order, never by number, so that rows may come meanwhile."""

import base64
import binascii
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import Model, QuerySet
from django.http import QueryDict

from providers.errors import InvalidInput
from providers.reading import nearest

DEFAULT_LIMIT = 50
MAX_LIMIT = 200
_HANDLE = re.compile(r"^[a-z]+_[0-9a-z]+$")


@dataclass(frozen=True, slots=True)
class Page:
    """One page of rows and the cursor of the next; None = that was all."""

    rows: list[Any]
    following: str | None


def refuse_unknown(query: QueryDict, known: Collection[str]) -> None:
    """Refuse query parameters that mean nothing, that come twice, or that hold what no database takes.

    Raises:
        InvalidInput: naming the nearest known one.
    """
    problems = []
    for name in query:
        if name not in known:
            text = f"Unknown query parameter `{name[:60]}`." + nearest(name[:60], known)
            problems.append((f"?{name[:60]}", "unknown_parameter", text))
        elif len(query.getlist(name)) > 1:
            text = f"`{name}` is given more than once; separate values by commas."
            problems.append((f"?{name}", "repeated_parameter", text))
        elif "\0" in query[name]:
            problems.append((f"?{name}", "bad_text", f"`{name}` must not hold NUL characters."))
    if problems:
        raise InvalidInput(problems[0][2], problems=tuple(problems))


def bad_parameter(name: str, code: str, text: str) -> InvalidInput:
    """Return the refusal of one query parameter."""
    return InvalidInput(text, problems=((f"?{name}", code, text),))


def whole_number(query: QueryDict, name: str, *, default: int, least: int, most: int) -> int:
    """Return a query parameter that is a whole number.

    Raises:
        InvalidInput: it is none, or out of bounds.
    """
    text = query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and least <= int(text) <= most):
        raise bad_parameter(name, "out_of_range", f"`{name}` must be a whole number from {least} to {most}.")
    return int(text)


def words(query: QueryDict, name: str) -> list[str]:
    """Return the values of a query parameter, separated by commas; none when it is not there."""
    text = query.get(name)
    if text is None:
        return []
    if "\0" in text:
        raise bad_parameter(name, "bad_text", f"`{name}` must not hold NUL characters.")
    return [word.strip() for word in str(text).split(",")]


def filters(query: QueryDict, known: Mapping[str, str]) -> dict[str, Any]:
    """Return the lookups of the filters given; several values are separated by commas."""
    return {f"{lookup}__in": words(query, name) for name, lookup in known.items() if name in query}


def encode(handle: str) -> str:
    """Return the opaque cursor that stands for the last row of a page."""
    return base64.urlsafe_b64encode(handle.encode()).decode().rstrip("=")


def decode(cursor: str) -> str:
    """Return the handle in a cursor.

    Raises:
        InvalidInput: it is no cursor of ours.
    """
    try:
        handle = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode("ascii")
    except (binascii.Error, ValueError):
        handle = ""
    if not _HANDLE.match(handle):
        raise bad_parameter("cursor", "bad_cursor", "`cursor` must be what `next` of an earlier page said.")
    return handle


def newest_first(rows: QuerySet[Any], query: QueryDict, limit: int) -> Page:
    """Return a page of rows that have handles, newest first."""
    cursor = query.get("cursor")
    if cursor:
        handle = decode(cursor)
        last = rows.model.objects.filter(handle=handle).values_list("pk", flat=True).first()
        # A row that was pruned meanwhile still has its place by its handle, which sorts by time.
        rows = rows.filter(handle__lt=handle) if last is None else rows.filter(pk__lt=last)
    found: list[Model] = list(rows.order_by("-pk")[: limit + 1])
    more = len(found) > limit
    return Page(found[:limit], encode(found[limit - 1].handle) if more else None)  # type: ignore[attr-defined]  # all have one
