"""Lists that go on where they stopped: the cursor is the last row's handle, whatever the order."""

from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.parse import urlencode

from django.db.models import Model, Q, QuerySet

M = TypeVar("M", bound=Model)


def page_of(
    rows: QuerySet[M], *, cursor: str, size: int, order: str = "-id", mine: QuerySet[M] | None = None
) -> tuple[list[M], str | None]:
    """Return the rows after a cursor in an order, and the next cursor; None = these are the last.

    Args:
        rows: filtered rows of one user.
        cursor: handle of the row before the page; "" or one that is not there = from the beginning.
        size: rows of a page.
        order: a field, with "-" for descending; ties go by id in the same direction.
        mine: where the cursor's row is looked up: filters may have dropped it since. None = `rows`.
    """
    field = order.removeprefix("-")
    keys = [order] if field == "id" else [order, order[: -len(field)] + "id"]
    ordered = rows.order_by(*keys)
    at = (rows if mine is None else mine).filter(handle=cursor).first() if cursor else None
    if at is not None:
        ordered = ordered.filter(_beyond(at, field, "lt" if order.startswith("-") else "gt"))
    # What is on the page is found by the one table and its indexes, before all that a row shows is joined.
    keys_found = list(ordered.values_list("pk", flat=True)[: size + 1])
    by_key = {row.pk: row for row in rows.filter(pk__in=keys_found[:size])}
    found = [by_key[key] for key in keys_found[:size] if key in by_key]
    further = found[-1] if found and len(keys_found) > size else None
    return found, getattr(further, "handle", None)


def _beyond(at: Model, field: str, side: str) -> Q:
    value = getattr(at, field)
    beyond = Q(**{f"{field}__{side}": value})
    if field == "id":
        return beyond
    # The first bound says nothing new to a reader; it lets the database begin in its index at the row.
    return Q(**{f"{field}__{side}e": value}) & (beyond | Q(**{field: value, f"id__{side}": at.pk}))


def query_of(words: Mapping[str, Any], **more: str | None) -> str:
    """Return a query string of the words that say something."""
    return urlencode({name: word for name, word in {**words, **more}.items() if word})
