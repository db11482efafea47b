"""The site profile: what an administrator says of a system, as a validated value.

A profile states what a probe cannot see (charge formulas, containers, spellings, policy) and what it would
see, for the time before the first probe. Live facts win over stated ones wherever both exist.
"""

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Literal, Self

from pydantic import AwareDatetime, BeforeValidator, Field, model_validator

from federation.types import ChargeRule
from providers.types import Frozen

Slug = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{1,39}$")]
Word = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,79}$")]


def _seconds(value: object) -> object:
    """Read `D-HH:MM:SS`, `HH:MM:SS` or plain seconds; everything else is left for pydantic to refuse."""
    if not isinstance(value, str):
        return value
    days, dash, clock = value.rpartition("-")
    fields = clock.split(":")
    if not all(field.isdigit() for field in fields) or (dash and not days.isdigit()) or len(fields) > 3:
        return value
    if len(fields) == 1 and not dash:
        return int(fields[0])
    if len(fields) < 3 and not dash:
        raise ValueError("write HH:MM:SS, D-HH:MM:SS or plain seconds")
    hours, minutes, seconds = ([int(field) for field in fields] + [0, 0])[:3]
    return int(days or 0) * 86_400 + hours * 3_600 + minutes * 60 + seconds


_UNITS = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024 * 1024}


def _mebibytes(value: object) -> object:
    """Read `256G`, `256GiB` or a plain number of MiB; everything else is left for pydantic to refuse."""
    if not isinstance(value, str):
        return value
    text = value.strip().upper().removesuffix("B").removesuffix("I")
    if text and text[-1] in _UNITS and text[:-1].replace(".", "", 1).isdigit():
        return int(float(text[:-1]) * _UNITS[text[-1]])
    return value


Seconds = Annotated[int, BeforeValidator(_seconds), Field(ge=0)]
Mebibytes = Annotated[int, BeforeValidator(_mebibytes), Field(ge=0)]


class NodeType(Frozen):
    """One kind of node. `gpu` is the canonical accelerator word, `gpu_memory_mib` per device."""

    cpus: int = Field(ge=1)
    memory_mib: Mebibytes
    gpus: int = Field(0, ge=0)
    gpu: str | None = None
    gpu_memory_mib: Mebibytes | None = None
    gpu_spelling: str | None = None
    """As the scheduler wants it, where that differs."""
    architecture: str | None = None

    @model_validator(mode="after")
    def _names_its_gpu(self) -> Self:
        if self.gpus and not self.gpu:
            raise ValueError("a node with gpus must name its `gpu` type")
        return self


class NodeCount(Frozen):
    """How many nodes of one kind a partition has."""

    type: str
    count: int = Field(ge=0)


class PartitionProfile(Frozen):
    """One partition as its site documents it. None: as the probe finds it."""

    nodes: tuple[NodeCount, ...] = ()
    max_walltime_s: Seconds | None = None
    max_nodes: int | None = Field(None, ge=1)
    max_gpus_per_job: int | None = Field(None, ge=0)
    exclusive: bool | None = None
    qos: str | None = None
    """The QoS to ask for; None = none is asked for."""
    accounts: tuple[str, ...] | None = None
    """Account name patterns (`*-gpu`) that may use it; None = every account."""
    charge: ChargeRule | None = None
    blocked: str | None = None
    """Why Facet must not use it."""
    gpu_spelling: Literal["gres", "gpus-per-node", "none"] | None = None
    constraint: str | None = None
    speed: Decimal = Field(Decimal(1), gt=0)


class SchedulerSwitches(Frozen):
    """How requests must be spelled here."""

    gpu_spelling: Literal["gres", "gpus-per-node", "none"] = "gres"
    name_gpu_type: bool = True
    memory_spelling: Literal["mem", "none"] = "mem"
    extra_directives: tuple[str, ...] = ()
    reservation: str | None = None


class ProbeRhythm(Frozen):
    """How often the site is asked. `max_age_s`: older figures no longer place work."""

    interval_s: int = Field(30, ge=2)
    idle_interval_s: int = Field(120, ge=2)
    full_interval_s: int = Field(900, ge=10)
    observe_s: int = Field(5, ge=1)
    timeout_s: int = Field(30, ge=2)
    max_age_s: int = Field(600, ge=10)


class SiteEnvironment(Frozen):
    """What every job of ours does first here."""

    setup: tuple[str, ...] = ()
    conda_setup: tuple[str, ...] = ()
    variables: dict[str, str] = Field(default_factory=dict)


class MaintenanceWindow(Frozen):
    """Announced downtime. No partitions: the whole system."""

    start_at: AwareDatetime
    end_at: AwareDatetime
    partitions: tuple[str, ...] = ()
    reason: str = ""

    @model_validator(mode="after")
    def _ends_after_it_starts(self) -> Self:
        if self.end_at <= self.start_at:
            raise ValueError("end_at must be later than start_at")
        return self


class Policy(Frozen):
    """What Facet may do here beyond the scheduler's own rules."""

    blocked_partitions: tuple[str, ...] = ()
    max_active_attempts: int | None = Field(None, ge=1)
    """Per user; further tasks wait in Facet, not in the site's queue."""
    max_gpus_per_job: int | None = Field(None, ge=0)
    max_nodes_per_job: int | None = Field(None, ge=1)
    allow_hedging: bool = False
    default_qos: str | None = None


class ProfileDocument(Frozen):
    """The whole profile of one system."""

    system: Slug
    name: str = Field(min_length=1, max_length=80)
    centre: str = Field("", max_length=80)
    dialect: Literal["slurm"] = "slurm"
    architecture: Literal["x86_64", "aarch64", "ppc64le"]
    workdir: str = Field("{home}/facet", pattern=r"^(/|\{home\})[^\n\r\x00]*$")
    """Where job folders go; {home}, {user} and {account} are filled in."""
    home: str | None = None
    """Home directory pattern, {user} filled in; None = asked at the first full probe."""
    probe: ProbeRhythm = ProbeRhythm()
    scheduler: SchedulerSwitches = SchedulerSwitches()
    environment: SiteEnvironment = SiteEnvironment()
    node_types: dict[Word, NodeType] = Field(default_factory=dict)
    partitions: dict[Word, PartitionProfile] = Field(min_length=1)
    only_listed_partitions: bool = True
    """False: partitions the probe finds beyond the listed ones may be used too."""
    containers: tuple[str, ...] = ()
    software: dict[str, tuple[str, ...]] | None = None
    """Versions by name; None = not known."""
    network: tuple[str, ...] = ()
    filesystems: tuple[str, ...] = ()
    parallel: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    preparation_s: int | None = Field(None, ge=0)
    """Typical time to prepare an absent environment."""
    transfer_rate_mib_s: Decimal | None = Field(None, gt=0)
    policy: Policy = Policy()
    maintenance: tuple[MaintenanceWindow, ...] = ()
    sources: tuple[str, ...] = ()
    """Where the figures come from."""
    unverified: tuple[str, ...] = ()
    """What could not be verified against the site's public documentation."""

    @model_validator(mode="after")
    def _names_agree(self) -> Self:
        for name, partition in self.partitions.items():
            for nodes in partition.nodes:
                if nodes.type not in self.node_types:
                    known = ", ".join(self.node_types) or "none"
                    raise ValueError(
                        f"partitions.{name}.nodes names the unknown node type {nodes.type!r}; known: {known}"
                    )
        unknown = sorted(set(self.policy.blocked_partitions) - set(self.partitions))
        if unknown:
            raise ValueError(f"policy.blocked_partitions names unknown partitions: {', '.join(unknown)}")
        return self

    def maintenance_after(self, now: datetime) -> tuple[MaintenanceWindow, ...]:
        """Return the windows not yet over, earliest first."""
        return tuple(sorted((w for w in self.maintenance if w.end_at > now), key=lambda w: w.start_at))
