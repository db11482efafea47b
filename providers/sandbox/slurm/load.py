"""Other people's jobs: they arrive, wait, run and leave in real time, but are only state.

Each partition has a profile: how much of it should be busy, how many tasks should wait, how many of
those are held back by their own limits. Every few seconds what is missing is submitted; seeded, so that
the same seed and clock give the same crowd. Counts are GPUs in GPU partitions and CPUs elsewhere.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping

from providers.sandbox.slurm.model import Cluster, Job, Partition
from providers.sandbox.slurm.store import Store

EVERY_S = 4.0
MOST_PER_STEP = 12
DAY_S = 86400
NAMES = (
    "train",
    "finetune",
    "md-prod",
    "namd",
    "vasp",
    "cfd",
    "eval",
    "sweep",
    "render",
    "jupyter",
    "wrf",
    "af2",
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from random import Random


class Profile:
    """How one partition is used. Fractions 0..1, seconds, counts."""

    def __init__(self, row: Mapping[str, object]) -> None:
        self.partition = str(row["partition"])
        self.account = str(row["account"])
        self.busy = float(str(row.get("busy", 0.7)))
        self.pending = int(str(row.get("pending", 0)))
        """Tasks that should wait though not eligible (array limits, holds, dependencies)."""
        self.ahead = int(str(row.get("ahead", 0)))
        """Large eligible jobs that should always be waiting."""
        self.sizes = _numbers(row.get("sizes", [1]))
        """GPUs (or CPUs) of a usual job."""
        self.large = _numbers(row.get("large", [0]))
        """Nodes of the large waiting jobs."""
        self.run_s = int(str(row.get("run_s", 1800)))
        self.cpus_per_gpu = int(str(row.get("cpus_per_gpu", 8)))
        self.mem_mib = int(str(row.get("mem_mib", 4000)))
        """Memory per CPU."""
        self.users = int(str(row.get("users", 8)))


def grow(cluster: Cluster, store: Store, now: float) -> None:
    """Submit what the profiles miss, at most every few seconds."""
    profiles = store.meta("load", [])
    if not profiles or not isinstance(profiles, list) or now < store.number("load_next"):
        return
    step = int(store.number("load_step")) + 1
    store.put_meta("load_step", step)
    store.put_meta("load_next", now + EVERY_S)
    from random import Random  # noqa: PLC0415 - costs milliseconds that most calls need not pay

    dice = Random(f"{int(store.number('seed'))}:{step}")  # noqa: S311 - a repeatable crowd, not a secret
    for row in profiles:
        fill(cluster, Profile(row), int(now), dice, most=MOST_PER_STEP)


def fill(
    cluster: Cluster, profile: Profile, now: int, dice: Random, *, most: int, queue: bool = True
) -> None:
    """Submit at most `most` jobs towards the profile's targets; without `queue`, only those meant to run."""
    part = cluster.partitions[profile.partition]
    running, waiting, large, blocked = count(cluster, profile, part)
    wave = 1 + 0.08 * math.sin(2 * math.pi * now / DAY_S) + 0.04 * dice.uniform(-1, 1)
    missing = int(capacity(cluster, part) * min(1.0, profile.busy * wave)) - running - waiting
    made = 0
    while missing > 0 and made < most:
        missing -= _usual(cluster, profile, part, now, dice)
        made += 1
    if not queue:
        return
    while large < profile.ahead and made < most:
        _large(cluster, profile, part, now, dice)
        large, made = large + 1, made + 1
    while blocked < profile.pending and made < most:
        blocked += _blocked(cluster, profile, part, now, dice, most=profile.pending - blocked)
        made += 1


def count(cluster: Cluster, profile: Profile, part: Partition) -> tuple[int, int, int, int]:
    """Return GPUs (or CPUs) running, GPUs waiting, large jobs waiting, and tasks held back by themselves."""
    running = waiting = large = blocked = 0
    in_gpus = has_gpus(cluster, part)
    for job in cluster.jobs:
        if profile.partition not in job.partitions or not job.background:
            continue
        if job.state == "RUNNING":
            running += job.gpus if in_gpus else job.alloc_cpus
        elif job.state == "PENDING":
            if is_blocked(job):
                blocked += max(1, len(job.tasks))
            elif job.nodes > 1 and profile.ahead:
                large += 1
            else:
                waiting += job.gpus if in_gpus else job.cpus
    return running, waiting, large, blocked


def is_blocked(job: Job) -> bool:
    """Return whether a pending background job waits for its own sake, not for nodes."""
    return bool(job.held or job.dependency or job.throttle)


def has_gpus(cluster: Cluster, part: Partition) -> bool:
    """Return whether a partition is counted in GPUs."""
    return any(cluster.nodes[name].gpus for name in part.nodes)


def capacity(cluster: Cluster, part: Partition) -> int:
    """Return all GPUs (or CPUs) of a partition."""
    if has_gpus(cluster, part):
        return sum(len(cluster.nodes[name].gpu_types) for name in part.nodes)
    return sum(cluster.nodes[name].cpus for name in part.nodes)


def fair_share(user: str) -> int:
    """Return the fair-share part of a user's priority, 2,000 to 9,000, the same for ever."""
    return 2000 + zlib.crc32(user.encode()) % 7000


def _numbers(value: object) -> list[int]:
    return [int(str(each)) for each in value] if isinstance(value, list | tuple) else []


def _usual(cluster: Cluster, profile: Profile, part: Partition, now: int, dice: Random) -> int:
    size = dice.choice(profile.sizes)
    _submit(cluster, profile, part, now, dice, size=size, nodes=1)
    return size


def _large(cluster: Cluster, profile: Profile, part: Partition, now: int, dice: Random) -> None:
    nodes = dice.choice(profile.large)
    node = cluster.nodes[part.nodes[0]]
    size = nodes * (len(node.gpu_types) or node.cpus)
    job = _submit(cluster, profile, part, now, dice, size=size, nodes=nodes)
    job.base_priority += 8000


def _blocked(
    cluster: Cluster, profile: Profile, part: Partition, now: int, dice: Random, *, most: int
) -> int:
    """Submit one job that waits for its own sake; return its number of tasks."""
    size = dice.choice(profile.sizes)
    job = _submit(cluster, profile, part, now, dice, size=size, nodes=1)
    kind = dice.random()
    alive = [j.id for j in cluster.jobs if j.background and j.state == "RUNNING" and not j.array]
    if kind < 0.25:
        job.held = "user"
    elif kind < 0.5 and alive:
        job.dependency = f"afterok:{dice.choice(alive)}"
    else:
        tasks = max(2, min(most, dice.choice((8, 16, 32, 64))))
        job.array, job.array_size, job.throttle = job.id, tasks, 1
        job.tasks = list(range(tasks))
        job.gpus_node = min(1, job.gpus_node)
        job.gpu_words = "gres:gpu:1" if job.gpus_node else ""
        job.cpus = job.cpus_per_task = profile.cpus_per_gpu if job.gpus_node else min(4, job.cpus)
    return max(1, len(job.tasks))


def _submit(
    cluster: Cluster, profile: Profile, part: Partition, now: int, dice: Random, *, size: int, nodes: int
) -> Job:
    gpus = size // nodes if has_gpus(cluster, part) else 0
    cpus = min(size * profile.cpus_per_gpu if gpus else size, cluster.nodes[part.nodes[0]].cpus * nodes)
    user = f"u{dice.randrange(profile.users) + 1:03}"
    runtime = max(60, int(dice.lognormvariate(math.log(profile.run_s), 0.7)))
    most = part.max_time or 2 * DAY_S
    limit = min(most, max(600, -(-int(runtime * dice.uniform(1.2, 4.0)) // 600) * 600))
    job = Job(
        id=cluster.take_id(),
        name=f"{dice.choice(NAMES)}{dice.randrange(100)}",
        user=user,
        account=profile.account.lower(),
        partitions=[part.name],
        partition=part.name,
        submit=now,
        eligible=now,
        limit=limit,
        limit_given=True,
        runtime=runtime,
        nodes=nodes,
        cpus=cpus,
        cpus_per_task=max(1, cpus // nodes),
        mem_cpu=profile.mem_mib,
        gpus_node=gpus,
        gpu_words=f"gres:gpu:{gpus}" if gpus else "",
        base_priority=1000 + fair_share(user),
        background=True,
        workdir=f"/scratch/{user}",
        stdout=f"/scratch/{user}/slurm-%j.out",
    )
    return cluster.add(job)
