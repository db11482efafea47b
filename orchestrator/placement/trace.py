"""Decisions as bytes: the same inputs give the same JSON, and a hash names the inputs.

JSON has sorted keys, no spaces, decimals as strings and instants as ISO 8601 in UTC.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from functools import cache
from hashlib import sha256

from pydantic import BaseModel, JsonValue

from federation.limit_use import UseOfLimits
from federation.types import ResourceRecord
from orchestrator.placement.types import Decision

_PLAIN = frozenset({type(None), bool, int, float, str})


@cache
def _names_of(kind: type) -> tuple[str, ...]:
    """Return the names of a dataclass's fields."""
    return tuple(each.name for each in fields(kind))


def canonical(value: object) -> JsonValue:
    """Return plain JSON for any value of the core; sets and mappings in sorted order.

    Raises:
        TypeError: the value is of no known kind.
    """
    if type(value) in _PLAIN:
        return value  # type: ignore[return-value]  # one of the plain types of JSON
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    return _canonical_many(value)


def _canonical_many(value: object) -> JsonValue:
    if isinstance(value, UseOfLimits):
        return value.digest
    if isinstance(value, BaseModel):
        return canonical(value.model_dump(by_alias=True))
    if is_dataclass(value) and not isinstance(value, type):
        return {name: canonical(getattr(value, name)) for name in _names_of(type(value))}
    if isinstance(value, Mapping):
        pairs = [(_word(key), canonical(each)) for key, each in value.items()]
        return dict(sorted(pairs, key=lambda pair: pair[0]))
    if isinstance(value, set | frozenset):
        return sorted((canonical(each) for each in value), key=str)
    if isinstance(value, tuple | list):
        return [canonical(each) for each in value]
    raise TypeError(type(value).__name__)


def _word(key: object) -> str:
    return "/".join(_word(part) for part in key) if isinstance(key, tuple) else str(canonical(key))


def encode(value: JsonValue) -> bytes:
    """Return JSON bytes in the one form used for storage and hashes."""
    return _dumped(value)


def _dumped(value: object) -> bytes:
    """Return the bytes of the canonical form, without building it for what JSON writes alike by itself."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=canonical
    ).encode()


def decision_json(decision: Decision) -> dict[str, JsonValue]:
    """Return a decision as plain JSON, with the field names of the public trace."""
    dumped = canonical(decision)
    if not isinstance(dumped, dict):
        raise TypeError(type(dumped).__name__)
    return dumped


def decision_bytes(decision: Decision) -> bytes:
    """Return a decision as canonical bytes."""
    return encode(decision_json(decision))


def digest(value: object) -> str:
    """Return the SHA-256 of a value's canonical bytes, in hexadecimal."""
    return sha256(encode(canonical(value))).hexdigest()


def record_digest(record: ResourceRecord, live_digest: str) -> str:
    """Return the digest of a record, its nodes and queue standing for themselves by their own digest."""
    values = {name: getattr(record, name) for name in _names_of(ResourceRecord)}
    del values["nodes"], values["queue"]
    if groups := values.pop("groups"):  # their jobs are the snapshot's
        values["groups"] = [replace(each, running=(), waiting=()) for each in groups]
    if values["circuit_open"] is None:
        del values["circuit_open"]  # a closed circuit is no input
    return sha256(_dumped({**values, "live": live_digest})).hexdigest()


def input_hash(parts: Mapping[str, object], record_digests: Iterable[str]) -> str:
    """Return the hash of everything a decision was made from."""
    return digest({**parts, "records": list(record_digests)})
