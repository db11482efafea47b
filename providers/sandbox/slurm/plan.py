"""When a blocked job should start: the first window in which its nodes fall free.

Pure; the backfill half of the scheduler. Running and planned jobs are intervals that end at their time
limit. Deliberately conservative: everything overlapping the window counts at once.
"""

from __future__ import annotations

from providers.sandbox.slurm.model import Cluster, Held, Job, Partition
from providers.sandbox.slurm.packing import UNUSABLE, Request, overlaps, share

PER_PARTITION = 8
"""Blocked jobs planned per partition in one pass (bf_max_job_test in spirit)."""
MAX_WINDOWS = 40
FOR_EVER_S = 365 * 86400

Interval = tuple[int, int, int, int, list[int]]


class Plan:
    """The intervals of every node, and the nodes kept for planned jobs."""

    def __init__(self, cluster: Cluster, now: int) -> None:
        self.cluster, self.now = cluster, now
        self.kept: dict[str, int] = {}
        self.count: dict[str, int] = {}
        self._after: dict[tuple[object, ...], int] = {}
        self._rows: dict[str, list[Interval]] = {name: [] for name in cluster.nodes}
        for job in cluster.jobs:
            if job.holds_nodes:
                self.run(job)

    def run(self, job: Job) -> None:
        """Count a running job in."""
        until = self.now + 5 if job.completing else max(self.now + 1, job.start + (job.limit or FOR_EVER_S))
        for name, (cpus, mem, gpus) in job.alloc.items():
            self._rows[name].append((self.now, until, cpus, mem, gpus))

    def has_room(self, part: Partition) -> bool:
        """Return whether one more job of this partition may be planned in this pass."""
        return self.count.get(part.name, 0) < PER_PARTITION

    def reserve(self, job: Job, part: Partition) -> int:
        """Plan a job and keep its nodes; return its expected start, 0 when none is found."""
        self.count[part.name] = self.count.get(part.name, 0) + 1
        request = Request(job, part)
        usable = self._usable(job, part)
        shape = (part.name, *request.key())
        for start in self._windows(part, self._after.get(shape, self.now)):
            found = self._fits(job, request, usable, start)
            if len(found) >= request.nodes:
                chosen = dict(list(found.items())[: request.nodes])
                self._keep(job, chosen, start)
                self._after[shape] = start
                return start
        return 0

    def _usable(self, job: Job, part: Partition) -> list[str]:
        return [
            name
            for name in part.nodes
            if UNUSABLE.isdisjoint(self.cluster.nodes[name].flags)
            and (not job.want_nodes or name in job.want_nodes)
            and name not in job.avoid_nodes
        ]

    def _windows(self, part: Partition, after: int) -> list[int]:
        ends = {after, *(row[1] for name in part.nodes for row in self._rows[name] if row[1] > after)}
        ends |= {
            r.end
            for r in self.cluster.reservations
            if r.end > after and not set(r.nodes).isdisjoint(part.nodes)
        }
        return sorted(ends)[:MAX_WINDOWS]

    def _fits(
        self, job: Job, request: Request, usable: list[str], start: int
    ) -> dict[str, tuple[int, int, list[int]]]:
        end = start + (job.limit or FOR_EVER_S)
        found: dict[str, tuple[int, int, list[int]]] = {}
        blocked = {
            name
            for r in self.cluster.reservations
            if r.name != job.reservation and overlaps(r, start, job.limit)
            for name in r.nodes
        }
        for name in usable:
            if name in blocked:
                continue
            held = Held()
            for low, high, cpus, mem, gpus in self._rows[name]:
                if low < end and high > start:
                    held.take(cpus, mem, gpus)
            taken = share(self.cluster.nodes[name], request, held)
            if taken is not None:
                found[name] = taken
                if len(found) >= request.nodes:
                    break
        return found

    def _keep(self, job: Job, chosen: dict[str, tuple[int, int, list[int]]], start: int) -> None:
        job.planned = sorted(chosen)
        for name, (cpus, mem, gpus) in chosen.items():
            self._rows[name].append((start, start + (job.limit or FOR_EVER_S), cpus, mem, gpus))
            self.kept[name] = min(start, self.kept.get(name, start))
