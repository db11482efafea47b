"""Keeping answers short: what a model reads fits 16 KiB unless it asks for everything. Pure."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel

LIMIT_BYTES = 16_384
ASK_FOR_ALL = "Shortened to 16 KiB; ask with ?full=1 for everything."

T = TypeVar("T", bound=BaseModel)


def size(value: object) -> int:
    """Return the length of a value as JSON, bytes."""
    if isinstance(value, BaseModel):
        return len(value.model_dump_json(by_alias=True).encode())
    return len(json.dumps(value, default=str, ensure_ascii=False, separators=(",", ":")).encode())


def fitting(items: Sequence[T], room: int) -> list[T]:
    """Return the first items whose JSON fits into `room` bytes, at least one where there is one."""
    kept: list[T] = []
    for item in items:
        room -= size(item) + 1
        if room < 0 and kept:
            break
        kept.append(item)
    return kept


def shortened(body: Mapping[str, Any], room: int) -> dict[str, Any]:
    """Return a decision in at most `room` bytes where that can be.

    Every candidate stays, with the rule and code of each rejection. What goes first is what helps least: the
    sizes tried, the sizing of rejected candidates, long remedies, the estimates of those far behind, remedies
    (last those of the nearest); what was required and observed goes only when all that was not enough.
    """
    short = dict(body)
    for version in _versions(body):
        short = version
        if size(short) <= room:
            return short
    return short


def _versions(body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    yield dict(body)
    told = {**body, "warnings": [*body["warnings"], ASK_FOR_ALL]}
    candidates = [dict(candidate) for candidate in body["candidates"]]
    for candidate in candidates:
        if candidate.get("sizing"):
            candidate["sizing"] = {**candidate["sizing"], "tried": []}
    yield {**told, "candidates": candidates}
    candidates = [c if c["feasible"] else {**c, "sizing": None, "estimates": None} for c in candidates]
    yield {**told, "candidates": candidates}
    candidates = [_with_remedies(candidate, 80) for candidate in candidates]
    yield {**told, "candidates": candidates}
    for rank in (10, 3):
        candidates = [c if (c["rank"] or 0) <= rank else {**c, **_UNSIZED} for c in candidates]
        yield {**told, "candidates": [_known(candidate) for candidate in candidates]}
    candidates = [_known(candidate) for candidate in candidates]
    near = _nearest(candidates)
    far = [c if index in near else _with_remedies(c, 0) for index, c in enumerate(candidates)]
    yield {**told, "candidates": far}
    yield {**told, "candidates": [_with_remedies(candidate, 0) for candidate in candidates]}
    far = [_with_remedies(c, 0) if index in near else _codes_only(c) for index, c in enumerate(candidates)]
    yield {**told, "candidates": far}
    yield {**told, "candidates": [_codes_only(candidate) for candidate in candidates]}


def _nearest(candidates: Sequence[Mapping[str, Any]]) -> frozenset[int]:
    """Return the places of those that the fewest rules are against: their reasons help most."""
    places = sorted(range(len(candidates)), key=lambda index: (len(candidates[index]["rejections"]), index))
    return frozenset(places[:_NEAREST])


_NEAREST = 10
_UNSIZED: Mapping[str, None] = {"sizing": None, "estimates": None, "shape": None}


def _with_remedies(candidate: Mapping[str, Any], length: int) -> dict[str, Any]:
    """Return a candidate with its remedies cut; null where no length is left."""
    rejections = [
        {**each, "remedy": _cut(each["remedy"], length) if length else None}
        for each in candidate["rejections"]
    ]
    return {**candidate, "rejections": rejections}


def _known(candidate: Mapping[str, Any]) -> dict[str, Any]:
    """Return a candidate without what is null."""
    return {name: value for name, value in candidate.items() if value is not None}


def _codes_only(candidate: Mapping[str, Any]) -> dict[str, Any]:
    codes = [{"rule": each["rule"], "code": each["code"]} for each in candidate["rejections"]]
    return _known({**candidate, "rejections": codes})


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
