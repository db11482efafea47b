"""The Decision: the chosen candidate, every rejected one, and the reasons, as one immutable value.

Field names are those of the public placement trace. Counts are totals of the job, memory MiB, time seconds,
charges `Decimal` in the site's own unit; `None` = not known or does not apply.
"""

from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any, Literal, Self, TypeAlias

from pydantic import ConfigDict, Field

from providers.types import Frozen


class Rule(StrEnum):
    """The nine categories a candidate must pass, and the credit of its site."""

    ENDPOINT_HEALTH = "endpoint_health"
    AUTHORIZATION = "authorization"
    BLOCKED_PARTITION = "blocked_partition"
    ARCHITECTURE = "architecture"
    ACCELERATOR = "accelerator"
    CAPACITY = "capacity"
    WALL_TIME = "wall_time"
    COMPATIBILITY = "compatibility"
    USER_LIMITS = "user_limits"
    CREDIT = "credit"


CODES: dict[Rule, tuple[str, ...]] = {
    Rule.ENDPOINT_HEALTH: ("endpoint_offline", "endpoint_stale", "system_disabled"),
    Rule.AUTHORIZATION: ("not_authorized", "no_account", "no_allocation"),
    Rule.BLOCKED_PARTITION: ("partition_blocked", "partition_down", "excluded_by_policy"),
    Rule.ARCHITECTURE: ("architecture_mismatch",),
    Rule.ACCELERATOR: ("accelerator_type", "accelerator_memory", "accelerator_absent"),
    Rule.CAPACITY: ("gpus", "cpus", "memory", "nodes", "gpus_per_node_shape"),
    Rule.WALL_TIME: ("wall_time_over_limit", "maintenance_window"),
    Rule.COMPATIBILITY: (
        "container_unsupported",
        "software_missing",
        "software_version",
        "network_missing",
        "filesystem_missing",
    ),
    Rule.USER_LIMITS: ("max_jobs", "max_gpus", "max_nodes", "qos_limit"),
    Rule.CREDIT: ("credit_exceeded", "charge_over_cap"),
}
RULE_OF: dict[str, Rule] = {code: rule for rule, codes in CODES.items() for code in codes}

Figure: TypeAlias = int | str | tuple[str, ...] | None
"""What a rule required or observed: a count, a word, words, or not known."""


class WaitClass(StrEnum):
    """How much a wait estimate can be trusted."""

    CERTAIN = "certain"
    """It fits now and nobody eligible waits ahead."""
    RISKY = "risky"
    """It fits now, but somebody eligible waits ahead: usually soon, sometimes hours."""
    PLANNED = "planned"
    """It starts when others end, as the forward plan says."""
    HIDDEN = "hidden"
    """The site hides its queue: free slots and own experience only."""


class Figures(Frozen):
    """A value made by the hundred in every decision, from figures that are typed already."""

    @classmethod
    def made(cls, **values: Any) -> Self:
        """Return the value without validating it; every field must be given, by its Python name."""
        value = cls.__new__(cls)
        object.__setattr__(value, "__dict__", values)
        object.__setattr__(value, "__pydantic_fields_set__", set(values))
        object.__setattr__(value, "__pydantic_extra__", None)
        object.__setattr__(value, "__pydantic_private__", None)
        return value


class Rejection(Frozen):
    """One rule that a candidate fails, with what would help, as a sentence a person can act on."""

    rule: Rule
    code: str
    required: Figure
    observed: Figure
    remedy: str


def rejection(code: str, *, required: Figure, observed: Figure, remedy: str) -> Rejection:
    """Return the rejection of a code under the rule it belongs to.

    Raises:
        KeyError: the code is in no rule.
    """
    return Rejection(rule=RULE_OF[code], code=code, required=required, observed=observed, remedy=remedy)


class Shape(Figures):
    """The granted size: totals of the job, the same on every node."""

    nodes: int
    gpus: int
    cpus: int
    memory_mib: int | None
    """None: the site's default."""
    walltime_s: int
    gpu_type: str | None = None
    """The accelerator it is laid out for; None when it needs none, or the site does not name it."""

    @property
    def gpus_per_node(self) -> int:
        """Return the GPUs of each node; layouts are even."""
        return self.gpus // self.nodes

    @property
    def cpus_per_node(self) -> int:
        """Return the CPUs of each node, rounded up."""
        return -(-self.cpus // self.nodes)

    @property
    def memory_per_node_mib(self) -> int | None:
        """Return the memory of each node, rounded up."""
        return None if self.memory_mib is None else -(-self.memory_mib // self.nodes)


class Quantiles(Figures):
    """A median and a figure that nine of ten outcomes stay under, seconds."""

    p50: int
    p90: int


class Charge(Figures):
    """An amount in the site's own unit; the unit is None where the site charges nothing."""

    amount: Decimal
    unit: str | None


class WaitBasis(Figures):
    """What a wait estimate rests on. Plan figures are None where the queue is hidden."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    wait_class: WaitClass = Field(alias="class", serialization_alias="class")
    plan_limits_s: int | None
    """Start if everybody ahead uses the whole time limit."""
    plan_means_s: int | None
    """Start if everybody ahead runs as long as such jobs ran before."""
    somebody_ahead: bool | None
    fits_now: bool
    free_slots: int | None = None
    """How many requests of this size what was free could hold; None in decisions kept before it was told."""
    snapshot_age_s: int


class Estimates(Figures):
    """The times and the charge expected of one candidate shape. Bare `_s` figures are medians."""

    wait_s: Quantiles
    wait: WaitBasis
    runtime_s: int
    runtime_p90_s: int
    runtime_source: Literal["declared", "history", "assumed"]
    preparation_s: int
    transfer_s: int
    dispatch_s: int
    completion_s: int
    completion_p90_s: int
    charge: Charge
    """At the whole wall time: what is reserved."""


class SizeTried(Figures):
    """One size considered on a candidate; `dropped` names the codes it failed, empty = legal."""

    nodes: int
    gpus: int
    cpus: int
    walltime_s: int
    dropped: tuple[str, ...] = ()
    completion_s: int | None = None


class Size(Frozen):
    """A size in the three figures a person compares."""

    gpus: int
    cpus: int
    nodes: int | None


class Sizing(Frozen):
    """How the maximum useful request became the granted one."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    from_: Size = Field(alias="from", serialization_alias="from")
    to: Size
    why: str
    tried: tuple[SizeTried, ...] = ()


class Candidate(Figures):
    """One (system, partition, account): feasible with its best shape, or rejected with every reason."""

    system: str
    partition: str
    account: str | None
    qos: str | None
    feasible: bool
    rejections: tuple[Rejection, ...] = ()
    sizing: Sizing | None = None
    shape: Shape | None = None
    estimates: Estimates | None = None
    rank: int | None = None
    tie_break: str | None = None
    """What put it behind the candidate of the next better rank, when their scores were equal."""


class Selected(Frozen):
    """The placement."""

    system: str
    partition: str
    account: str | None
    qos: str | None
    shape: Shape
    estimates: Estimates


class Change(Frozen):
    """One edit that would help. `field` is a path in the envelope, or None for an act outside of it."""

    field: str | None
    code: str
    current: Figure
    proposed: Figure
    sentence: str


class Closest(Frozen):
    """The smallest change that would make an unschedulable task feasible.

    `verified`: placement was asked again with the changed envelope and found the candidate feasible.
    """

    system: str
    partition: str
    account: str | None
    changes: tuple[Change, ...]
    verified: bool


class Decision(Frozen):
    """A placement with its complete trace, or the reasons why there is none."""

    id: str = ""
    """Given by the caller; empty in a preview."""
    input_hash: str
    model_version: str
    snapshot_ids: tuple[str, ...]
    objective: str
    result: Literal["placed", "unschedulable"]
    selected: Selected | None
    runner_up: Selected | None = None
    margin_s: int | None = None
    """Completion of the runner-up minus that of the selected."""
    candidates: tuple[Candidate, ...]
    closest: Closest | None = None
    warnings: tuple[str, ...] = ()
    generated_at: datetime
