"""The emulated cluster as plain values: nodes, partitions, jobs, limits, reservations.

Hand-written classes instead of dataclasses: importing those costs as much as a whole command.
Each class lists its fields with defaults; an instance stores only what differs, which is also its
JSON form. Seconds, MiB and counts throughout; 0 for a limit means "no limit".
"""

from __future__ import annotations

import sys

LIVE = frozenset({"PENDING", "RUNNING", "COMPLETING", "SUSPENDED"})
SHORT = {
    "PENDING": "PD",
    "RUNNING": "R",
    "COMPLETING": "CG",
    "COMPLETED": "CD",
    "CANCELLED": "CA",
    "FAILED": "F",
    "TIMEOUT": "TO",
    "NODE_FAIL": "NF",
    "PREEMPTED": "PR",
    "OUT_OF_MEMORY": "OOM",
    "DEADLINE": "DL",
    "REQUEUED": "RQ",
    "SUSPENDED": "S",
}
STATE_ORDER = tuple(SHORT)
MIN_JOB_AGE_S = 300


class Record:
    """A value with named fields; unknown names are refused."""

    def __init__(self, **fields: object) -> None:
        unknown = fields.keys() - self.names()
        if unknown:
            message = f"{type(self).__name__} has no field {sorted(unknown)}"
            raise TypeError(message)
        self.__dict__.update(fields)

    @classmethod
    def names(cls) -> frozenset[str]:
        """Return the field names, inherited ones included."""
        cached = cls.__dict__.get("_names")
        if cached is None:
            cached = frozenset(
                sys.intern(name) for base in cls.__mro__ for name in getattr(base, "__annotations__", {})
            )
            cls._names = cached  # type: ignore[attr-defined]  # filled once per class
        return cached

    def packed(self) -> dict[str, object]:
        """Return what differs from the defaults, ready for JSON."""
        return dict(self.__dict__)


class Node(Record):
    """One node: its shape, and what an administrator or a fault did to it."""

    name: str = ""
    arch: str = "x86_64"
    sockets: int = 2
    cores: int = 32
    mem: int = 256000
    gpus: list[tuple[str, int]] = []
    """(type, count) in index order; type "" where the site does not name it."""
    features: list[str] = []
    flags: list[str] = []
    """DOWN, DRAIN, FAIL, NOT_RESPONDING, POWERED_DOWN, REBOOT_REQUESTED set by administrators or faults."""
    reason: str = ""
    reason_user: str = "root"
    reason_at: int = 0
    port: int = 6818
    addr: str = ""
    host: str = ""
    os: str = "Linux 5.14.0-427.el9"
    boot: int = 0
    started: int = 0
    busy_at: int = 0
    load: str = ""
    """CPU load as shown; "" follows the allocated CPUs."""
    free: int = -1
    """Free memory as the node reports it, MiB; -1 follows the allocated memory."""

    @property
    def cpus(self) -> int:
        """Total CPUs."""
        return self.sockets * self.cores

    @property
    def gpu_types(self) -> list[str]:
        """The type of each GPU by index."""
        return [kind for kind, count in self.gpus for _ in range(count)]


class Partition(Record):
    """One partition; times in seconds, `max_time` 0 = UNLIMITED, `max_nodes` 0 = UNLIMITED."""

    name: str = ""
    nodes: list[str] = []
    default: bool = False
    hidden: bool = False
    max_time: int = 0
    default_time: int = 0
    max_nodes: int = 0
    min_nodes: int = 0
    tier: int = 1
    exclusive: bool = False
    allow_accounts: list[str] = []
    allow_groups: list[str] = []
    qos: str = ""
    preempt: str = "OFF"
    grace: int = 0
    state: str = "UP"
    def_mem_per_cpu: int = 0
    def_mem_per_gpu: int = 0
    def_cpus_per_gpu: int = 0


class Qos(Record):
    """One quality of service; 0 = no limit, counts otherwise."""

    name: str = ""
    priority: int = 0
    flags: str = ""
    max_wall: int = 0
    max_gpus_user: int = 0
    max_cpus_user: int = 0
    max_nodes_user: int = 0
    max_jobs_user: int = 0
    max_submit_user: int = 0
    grp_gpus: int = 0
    grp_jobs: int = 0


class Assoc(Record):
    """One account, or one user in an account, with its limits (0 = none)."""

    account: str = ""
    user: str = ""
    share: int = 1
    qos: list[str] = ["normal"]
    default_qos: str = ""
    grp_gpus: int = 0
    max_jobs: int = 0
    max_submit: int = 0
    max_wall: int = 0
    max_gpus: int = 0
    """GPUs of one job."""
    grp_minutes: dict[str, int] = {}
    """GrpTRESMins by TRES: what the account may use for good."""


class Reservation(Record):
    """Nodes set aside for users or for maintenance."""

    name: str = ""
    start: int = 0
    end: int = 0
    nodes: list[str] = []
    flags: list[str] = []
    users: list[str] = []
    accounts: list[str] = []


class Job(Record):
    """One job, or the not yet started rest of a job array (`tasks`)."""

    key: int = 0
    """Row in the store: unique for ever, where ids are recycled."""
    id: int = 0
    array: int = 0
    """Id of the array this is a task or the rest of; 0 = none."""
    task: int = -1
    tasks: list[int] = []
    throttle: int = 0
    array_size: int = 0
    name: str = ""
    user: str = ""
    account: str = ""
    qos: str = "normal"
    partitions: list[str] = []
    partition: str = ""
    state: str = "PENDING"
    completing: bool = False
    """Ended, but its processes are not yet gone: nodes stay taken."""
    reason: str = "None"
    words: str = ""
    """The sentence that squeue shows instead of the reason."""
    submit: int = 0
    eligible: int = 0
    start: int = 0
    end: int = 0
    expected: int = 0
    planned: list[str] = []
    begin: int = 0
    limit: int = 0
    limit_given: bool = False
    deadline: int = 0
    nodes: int = 1
    tasks_n: int = 1
    tasks_per_node: int = 0
    cpus_per_task: int = 1
    cpus: int = 1
    mem_cpu: int = 0
    mem_node: int = 0
    mem_all: bool = False
    gpus_node: int = 0
    gpu_type: str = ""
    gpu_words: str = ""
    """The request as TRES_PER_NODE shows it, `gres:gpu:a100:2`."""
    gpu_job_words: str = ""
    """A request by `--gpus` as TRES_PER_JOB shows it, `gres:gpu:6`."""
    last_gpus: dict[str, int] = {}
    """GPUs by type of the former run of a requeued job; Slurm goes on showing them."""
    constraint: str = ""
    exclusive: bool = False
    want_nodes: list[str] = []
    avoid_nodes: list[str] = []
    reservation: str = ""
    dependency: str = ""
    kill_on_invalid_dep: bool = False
    held: str = ""
    """"", "user" or "admin"."""
    base_priority: int = 0
    nice: int = 0
    comment: str = ""
    requeue: bool = True
    restarts: int = 0
    workdir: str = "/"
    stdout: str = ""
    stderr: str = ""
    stdin: str = "/dev/null"
    command: str = ""
    open_mode: str = "truncate"
    signal: str = ""
    alloc: dict[str, tuple[int, int, list[int]]] = {}
    """By node: [cpus, MiB, [GPU indices]]."""
    batch_host: str = ""
    exit: int = 0
    exit_signal: int = 0
    killer: int = -1
    """User id of who cancelled it."""
    background: bool = False
    runtime: int = 0
    """Hidden true run time of a background job, seconds."""
    launched_at: int = 0
    spool: str = ""
    """Directory under `spool/` that holds the script and environment of the submission."""

    @property
    def gpus(self) -> int:
        """GPUs in total."""
        return self.gpus_node * self.nodes

    @property
    def alloc_cpus(self) -> int:
        """CPUs held (all of exclusive nodes), or asked for while none are held."""
        return sum(row[0] for row in self.alloc.values()) or self.cpus

    @property
    def live(self) -> bool:
        """Whether the queue still holds it."""
        return self.state in LIVE or self.completing

    @property
    def holds_nodes(self) -> bool:
        """Whether its allocation is taken from the nodes."""
        return self.state in {"RUNNING", "SUSPENDED"} or self.completing

    @property
    def shown_id(self) -> str:
        """The id as squeue and sacct show it: `7`, `4_6`, `4_[6-15%6]`."""
        if not self.array:
            return str(self.id)
        if self.task >= 0:
            return f"{self.array}_{self.task}"
        from providers.sandbox.slurm.text import ranges  # noqa: PLC0415 - only arrays pay for it

        throttle = f"%{self.throttle}" if self.throttle else ""
        return f"{self.array}_[{ranges(self.tasks)}{throttle}]"

    def memory_on_node(self, cpus_here: int) -> int:
        """Return MiB this job takes on a node where it holds `cpus_here` CPUs."""
        return self.mem_node or self.mem_cpu * cpus_here


class Held:
    """What jobs hold on one node."""

    __slots__ = ("completing", "cpus", "gpus", "jobs", "mem")

    def __init__(self) -> None:
        self.cpus = 0
        self.mem = 0
        self.gpus: set[int] = set()
        self.jobs = 0
        self.completing = False

    def take(self, cpus: int, mem: int, gpus: list[int], *, completing: bool = False) -> None:
        """Add one job's share."""
        self.cpus += cpus
        self.mem += mem
        self.gpus.update(gpus)
        self.jobs += 1
        self.completing = self.completing or completing


class Cluster:
    """Everything a command or the scheduler works on: the site and its live jobs."""

    def __init__(self, site: dict[str, object]) -> None:
        self.name = str(site["name"])
        self.version = str(site["version"])
        self.boot = int(str(site.get("boot", 0)))
        self.config: dict[str, str] = dict(_mapping(site["config"]))
        self.users: dict[str, int] = {k: int(v) for k, v in _mapping(site["users"]).items()}
        self.nodes = {str(n["name"]): Node(**n) for n in _rows(site["nodes"])}
        self.partitions = {str(p["name"]): Partition(**p) for p in _rows(site["partitions"])}
        self.qos = {str(q["name"]): Qos(**q) for q in _rows(site["qos"])}
        self.assocs = [Assoc(**a) for a in _rows(site["assocs"])]
        self.reservations = [Reservation(**r) for r in _rows(site["reservations"])]
        self.jobs: list[Job] = []
        self.changed: dict[int, Job] = {}
        self.created: list[Job] = []
        self.nodes_changed = False
        self.next_id = 1
        self.requeue_delay = int(str(site.get("requeue_delay", 121)))

    def packed(self) -> dict[str, object]:
        """Return the site as JSON, without jobs."""
        return {
            "name": self.name,
            "version": self.version,
            "boot": self.boot,
            "requeue_delay": self.requeue_delay,
            "config": self.config,
            "users": self.users,
            "nodes": [n.packed() for n in self.nodes.values()],
            "partitions": [p.packed() for p in self.partitions.values()],
            "qos": [q.packed() for q in self.qos.values()],
            "assocs": [a.packed() for a in self.assocs],
            "reservations": [r.packed() for r in self.reservations],
        }

    def touch(self, job: Job) -> None:
        """Mark a job for saving."""
        if job.key:
            self.changed[job.key] = job

    def add(self, job: Job) -> Job:
        """Take a new job (or accounting row) in; it is saved with the rest."""
        self.jobs.append(job)
        self.created.append(job)
        return job

    def take_id(self) -> int:
        """Return the next job id."""
        self.next_id += 1
        return self.next_id - 1

    def uid(self, user: str) -> int:
        """Return a user's number; unknown names get 65534 as in getpwnam's nobody."""
        return self.users.get(user, 65534)

    def live_jobs(self) -> list[Job]:
        """Return pending, running and completing jobs."""
        return [job for job in self.jobs if job.live]

    def used(self) -> dict[str, Held]:
        """Return by node what jobs hold there."""
        held = {name: Held() for name in self.nodes}
        for job in self.jobs:
            if job.holds_nodes:
                for name, (cpus, mem, gpus) in job.alloc.items():
                    held[name].take(cpus, mem, gpus, completing=job.completing)
        return held


def _rows(value: object) -> list[dict[str, object]]:
    return list(value) if isinstance(value, list) else []


def _mapping(value: object) -> dict[str, str]:
    return dict(value) if isinstance(value, dict) else {}
