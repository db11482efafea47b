"""The Global Resource View as values: one record per system × partition × account.

A record joins the static site profile, the last probe and one user's access. It is what placement reads.
Instants are aware UTC; `None` means not known, and for limits no limit.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Literal

from pydantic import Field

from federation.circuit import CLOSED, Circuit
from federation.held_back import Cap
from providers.types import Association, Frozen, Qos


class Health(StrEnum):
    """How far a system can be trusted now. Only `online` and `degraded` take new work."""

    ONLINE = "online"
    DEGRADED = "degraded"
    STALE = "stale"
    OFFLINE = "offline"
    DISABLED = "disabled"


class ChargeRule(Frozen):
    """What a partition charges per hour, in the site's own unit.

    Charge = factor × hours × (per_node × nodes + per_gpu × gpus + per_cpu × cpus + per_gib × GiB of memory),
    or with `combine="max"` the largest of the terms. Whole nodes count when the partition is exclusive.
    No rule: no charge.
    """

    unit: str = Field(min_length=1, max_length=20)
    per_node: Decimal = Field(Decimal(0), ge=0)
    per_gpu: Decimal = Field(Decimal(0), ge=0)
    per_cpu: Decimal = Field(Decimal(0), ge=0)
    per_gib: Decimal = Field(Decimal(0), ge=0)
    combine: Literal["sum", "max"] = "sum"
    factor: Decimal = Field(Decimal(1), ge=0)


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node of a partition as placement needs it. Free figures are 0 unless the node is usable."""

    name: str
    is_up: bool
    """Not down, drained, failing or in maintenance: it may run a job sometime."""
    is_usable: bool
    """A job could start on it now."""
    cpus: int
    cpus_free: int
    memory_mib: int | None
    memory_free_mib: int | None
    gpus: int
    gpus_free: int
    gpu_type: str | None = None
    """Canonical ("a100"), or the site's own spelling where unknown."""
    gpu_spelling: str | None = None
    """As the scheduler wants it in a request."""
    gpu_memory_mib: int | None = None
    is_idle: bool = False
    is_part: bool = False
    """A further pool of GPUs of a node that is listed by its largest: its share of the CPUs and memory."""


@dataclass(frozen=True, slots=True)
class RunningShare:
    """One running job's hold on a partition. Per-node figures, rounded up."""

    user: str | None
    node_names: tuple[str, ...]
    cpus_per_node: int
    memory_per_node_mib: int
    gpus_per_node: int
    start_at: datetime | None
    walltime_s: int | None


@dataclass(frozen=True, slots=True)
class PendingShare:
    """One waiting job (or `count` equal array tasks) as the plan must serve it. Totals per job."""

    user: str | None
    nodes: int
    cpus: int
    memory_mib: int
    gpus: int
    gpu_type: str | None
    walltime_s: int | None
    priority: int | None
    submit_at: datetime | None
    is_eligible: bool
    """Not held, not dependent, not blocked by its own limits."""
    count: int = 1
    capped: Cap | None = None
    """Which limit of its own user holds it back; its turn comes when jobs of theirs end."""
    at_once: int | None = None
    """How many of `count` may run together, as its user throttled the array; None = all."""
    job_id: str | None = None
    """The scheduler's, so that a waiting job of ours can be told from those it waits behind."""


@dataclass(frozen=True, slots=True)
class PartitionQueue:
    """The queue of one partition, shared by every record of that partition in one snapshot."""

    running: tuple[RunningShare, ...] = ()
    pending: tuple[PendingShare, ...] = ()
    is_visible: bool = True
    """False where the site hides other users' jobs: then the tuples say nothing."""
    beside: tuple[RunningShare, ...] = ()
    """Jobs that run in other partitions on nodes of this one: they hold them, and are not of its queue."""
    rivals: tuple[PendingShare, ...] = ()
    """Eligible jobs that wait in other partitions for exactly these nodes and are served with this queue, by
    priority; those of a higher tier before all others, which their priority says."""

    @property
    def running_count(self) -> int:
        """Return the number of running jobs."""
        return len(self.running)

    @property
    def pending_count(self) -> int:
        """Return the number of waiting jobs, array tasks counted one by one."""
        return sum(job.count for job in self.pending)

    @property
    def eligible_count(self) -> int:
        """Return the number of waiting jobs that only wait for resources or priority."""
        return sum(job.count for job in self.pending if job.is_eligible)


@dataclass(frozen=True, slots=True)
class UserLimits:
    """What the site lets this user hold here under QoS and association; None = no limit.

    Submit limits and per-job sizes reject; running limits only delay.
    """

    max_submit_jobs: int | None = None
    submitted_jobs: int = 0
    max_running_jobs: int | None = None
    running_jobs: int = 0
    max_gpus_per_user: int | None = None
    gpus_in_use: int = 0
    max_gpus_per_job: int | None = None
    max_nodes_per_job: int | None = None
    max_nodes_per_user: int | None = None
    max_cpus_per_job: int | None = None
    max_cpus_per_user: int | None = None
    max_walltime_s: int | None = None


@dataclass(frozen=True, slots=True)
class GroupLimit:
    """What all jobs under one QoS or account may hold at once, whoever they are of; None = no limit.

    It only delays.
    """

    qos: str
    """Its name; `account NAME` for an account's."""
    max_jobs: int | None = None
    max_gpus: int | None = None
    max_cpus: int | None = None
    max_nodes: int | None = None
    running: tuple[RunningShare, ...] = ()
    """The group's running jobs, wherever in the system."""
    waiting: tuple[PendingShare, ...] = ()
    """Its waiting jobs that resources, priority or a limit of the group hold back; all marked eligible."""


@dataclass(frozen=True, slots=True)
class Maintenance:
    """Nodes that ordinary jobs may not use between two instants. Empty names: the whole partition."""

    start_at: datetime
    end_at: datetime | None
    node_names: frozenset[str] = frozenset()
    name: str = ""


@dataclass(frozen=True, slots=True)
class ResourceRecord:
    """One place where this user's work could run."""

    system: str
    partition: str
    account: str | None
    qos: str | None
    """The QoS a job would be given, None = the scheduler's default."""
    snapshot_id: str | None
    """Handle of the snapshot the live figures come from; None = never probed."""
    observed_at: datetime | None
    max_age_s: int
    """Older figures make the record stale for placement."""
    health: Health
    is_connected: bool
    """The user holds a working connection."""
    access_denied: str | None
    """Why account, group or QoS may not use this partition; None = may, as far as is known."""
    has_allocation: bool
    blocked: str | None
    """Why policy or the operator keeps work away; None = not blocked."""
    partition_state: str
    architecture: str | None
    nodes: tuple[NodeView, ...]
    queue: PartitionQueue
    max_walltime_s: int | None
    max_nodes: int | None
    is_exclusive: bool
    limits: UserLimits
    own_priority: int | None = None
    """Priority a fresh job of ours would get, where known."""
    user: str | None = None
    """The user's name at the system, to tell own jobs in the queue; None = not known."""
    groups: tuple[GroupLimit, ...] = ()
    """Limits shared with others, where the queue is visible."""
    maintenance: tuple[Maintenance, ...] = ()
    containers: tuple[str, ...] = ()
    software: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Installed versions by name; an empty tuple = present, version unknown."""
    software_known: bool = False
    """False: the profile lists no software, so nothing can be said of what is missing."""
    network: tuple[str, ...] = ()
    filesystems: tuple[str, ...] = ()
    parallel: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    charge: ChargeRule | None = None
    credit_left: Decimal | None = None
    """What is left for this user on this account in `charge.unit`; None = not limited by Facet."""
    credit_granted: Decimal | None = None
    speed: Decimal = Decimal(1)
    """Runtime here = reference runtime / speed."""
    preparation_s: int | None = None
    """Typical time to prepare an absent environment here."""
    dispatch_s: int = 0
    """Typical overhead from submit to the scheduler's first look."""
    transfer_rate_mib_s: Decimal | None = None
    held_uris: frozenset[str] = frozenset()
    """Inputs already present here."""
    circuit_open: str | None = None
    """Why no new work may be sent to the system although it can be seen; None = it may."""
    whole_node_memory: bool = False
    default_memory_per_cpu_mib: int | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        """Return the total order of records by name."""
        return (self.system, self.partition, self.account or "")


@dataclass(frozen=True, slots=True)
class Credit:
    """What one user may still spend through Facet on one account of one system, in the site's own unit."""

    unit: str
    granted: Decimal | None
    """None = not limited by Facet."""
    left: Decimal | None


@dataclass(frozen=True, slots=True)
class Access:
    """One user's way into one system."""

    is_connected: bool
    remote_user: str | None = None
    associations: tuple[Association, ...] | None = None
    """None = not known yet, or the site keeps no accounting."""
    qos: tuple[Qos, ...] = ()
    credits: Mapping[str, Credit] = field(default_factory=dict)
    """By account."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How a system stands now, beside what its last probe saw."""

    health: Health
    reason: str = ""
    snapshot_id: str | None = None
    observed_at: datetime | None = None
    circuit: Circuit = CLOSED
    admits: bool = True
    """The circuit lets new work through."""
