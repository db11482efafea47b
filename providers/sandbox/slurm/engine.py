"""The emulated slurmctld: what ends, what starts, and why the rest waits.

Pure: everything is a function of the cluster and `now` (epoch seconds). Running real programs is
`steps.py`; this module only says so by leaving a started job with `launched_at` 0.
FIFO by partition tier and priority, with backfill that never delays a planned job.
"""

from __future__ import annotations

from providers.sandbox.slurm.limits import (
    NEVER,
    Usage,
    limit_block,
    own_block,
    partition_block,
    priority,
)
from providers.sandbox.slurm.model import Cluster, Held, Job, Node, Partition
from providers.sandbox.slurm.packing import Allocation, Request, place, unavailable
from providers.sandbox.slurm.plan import Plan
from providers.sandbox.slurm.tres import held_gpus

BACKFILL_DEPTH = 500
"""Distinct attempts to place a job per pass; the rest wait for the next."""


def advance(cluster: Cluster, now: int) -> None:
    """Bring the cluster to `now`: end background jobs, cancel the impossible, start what fits."""
    end_due(cluster, now)
    schedule(cluster, now)


def end_due(cluster: Cluster, now: int) -> None:
    """End background jobs whose hidden run time or limit is over."""
    for job in cluster.jobs:
        if job.state == "RUNNING" and job.background:
            length = min(job.runtime, job.limit) if job.limit else job.runtime
            if job.start + length <= now:
                over = bool(job.limit) and job.runtime >= job.limit
                finish(cluster, job, "TIMEOUT" if over else "COMPLETED", job.start + length)


def finish(cluster: Cluster, job: Job, state: str, at: int, *, completing: bool = False) -> None:
    """End a job; with `completing` its nodes stay taken until its processes are gone."""
    job.state, job.end, job.completing = state, at, completing
    job.expected, job.planned = 0, []
    for name in job.alloc:
        cluster.nodes[name].busy_at = at
    cluster.touch(job)


def requeue(cluster: Cluster, job: Job, cause: str, now: int) -> None:
    """Put a running job back in the queue; its former run stays as an accounting row."""
    past = Job(**job.packed())
    past.key = 0
    past.state, past.end, past.completing = cause, now, False
    cluster.add(past)
    job.state, job.reason, job.words = "PENDING", "BeginTime", ""
    job.start = job.end = job.launched_at = 0
    job.last_gpus = held_gpus(cluster, job)
    job.alloc, job.batch_host, job.partition = {}, "", job.partitions[0]
    job.restarts += 1
    job.submit = now  # as Slurm does: a requeue is a new submission under the old id
    job.begin = job.eligible = now + cluster.requeue_delay
    cluster.touch(job)


def fail_node(cluster: Cluster, node: Node, now: int, reason: str = "Not responding") -> list[Job]:
    """Take a node down; its jobs are requeued or end NODE_FAIL. Return the jobs it held."""
    node.flags = sorted({*node.flags, "DOWN", "NOT_RESPONDING"})
    node.reason, node.reason_user, node.reason_at = reason, "slurm", now
    cluster.nodes_changed = True
    lost = [job for job in cluster.jobs if job.state == "RUNNING" and node.name in job.alloc]
    for job in lost:
        if job.requeue:
            requeue(cluster, job, "NODE_FAIL", now)
        else:
            finish(cluster, job, "NODE_FAIL", now)
            job.reason = "NodeDown"
    return lost


def schedule(cluster: Cluster, now: int) -> None:
    """Start every pending job that may and fits; give the others their reason and expected start."""
    Pass(cluster, now).run()


def known_ends(cluster: Cluster) -> dict[int, str]:
    """Return the state of every known job id, an array's by all its tasks."""
    states: dict[int, str] = {}
    arrays: dict[int, list[str]] = {}
    for job in cluster.jobs:
        states[job.id] = job.state
        if job.array:
            arrays.setdefault(job.array, []).append(job.state)
    for array, members in arrays.items():
        alive = [state for state in members if state in {"PENDING", "RUNNING"}]
        if alive:
            states[array] = alive[0]
        else:
            states[array] = "COMPLETED" if set(members) == {"COMPLETED"} else "FAILED"
    return states


class Pass:
    """One scheduling pass."""

    def __init__(self, cluster: Cluster, now: int) -> None:
        self.cluster, self.now = cluster, now
        self.usage = Usage(cluster)
        self.held: dict[str, Held] = cluster.used()
        self.plan = Plan(cluster, now)
        self.ended = known_ends(cluster)
        self.full: set[tuple[object, ...]] = set()
        self.waiting: set[str] = set()
        """Partitions where an eligible job of higher priority waits."""
        self.attempts = 0

    def run(self) -> None:
        """Go through the queue in the scheduler's order."""
        pending = [job for job in self.cluster.jobs if job.state == "PENDING"]
        pending.sort(key=self._rank)
        for job in pending:
            before = (job.reason, job.words, job.expected, job.planned)
            job.planned, job.expected = [], 0
            self._consider(job)
            if job.state != "PENDING" or (job.reason, job.words, job.expected, job.planned) != before:
                self.cluster.touch(job)

    def _rank(self, job: Job) -> tuple[int, int, int, int]:
        tier = max((self.cluster.partitions[p].tier for p in job.partitions), default=0)
        return -tier, -priority(self.cluster, job, self.now), job.submit, job.id

    def _consider(self, job: Job) -> None:
        job.reason, job.words = own_block(job, self.now, self.ended)
        if job.reason == NEVER and job.kill_on_invalid_dep:
            finish(self.cluster, job, "CANCELLED", self.now)
            return
        if job.reason:
            job.expected = job.begin if job.reason == "BeginTime" else 0
            return
        if job.dependency:
            job.dependency, job.eligible = "", self.now
        for name in job.partitions:
            if self._try(job, self.cluster.partitions[name]) and job.state != "PENDING":
                return

    def _try(self, job: Job, part: Partition) -> bool:
        """Start the job or its array's next tasks here; return whether one started."""
        started = False
        while job.state == "PENDING":
            reason, words = partition_block(self.cluster, job, part.name)
            if not reason:
                reason, words = limit_block(self.cluster, job, part.name, self.usage)
            if reason:
                job.reason, job.words = reason, words
                return started
            found = self._place(job, part)
            if found is None:
                self._wait(job, part)
                return started
            self._start(job, part, found)
            started = True
        return started

    def _place(self, job: Job, part: Partition) -> Allocation | None:
        special = bool(job.want_nodes or job.avoid_nodes or job.reservation)
        key = (part.name, job.limit, *Request(job, part).key())
        if not special and (key in self.full or self.attempts >= BACKFILL_DEPTH):
            return None
        self.attempts += 1
        found = place(self.cluster, job, part, self.held, self.now, kept=self.plan.kept)
        if found is None:
            found = self._preempt(job, part)
        if found is None and not special:
            self.full.add(key)
        return found

    def _preempt(self, job: Job, part: Partition) -> Allocation | None:
        """Requeue jobs of lower tiers that allow it, when that makes room."""
        victims = [
            other
            for other in self.cluster.jobs
            if other.state == "RUNNING"
            and self.cluster.partitions[other.partition].preempt == "REQUEUE"
            and self.cluster.partitions[other.partition].tier < part.tier
            and not set(other.alloc).isdisjoint(part.nodes)
        ]
        if not victims:
            return None
        without = {name: Held() for name in self.cluster.nodes}
        for other in self.cluster.jobs:
            if other.holds_nodes and other not in victims:
                for name, (cpus, mem, gpus) in other.alloc.items():
                    without[name].take(cpus, mem, gpus, completing=other.completing)
        found = place(self.cluster, job, part, without, self.now, kept=self.plan.kept)
        for other in victims if found else []:
            if not set(other.alloc).isdisjoint(found or {}):
                self.usage.add(other, other.partition, -1)
                requeue(self.cluster, other, "PREEMPTED", self.now)
        if found:
            self.held = self.cluster.used()
        return found

    def _wait(self, job: Job, part: Partition) -> None:
        words = unavailable(self.cluster, job, part)
        if words:
            job.reason, job.words = "Nodes_required_for_job_are_DOWN", words
            return
        job.reason, job.words = ("Priority" if part.name in self.waiting else "Resources"), ""
        if job.reservation and job.reservation not in {r.name for r in self.cluster.reservations}:
            job.reason = "ReservationDeleted"
            return
        self.waiting.add(part.name)
        if self.plan.has_room(part):
            job.expected = self.plan.reserve(job, part)
            if any(
                r.start <= self.now < r.end and not set(r.nodes).isdisjoint(job.want_nodes)
                for r in self.cluster.reservations
            ):
                names = ",".join(job.want_nodes)
                job.reason, job.words = "ReqNodeNotAvail", f"ReqNodeNotAvail, UnavailableNodes:{names}"

    def _start(self, job: Job, part: Partition, found: Allocation) -> None:
        if job.tasks:
            job = split_task(self.cluster, job)
        job.state, job.reason, job.words = "RUNNING", "None", ""
        job.partition, job.alloc = part.name, found
        job.start, job.end, job.launched_at = self.now, 0, 0
        job.expected, job.planned = 0, []
        job.batch_host = min(found)
        for name, (cpus, mem, gpus) in found.items():
            self.held[name].take(cpus, mem, gpus)
        self.usage.add(job, part.name)
        self.plan.run(job)
        self.cluster.touch(job)


def split_task(cluster: Cluster, rest: Job) -> Job:
    """Return the next task of an array as a job of its own; the last one keeps the array's row and id."""
    if len(rest.tasks) == 1:
        rest.task, rest.tasks = rest.tasks[0], []
        cluster.touch(rest)
        return rest
    single = Job(**rest.packed())
    single.key = 0
    single.id, single.task, single.tasks = cluster.take_id(), rest.tasks[0], []
    rest.tasks = rest.tasks[1:]
    cluster.touch(rest)
    return cluster.add(single)
