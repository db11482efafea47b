"""What other users submit: sessions with heavy-tailed batches, overestimated limits and early failures.

Times are seconds from the start of the simulated world. Everything follows from the given random stream.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

from benchmarks.simulator.shapes import DAY, HOUR, PartitionShape

EARLY_FAILURE = 0.10
"""Jobs that end within minutes because something was wrong."""
RUNS_INTO_LIMIT = 0.12
"""Jobs that would need more than they asked for and are killed at the limit."""
SUBMIT_GAP_S = 20
"""Between the jobs of one session."""


@dataclass(frozen=True, slots=True)
class Job:
    """One job, or an array of equal tasks. CPUs, memory and GPUs are of each node."""

    number: int
    user: str
    submit_s: int
    nodes: int
    cpus: int
    memory_mib: int
    gpus: int
    limit_s: int
    runtimes_s: tuple[int, ...]
    """True runtime of each task; nobody but the simulator knows it."""
    throttle: int | None = None
    """Tasks of the array that may run at once."""
    after: int | None = None
    """The job that must have ended first."""

    @property
    def gpus_total(self) -> int:
        """Return the GPUs of one task."""
        return self.gpus * self.nodes


@dataclass(frozen=True, slots=True)
class Outage:
    """A node drained at one instant and returned at another."""

    node: int
    start_s: int
    end_s: int


def jobs_of(shape: PartitionShape, *, days: float, random: Random) -> tuple[Job, ...]:
    """Return the jobs of one partition by submission, until the load's share of its capacity is asked for."""
    horizon_s = int(days * DAY)
    wanted = shape.load.share * shape.nodes * horizon_s
    users = [_User(f"{shape.name}-u{i:02}", random) for i in range(shape.load.users)]
    weights = [1 / (rank + 1) for rank in range(len(users))]
    made: list[Job] = []
    while wanted > 0:
        [user] = random.choices(users, weights)
        for job in _session(shape, user, _instant(horizon_s, random), random=random):
            made.append(job)
            wanted -= _node_seconds(shape, job)
    made.sort(key=lambda job: (job.submit_s, job.number))
    return _renumbered(made)


def outages_of(shape: PartitionShape, *, days: float, random: Random) -> tuple[Outage, ...]:
    """Return drains: about one a day for every forty nodes, each of one to twelve hours."""
    found = []
    for _ in range(round(days * shape.nodes / 40)):
        start_s = random.randrange(int(days * DAY))
        found.append(
            Outage(random.randrange(shape.nodes), start_s, start_s + random.randrange(HOUR, DAY // 2))
        )
    return tuple(sorted(found, key=lambda outage: (outage.start_s, outage.node)))


class _User:
    """A user's habits: how generously limits are asked for, and which size is usual."""

    def __init__(self, name: str, random: Random) -> None:
        self.name = name
        self.overestimate = 1.15 + random.expovariate(1 / 2.0)
        self.usual_size = random.random()


def _session(shape: PartitionShape, user: _User, at_s: int, *, random: Random) -> Iterator[Job]:
    """Yield the jobs a user submits within some minutes: alike in size, limit and kind."""
    load = shape.load
    size = user.usual_size if random.random() < 0.7 else random.random()
    nodes, gpus, cpus = load.sizes[int(size * len(load.sizes))]
    nodes = min(nodes, max(1, shape.nodes // 4))
    memory_mib = min(
        shape.memory_mib, int(shape.memory_mib * max(cpus / shape.cpus, gpus / max(shape.gpus, 1)))
    )
    typical_s = load.median_runtime_s * math.exp(random.gauss(0, 1.1))
    limit_s = _limit(shape, typical_s * user.overestimate)
    count = min(load.max_batch, int(random.expovariate(1 / load.batch_mean) + random.paretovariate(1.3)))
    runtimes = [_runtime(typical_s, limit_s, random) for _ in range(count)]
    typical = Job(
        number=0,
        user=user.name,
        submit_s=at_s,
        nodes=nodes,
        cpus=shape.cpus if shape.is_exclusive else cpus,
        memory_mib=shape.memory_mib if shape.is_exclusive else memory_mib,
        gpus=shape.gpus if shape.is_exclusive else gpus,
        limit_s=limit_s,
        runtimes_s=tuple(runtimes),
    )
    if count > 3 and random.random() < load.array_share:
        yield replace(typical, throttle=random.randint(1, 8))
        return
    is_chain = random.random() < 0.1
    for position, runtime_s in enumerate(runtimes):
        after = -1 if is_chain and position else None
        yield replace(
            typical,
            number=position,
            submit_s=at_s + SUBMIT_GAP_S * position,
            runtimes_s=(runtime_s,),
            after=after,
        )


def _limit(shape: PartitionShape, wanted_s: float) -> int:
    menu = [limit for limit in shape.load.limits_s if limit <= shape.max_walltime_s]
    return next((limit for limit in menu if limit >= wanted_s), menu[-1])


def _runtime(typical_s: float, limit_s: int, random: Random) -> int:
    draw = random.random()
    if draw < EARLY_FAILURE:
        return random.randrange(5, 180)
    if draw < EARLY_FAILURE + RUNS_INTO_LIMIT:
        return limit_s
    return max(10, min(limit_s, int(typical_s * math.exp(random.gauss(0, 0.4)))))


def _instant(horizon_s: int, random: Random) -> int:
    """Return when a session begins: twice as likely at noon as at midnight, less at weekends."""
    while True:
        at_s = random.randrange(horizon_s)
        by_day = 0.5 + 0.25 * (1 - math.cos(2 * math.pi * (at_s % DAY) / DAY))
        weekend = 0.6 if (at_s // DAY) % 7 >= 5 else 1.0
        if random.random() < by_day * weekend:
            return at_s


def _node_seconds(shape: PartitionShape, job: Job) -> float:
    part = max(job.cpus / shape.cpus, job.gpus / shape.gpus if shape.gpus else 0)
    return job.nodes * part * sum(job.runtimes_s)


def _renumbered(jobs: list[Job]) -> tuple[Job, ...]:
    """Return the jobs numbered by submission; one of a chain waits for that user's job just before it."""
    last: dict[str, int] = {}
    found = []
    for number, job in enumerate(jobs):
        after = last.get(job.user) if job.after is not None else None
        found.append(replace(job, number=number, after=after))
        last[job.user] = number
    return tuple(found)
