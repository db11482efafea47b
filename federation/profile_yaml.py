"""Reading a site profile from YAML; every fault names its line and column. Pure."""

from collections.abc import Hashable, Sequence
from typing import Any

import yaml
from pydantic import ValidationError

from federation.profile import ProfileDocument
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
    if len(text.encode()) > _MAX_BYTES:
        raise ProfileInvalid(f"{source} is longer than {_MAX_BYTES // 1024} KiB.", line=1, column=1)
    try:
        root = yaml.compose(text, Loader=_Loader)
        given = yaml.load(text, Loader=_Loader)  # noqa: S506  # a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        message = f"line {line}, column {column}: {error.problem or 'this is not YAML'}"
        raise ProfileInvalid(
            f"{source} is not valid YAML: {message}",
            problems=(("", "yaml", message),),
            line=line,
            column=column,
        ) from None
    except yaml.YAMLError as error:
        raise ProfileInvalid(f"{source} is not valid YAML: {error}", line=1, column=1) from None
    if not isinstance(given, dict):
        raise ProfileInvalid(f"{source} must be a mapping that begins with `system:`.", line=1, column=1)
    return _validated(given, root, source)


def _validated(given: dict[Any, Any], root: yaml.Node | None, source: str) -> ProfileDocument:
    try:
        return ProfileDocument.model_validate(given)
    except ValidationError as error:
        found = []
        for fault, (where, code, message) in zip(
            error.errors(include_url=False), problems(ProfileDocument, error), strict=True
        ):
            line, column = _mark(root, fault["loc"])
            found.append((line, column, where, code, message))
        found.sort(key=lambda each: (each[0], each[1]))
        line, column, _, _, first = found[0]
        raise ProfileInvalid(
            f"{source} has {len(found)} fault{'s' if len(found) > 1 else ''}; line {line}: {first}",
            problems=tuple(
                (where, code, f"line {at}, column {col}: {message}")
                for at, col, where, code, message in found
            ),
            line=line,
            column=column,
        ) from None


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
