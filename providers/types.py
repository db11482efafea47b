"""The words every provider shares: commands out, replies in, and what a scheduler was seen to hold.

Units: seconds `_s`, MiB `_mib`, plain counts; instants are aware UTC. `None` means not known
(or, where said so, no limit); 0 means none.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field


class Frozen(BaseModel):
    """A value: immutable, and strict about unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


# --- one round trip: a batch of operations out, as many replies back ----------------------------


class Exec(Frozen):
    """Run one program, never through a shell.

    `stop_on_failure`: when it fails, the rest of the batch is skipped (a ping before slow commands).
    `requires`: name of an earlier operation that must have ended with 0, else this one alone is skipped.
    `env` is added to the site's environment after SLURM_*/SQUEUE_*-like presets were removed.
    """

    kind: Literal["exec"] = "exec"
    name: str
    argv: tuple[str, ...]
    stdin: str | None = None
    env: Mapping[str, str] = Field(default_factory=dict)
    cwd: str | None = None
    timeout_s: float = 20.0
    max_bytes: int = 8 * 1024 * 1024
    stop_on_failure: bool = False
    requires: str = ""


class ReadFile(Frozen):
    """Read at most `limit` bytes of one file from byte `offset` (negative: from the end)."""

    kind: Literal["read"] = "read"
    name: str
    path: str
    offset: int = 0
    limit: int = 65_536


class ListFiles(Frozen):
    """List regular files under a directory with sizes, and SHA-256 for those up to `checksum_max_bytes`."""

    kind: Literal["list"] = "list"
    name: str
    path: str
    max_files: int = 1000
    checksum_max_bytes: int = 64 * 1024 * 1024


class MakeDirs(Frozen):
    """Create a directory and its parents where absent (mode 0700)."""

    kind: Literal["mkdir"] = "mkdir"
    name: str
    path: str


class WriteFile(Frozen):
    """Write a small text file whole (to a temporary name, then renamed)."""

    kind: Literal["write"] = "write"
    name: str
    path: str
    text: str
    mode: int = 0o600


Operation: TypeAlias = Exec | ReadFile | ListFiles | MakeDirs | WriteFile


class Batch(Frozen):
    """Everything one request asks of a site; operations run in order, within `deadline_s` together."""

    operations: tuple[Operation, ...]
    deadline_s: float = 60.0


class FileEntry(Frozen):
    """One regular file: path relative to the listed directory, size, and checksum where taken."""

    path: str
    bytes: int
    sha256: str | None = None
    modified_at: datetime | None = None


class Reply(Frozen):
    """What one operation gave. `rc` is None when it did not run or did not end by itself."""

    name: str
    rc: int | None = None
    stdout: str = ""
    stderr: str = ""
    truncated: bool = False
    timed_out: bool = False
    skipped: bool = False
    missing: bool = False
    """The program or file does not exist there."""
    size: int | None = None
    """Total size in bytes of a file that was read."""
    files: tuple[FileEntry, ...] = ()
    duration_s: float = 0.0


class BatchReply(Frozen):
    """All replies by operation name, with the site's own clock."""

    replies: Mapping[str, Reply]
    site_time: datetime | None = None
    hostname: str = ""
    duration_s: float = 0.0


# --- what a probe found ---------------------------------------------------------------------------


class GpuPool(Frozen):
    """GPUs of one type on one node. `type` is None when the site does not name it.

    `free` counts whole GPUs that a job could be given now: 0 unless the node is usable, and never
    a GPU that is sliced by MIG or partly used through shards.
    """

    type: str | None
    total: int
    used: int
    free: int


class SlicePool(Frozen):
    """MIG slices or shards of one kind on one node; never whole GPUs."""

    kind: Literal["mig", "shard"]
    profile: str
    total: int
    used: int
    free: int


class Node(Frozen):
    """One node as the scheduler shows it, counted once whatever the number of its partitions."""

    name: str
    partitions: tuple[str, ...]
    state: str
    """Base state in lower case: idle, mixed, allocated, down, error, future, unknown."""
    flags: frozenset[str] = frozenset()
    """Upper case: DRAIN, MAINTENANCE, RESERVED, COMPLETING, POWERED_DOWN, NOT_RESPONDING, PLANNED ..."""
    usable: bool
    """A new job of an ordinary user could start here now, as far as the state goes."""
    cpus_total: int
    cpus_free: int
    """0 unless usable."""
    memory_total_mib: int | None = None
    memory_free_mib: int | None = None
    """Not allocated to jobs (never the operating system's free memory)."""
    gpus: tuple[GpuPool, ...] = ()
    slices: tuple[SlicePool, ...] = ()
    features: tuple[str, ...] = ()
    architecture: str | None = None
    reason: str = ""


class Partition(Frozen):
    """One partition. Limits are None when there is none."""

    name: str
    is_default: bool = False
    is_hidden: bool = False
    state: str
    """up, down, drain, inactive."""
    node_names: tuple[str, ...] = ()
    nodes_total: int
    cpus_total: int | None = None
    max_walltime_s: int | None = None
    default_walltime_s: int | None = None
    max_nodes: int | None = None
    min_nodes: int = 0
    max_cpus_per_node: int | None = None
    allow_accounts: tuple[str, ...] | None = None
    """None: every account."""
    deny_accounts: tuple[str, ...] = ()
    allow_groups: tuple[str, ...] | None = None
    allow_qos: tuple[str, ...] | None = None
    deny_qos: tuple[str, ...] = ()
    qos: str | None = None
    exclusive: bool = False
    """Jobs get whole nodes."""
    root_only: bool = False
    requires_reservation: bool = False
    priority_tier: int | None = None
    job_factor: int | None = None
    """The partition's own weight in a job's priority, relative to other partitions'."""
    priority_points: int | None = None
    """What it adds to a job's priority; None = not told, as in the next two classes."""
    preempt_mode: str | None = None
    def_mem_per_cpu_mib: int | None = None
    def_mem_per_node_mib: int | None = None
    def_mem_per_gpu_mib: int | None = None
    def_cpus_per_gpu: int | None = None
    billing_weights: Mapping[str, str] = Field(default_factory=dict)


class Limits(Frozen):
    """What one user, account or QoS may hold at once; None = no limit."""

    max_jobs: int | None = None
    max_submit_jobs: int | None = None
    max_walltime_s: int | None = None
    max_gpus: int | None = None
    max_cpus: int | None = None
    max_nodes: int | None = None
    max_memory_mib: int | None = None


class Qos(Frozen):
    """One quality of service."""

    name: str
    priority: int = 0
    priority_points: int | None = None
    flags: tuple[str, ...] = ()
    per_user: Limits = Limits()
    per_job: Limits = Limits()
    group: Limits = Limits()


class Association(Frozen):
    """One user × account (× partition) in the scheduler's accounting."""

    account: str
    user: str
    partition: str | None = None
    qos: tuple[str, ...] = ()
    default_qos: str | None = None
    limits: Limits = Limits()
    group: Limits = Limits()
    fairshare: float | None = None
    priority_points: int | None = None


class Reservation(Frozen):
    """Nodes set aside; maintenance when flagged MAINT."""

    name: str
    start_at: datetime
    end_at: datetime | None
    node_names: tuple[str, ...] = ()
    partition: str | None = None
    users: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    flags: frozenset[str] = frozenset()

    @property
    def is_maintenance(self) -> bool:
        """Whether ordinary jobs may not run on these nodes meanwhile."""
        return "MAINT" in self.flags


class JobState(StrEnum):
    """Canonical states of a scheduler's job, whatever the scheduler calls them."""

    QUEUED = "queued"
    HELD = "held"
    STARTING = "starting"
    RUNNING = "running"
    SUSPENDED = "suspended"
    COMPLETING = "completing"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "oom"
    NODE_FAIL = "node_fail"
    PREEMPTED = "preempted"
    UNKNOWN = "unknown"


class QueueJob(Frozen):
    """One job in the queue as any user may see it; an array record stands for `array_pending` tasks."""

    job_id: str
    state: JobState
    state_raw: str
    user: str | None = None
    account: str | None = None
    partitions: tuple[str, ...] = ()
    qos: str | None = None
    reason: str = ""
    priority: int | None = None
    nodes: int = 1
    cpus: int = 1
    memory_mib: int | None = None
    """Total for the job."""
    gpus: int = 0
    gpu_type: str | None = None
    walltime_s: int | None = None
    """Limit; None = unlimited or not shown."""
    submit_at: datetime | None = None
    start_at: datetime | None = None
    """Actual start of a running job, or the scheduler's expectation for a pending one."""
    node_names: tuple[str, ...] = ()
    is_eligible: bool = True
    """Pending for resources or priority only: not held, dependent, or blocked by its own limits."""
    array_pending: int = 1
    array_throttle: int | None = None
    name: str = ""
    comment: str = ""


class FinishedJob(Frozen):
    """One job of anybody that ran and ended: what it asked for and what it used."""

    user: str | None
    partition: str
    ended_at: datetime
    """By the site's clock."""
    elapsed_s: int
    walltime_s: int
    """Its limit."""


class Probe(Frozen):
    """All that one probe of a system found. Static parts are None when this probe did not ask for them."""

    scheduler: str
    """For example "slurm 22.05.8"."""
    cluster: str = ""
    taken_at: datetime
    clock_ahead_s: int = 0
    """How far the site's clock is ahead of ours (negative: behind); 0 also where it is within a minute."""
    nodes: tuple[Node, ...]
    partitions: tuple[Partition, ...] | None
    jobs: tuple[QueueJob, ...]
    jobs_visible: bool = True
    """False where the site hides other users' jobs."""
    qos: tuple[Qos, ...] | None = None
    associations: tuple[Association, ...] | None = None
    reservations: tuple[Reservation, ...] = ()
    user: str | None = None
    """The remote user we are there."""
    accounting_up: bool = True
    finished: tuple[FinishedJob, ...] | None = None
    """What ended since the instant asked for, the first to end first; None = not asked, or not told."""
    finished_unknown: str = ""
    """Why `finished` is missing, or holds our own jobs alone; "" = it holds everybody's."""
    warnings: tuple[str, ...] = ()


# --- jobs of ours -----------------------------------------------------------------------------------


class JobRequest(Frozen):
    """One batch job to render, in a scheduler's terms but in no scheduler's spelling. Totals per job."""

    submit_key: str
    """Unique marker put into name and comment, by which the job is found again after any doubt."""
    name: str
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    reservation: str | None = None
    nodes: int = 1
    tasks: int | None = None
    cpus: int = 1
    gpus: int = 0
    gpu_type: str | None = None
    """The site's own spelling of the type, when one must be named."""
    gpu_spelling: Literal["gres", "gpus-per-node", "none"] = "gres"
    """"none": GPUs come with the node and must not be asked for (Vista)."""
    memory_mib: int | None = None
    """Total; None leaves the site's default. 0 asks for all memory of the nodes."""
    memory_spelling: Literal["mem", "mem-per-cpu", "none"] = "mem"
    walltime_s: int
    submission: int = 1
    """Number of the claim. Of the submissions with one number at most one is carried out, however many there
    are and however late they come; it goes up once one was begun and the site denied that it has the job."""
    constraint: str | None = None
    exclusive: bool = False
    workdir: str
    stdout_path: str
    stderr_path: str
    modules: tuple[str, ...] = ()
    conda: str | None = None
    container_runtime: str | None = None
    container_image: str | None = None
    variables: Mapping[str, str] = Field(default_factory=dict)
    links: tuple[tuple[str, str], ...] = ()
    """Inputs that are at the site, and the absolute path at which the work expects each."""
    setup: tuple[str, ...] = ()
    """Lines run before the work, verbatim (the user's and the site's)."""
    signal: str | None = None
    """For example "B:USR1@120"."""
    resume_argv: tuple[str, ...] | None = None
    resume_shell: str | None = None
    """What runs instead of the work where FACET_RESUME is set; at most one of the two."""
    requeue: bool = False
    extra_directives: tuple[str, ...] = ()
    """Verbatim options of the user's script that the envelope does not cover, without the prefix."""
    argv: tuple[str, ...] | None = None
    shell_command: str | None = None
    script: str | None = None
    """A whole batch script: its own directives are dropped, the rest is kept. Exactly one of the three."""


class JobRef(Frozen):
    """How we know a job of ours: the id may be unknown yet; ids are recycled, so the key decides."""

    submit_key: str
    job_id: str | None = None
    submitted_at: datetime | None = None


class SubmitResult(Frozen):
    """What the scheduler said to a submission. `doubtful`: it may or may not exist; ask for the key."""

    outcome: Literal["accepted", "rejected", "doubtful"]
    job_id: str | None = None
    said: str = ""
    """The scheduler's own words, bounded."""
    explained: str = ""
    """The same in a sentence a person can act on."""
    retryable: bool = False
    """A refusal that may pass later (submit limit reached, controller busy)."""
    blames_site: bool = True
    """Of a doubt: it lies with the site; False where our own access or rate is the reason."""
    is_begun: bool = False
    """The site shows that the submission's claim was made, by this request or one before: it is used up."""


class Observation(Frozen):
    """One look at one of our jobs. Times are the scheduler's."""

    job_id: str
    submit_key: str | None = None
    source: Literal["queue", "accounting"]
    state: JobState
    state_raw: str
    reason_raw: str = ""
    reason_explained: str = ""
    exit_code: int | None = None
    exit_signal: int | None = None
    submit_at: datetime | None = None
    eligible_at: datetime | None = None
    start_at: datetime | None = None
    """Actual start."""
    expected_start_at: datetime | None = None
    end_at: datetime | None = None
    elapsed_s: int | None = None
    walltime_s: int | None = None
    node_names: tuple[str, ...] = ()
    left_queue: bool = False
    """The queue, seen whole, does not hold the job that accounting still calls alive."""
    restarts: int = 0
    """How often the scheduler itself requeued it."""
    partition: str | None = None
    account: str | None = None
    cpus: int | None = None
    gpus: int | None = None
    nodes: int | None = None
    billing: float | None = None
