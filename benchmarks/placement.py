"""How many placement decisions a second, and how long a plan takes. Run: python benchmarks/placement.py

Prints decisions per second with full trace at growing numbers of candidates, each partition having 16
nodes and 40 waiting jobs: with every plan made anew, with the plans of the snapshot kept in a store, and with
all questions put to one cache; and how much it saves to judge accounts that are alike once. Then the time of
one partition's two plans with 1,000 nodes of running jobs and 300 waiting ones, and of reserving in a copy.
CPU time; ratios compare figures of one run.
"""

import random
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from time import process_time

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from federation.limit_use import OF_USER, UseOfLimits
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
from orchestrator.placement.outlook import build_outlook
from orchestrator.placement.place import place
from orchestrator.placement.store import PlanStore
from orchestrator.placement.timeline import Need

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


def different(records: list[ResourceRecord]) -> list[ResourceRecord]:
    """Return the same records with a credit of their own each, so that none is judged for another."""
    return [replace(each, credit_left=Decimal(20_000 + i)) for i, each in enumerate(records)]


def same(cache: PlanCache) -> PlanCache:
    """Return the cache itself: every decision asks the same one."""
    return cache


def seconds_per_decision(records: list[ResourceRecord], cache: Callable[[], PlanCache]) -> float:
    """Return the mean CPU time of one decision over at least a second of them, after a first one."""
    place(request(), records, now=NOW, model=MODEL, cache=cache())
    done, began = 0, process_time()
    while done < 1 or process_time() - began < 1.0:
        place(request(), records, now=NOW, model=MODEL, cache=cache())
        done += 1
    return (process_time() - began) / done


def best_of_three(work: Callable[[], object]) -> float:
    """Return the best of three CPU times, seconds."""
    times = []
    for _ in range(3):
        began = process_time()
        work()
        times.append(process_time() - began)
    return min(times)


def decisions() -> None:
    """Print decisions a second at growing numbers of candidates."""
    print("candidates  fresh/s   kept/s  one cache/s  kept/fresh  alike/different  us per candidate")
    for count in SIZES:
        records = candidates(count)
        store, one = PlanStore(), PlanCache()
        fresh = seconds_per_decision(records, PlanCache)
        kept = seconds_per_decision(records, partial(PlanCache, store))
        shared = seconds_per_decision(records, partial(same, one))
        other = PlanCache(store)
        unlike = seconds_per_decision(different(records), partial(same, other))
        print(
            f"{count:10,}  {1 / fresh:7.2f}  {1 / kept:7.2f}  {1 / shared:11.2f}  {fresh / kept:10.1f}"
            f"  {unlike / shared:15.1f}  {shared / count * 1e6:16.0f}"
        )


def learned() -> PlacementModel:
    """Return a model that knows how much of their limits each of the users above used."""
    shapes, users = random.Random(3), [f"u{number}" for number in range(40)]
    shares = {(s, u): [shapes.random() for _ in range(OF_USER)] for s in ("s000", "s001") for u in users}
    return PlacementModel(limit_use=UseOfLimits(by_user=shares))


def plans() -> None:
    """Print the time of large plans, and of a reservation in a copy of one."""
    whole = partition(0, nodes=1000, waiting=300, whole=True, shapes=random.Random(1))
    named = partition(1, nodes=1000, waiting=300, whole=False, shapes=random.Random(2))
    counting = best_of_three(lambda: build_outlook(whole, at=NOW, model=MODEL))
    naming = best_of_three(lambda: build_outlook(named, at=NOW, model=MODEL))
    taught = learned()
    learning = best_of_three(lambda: build_outlook(named, at=NOW, model=taught))
    outlook = build_outlook(named, at=NOW, model=MODEL)
    four = Need(nodes=1, cpus=64, memory_mib=262_144, gpus=4)
    copying = best_of_three(lambda: outlook.fork().reserve(four, limit_s=3600, run_s=1800, after=(0, 0)))
    print("\nplan of 1,000 nodes, depth 300       ms   ÷ node counts")
    for name, seconds in (
        ("whole nodes, counted", counting),
        ("shared nodes, named", naming),
        ("the same, use of limits known", learning),
        ("a copy with one job more", copying),
    ):
        print(f"{name:29} {seconds * 1e3:9.1f}  {seconds / counting:14.1f}")


def main() -> None:
    """Print both tables."""
    decisions()
    plans()


if __name__ == "__main__":
    main()
