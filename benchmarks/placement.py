"""How many placement decisions a second, and how long a plan takes. Run: python benchmarks/placement.py

Prints decisions per second with full trace at growing numbers of candidates, each partition having 16
nodes and 40 waiting jobs: once with every plan made anew, once with the plans of the snapshot shared. Then
the time of one partition's two plans with 1,000 nodes of running jobs and 300 waiting ones. Ratios compare
rows of one run.
"""

import random
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from time import perf_counter

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from federation.types import (
    ChargeRule,
    Health,
    NodeView,
    PartitionQueue,
    PendingShare,
    ResourceRecord,
    RunningShare,
    UserLimits,
)
from orchestrator.envelope.types import Envelope, Range
from orchestrator.placement.cache import PlanCache
from orchestrator.placement.model import PlacementModel
from orchestrator.placement.place import place
from orchestrator.placement.plan import build_plan

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
MODEL = PlacementModel()
SIZES = (10, 100, 1_000, 10_000)


def partition(index: int, *, nodes: int, waiting: int, whole: bool, shapes: random.Random) -> ResourceRecord:
    """Return one busy partition: nine nodes of ten are taken, jobs of many sizes wait."""
    views, shares = [], []
    for number in range(nodes):
        name, taken = f"n{number:04}", shapes.random() < 0.9
        parts = 1 if whole else shapes.choice([1, 2, 4])
        for _ in range(parts if taken else 0):
            start = NOW - timedelta(seconds=shapes.randrange(60, 40_000))
            limit = shapes.choice([3600, 14_400, 43_200, 86_400])
            shares.append(
                RunningShare(
                    user=f"u{shapes.randrange(40)}",
                    node_names=(name,),
                    cpus_per_node=64 // parts,
                    memory_per_node_mib=262_144 // parts,
                    gpus_per_node=4 // parts,
                    start_at=start,
                    walltime_s=limit,
                )
            )
        views.append(
            NodeView(
                name=name,
                is_up=True,
                is_usable=True,
                cpus=64,
                cpus_free=0 if taken else 64,
                memory_mib=262_144,
                memory_free_mib=0 if taken else 262_144,
                gpus=4,
                gpus_free=0 if taken else 4,
                gpu_type="a100",
                gpu_memory_mib=40_960,
                is_idle=not taken,
            )
        )
    queue = []
    for _ in range(waiting):
        wide = shapes.choice([1, 1, 1, 1, 2, 4, 16]) if nodes > 100 else shapes.choice([1, 1, 2])
        each = 4 if wide > 1 or whole else shapes.choice([1, 2, 4])
        queue.append(
            PendingShare(
                user=f"u{shapes.randrange(40)}",
                nodes=wide,
                cpus=16 * each * wide,
                memory_mib=65_536 * each * wide,
                gpus=each * wide,
                gpu_type=None,
                walltime_s=shapes.choice([1800, 3600, 7200, 14_400, 43_200, 86_400]),
                priority=shapes.randrange(1000),
                submit_at=NOW - timedelta(seconds=shapes.randrange(86_400)),
                is_eligible=True,
            )
        )
    return ResourceRecord(
        system=f"s{index % 997:03}",
        partition=f"p{index:05}",
        account="abc",
        qos=None,
        snapshot_id=f"snap_{index}",
        observed_at=NOW,
        max_age_s=600,
        health=Health.ONLINE,
        is_connected=True,
        access_denied=None,
        has_allocation=True,
        blocked=None,
        partition_state="up",
        architecture="x86_64",
        nodes=tuple(views),
        queue=PartitionQueue(running=tuple(shares), pending=tuple(queue)),
        max_walltime_s=172_800,
        max_nodes=None,
        is_exclusive=whole,
        limits=UserLimits(),
        own_priority=0,
        charge=ChargeRule(unit="SU", per_gpu=Decimal(1)),
        credit_left=Decimal(10_000),
    )


def request() -> Envelope:
    """Return a request with a range: 1 to 4 GPUs."""
    return Envelope(gpus=Range(min=1, max=4), cpus=Range(min=8, max=32), walltime_s=Range(min=1800, max=1800))


def candidates(count: int) -> list[ResourceRecord]:
    """Return so many records; past fifty, several accounts share one partition's nodes and queue."""
    shapes = random.Random(7)
    templates = [
        partition(i, nodes=16, waiting=40, whole=i % 3 == 0, shapes=shapes) for i in range(min(count, 50))
    ]
    return [
        replace(templates[i % len(templates)], account=f"a{i // len(templates):03}") for i in range(count)
    ]


def seconds_per_decision(records: list[ResourceRecord], *, shared: bool) -> float:
    """Return the mean time of one decision over at least a second of them."""
    cache, done, began = PlanCache(), 0, perf_counter()
    if shared:
        place(request(), records, now=NOW, model=MODEL, cache=cache)
        began = perf_counter()
    while done < 1 or perf_counter() - began < 1.0:
        place(request(), records, now=NOW, model=MODEL, cache=cache if shared else PlanCache())
        done += 1
    return (perf_counter() - began) / done


def best_plan_time(record: ResourceRecord) -> float:
    """Return the best of three times to plan a partition twice, limits and means, seconds."""
    times = []
    for _ in range(3):
        began = perf_counter()
        build_plan(record, now=NOW, model=MODEL)
        times.append(perf_counter() - began)
    return min(times)


def main() -> None:
    """Print both tables."""
    print("candidates  fresh plans/s  shared plans/s  shared/fresh  us per candidate")
    for count in SIZES:
        records = candidates(count)
        fresh = seconds_per_decision(records, shared=False)
        shared = seconds_per_decision(records, shared=True)
        each = shared / count * 1e6
        print(f"{count:10,}  {1 / fresh:13.2f}  {1 / shared:14.2f}  {fresh / shared:12.1f}  {each:16.0f}")
    print("\nplan of 1,000 nodes, depth 300     ms   ÷ node counts")
    whole = best_plan_time(partition(0, nodes=1000, waiting=300, whole=True, shapes=random.Random(1)))
    named = best_plan_time(partition(1, nodes=1000, waiting=300, whole=False, shapes=random.Random(2)))
    print(f"whole nodes, counted        {whole * 1e3:9.1f}  {1.0:14.1f}")
    print(f"shared nodes, named         {named * 1e3:9.1f}  {named / whole:14.1f}")


if __name__ == "__main__":
    main()
