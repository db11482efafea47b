"""The ResourceEnvelope: what a task needs, as ranges from minimum viable to maximum useful.

Two forms. `EnvelopeInput` is what somebody said, in our units: `None` (or an absent key) is *silent*,
so a script's directives may fill it. `Envelope` is the normalized form that placement reads: every
silence was resolved, and `rationale` says how.

All figures are totals for the job: counts bare, memory in MiB, time in seconds.
"""

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Literal, Self

from pydantic import AwareDatetime, Field, JsonValue, model_validator

from providers.types import Frozen

DEFAULT_WALLTIME_S = 3600
"""Wall time of an envelope that names none."""

DEFAULT_OBJECTIVE = "earliest_completion"
OBJECTIVES = ("earliest_completion", "lowest_charge", "risk_averse", "soonest_start")

Count = Annotated[int, Field(strict=True, ge=0)]
Source = Literal["user", "script", "llm", "rules"]


class Range(Frozen):
    """From the least that is of use to the most that is: `0 <= min <= max`."""

    min: Count
    max: Count

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"min {self.min} is greater than max {self.max}")
        return self

    @classmethod
    def exactly(cls, count: int) -> Self:
        """Return the range that holds one value."""
        return cls(min=count, max=count)

    @property
    def is_fixed(self) -> bool:
        """Whether there is nothing to size."""
        return self.min == self.max

    def holds(self, value: int) -> bool:
        """Return whether a granted value lies within the range."""
        return self.min <= value <= self.max


class Accelerator(Frozen):
    """Which GPUs will do. `types` are canonical lower-case words, any of them; empty = any type."""

    types: tuple[str, ...] = ()
    vendor: str | None = None
    min_memory_mib: Count | None = None
    """Memory of one device."""


class Container(Frozen):
    """Any of the runtimes will do; empty `runtime` with an image = any runtime."""

    runtime: tuple[str, ...] = ()
    image: str | None = None


class Software(Frozen):
    """A package by name; `version` is a comma-joined specifier (`>=1.2,<2`), None = any version."""

    name: str
    version: str | None = None


class DataRef(Frozen):
    """One file or folder: `globus://COLLECTION/path` or `file:///path`. Unknown size or checksum = None."""

    uri: str
    bytes: Count | None = None
    sha256: str | None = None


class Data(Frozen):
    """What must be there before, and what is worth keeping after."""

    inputs: tuple[DataRef, ...] = ()
    outputs: tuple[DataRef, ...] = ()


class RuntimeAt(Frozen):
    """The size at which a runtime was estimated. None = not said."""

    gpus: Count | None = None
    cpus: Count | None = None
    nodes: Count | None = None


class ScalingPoint(Frozen):
    """A known runtime at one size; exactly one of `gpus` and `cpus` is set."""

    gpus: Count | None = None
    cpus: Count | None = None
    runtime_s: Count


class Scaling(Frozen):
    """How runtime changes with size: Amdahl's serial share (0..1), or measured points (by growing size)."""

    serial_fraction: float | None = None
    points: tuple[ScalingPoint, ...] = ()


class Runtime(Frozen):
    """What the user knows about the run's duration; not a limit."""

    estimate_s: Count | None = None
    at: RuntimeAt | None = None
    scaling: Scaling | None = None


class Policy(Frozen):
    """Where the task may run and at which price. Names are system slugs."""

    allow_systems: tuple[str, ...] | None = None
    """None: every system the user may use; never empty."""
    exclude_systems: tuple[str, ...] = ()
    exclude_partitions: tuple[str, ...] = ()
    """A partition's name (on every system), or `system/partition`."""
    prefer: tuple[str, ...] = ()
    """Systems, best first; decides ties only."""
    objective: str | None = None
    deadline: AwareDatetime | None = None
    max_charge: dict[str, Decimal] = Field(default_factory=dict)
    """Per system, in that site's own unit."""


class Amounts(Frozen):
    """One size of a job, totals. None = the envelope leaves it to the site or to sizing."""

    gpus: int
    cpus: int
    nodes: int | None
    memory_mib: int | None
    walltime_s: int


class EnvelopeInput(Frozen):
    """What was said, in our units; None = silent. `original` keeps the words as they came."""

    gpus: Range | None = None
    cpus: Range | None = None
    nodes: Range | None = None
    memory_mib: Range | None = None
    walltime_s: Range | None = None
    architecture: tuple[str, ...] | None = None
    accelerator: Accelerator | None = None
    container: Container | None = None
    software: tuple[Software, ...] | None = None
    network: tuple[str, ...] | None = None
    filesystem: tuple[str, ...] | None = None
    parallel: tuple[Software, ...] | None = None
    data: Data | None = None
    runtime: Runtime | None = None
    policy: Policy | None = None
    objective: str | None = None
    source: Source = "user"
    confidence: float | None = None
    rationale: dict[str, str] = Field(default_factory=dict)
    original: dict[str, JsonValue] | None = None


class Envelope(Frozen):
    """The normalized form. Reading its own JSON again gives the same value."""

    gpus: Range
    cpus: Range
    nodes: Range | None = None
    """None: any number of nodes that holds the rest."""
    memory_mib: Range | None = None
    """Total of the job; None: the site's default for that many CPUs."""
    walltime_s: Range
    architecture: tuple[str, ...] = ()
    """Any of these; empty = any."""
    accelerator: Accelerator | None = None
    container: Container | None = None
    software: tuple[Software, ...] = ()
    network: tuple[str, ...] = ()
    filesystem: tuple[str, ...] = ()
    parallel: tuple[Software, ...] = ()
    data: Data = Data()
    runtime: Runtime | None = None
    policy: Policy = Policy()
    objective: str = DEFAULT_OBJECTIVE
    source: Source = "user"
    confidence: float | None = Field(default=None, ge=0, le=1)
    rationale: dict[str, str] = Field(default_factory=dict)
    """Why a field holds what it holds, by field name; silences that were filled are always here."""
    original: dict[str, JsonValue] | None = None
    """The input as it came."""

    def minimum(self) -> Amounts:
        """Return the least viable size: what a candidate must be able to give."""
        return Amounts(
            gpus=self.gpus.min,
            cpus=self.cpus.min,
            nodes=self.nodes.min if self.nodes else None,
            memory_mib=self.memory_mib.min if self.memory_mib else None,
            walltime_s=self.walltime_s.min,
        )

    def maximum(self) -> Amounts:
        """Return the most useful size: where sizing starts."""
        return Amounts(
            gpus=self.gpus.max,
            cpus=self.cpus.max,
            nodes=self.nodes.max if self.nodes else None,
            memory_mib=self.memory_mib.max if self.memory_mib else None,
            walltime_s=self.walltime_s.max,
        )

    @property
    def deadline_at(self) -> datetime | None:
        """The instant by which the task must have ended, if there is one."""
        return self.policy.deadline

    @property
    def has_unsized_inputs(self) -> bool:
        """Whether an input's size is not known."""
        return any(ref.bytes is None for ref in self.data.inputs)

    def excludes_partition(self, slug: str, partition: str) -> bool:
        """Return whether the policy bars a partition, by name or by `system/partition`."""
        barred = self.policy.exclude_partitions
        return partition in barred or f"{slug}/{partition}" in barred
