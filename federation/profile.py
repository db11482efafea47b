"""The site profile: what an administrator says of a system, as a validated value.

A profile states what a probe cannot see (charge formulas, containers, spellings, policy) and what it would
see, for the time before the first probe. Live facts win over stated ones wherever both exist.
"""

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Annotated, Literal, Self

from pydantic import AwareDatetime, BeforeValidator, Field, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from federation.types import ChargeRule
from providers.errors import InvalidInput
from providers.gpus import canonical_gpu
from providers.movers.places import read_place
from providers.reading import nearest
from providers.types import Frozen

Slug = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{1,39}$")]
Word = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,79}$")]


_CLOCK = re.compile(r"(?:(\d{1,5})-)?(\d{1,5}):([0-5]\d):([0-5]\d)|(\d{1,5})-(\d{1,2})(?::([0-5]\d))?")
_SIZE = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)\s*([KMGT])(?:I?B)?", re.IGNORECASE)
_MIB = {"K": Decimal(1) / 1024, "M": Decimal(1), "G": Decimal(1024), "T": Decimal(1024 * 1024)}


def _seconds(value: object) -> object:
    """Read `D-HH:MM:SS`, `HH:MM:SS`, `D-HH`, `D-HH:MM` or plain seconds, as Slurm writes them."""
    if not isinstance(value, str) or value.strip().isdecimal():
        return value
    found = _CLOCK.fullmatch(value.strip())
    if found is None:
        raise ValueError(f"write HH:MM:SS, D-HH:MM:SS or plain seconds, not {value[:40]!r}")
    days, hours, minutes, seconds, other_days, other_hours, other_minutes = (
        int(part or 0) for part in found.groups()
    )
    if other_hours > 23 or (found[1] and hours > 23):
        raise ValueError("after days, hours are 0 to 23")
    return (
        (days + other_days) * 86_400
        + (hours + other_hours) * 3_600
        + (minutes + other_minutes) * 60
        + seconds
    )


def _mebibytes(value: object) -> object:
    """Read `256G`, `256GiB`, `2T` or a plain number of MiB; as with Slurm, G is 1,024 MiB. Rounds down."""
    if not isinstance(value, str) or value.strip().isdecimal():
        return value
    found = _SIZE.fullmatch(value.strip())
    if found is None:
        raise ValueError(f"write a size such as 256G, 512GiB or 2T, or a number of MiB, not {value[:40]!r}")
    return int(Decimal(found[1]) * _MIB[found[2].upper()])


Seconds = Annotated[int, BeforeValidator(_seconds), Field(ge=0)]
Mebibytes = Annotated[int, BeforeValidator(_mebibytes), Field(ge=0)]


def _detail(where: tuple[int | str, ...], message: str) -> InitErrorDetails:
    """Return a fault that carries its place."""
    kind = PydanticCustomError("value_error", "{message}", {"message": message})
    return InitErrorDetails(type=kind, loc=where, input=None)


def _fault(where: tuple[int | str, ...], message: str) -> ValidationError:
    return ValidationError.from_exception_data("profile", [_detail(where, message)])


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
            raise ValueError("a node with gpus must name its `gpu` type, such as a100")
        if self.gpu and not self.gpus:
            raise _fault(("gpu",), "names a GPU, but `gpus` (how many a node has) is 0")
        word = canonical_gpu(self.gpu) if self.gpu else None
        if word is not None and word != self.gpu:
            message = f"write the canonical word {word}; the scheduler's own spelling goes to gpu_spelling"
            raise _fault(("gpu",), message)
        return self


class NodeCount(Frozen):
    """How many nodes of one kind a partition has."""

    type: str
    count: int = Field(ge=0)


class PartitionProfile(Frozen):
    """One partition as its site documents it. None: as the probe finds it.

    Where a site's users choose a QoS and a constraint rather than a partition, one entry stands for one such
    choice: `scheduler_partition` names the partition whose nodes and queue it shares with other entries.
    """

    scheduler_partition: Word | None = None
    """The scheduler's name of it; None = the name of this entry."""
    features: tuple[Word, ...] = ()
    """Only nodes with all of these features belong to it."""
    nodes: tuple[NodeCount, ...] = ()
    max_walltime_s: Seconds | None = None
    max_nodes: int | None = Field(None, ge=1)
    max_gpus_per_job: int | None = Field(None, ge=0)
    max_gpus_per_user: int | None = Field(None, ge=0)
    max_nodes_per_user: int | None = Field(None, ge=1)
    max_running_jobs: int | None = Field(None, ge=1)
    """Per user, as is the next."""
    max_submit_jobs: int | None = Field(None, ge=1)
    exclusive: bool | None = None
    """Jobs get, and are charged for, whole nodes."""
    qos: str | None = None
    """The QoS to ask for; None = none is asked for."""
    scheduler_qos: str | None = None
    """The same as accounting knows it, where the site translates it at submission."""
    accounts: tuple[str, ...] | None = None
    """Account name patterns that may use it: `*-gpu` admits, `!*-gpu` keeps out; None = every account."""
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
    name_partition: bool = True
    """False: no partition is asked for; QoS and constraint lead to one."""
    memory_spelling: Literal["mem", "mem-per-cpu", "none"] = "mem"
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


class StoragePlace(Frozen):
    """A folder of the system, and the place by which a mover reaches it; `{user}` is the user's name there.

    Inputs are brought to, and outputs fetched from, folders that are listed; the first that fits is taken.
    """

    uri: str = Field(max_length=500)
    """`globus://COLLECTION/folder/`, or `file:///folder/` where the folder is one of Facet's own machine."""
    path: str = Field("/", pattern=r"^/[^\n\r\x00]*$")
    """The same folder as the system's own programs name it."""

    @model_validator(mode="after")
    def _is_a_place(self) -> Self:
        try:
            place = read_place(self.uri)
        except InvalidInput as error:
            raise _fault(("uri",), error.problems[0][2]) from None
        if not place.is_folder:
            raise _fault(("uri",), "must name a folder: end it with a slash")
        return self


class BalanceRule(Frozen):
    """How the site tells what is left of an account, asked as the user with each full probe.

    `sshare`: limits and usage of one TRES in minutes (GrpTRESMins). `command`: any program of the site; each
    line that `pattern` matches tells one account by the groups `account` and `granted`, `used`, `left`.
    """

    source: Literal["sshare", "command"]
    unit: str = Field("SU", min_length=1, max_length=20)
    """Of the amounts; placement stays within a balance only where charges are in the same unit."""
    tres: str = "billing"
    minutes_per_unit: Decimal = Field(Decimal(60), gt=0)
    """TRES-minutes that one unit is."""
    command: tuple[Annotated[str, Field(min_length=1, max_length=400)], ...] = ()
    pattern: str | None = Field(None, max_length=400)
    timeout_s: int = Field(20, ge=1, le=60)

    @model_validator(mode="after")
    def _can_be_asked(self) -> Self:
        if self.source == "sshare":
            for name in ("command", "pattern"):
                if getattr(self, name):
                    raise _fault((name,), "belongs to the source `command`")
            return self
        if not self.command:
            raise _fault(("command",), "name the program and its arguments, such as [mybalance, -p]")
        try:
            groups = re.compile(self.pattern or "").groupindex.keys()
        except re.error as error:
            raise _fault(("pattern",), f"is no regular expression: {error}") from None
        if "account" not in groups or not groups & {"granted", "used", "left"}:
            raise _fault(("pattern",), "needs the groups (?P<account>…) and granted, used or left")
        return self


class ProfileDocument(Frozen):
    """The whole profile of one system."""

    system: Slug
    name: str = Field(min_length=1, max_length=80)
    centre: str = Field("", max_length=80)
    dialect: Literal["slurm", "machine"] = "slurm"
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
    balance: BalanceRule | None = None
    """How balances of accounts are imported; None = they are not."""
    transfer_rate_mib_s: Decimal | None = Field(None, gt=0)
    storage: tuple[StoragePlace, ...] = ()
    policy: Policy = Policy()
    maintenance: tuple[MaintenanceWindow, ...] = ()
    sources: tuple[str, ...] = ()
    """Where the figures come from."""
    unverified: tuple[str, ...] = ()
    """What its public documentation did not confirm: `field: why`, each."""

    @model_validator(mode="after")
    def _names_agree(self) -> Self:
        faults = [*self._unknown_node_types(), *self._unknown_partitions()]
        if self.balance is not None and self.balance.source == "sshare" and self.dialect != "slurm":
            faults.append(_detail(("balance", "source"), "only Slurm has sshare; use the source `command`"))
        if faults:
            raise ValidationError.from_exception_data("ProfileDocument", faults)
        return self

    def _unknown_node_types(self) -> Iterator[InitErrorDetails]:
        for name, partition in self.partitions.items():
            for place, nodes in enumerate(partition.nodes):
                if nodes.type not in self.node_types:
                    message = f"unknown node type `{nodes.type}`.{nearest(nodes.type, self.node_types)}"
                    yield _detail(("partitions", name, "nodes", place, "type"), message)

    def _unknown_partitions(self) -> Iterator[InitErrorDetails]:
        named = [
            (("policy", "blocked_partitions", place), name)
            for place, name in enumerate(self.policy.blocked_partitions)
        ] + [
            (("maintenance", number, "partitions", place), name)
            for number, window in enumerate(self.maintenance)
            for place, name in enumerate(window.partitions)
        ]
        for where, name in named:
            if name not in self.partitions:
                yield _detail(where, f"unknown partition `{name}`.{nearest(name, self.partitions)}")

    def scheduler_name(self, partition: str) -> str:
        """Return what the scheduler calls a partition of ours."""
        stated = self.partitions.get(partition)
        return (stated.scheduler_partition if stated else None) or partition
