"""What a caller may say of a task, and what it becomes. Pure."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from federation.event_types import EVENT_TYPES
from orchestrator.budget_input import BudgetInput, Project
from orchestrator.lifecycle import Cause
from orchestrator.plain_text import cleaned, one_line
from providers.dialects.scripts.types import Dialect
from providers.errors import InvalidInput
from providers.movers.places import read_place
from providers.reading import nearest
from providers.types import Frozen

_VARIABLE = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")
_MAX_SCRIPT_BYTES = 1024 * 1024

RETRIED_BY_DEFAULT = (Cause.NODE_FAILURE, Cause.PREEMPTED, Cause.LOST, Cause.DISPATCH_REJECTED)
"""What is no fault of the work itself."""


Line = Annotated[
    str, Field(max_length=500), BeforeValidator(lambda v: one_line(v) if isinstance(v, str) else v)
]


class EnvironmentInput(Frozen):
    """What is loaded before the work starts."""

    modules: tuple[Line, ...] = ()
    conda: Line | None = None
    container: Line | None = Field(None, description="Image; the runtime is the envelope's or the system's.")
    variables: dict[str, str] = Field(default_factory=dict)
    setup: tuple[Annotated[str, Field(max_length=4000)], ...] = Field(
        (), description="Shell lines run before the work."
    )

    @field_validator("variables")
    @classmethod
    def _names_are_variables(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            if not _VARIABLE.match(name):
                raise ValueError(f"`{name[:40]}` is not a variable name (letters, digits, underscore)")
            if "\0" in text:
                raise ValueError(f"the value of `{name[:40]}` holds a NUL byte")
        return value


class RetryInput(Frozen):
    """When to try again. Control-plane time-outs are never a reason."""

    max_attempts: int = Field(3, ge=1, le=20)
    on: tuple[Cause, ...] = RETRIED_BY_DEFAULT
    extend_walltime_factor: float = Field(1.5, ge=1, le=10, allow_inf_nan=False)


class ReplacementInput(Frozen):
    """Whether a waiting attempt may move to a system where it would end earlier."""

    enabled: bool = True
    min_gain_s: int = Field(120, ge=0, le=30 * 86_400)
    on_endpoint_loss: bool = Field(
        default=True, description="Also when its system cannot be seen any more, if it was last seen waiting."
    )


class HedgeInput(Frozen):
    """Whether to wait at two systems at once; both sites must allow it. The first start wins."""

    enabled: bool = False
    min_wait_s: int = Field(
        60, ge=0, le=30 * 86_400, description="Only where 9 of 10 such jobs may wait longer than this."
    )


class CheckpointInput(Frozen):
    """How the work saves itself before its wall time ends, and goes on from there in the next attempt."""

    signal: Literal["USR1", "USR2", "TERM", "INT", "HUP"] = Field(
        "USR1", description="Sent to the work itself (the batch shell, which becomes it where it can)."
    )
    before_s: int = Field(
        120, ge=1, le=65_535, description="Seconds before the end of the wall time; Slurm may be 60 s early."
    )
    resume: tuple[str, ...] | str | None = Field(
        None,
        description="Run instead of the work where an attempt goes on from a checkpoint; absent: the same "
        "work again. It finds FACET_RESUME=1 and FACET_CHECKPOINT_DIR.",
    )

    @field_validator("resume")
    @classmethod
    def _says_something(cls, value: tuple[str, ...] | str | None) -> tuple[str, ...] | str | None:
        words = (value,) if isinstance(value, str) else value
        if words is not None and (not words or not words[0].strip() or any("\0" in word for word in words)):
            raise ValueError("must be a command, without NUL bytes")
        return value


class ContinuationInput(Frozen):
    """Which events should wake whom."""

    on: tuple[str, ...] = Field(
        (), max_length=60, description="Event types; `task.*` means all of tasks. Empty: as subscribed."
    )
    subscriptions: tuple[str, ...] = Field(
        (), max_length=50, description="Subscriptions that are told of this task by `on`."
    )

    @field_validator("on")
    @classmethod
    def _are_event_types(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        known = {*EVENT_TYPES, *(f"{word.partition('.')[0]}.*" for word in EVENT_TYPES)}
        for word in value:
            if word not in known:
                raise ValueError(f"no event type `{word[:60]}`" + nearest(word, known))
        return value


class FileInput(Frozen):
    """One file to bring or keep: where it is, and where it belongs under the working directory."""

    uri: Annotated[str, Field(max_length=1000)]
    path: Annotated[str, Field(max_length=500)] | None = None
    bytes: int | None = Field(None, ge=0)
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None

    @field_validator("uri")
    @classmethod
    def _is_a_place(cls, value: str) -> str:
        try:
            return read_place(value).uri
        except InvalidInput as error:
            raise ValueError(error.problems[0][2]) from None

    @field_validator("path")
    @classmethod
    def _stays_below(cls, value: str | None) -> str | None:
        if value is None:
            return None
        parts = value.rstrip("/").split("/")
        if value.startswith("/") or {"", ".", ".."} & {*parts} or any(ord(char) < 32 for char in value):
            raise ValueError("must be a path below the working directory, without `..`")
        return value.rstrip("/")


class TaskInput(Frozen):
    """A described piece of work."""

    name: (
        Annotated[
            str,
            Field(min_length=1, max_length=120),
            BeforeValidator(lambda v: one_line(v) if isinstance(v, str) else v),
        ]
        | None
    ) = Field(
        None,
        description="Shown everywhere; absent: what the script calls its job, or the command.",
    )
    objective: str = Field("", max_length=4000, description="Free text kept for people and agents.")
    command: tuple[str, ...] | str | None = Field(None, description="Argument list, or one shell command.")
    script: str | None = Field(
        None, description="A whole batch script; its directives fill a silent envelope."
    )
    dialect: Dialect | None = None
    envelope: dict[str, Any] | None = Field(None, description="ResourceEnvelope.")
    envelope_id: str | None = Field(None, description="Handle of an envelope drafted before.")
    environment: EnvironmentInput = EnvironmentInput()
    workdir: Line | None = Field(None, description="Absolute path at the site; absent: a folder of its own.")
    inputs: tuple[FileInput, ...] = ()
    outputs: tuple[FileInput, ...] = ()
    retry: RetryInput = RetryInput()
    replacement: ReplacementInput = ReplacementInput()
    hedge: HedgeInput = HedgeInput()
    checkpoint: CheckpointInput | None = None
    continuation: ContinuationInput = ContinuationInput()
    budget: BudgetInput | None = Field(None, description="What this task may use at most.")
    project: Project | None = Field(
        None, description="Your own word for what it belongs to; budgets may be set on it."
    )
    group: str | None = None
    client_ref: Line = ""

    @field_validator("workdir")
    @classmethod
    def _is_absolute(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith("/"):
            raise ValueError("must be an absolute path at the site, starting with /")
        return value

    @field_validator("command")
    @classmethod
    def _says_something(cls, value: tuple[str, ...] | str | None) -> tuple[str, ...] | str | None:
        if value is None:
            return None
        words = (value,) if isinstance(value, str) else value
        if not words or not words[0].strip():
            raise ValueError("must not be empty")
        if any("\0" in word for word in words):
            raise ValueError("must not hold NUL bytes")
        if sum(len(word) for word in words) > _MAX_SCRIPT_BYTES:
            raise ValueError("is longer than 1 MiB; put it into a file at the site")
        return value

    @field_validator("script")
    @classmethod
    def _is_a_script(cls, value: str | None) -> str | None:
        if value is None:
            return None
        if not value.strip():
            raise ValueError("is empty")
        if "\0" in value:
            raise ValueError("holds NUL bytes: this is no text file")
        if len(value.encode("utf-8", "surrogatepass")) > _MAX_SCRIPT_BYTES:
            raise ValueError("is longer than 1 MiB")
        return value

    @model_validator(mode="after")
    def _exactly_one_work(self) -> Self:
        if (self.command is None) == (self.script is None):
            both = self.command is not None
            raise PydanticCustomError(
                "not_exactly_one",
                "give either `command` or `script`, not both" if both else "give `command` or `script`",
            )
        _each_its_own_path(self.inputs)
        if self.envelope is not None and self.envelope_id is not None:
            raise PydanticCustomError("not_exactly_one", "give either `envelope` or `envelope_id`, not both")
        return self

    def shown_name(self, job_name: str | None = None) -> str:
        """Return the given name, else what the script calls its job, or a short one made from the command."""
        if self.name:
            return self.name
        if named := cleaned(job_name or "")[:120].strip():
            return named
        if isinstance(self.command, str):
            return self.command.split()[0].rsplit("/", 1)[-1][:120]
        return self.command[0].rsplit("/", 1)[-1][:120] if self.command else "script"


def _each_its_own_path(inputs: tuple[FileInput, ...]) -> None:
    paths = [each.path or read_place(each.uri).name for each in inputs]
    twice = sorted({path for path in paths if paths.count(path) > 1})
    if twice:
        raise PydanticCustomError(
            "same_path",
            "two inputs would be {path} in the job's folder; give each a `path`",
            {"path": twice[0]},
        )


def stored(task: TaskInput) -> Mapping[str, Any]:
    """Return the spec that is kept with the task: everything but the envelope, which has its own row."""
    spec = task.model_dump(mode="json", exclude={"envelope", "envelope_id"})
    if task.checkpoint is not None and "on" not in task.retry.model_fields_set:
        # Work that saves itself is meant to go on after its wall time.
        spec["retry"]["on"] = [*spec["retry"]["on"], Cause.TIMEOUT.value]
    return spec
