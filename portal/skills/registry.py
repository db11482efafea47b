"""The registry: a skill is a name, a typed input, a typed output, scopes and a verb."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from pydantic import BaseModel

from orchestrator.reach import places_of
from portal.skills.bounds import LIMIT_BYTES
from providers.errors import NotAuthorized, NotFound
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
    token: str = ""
    """Handle of the API token that calls; empty for a person who is signed in."""
    systems: frozenset[str] | None = None
    """The only systems it may use and see; None = every one of the user's."""

    attended: bool = False
    """A person sits at the client that calls: what they answer there is their own."""

    def reaches(self, system: str | None) -> bool:
        """Return whether something at this system, or at none, is the caller's to see."""
        return self.systems is None or not system or system in self.systems

    def may(self, scope: Scope) -> bool:
        """Return whether the caller holds a scope."""
        return scope in self.scopes or Scope.ADMIN in self.scopes


@dataclass(frozen=True, slots=True)
class Options:
    """What a call may ask besides its input; REST takes them as query parameters of the same names."""

    full: bool = False
    """Everything, however long; else at most `room`."""
    room: int = LIMIT_BYTES
    """How long an answer may be as JSON, bytes."""
    wait_s: float = 15.0
    """How long to wait for the site's own answer, 0..50."""
    created: Callable[[str], None] | None = None
    """Called with the handle of what is made, inside the transaction that makes it."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call: by whom, when, how."""

    caller: Caller
    now: datetime
    options: Options = Options()


@dataclass(frozen=True, slots=True)
class Answer:
    """What a skill answers: a value, and for REST the status and headers it means."""

    value: BaseModel
    status: int = 200
    location: str | None = None


Verb = Callable[[Any, Call], Answer]


@dataclass(frozen=True, slots=True)
class Skill:
    """One skill."""

    name: str
    summary: str
    input: type[BaseModel]
    output: type[BaseModel]
    scopes: tuple[Scope, ...]
    """Any one of these lets a caller use it."""
    verb: Verb
    side_effects: bool = False
    creates: bool = False
    """A POST that creates takes an Idempotency-Key."""
    statuses: tuple[int, ...] = (200,)
    """How it may answer when all is well, as HTTP says it."""
    resume: "Callable[[str, Call], Answer] | None" = None
    """Answer for what an earlier request made before it died; needed by whoever calls `options.created`."""
    waits: bool = False
    """Takes `wait_s`."""
    input_schema: Callable[[], dict[str, Any]] | None = None

    def schema_in(self) -> dict[str, Any]:
        """Return the JSON Schema of the input."""
        return self.input_schema() if self.input_schema else self.input.model_json_schema()

    def schema_out(self) -> dict[str, Any]:
        """Return the JSON Schema of the output."""
        return self.output.model_json_schema(mode="serialization", by_alias=True)

    def call(self, given: object, caller: Caller, *, now: datetime, options: Options | None = None) -> Answer:
        """Check the scope, read the input and run the verb.

        Raises:
            FacetError: whatever the caller, the input or the verb deserves.
        """
        return self.verb(self.taken(given, caller), Call(caller, now, options or Options()))

    def taken(self, given: object, caller: Caller) -> Any:
        """Check the scope and return the input, read.

        Raises:
            FacetError: whatever the caller or the input deserves.
        """
        require(caller, *self.scopes)
        value = read(self.input, given, what=f"{self.name} input")
        for name in _NAMING:
            check_reach(caller, getattr(value, name, None), name=name)
        return value


_NAMING = ("task", "group", "attempt", "transfer", "subject", "like", "approval")
"""Members of a skill's input that name something which lies at a system."""


def check_reach(caller: Caller, handle: object, *, name: str) -> None:
    """Refuse what lies outside the systems of a narrowed token, as if it were not there.

    Raises:
        NotFound: it lies at another system.
    """
    if caller.systems is None or not isinstance(handle, str):
        return
    if not places_of(caller.user, handle) <= caller.systems:
        raise NotFound(f"No {name} {handle[:80]!r}.", pointer=f"/{name}")


def require(caller: Caller, *scopes: Scope) -> None:
    """Do nothing when the caller holds any one of these scopes.

    Raises:
        NotAuthorized: naming the missing scope.
    """
    if any(caller.may(scope) for scope in scopes):
        return
    wanted = " or ".join(f"`{scope}`" for scope in scopes)
    held = ", ".join(sorted(caller.scopes)) or "none"
    raise NotAuthorized(
        f"This needs the scope {wanted}; the token holds: {held}.",
        remediation=f"Make a token that has the scope {wanted}.",
        missing_scope=scopes[0].value,
    )


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


def describe(one: Skill) -> Mapping[str, Any]:
    """Return a skill as data."""
    return {
        "name": one.name,
        "summary": one.summary,
        "input_schema": one.schema_in(),
        "output_schema": one.schema_out(),
        "scopes": [scope.value for scope in one.scopes],
        "side_effects": one.side_effects,
    }


def described() -> list[Mapping[str, Any]]:
    """Return the whole registry as data."""
    return [describe(each) for each in SKILLS.values()]
