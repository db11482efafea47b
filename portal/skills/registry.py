"""The registry: a skill is a name, a typed input, a typed output, scopes and a verb."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from pydantic import BaseModel

from providers.errors import NotFound
from providers.reading import nearest, read


class Scope(StrEnum):
    """What a token may do; `admin` includes every other."""

    READ = "read"
    DRAFT = "draft"
    SUBMIT = "submit"
    MANAGE = "manage"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls: the user whose objects are meant, and who acts for them."""

    user: AbstractBaseUser
    actor: str
    """`user:NAME` or `token:NAME`."""
    scopes: frozenset[Scope]

    def may(self, scope: Scope) -> bool:
        """Return whether the caller holds a scope."""
        return scope in self.scopes or Scope.ADMIN in self.scopes


@dataclass(frozen=True, slots=True)
class Answer:
    """What a skill answers: a value, and for REST the status and headers it means."""

    value: BaseModel
    status: int = 200
    location: str | None = None


Verb = Callable[[Any, Caller, datetime], Answer]


@dataclass(frozen=True, slots=True)
class Skill:
    """One skill."""

    name: str
    summary: str
    input: type[BaseModel]
    output: type[BaseModel]
    scope: Scope
    verb: Verb
    side_effects: bool = False
    creates: bool = False
    """A POST that creates takes an Idempotency-Key."""
    input_schema: Callable[[], dict[str, Any]] | None = None

    def schema_in(self) -> dict[str, Any]:
        """Return the JSON Schema of the input."""
        return self.input_schema() if self.input_schema else self.input.model_json_schema()

    def schema_out(self) -> dict[str, Any]:
        """Return the JSON Schema of the output."""
        return self.output.model_json_schema(mode="serialization", by_alias=True)

    def call(self, given: object, caller: Caller, *, now: datetime) -> Answer:
        """Read the input and run the verb.

        Raises:
            FacetError: whatever the input or the verb deserves.
        """
        return self.verb(read(self.input, given, what=f"{self.name} input"), caller, now)


SKILLS: dict[str, Skill] = {}


def register(skill: Skill) -> Skill:
    """Add a skill; a second one of the same name is a programming error."""
    if skill.name in SKILLS:
        raise ValueError(f"skill {skill.name} is registered twice")
    SKILLS[skill.name] = skill
    return skill


def skill(name: str) -> Skill:
    """Return a skill by name.

    Raises:
        NotFound: there is none; names the nearest.
    """
    try:
        return SKILLS[name]
    except KeyError:
        raise NotFound(f"No skill `{name}`.{nearest(name, SKILLS)}") from None


def described() -> list[Mapping[str, Any]]:
    """Return the whole registry as data."""
    return [
        {
            "name": each.name,
            "summary": each.summary,
            "input_schema": each.schema_in(),
            "output_schema": each.schema_out(),
            "scopes": [each.scope.value],
            "side_effects": each.side_effects,
        }
        for each in SKILLS.values()
    ]
