"""Reading a site profile from YAML; every fault names its line and column. Pure."""

from collections.abc import Hashable, Sequence
from typing import Any

import yaml
from pydantic import ValidationError

from federation.profile import ProfileDocument
from federation.profile_faults import explained
from providers.errors import ProfileInvalid
from providers.reading import problems

_MAX_BYTES = 512 * 1024


class _Loader(yaml.SafeLoader):
    """YAML without surprises: duplicate keys and aliases are errors, times stay text."""

    def compose_node(self, parent: Any, index: Any) -> Any:  # PyYAML's signature
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]  # PyYAML has no types here
            raise yaml.constructor.ConstructorError(None, None, "aliases are not allowed", event.start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002  # PyYAML's signature
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(
                    None, None, "a key must be a plain word", key_node.start_mark
                )
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} stands here twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


# `12:00:00` must stay text (YAML 1.1 would read it as a base-60 number), and dates are read by the schema.
_Loader.yaml_implicit_resolvers = {
    first: [
        (tag, pattern)
        for tag, pattern in resolvers
        if tag not in ("tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
    ]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_profile(text: str, *, source: str = "profile") -> ProfileDocument:
    """Return the profile that a YAML text describes.

    Raises:
        ProfileInvalid: `problems` holds every fault, each message beginning `line L, column C`; the facts
            `line` and `column` (from 1) are those of the first.
    """
    if len(text.encode(errors="replace")) > _MAX_BYTES:
        raise _invalid(source, "profile", f"it is longer than {_MAX_BYTES // 1024} KiB", 1, 1)
    try:
        root, given = _parsed(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        raise _invalid(source, "yaml", _yaml_words(error), line, column) from None
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        message = f"the character U+{ord(text[error.position]):04X} is not allowed in YAML"
        raise _invalid(source, "yaml", message, line, column) from None
    except RecursionError:
        raise _invalid(source, "yaml", "it is nested too deeply", 1, 1) from None
    if not isinstance(given, dict):
        line, column = _mark(root, ())
        message = "a profile is a mapping of fields, such as `system: delta` in its first line"
        raise _invalid(source, "not_a_mapping", message, line, column)
    return _validated(given, root, source)


def _parsed(text: str) -> tuple[yaml.Node | None, Any]:
    """Return the tree with its places, and what it holds."""
    loader = _Loader(text)
    try:
        root = loader.get_single_node()
        return root, loader.construct_document(root) if root is not None else None
    finally:
        loader.dispose()


def _yaml_words(error: yaml.MarkedYAMLError) -> str:
    """Return PyYAML's problem, with the fix where a profile's writer is likely to need it."""
    problem = error.problem or "this is not YAML"
    if "'\\t'" in problem:
        return "a tab stands here; indent with spaces"
    if "mapping values are not allowed" in problem:
        return f"{problem}; quote a text that holds `: `, and check the indentation"
    return problem


def _invalid(source: str, code: str, message: str, line: int, column: int) -> ProfileInvalid:
    """Return the error for one fault."""
    return _all_invalid(source, [(line, column, "", code, message)])


def _all_invalid(source: str, faults: list[tuple[int, int, str, str, str]]) -> ProfileInvalid:
    """Return the error for faults (line, column, JSON pointer, code, message), in the order of the text."""
    faults = sorted(faults, key=lambda each: each[:2])
    line, column, _, _, first = faults[0]
    count = f"{len(faults)} fault{'s' if len(faults) > 1 else ''}"
    return ProfileInvalid(
        f"{source} has {count}; line {line}, column {column}: {first}",
        problems=tuple(
            (where, code, f"line {at}, column {col}: {message}") for at, col, where, code, message in faults
        ),
        line=line,
        column=column,
    )


def _validated(given: dict[Any, Any], root: yaml.Node | None, source: str) -> ProfileDocument:
    try:
        return ProfileDocument.model_validate(given)
    except ValidationError as error:
        faults = []
        for fault, (where, code, message) in zip(
            error.errors(include_url=False), problems(ProfileDocument, error), strict=True
        ):
            line, column = _mark(root, fault["loc"])
            faults.append((line, column, where, code, explained(fault) or message))
        raise _all_invalid(source, faults) from None


def _mark(node: yaml.Node | None, path: Sequence[int | str]) -> tuple[int, int]:
    """Return line and column (from 1) of a place, or of the nearest thing that holds it."""
    mark = node.start_mark if node else None
    for step in path:
        following, key_mark = _inside(node, step)
        if following is None:
            break
        node, mark = following, key_mark
    return (mark.line + 1, mark.column + 1) if mark else (1, 1)


def _inside(node: yaml.Node | None, step: int | str) -> tuple[yaml.Node | None, Any]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == str(step):
                return value, key.start_mark
    elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        return node.value[step], node.value[step].start_mark
    return None, None
