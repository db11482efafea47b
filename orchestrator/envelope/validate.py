"""From JSON to an envelope: what was said (`read_envelope_input`), and the whole of it (`read_envelope`).

All faults are reported at once, each with the JSON pointer of its field. `null` means silent.
"""

import math
from collections.abc import Callable, Collection, Mapping
from typing import cast

from pydantic import JsonValue

from orchestrator.envelope.faults import Faults, shown, step
from orchestrator.envelope.fields import Reader
from orchestrator.envelope.normalize import normalize
from orchestrator.envelope.parts import (
    ARCHITECTURE_ALIASES,
    ARCHITECTURES,
    read_accelerator,
    read_container,
    read_data,
    read_objective,
    read_policy,
    read_runtime,
    read_software,
)
from orchestrator.envelope.types import Envelope, EnvelopeInput

SOURCES = ("user", "script", "llm", "rules")
MAX_DEPTH = 40
MAX_VALUES = 20_000

_Read = Callable[[Reader, object, str], object]


def _words(reader: Reader, value: object, pointer: str) -> object:
    return reader.words(value, pointer, reader.capability, "capability words")


def _architectures(reader: Reader, value: object, pointer: str) -> object:
    def one(item: object, at: str) -> str | None:
        return reader.known_word(item, at, ARCHITECTURES, "unknown_architecture", ARCHITECTURE_ALIASES)

    return reader.words(value, pointer, one, "architectures")


def _counted(name: str) -> _Read:
    return lambda reader, value, pointer: reader.range(value, pointer, reader.counting(name))


def _source(reader: Reader, value: object, pointer: str) -> object:
    return reader.known_word(value, pointer, SOURCES, "unknown_source")


def _rationale(reader: Reader, value: object, pointer: str) -> object:
    if not isinstance(value, Mapping):
        reader.wrong_type(value, pointer, "an object of field: reason")
        return None
    if len(value) > 100:
        reader.faults.add(pointer, "too_many", f"{pointer} holds {len(value)} reasons; at most 100")
        return None
    found = {str(key): reader.text(text, step(pointer, key), limit=4000) for key, text in value.items()}
    return {key: text for key, text in found.items() if text is not None}


def _original(reader: Reader, value: object, pointer: str) -> object:
    if not isinstance(value, Mapping):
        reader.wrong_type(value, pointer, "an object")
        return None
    return dict(value)


_FIELDS: Mapping[str, _Read] = {
    "gpus": _counted("gpus"),
    "cpus": _counted("cpus"),
    "nodes": _counted("nodes"),
    "memory_mib": lambda reader, value, pointer: reader.range(value, pointer, reader.memory),
    "walltime_s": lambda reader, value, pointer: reader.range(value, pointer, reader.duration),
    "architecture": _architectures,
    "accelerator": read_accelerator,
    "container": read_container,
    "software": read_software,
    "network": _words,
    "filesystem": _words,
    "parallel": read_software,
    "data": read_data,
    "runtime": read_runtime,
    "policy": read_policy,
    "objective": read_objective,
    "source": _source,
    "confidence": lambda reader, value, pointer: reader.fraction(value, pointer),
    "rationale": _rationale,
    "original": _original,
}


def read_envelope_input(
    obj: object,
    *,
    pointer: str = "/envelope",
    known_accelerators: Collection[str] = (),
    known_objectives: Collection[str] = (),
    known_systems: Collection[str] | None = None,
) -> EnvelopeInput:
    """Return what the input says; what it leaves out stays None, so that a script may fill it.

    Args:
        obj: Decoded JSON, in any of the input spellings.
        pointer: Where the envelope stands in the caller's document.
        known_accelerators: Types besides the built-in ones (what the sites call theirs).
        known_objectives: Selection strategies besides the three objectives.
        known_systems: When given, other systems in the policy are faults.

    Raises:
        InvalidInput: with every fault as (JSON pointer, code, message).
    """
    faults = Faults()
    _check_json(faults, obj, pointer)
    faults.raise_if_any()
    reader = Reader(faults, known_accelerators, known_objectives, known_systems)
    members = reader.members(obj, pointer, tuple(_FIELDS)) or {}
    values = {name: _FIELDS[name](reader, value, step(pointer, name)) for name, value in members.items()}
    faults.raise_if_any()
    if "original" not in cast("Mapping[str, object]", obj):
        values["original"] = dict(cast("Mapping[str, JsonValue]", obj))
    return EnvelopeInput.model_validate(values)


def read_envelope(
    obj: object,
    *,
    pointer: str = "/envelope",
    known_accelerators: Collection[str] = (),
    known_objectives: Collection[str] = (),
    known_systems: Collection[str] | None = None,
) -> Envelope:
    """Return the normalized envelope of an input; its own JSON reads back as the same value.

    Takes and raises what `read_envelope_input` does; what cannot be true at once is a fault as well.
    """
    given = read_envelope_input(
        obj,
        pointer=pointer,
        known_accelerators=known_accelerators,
        known_objectives=known_objectives,
        known_systems=known_systems,
    )
    return normalize(given, pointer=pointer)


def _check_json(faults: Faults, obj: object, pointer: str) -> None:
    """Record everything that is not plain, finite, bounded JSON; walks without recursion."""
    waiting: list[tuple[object, str, int]] = [(obj, pointer, 0)]
    seen = 0
    while waiting:
        value, at, depth = waiting.pop()
        seen += 1
        if seen > MAX_VALUES or depth > MAX_DEPTH:
            limit = f"at most {MAX_VALUES} values, {MAX_DEPTH} levels deep"
            faults.add(pointer, "too_large", f"{pointer} is too large: {limit}")
            return
        if isinstance(value, Mapping):
            for key, member in value.items():
                if not isinstance(key, str) or _is_unpaired(key):
                    faults.add(at, "not_json", f"{at}: a key must be text, not {shown(key)}")
                else:
                    waiting.append((member, step(at, key), depth + 1))
        elif isinstance(value, list):
            waiting.extend((item, step(at, index), depth + 1) for index, item in enumerate(value))
        else:
            _check_scalar(faults, value, at)


def _check_scalar(faults: Faults, value: object, at: str) -> None:
    if value is None or isinstance(value, bool):
        return
    if isinstance(value, float) and not math.isfinite(value):
        faults.add(at, "not_finite", f"{at} is {value}; a finite number is needed")
    elif isinstance(value, int) and abs(value) > 10**40:
        faults.add(at, "too_large", f"{at} is a huge number; no job needs it")
    elif isinstance(value, str) and (_is_unpaired(value) or len(value) > 100_000):
        faults.add(at, "bad_text", f"{at} must be at most 100000 characters of valid Unicode")
    elif not isinstance(value, int | float | str):
        faults.add(at, "not_json", f"{at} holds a {type(value).__name__}, which JSON does not know")


def _is_unpaired(text: str) -> bool:
    """Return whether a text holds half a surrogate pair, which no UTF-8 can carry."""
    return any("\ud800" <= char <= "\udfff" for char in text)
