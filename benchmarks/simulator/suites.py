"""The requests of the two suites: P, the published study's probes; M, mixed real work."""

from dataclasses import dataclass
from random import Random

from benchmarks.simulator.cluster import OWN_USER
from benchmarks.simulator.shapes import SystemShape
from benchmarks.simulator.workload import Job
from orchestrator.envelope.types import Envelope, Range, Runtime
from orchestrator.placement.model import PlacementModel, SpeedSample
from orchestrator.placement.types import Shape

OWN_NUMBER = 1 << 40
"""The number of a probe job; no other job has it."""
EXACT = 1 << 30
"""Runs behind a speed that is known exactly."""
ENVIRONMENTS = tuple(f"env-{number}" for number in range(6))


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a suite. `runtime_s` is on the reference accelerator."""

    kind: str
    envelope: Envelope
    runtime_s: int
    environment: str | None


def _request(
    kind: str,
    *,
    gpus: int,
    cpus: int,
    memory_mib: int,
    runtime_s: int,
    limit_s: int,
    environment: str | None,
) -> Request:
    envelope = Envelope(
        gpus=Range.exactly(gpus),
        cpus=Range.exactly(cpus),
        memory_mib=Range.exactly(memory_mib),
        walltime_s=Range.exactly(limit_s),
        runtime=Runtime(estimate_s=runtime_s),
    )
    return Request(kind, envelope, runtime_s, environment)


def probe_request(random: Random) -> Request:
    """Return one of the published probes: 16 CPUs, one GPU or four GPUs, in the ratio 7 : 6 : 6."""
    kind, gpus, cpus, runtime_s = random.choices(
        [("cpu", 0, 16, 180), ("1 gpu", 1, 16, 180), ("4 gpus", 4, 64, 300)], [7, 6, 6]
    )[0]
    return _request(
        kind,
        gpus=gpus,
        cpus=cpus,
        memory_mib=32_768 * max(gpus, 1),
        runtime_s=runtime_s,
        limit_s=1800,
        environment=None,
    )


def mixed_request(random: Random) -> Request:
    """Return mixed work: 1 to 16 GPUs or 1 to 4 CPU nodes, 0.5 to 6 hours, limit 1.5 to 4 times that."""
    runtime_s = int(1800 * 12 ** random.random())
    limit_s = min(86_400, int(runtime_s * random.uniform(2.6, 4)))
    environment = random.choice(ENVIRONMENTS)
    if random.random() < 0.25:
        nodes = random.choice([1, 2, 4])
        return _request(
            "cpu nodes",
            gpus=0,
            cpus=64 * nodes,
            memory_mib=131_072 * nodes,
            runtime_s=runtime_s,
            limit_s=limit_s,
            environment=environment,
        )
    gpus = random.choice([1, 2, 4, 8, 16])
    return _request(
        f"{gpus} gpus",
        gpus=gpus,
        cpus=8 * gpus,
        memory_mib=32_768 * gpus,
        runtime_s=runtime_s,
        limit_s=limit_s,
        environment=environment,
    )


def facts_of(systems: tuple[SystemShape, ...], *, seed: int, is_mixed: bool) -> PlacementModel:
    """Return what every policy knows of runtimes: exact speeds, and each environment present or its cost.

    The probes run equally long everywhere and need no environment.
    """
    random = Random(f"{seed}/facts")
    speeds: dict[tuple[str, str], SpeedSample] = {}
    present: dict[tuple[str, str], bool] = {}
    costs: dict[tuple[str, str], tuple[float, ...]] = {}
    for system in systems:
        for part in system.partitions:
            speed = part.speed if is_mixed and part.gpu_type else 1.0
            speeds[system.name, part.gpu_type or "cpu"] = SpeedSample(speed, EXACT)
        for environment in ENVIRONMENTS if is_mixed else ():
            key = system.name, environment
            present[key] = random.random() < 0.5
            costs[key] = (float(random.randrange(60, 600)),)
    return PlacementModel(speeds=speeds, environments=present, preparations=costs)


def job_of(shape: Shape, *, now_s: int, runtime_s: int) -> Job:
    """Return the copy of a request to submit in one place."""
    return Job(
        number=OWN_NUMBER,
        user=OWN_USER,
        submit_s=now_s,
        nodes=shape.nodes,
        cpus=shape.cpus_per_node,
        memory_mib=shape.memory_per_node_mib or 0,
        gpus=shape.gpus_per_node,
        limit_s=shape.walltime_s,
        runtimes_s=(runtime_s,),
    )
