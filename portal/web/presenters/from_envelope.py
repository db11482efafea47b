"""The envelope field by field: as it was written, and as it was understood. Pure."""

from collections.abc import Mapping
from typing import Any

from portal.web.presenters.tasks import EnvelopeLine
from portal.web.templatetags.units import duration, memory

ORDER = (
    "gpus",
    "cpus",
    "nodes",
    "memory_mib",
    "walltime_s",
    "architecture",
    "accelerator.types",
    "accelerator.vendor",
    "accelerator.min_memory_mib",
)
NOT_SHOWN = frozenset({"source", "confidence", "rationale", "original", "script", "dialect"})


def envelope_lines(
    original: Mapping[str, Any] | None, body: Mapping[str, Any], rationale: Mapping[str, str]
) -> tuple[EnvelopeLine, ...]:
    """Return the fields that either form speaks of: sizes first, then the rest by name."""
    written, understood = flat(original or {}), flat(body)
    names = sorted(written.keys() | understood.keys(), key=lambda name: (_place(name), name))
    lines = (
        EnvelopeLine(
            name=name,
            original=plain(written.get(name)),
            normalized=readable(name, understood.get(name)),
            rationale=_why(name, rationale),
        )
        for name in names
    )
    return tuple(line for line in lines if line.original or line.normalized)


def _place(name: str) -> int:
    return ORDER.index(name) if name in ORDER else len(ORDER)


def _why(name: str, rationale: Mapping[str, str]) -> str:
    return rationale.get(name) or rationale.get(name.partition(".")[0], "")


def flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the leaves by dotted name; a range {min, max} is a leaf, and so is a list."""
    leaves: dict[str, Any] = {}
    for key, inner in value.items():
        name = f"{prefix}{key}"
        if name in NOT_SHOWN:
            continue
        if isinstance(inner, Mapping) and set(inner) != {"min", "max"}:
            leaves |= flat(inner, f"{name}.")
        else:
            leaves[name] = inner
    return leaves


def plain(value: Any) -> str:
    """Return a leaf as it was written: "2 … 4", "a100, h100"; "" for nothing."""
    if value is None or value in ([], {}, ""):
        return ""
    if isinstance(value, Mapping):
        low, high = value["min"], value["max"]
        return str(low) if low == high else f"{low} … {high}"
    if isinstance(value, list | tuple):
        return ", ".join(_item(item) for item in value)
    return str(value)


def _item(item: Any) -> str:
    return " ".join(str(part) for part in item.values() if part) if isinstance(item, Mapping) else str(item)


def readable(name: str, value: Any) -> str:
    """Return a normalized leaf with its unit in words: 3600 of `walltime_s` is "1 h"."""
    unit = duration if name.endswith("_s") else memory if name.endswith("_mib") else None
    if unit is None or value is None:
        return plain(value)
    if isinstance(value, Mapping):
        low, high = value["min"], value["max"]
        return unit(low) if low == high else f"{unit(low)} … {unit(high)}"
    return unit(value)
