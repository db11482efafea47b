"""The skill bundle for coding agents: made from the registry and texts of ours, the same bytes every time.

Its version is the digest of its content, so it changes exactly when a skill or a text does.
"""

import hashlib
import io
import json
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

NAME = "facet"
TEXTS = Path(__file__).resolve().parent.parent / "templates" / "bundle"
_VERSION = "@VERSION@"
_HEAD = """# Skills

Called with `POST $FACET_URL/api/v1/skills/NAME` and a JSON object.
`envelope` is told in [envelope.md](envelope.md); other objects at the end of this page."""
_LONG_AGO = (1980, 1, 1, 0, 0, 0)
"""A zip file cannot tell an earlier time; the time of making must not change the bytes."""


@cache
def texts() -> Mapping[str, str]:
    """Return the hand-written files of the bundle by their path in it."""
    found = sorted(path for path in TEXTS.rglob("*") if path.is_file())
    return {path.relative_to(TEXTS).as_posix(): path.read_text(encoding="utf-8") for path in found}


def files(skills: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return every file of the bundle by its path under `facet/`.

    Args:
        skills: the registry as data (`portal.skills.registry.described`).
    """
    skills = sorted(skills, key=lambda skill: str(skill["name"]))  # the order of import must not matter
    made = {**texts(), "references/skills.md": reference(skills)}
    for skill in skills:
        schemas = {name: skill[name] for name in ("input_schema", "output_schema")}
        made[f"references/schemas/{skill['name']}.json"] = (
            json.dumps(schemas, indent=1, sort_keys=True) + "\n"
        )
    version = version_of(made)
    return {path: made[path].replace(_VERSION, version) for path in sorted(made)}


def version_of(made: Mapping[str, str]) -> str:
    """Return the version of some files: twelve hex digits of the digest of their names and content."""
    digest = hashlib.sha256()
    for path in sorted(made):
        content = made[path].encode()
        digest.update(f"{path}\n{len(content)}\n".encode() + content)
    return digest.hexdigest()[:12]


def archive(skills: Sequence[Mapping[str, Any]]) -> bytes:
    """Return the bundle as a zip file; the same skills give the same bytes."""
    kept = io.BytesIO()
    with zipfile.ZipFile(kept, "w") as made:
        for path, content in files(skills).items():
            entry = zipfile.ZipInfo(f"{NAME}/{path}", _LONG_AGO)
            mode = 0o755 if path.startswith("scripts/") else 0o644
            entry.create_system = 3  # Unix, wherever it is made
            entry.external_attr = (0o100000 | mode) << 16
            # Stored, not deflated: another zlib would give other bytes.
            made.writestr(entry, content.encode(), compress_type=zipfile.ZIP_STORED)
    return kept.getvalue()


def reference(skills: Sequence[Mapping[str, Any]]) -> str:
    """Return the page that lists every skill with its fields, and the objects that the fields hold."""
    parts = [_HEAD, *(_described(skill) for skill in skills)]
    parts += ["# Objects", *(_object(name, schema) for name, schema in _objects(skills))]
    return "\n\n".join(parts) + "\n"


def _described(skill: Mapping[str, Any]) -> str:
    scopes = " or ".join(f"`{scope}`" for scope in skill["scopes"])
    effect = "changes something: send an `Idempotency-Key`" if skill["side_effects"] else "changes nothing"
    lines = [
        f"## {skill['name']}",
        "",
        skill["summary"],
        "",
        f"Scope {scopes}; {effect}. Schemas: [schemas/{skill['name']}.json](schemas/{skill['name']}.json).",
        *_table(skill["input_schema"]),
    ]
    answers = [
        ", ".join(f"`{name}`" for name, _, _ in _fields(each, skill["output_schema"]))
        for each in _alternatives(skill["output_schema"])
    ]
    told = ";\nor with ".join(each for each in answers if each)
    return "\n".join([*lines, "", f"Answers with {told}." if told else "Answers with an object."])


def _objects(skills: Iterable[Mapping[str, Any]]) -> list[tuple[str, Mapping[str, Any]]]:
    """Return name and schema of each object that an input holds; words stand with their fields."""
    found = {
        name: {**schema, "$defs": skill["input_schema"]["$defs"]}
        for skill in skills
        for name, schema in skill["input_schema"].get("$defs", {}).items()
        if schema.get("properties")
    }
    return sorted(found.items())


def _object(name: str, schema: Mapping[str, Any]) -> str:
    return "\n".join([f"## {name}", "", _cell(schema.get("description", "")), *_table(schema)])


def _table(schema: Mapping[str, Any]) -> list[str]:
    fields = [field for each in _alternatives(schema)[:1] for field in _fields(each, schema)]
    rows = [f"| `{name}` | {kind} | {meaning} |" for name, kind, meaning in fields]
    return ["", "| field | type | meaning |", "|---|---|---|", *rows] if rows else []


def _alternatives(schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return (
        [schema] if "properties" in schema else [_resolved(each, schema) for each in schema.get("anyOf", ())]
    )


def _resolved(field: Mapping[str, Any], whole: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = whole.get("$defs", {}).get(_named(field), field)
    return found


def _named(field: Mapping[str, Any]) -> str:
    return str(field.get("$ref", "")).rpartition("/")[2]


def _fields(body: Mapping[str, Any], whole: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return name, type and meaning of each field."""
    needed = set(body.get("required", ()))
    return [
        (
            name,
            _kind(each, whole) + (", needed" if name in needed else ""),
            _cell(each.get("description") or _resolved(each, whole).get("description", "")),
        )
        for name, each in body.get("properties", {}).items()
    ]


def _kind(field: Mapping[str, Any], whole: Mapping[str, Any]) -> str:
    name, field = _named(field), _resolved(field, whole)
    if "enum" in field:
        return "one of " + ", ".join(f"`{word}`" for word in field["enum"])
    if "anyOf" in field:
        kinds = [_kind(each, whole) for each in field["anyOf"] if each.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds)) or "null"
    if field.get("type") == "array":
        return f"list of {_kind(field.get('items', {}), whole)}"
    if name and "properties" in field:
        return f"object `{name}`"
    kind = field.get("type", "any")
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
