"""What a simulated partition consists of at one instant: queue, running jobs, free resources, usage."""

from dataclasses import dataclass, field

from benchmarks.simulator.profile import Ask
from benchmarks.simulator.shapes import DAY
from benchmarks.simulator.workload import Job


@dataclass(frozen=True, slots=True)
class Setup:
    """How the scheduler is set up."""

    backfill_every_s: int = 60
    reservations: int = 30
    """Future reservations of one backfill pass; 1 = EASY."""
    depth: int = 400
    main_depth: int = 100
    """Eligible jobs; those held by their own limits do not count, as when Slurm tries a job on submission."""
    age_weight: float = 3000.0
    """Per week of waiting."""
    fairshare_weight: float = 10_000.0
    size_weight: float = 100.0
    half_life_s: int = 2 * DAY
    priorities_every_s: int = 300


@dataclass(slots=True)
class Entry:
    """A job in the queue: how many of its tasks still wait, and how many run."""

    job: Job
    ask: Ask
    left: int
    running: int = 0
    priority: int = 0

    @property
    def order(self) -> tuple[int, int, int]:
        """Return the place in the queue: by priority, then submission."""
        return -self.priority, self.job.submit_s, self.job.number


@dataclass(frozen=True, slots=True)
class Run:
    """One running task."""

    job: Job
    ask: Ask
    nodes: tuple[int, ...]
    start_s: int
    runtime_s: int


@dataclass(frozen=True, slots=True)
class Ended:
    """One finished task, as accounting keeps it."""

    user: str
    end_s: int
    runtime_s: int
    limit_s: int

    @property
    def limit_share(self) -> float:
        """Return the share of its limit that the task used."""
        return self.runtime_s / self.limit_s


@dataclass(slots=True)
class Free:
    """What is free on each node now."""

    cpus: list[int]
    memory_mib: list[int]
    gpus: list[int]
    is_down: list[bool]

    def copy(self) -> "Free":
        return Free(self.cpus.copy(), self.memory_mib.copy(), self.gpus.copy(), self.is_down.copy())


@dataclass(slots=True)
class Book:
    """Who uses how much: running tasks, tasks and GPUs by user, decayed node-seconds by user."""

    tasks: dict[str, int] = field(default_factory=dict)
    gpus: dict[str, int] = field(default_factory=dict)
    usage: dict[str, float] = field(default_factory=dict)
    usage_at_s: int = 0

    def copy(self) -> "Book":
        return Book(self.tasks.copy(), self.gpus.copy(), self.usage.copy(), self.usage_at_s)
