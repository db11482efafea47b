"""The whole simulated federation: every partition of every system, made from one seed and moved together."""

from random import Random

from benchmarks.simulator.cluster import PartitionWorld
from benchmarks.simulator.shapes import SYSTEMS, SystemShape
from benchmarks.simulator.state import Setup
from benchmarks.simulator.view import records_of
from benchmarks.simulator.workload import Job, jobs_of, outages_of
from federation.limit_use import OF_PARTITION, OF_USER, UseOfLimits
from federation.types import ResourceRecord

Place = tuple[str, str]
"""System and partition."""
NEWEST = 2000
"""Finished jobs of a partition that are looked at."""


class Federation:
    """Several systems at one instant. Two of the same seed and shapes live through the same days."""

    def __init__(
        self,
        *,
        seed: int,
        days: float,
        systems: tuple[SystemShape, ...] = SYSTEMS,
        setup: Setup | None = None,
    ) -> None:
        """Make the load of so many days; nothing has been submitted yet."""
        self.systems, self.now_s = systems, 0
        self.worlds: dict[Place, PartitionWorld] = {}
        for system in systems:
            for part in system.partitions:
                random = Random(f"{seed}/{system.name}/{part.name}")
                jobs = jobs_of(part, days=days, random=random)
                outages = outages_of(part, days=days, random=random)
                self.worlds[system.name, part.name] = PartitionWorld(part, jobs, outages, setup)

    def run_until(self, at_s: int) -> None:
        """Let time pass everywhere."""
        for world in self.worlds.values():
            world.run_until(at_s)
        self.now_s = at_s

    def records(self) -> tuple[ResourceRecord, ...]:
        """Return our records of every system now."""
        found: list[ResourceRecord] = []
        for system in self.systems:
            worlds = {part.name: self.worlds[system.name, part.name] for part in system.partitions}
            found += records_of(system, worlds, now_s=self.now_s)
        return tuple(found)

    def wait(self, place: Place, job: Job, *, horizon_s: int) -> int | None:
        """Return how long a job submitted there now would wait, in a copy; None = longer than the horizon."""
        return self.worlds[place].probe(job, horizon_s=horizon_s)

    def limit_use(self) -> UseOfLimits:
        """Return the shares of their limits that finished jobs used, as accounting would tell them."""
        by_user: dict[tuple[str, str], list[float]] = {}
        by_partition: dict[Place, tuple[float, ...]] = {}
        for (system, partition), world in self.worlds.items():
            newest = world.ended[-NEWEST:]
            by_partition[system, partition] = tuple(each.limit_share for each in newest[-OF_PARTITION:])
            for each in newest:
                by_user.setdefault((system, each.user), []).append(each.limit_share)
        newest_of_user = {key: shares[-OF_USER:] for key, shares in by_user.items()}
        return UseOfLimits(by_user=newest_of_user, by_partition=by_partition)
