"""What a caller may say of a group, and the children it becomes. Pure."""

import itertools
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, StrictInt, model_validator

from orchestrator.budget_input import BudgetInput, Project
from orchestrator.plain_text import one_line
from providers.errors import InvalidInput
from providers.reading import nearest
from providers.types import Frozen

MAX_CHILDREN = 1000
Scalar = str | int | float | bool


class ChildInput(Frozen):
    """One child: a task input, its place among the others."""

    model_config = Frozen.model_config | {"extra": "allow"}
    key: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,39}$")] | None = Field(
        None, description="Its name among the siblings; the number in the list when absent."
    )
    round: StrictInt = Field(1, ge=1, le=100, description="Begins when the round before it has ended.")
    after: tuple[str, ...] = Field((), description="Keys of siblings that must have succeeded first.")


_PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,39}")
"""As `{name}` in the task, and as the variable FACET_NAME."""


class MatrixInput(Frozen):
    """A parameter sweep: one task per combination, `{name}` replaced in every string of the task."""

    task: dict[str, Any] = Field(description="A task input, as `submit_task` takes it.")
    parameters: dict[str, tuple[Scalar, ...]] = Field(
        min_length=1, max_length=100, description="By name, the values to combine."
    )


class GroupInput(Frozen):
    """Tasks with one objective, answered for as one."""

    name: Annotated[str, AfterValidator(one_line)] = Field("", max_length=120)
    objective: str = Field("", max_length=4000)
    envelope: dict[str, Any] = Field(default_factory=dict, description="What children leave unsaid.")
    policy: dict[str, Any] = Field(default_factory=dict, description="Of the envelope, for every child.")
    children: tuple[ChildInput, ...] = Field((), description="Either these or `matrix`.")
    matrix: MatrixInput | None = None
    budget: BudgetInput | None = Field(None, description="What all children together may use at most.")
    project: Project | None = Field(None, description="What children leave unsaid.")
    diversity: Literal["none", "soft", "hard"] = "none"
    require: Literal["all", "any"] | StrictInt = Field(
        "all", description="Children of a round that must have ended before the next: all, any, or a number."
    )

    @model_validator(mode="after")
    def _has_children(self) -> Self:
        if bool(self.children) == (self.matrix is not None):
            raise ValueError("give either `children` or `matrix`")
        if isinstance(self.require, int) and self.require < 1:
            raise ValueError("`require` must be `all`, `any` or a number from 1")
        return self


class ChildSpec(Frozen):
    """One child ready to be read as a task input."""

    key: str
    round: int
    after: tuple[str, ...]
    pointer: str
    task: dict[str, Any]


def children_of(group: GroupInput) -> tuple[ChildSpec, ...]:
    """Return the children with the shared envelope and policy filled in.

    Raises:
        InvalidInput: too many, a key used twice, an unknown sibling, or siblings that wait for each other.
    """
    shared_policy = group.envelope.get("policy")
    if shared_policy is not None and not isinstance(shared_policy, dict):
        _refuse("/envelope/policy", "wrong_type", "must be an object")
    found = tuple(_matrix(group, group.matrix) if group.matrix is not None else _listed(group))
    if len(found) > MAX_CHILDREN:
        _refuse("/matrix" if group.matrix else "/children", "too_many", f"at most {MAX_CHILDREN} children")
    _check_names(found)
    _check_order(found)
    return found


def _listed(group: GroupInput) -> Iterator[ChildSpec]:
    for number, child in enumerate(group.children):
        yield ChildSpec(
            key=child.key or str(number + 1),
            round=child.round,
            after=child.after,
            pointer=f"/children/{number}",
            task=_shared(group, dict(child.model_extra or {}), f"/children/{number}"),
        )


def _matrix(group: GroupInput, matrix: MatrixInput) -> Iterator[ChildSpec]:
    names = list(matrix.parameters)
    for name in names:
        if not _PARAMETER.fullmatch(name):
            message = f"`{name[:80]}` is no parameter's name (letters, digits, underscore; at most 40)"
            _refuse(f"/matrix/parameters/{name}" if name else "/matrix/parameters", "bad_name", message)
    size = 1
    for name in names:
        size *= len(matrix.parameters[name])
    if size > MAX_CHILDREN or size == 0:
        _refuse(
            "/matrix/parameters", "too_many", f"{size} combinations; from 1 to {MAX_CHILDREN} are possible"
        )
    for number, values in enumerate(itertools.product(*(matrix.parameters[name] for name in names))):
        chosen = dict(zip(names, values, strict=True))
        task = _filled(matrix.task, chosen)
        environment = task.setdefault("environment", {})
        given = environment.setdefault("variables", {}) if isinstance(environment, dict) else None
        if isinstance(given, dict):  # anything else is refused when the child is read
            variables = {f"FACET_{name.upper()}": _text(value) for name, value in chosen.items()}
            environment["variables"] = {**variables, **given}
        yield ChildSpec(
            key=str(number + 1),
            round=1,
            after=(),
            pointer="/matrix/task",
            task=_shared(group, task, "/matrix/task"),
        )


def _text(value: Scalar) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _filled(value: Any, chosen: Mapping[str, Scalar]) -> Any:
    """Return a JSON value with `{name}` replaced in every string."""
    if isinstance(value, str):
        for name, replacement in chosen.items():
            value = value.replace("{" + name + "}", _text(replacement))
        return value
    if isinstance(value, list | tuple):
        return [_filled(item, chosen) for item in value]
    if isinstance(value, dict):
        return {key: _filled(item, chosen) for key, item in value.items()}
    return value


def _shared(group: GroupInput, task: dict[str, Any], pointer: str) -> dict[str, Any]:
    """Return a child's task input; its own envelope fields win over the group's."""
    if task.get("group") is not None:
        _refuse(f"{pointer}/group", "in_a_group", "a child belongs to this group; leave the field out")
    own = task.get("envelope")
    own_policy = own.get("policy") if isinstance(own, dict) else None
    if own_policy is not None and not isinstance(own_policy, dict):
        _refuse(f"{pointer}/envelope/policy", "wrong_type", "must be an object")
    if group.project is not None and task.get("project") is None:
        task = {**task, "project": group.project}
    if task.get("envelope_id") is not None or (own is not None and not isinstance(own, dict)):
        return task
    envelope = {**group.envelope, **(own or {})}
    policy = {**group.policy, **_policy(group.envelope), **_policy(own or {})}
    if policy:
        envelope["policy"] = policy
    return {**task, "envelope": envelope}


def _policy(envelope: Mapping[str, Any]) -> dict[str, Any]:
    given = envelope.get("policy")
    return dict(given) if isinstance(given, dict) else {}


def _check_names(children: tuple[ChildSpec, ...]) -> None:
    keys = Counter(child.key for child in children)
    for child in children:
        if keys[child.key] > 1:
            _refuse(f"{child.pointer}/key", "duplicate", f"the key `{child.key}` is used twice")
        for number, key in enumerate(child.after):
            if key not in keys:
                hint = nearest(key, keys)
                _refuse(f"{child.pointer}/after/{number}", "unknown_sibling", f"no sibling `{key}`.{hint}")


def _check_order(children: tuple[ChildSpec, ...]) -> None:
    """Refuse siblings that wait for each other, and a child that waits for a later round."""
    by_key = {child.key: child for child in children}
    settled: set[str] = set()
    left = dict(by_key)
    while left:
        ready = [key for key, child in left.items() if set(child.after) <= settled]
        if not ready:
            names = ", ".join(sorted(left)[:5])
            _refuse("/children", "circle", f"these children wait for each other: {names}")
        settled.update(ready)
        for key in ready:
            del left[key]
    for child in children:
        for key in child.after:
            if by_key[key].round > child.round:
                message = (
                    f"`{child.key}` of round {child.round} waits for `{key}` of round {by_key[key].round}"
                )
                _refuse(f"{child.pointer}/after", "later_round", message)


def _refuse(pointer: str, code: str, message: str) -> None:
    raise InvalidInput(
        f"The group is not valid: {message.rstrip('.')}.", problems=((pointer, code, message),)
    )
