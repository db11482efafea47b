"""The schemas that an OpenAPI document shares between its operations, by name."""

import json
from collections.abc import Mapping
from typing import Any, TypeAlias

from pydantic import BaseModel

Json: TypeAlias = dict[str, Any]


class Schemas:
    """The shared schemas, by name; two of one name that differ get different names."""

    def __init__(self) -> None:
        self.kept: dict[str, Json] = {}
        self._raw: dict[str, str] = {}

    def of(self, model: type[BaseModel], name: str = "") -> Json:
        """Return a reference to what a model looks like when sent."""
        return self.add(model.model_json_schema(mode="serialization", by_alias=True), name or model.__name__)

    def add(self, schema: Json, name: str) -> Json:
        """Keep a schema, its definitions included, and return a reference to it."""
        names = {inner: self._name(inner, content) for inner, content in schema.get("$defs", {}).items()}
        for inner, content in schema.get("$defs", {}).items():
            self.kept[names[inner]] = _renamed(content, names)
        own = {key: value for key, value in schema.items() if key != "$defs"}
        kept_as = self._name(name, own)
        self.kept[kept_as] = _renamed(own, names)
        return {"$ref": f"#/components/schemas/{kept_as}"}

    def _name(self, wanted: str, content: Json) -> str:
        raw, number, name = json.dumps(content, sort_keys=True), 1, wanted
        while self._raw.get(name, raw) != raw:
            number += 1
            name = f"{wanted}{number}"
        self._raw[name] = raw
        return name


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        renamed = {key: _renamed(inner, names) for key, inner in value.items()}
        reference = value.get("$ref")
        if isinstance(reference, str) and reference.startswith("#/$defs/"):
            renamed["$ref"] = "#/components/schemas/" + names[reference.removeprefix("#/$defs/")]
        return renamed
    return [_renamed(inner, names) for inner in value] if isinstance(value, list) else value
