"""The simulated federation as data: four systems, nine partitions, and how much is asked of each.

Shaped after four published systems, about a fifth to a half of their size. Memory is MiB, times seconds,
figures of a node are for the whole node.
"""

from dataclasses import dataclass, replace

HOUR = 3600
DAY = 24 * HOUR


@dataclass(frozen=True, slots=True)
class Load:
    """What other users ask of a partition. `share`: work submitted ÷ capacity, over the whole run."""

    share: float
    users: int
    median_runtime_s: int
    sizes: tuple[tuple[int, int, int], ...]
    """(nodes, GPUs per node, CPUs per node), drawn alike often; repeat one to make it likelier."""
    batch_mean: float = 3.0
    max_batch: int = 400
    """Jobs of one session, before the heavy tail."""
    array_share: float = 0.2
    """Sessions that submit one throttled array instead of single jobs."""
    limits_s: tuple[int, ...] = (HOUR // 2, HOUR, 2 * HOUR, 4 * HOUR, 8 * HOUR, 12 * HOUR, DAY, 2 * DAY)


@dataclass(frozen=True, slots=True)
class PartitionShape:
    """One partition of equal nodes that no other partition shares."""

    name: str
    nodes: int
    cpus: int
    memory_mib: int
    gpus: int
    gpu_type: str | None
    load: Load
    gpu_memory_mib: int | None = None
    is_exclusive: bool = False
    max_walltime_s: int = 2 * DAY
    max_running_per_user: int | None = None
    max_gpus_per_user: int | None = None
    speed: float = 1.0
    """How much faster than an A100 (or an x86 node) the mixed suite's work runs here."""


@dataclass(frozen=True, slots=True)
class SystemShape:
    """One system; its partitions are scheduled apart, since they share no node."""

    name: str
    architecture: str
    partitions: tuple[PartitionShape, ...]


_GPU_SIZES = ((1, 1, 16), (1, 1, 16), (1, 1, 8), (1, 2, 32), (1, 4, 64), (1, 4, 64), (2, 4, 64), (4, 4, 64))
_GH_SIZES = ((1, 1, 72), (1, 1, 72), (1, 2, 144), (1, 4, 288), (1, 4, 288), (2, 4, 288), (8, 4, 288))
_WHOLE_SIZES = ((1, 1, 72), (1, 1, 72), (2, 1, 72), (4, 1, 72), (8, 1, 72), (32, 1, 72))
_CPU_SIZES = ((1, 0, 1), (1, 0, 16), (1, 0, 32), (1, 0, 128), (2, 0, 128), (4, 0, 128))

SYSTEMS: tuple[SystemShape, ...] = (
    SystemShape(
        "delta",
        "x86_64",
        (
            PartitionShape(
                "gpuA100x4",
                100,
                64,
                256_000,
                4,
                "a100",
                Load(1.1, 60, HOUR, _GPU_SIZES),
                gpu_memory_mib=40_960,
            ),
            PartitionShape(
                "gpuA40x4",
                100,
                64,
                256_000,
                4,
                "a40",
                Load(1.25, 50, HOUR, _GPU_SIZES),
                gpu_memory_mib=46_068,
                speed=0.6,
            ),
            PartitionShape("cpu", 80, 128, 256_000, 0, None, Load(0.95, 40, HOUR, _CPU_SIZES)),
        ),
    ),
    SystemShape(
        "deltaai",
        "aarch64",
        (
            PartitionShape(
                "ghx4",
                120,
                288,
                860_000,
                4,
                "gh200",
                Load(1.15, 60, HOUR, _GH_SIZES, batch_mean=14.0, array_share=0.5),
                gpu_memory_mib=98_304,
                max_gpus_per_user=64,
                speed=2.0,
            ),
        ),
    ),
    SystemShape(
        "anvil",
        "x86_64",
        (
            PartitionShape("shared", 80, 128, 257_000, 0, None, Load(1.0, 60, HOUR, _CPU_SIZES)),
            PartitionShape(
                "gpu",
                16,
                128,
                512_000,
                4,
                "a100",
                Load(1.15, 30, HOUR, _GPU_SIZES[:6]),
                gpu_memory_mib=40_960,
                max_gpus_per_user=12,
            ),
            PartitionShape(
                "ai",
                21,
                96,
                1_030_000,
                4,
                "h100",
                Load(1.15, 40, HOUR, _GPU_SIZES[:7], batch_mean=4.0),
                gpu_memory_mib=81_920,
                max_gpus_per_user=24,
                speed=1.9,
            ),
        ),
    ),
    SystemShape(
        "vista",
        "aarch64",
        (
            PartitionShape(
                "gh",
                200,
                72,
                237_000,
                1,
                "gh200",
                Load(1.15, 60, HOUR, _WHOLE_SIZES),
                gpu_memory_mib=98_304,
                is_exclusive=True,
                speed=2.0,
            ),
            PartitionShape(
                "gh-dev",
                20,
                72,
                237_000,
                1,
                "gh200",
                Load(
                    0.35,
                    40,
                    HOUR // 4,
                    _WHOLE_SIZES[:4],
                    batch_mean=0.3,
                    max_batch=3,
                    limits_s=(HOUR // 2, HOUR, 2 * HOUR),
                ),
                gpu_memory_mib=98_304,
                is_exclusive=True,
                max_walltime_s=2 * HOUR,
                max_running_per_user=1,
                speed=2.0,
            ),
        ),
    ),
)


def scaled(systems: tuple[SystemShape, ...], factor: float, *, load: float = 1.0) -> tuple[SystemShape, ...]:
    """Return the same systems with so many times the nodes, at least four in each partition, and the load."""
    return tuple(
        replace(
            system,
            partitions=tuple(
                replace(
                    part,
                    nodes=max(4, round(part.nodes * factor)),
                    load=replace(part.load, share=part.load.share * load),
                )
                for part in system.partitions
            ),
        )
        for system in systems
    )
