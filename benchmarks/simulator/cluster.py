"""One partition's scheduler as a discrete-event simulation: a main pass by strict priority, and backfill.

The main pass runs shortly after every event and starts jobs in priority order until one does not fit.
Backfill runs on a fixed beat, gives the first jobs of the queue future reservations on requested limits,
and starts whatever delays none of them. Partitions share no node, so each is a world of its own, and a copy
of one partition is all that a probe job needs.
"""

from bisect import insort
from collections.abc import Callable, Mapping
from copy import copy
from heapq import heappop, heappush
from math import inf, log2

from benchmarks.simulator.profile import Ask, Profile, Step
from benchmarks.simulator.shapes import DAY, PartitionShape
from benchmarks.simulator.state import Book, Ended, Entry, Free, Run, Setup
from benchmarks.simulator.workload import Job, Outage

OWN_USER = "facet"
OWN_FAIRSHARE = 0.35
"""Somewhat more used than the even share, which is ½."""
PRIORITY = "Priority"
START_S = 2
"""From an event to the main pass that sees it."""


class PartitionWorld:
    """One partition over time. `fork` copies it whole; the future arrivals are shared and never changed."""

    def __init__(
        self,
        shape: PartitionShape,
        jobs: tuple[Job, ...],
        outages: tuple[Outage, ...] = (),
        setup: Setup | None = None,
    ) -> None:
        self.shape, self.setup = shape, setup or Setup()
        self.now_s = 0
        self.queue: list[Entry] = []
        self.running: dict[int, Run] = {}
        self.ended: list[Ended] = []
        self.started_at: dict[int, int] = {}
        """First start by job number; kept for own jobs only."""
        count = shape.nodes
        self._free = Free(
            [shape.cpus] * count, [shape.memory_mib] * count, [shape.gpus] * count, [False] * count
        )
        self._jobs, self._next_job = jobs, 0
        self._turns = _turns(outages)
        self._next_turn = 0
        self._ends: list[tuple[int, int]] = []
        self._run_number = 0
        self._unfinished: set[int] = set()
        self._book = Book()
        self._steps: dict[int, list[Step]] = {}
        self._on_node: list[set[int]] = [set() for _ in range(count)]
        self._main_at: float = inf
        self._backfill_at: float = inf
        self._ranked_at_s = 0

    # --- time ------------------------------------------------------------------------------------

    def fork(self) -> "PartitionWorld":
        """Return an independent copy at the same instant; finished jobs of the past are not carried over."""
        made = copy(self)
        made.queue = [copy(entry) for entry in self.queue]
        made.running, made.ended, made.started_at = self.running.copy(), [], self.started_at.copy()
        made._free, made._book = self._free.copy(), self._book.copy()  # our own kind
        made._ends, made._steps = self._ends.copy(), self._steps.copy()  # as above
        made._unfinished = self._unfinished.copy()  # as above
        made._on_node = [held.copy() for held in self._on_node]  # as above
        return made

    def run_until(self, until_s: int, *, stop: Callable[[], bool] | None = None) -> None:
        """Let time pass up to an instant, or until `stop` holds after some event."""
        while True:
            at = self._next_event()
            if at > until_s:
                self.now_s = until_s
                return
            self.now_s = int(at)
            self._happen()
            if stop is not None and stop():
                return

    def probe(self, job: Job, *, horizon_s: int) -> int | None:
        """Return the wait of one more job in a copy of this world; None when it outlasts the horizon."""
        other = self.fork()
        other.submit(job)
        other.run_until(self.now_s + horizon_s, stop=lambda: job.number in other.started_at)
        start_s = other.started_at.get(job.number)
        return None if start_s is None else start_s - job.submit_s

    def submit(self, job: Job) -> None:
        """Put a job into the queue now."""
        ask = Ask(job.nodes, job.cpus, job.memory_mib, job.gpus, job.limit_s)
        if self.shape.is_exclusive:
            ask = Ask(job.nodes, self.shape.cpus, self.shape.memory_mib, self.shape.gpus, job.limit_s)
        entry = Entry(job, ask, len(job.runtimes_s))
        entry.priority = self._priority(entry, self._shares())
        insort(self.queue, entry, key=lambda each: each.order)
        self._unfinished.add(job.number)
        self._touch()

    def _next_event(self) -> float:
        at = self._main_at
        if self._next_job < len(self._jobs):
            at = min(at, self._jobs[self._next_job].submit_s)
        if self._ends:
            at = min(at, self._ends[0][0])
        if self._next_turn < len(self._turns):
            at = min(at, self._turns[self._next_turn][0])
        return min(at, self._backfill_at)

    def _happen(self) -> None:
        """Handle everything due now: ends first, then drains, arrivals, and the passes."""
        now_s = self.now_s
        while self._ends and self._ends[0][0] <= now_s:
            self._end(heappop(self._ends)[1])
        while self._next_turn < len(self._turns) and self._turns[self._next_turn][0] <= now_s:
            _, node, is_down = self._turns[self._next_turn]
            self._next_turn += 1
            self._free.is_down[node] = is_down
            self._touch()
        while self._next_job < len(self._jobs) and self._jobs[self._next_job].submit_s <= now_s:
            self.submit(self._jobs[self._next_job])
            self._next_job += 1
        if self.queue and now_s - self._ranked_at_s >= self.setup.priorities_every_s:
            self._rank()
        if self._main_at <= now_s:
            self._main_at = inf
            self._main_pass()
        if self._backfill_at <= now_s:
            self._backfill_at = inf
            self._backfill()

    def _touch(self) -> None:
        """Something changed: the next main pass and the next backfill will look at it."""
        beat = self.setup.backfill_every_s
        self._main_at = min(self._main_at, self.now_s + START_S)
        self._backfill_at = min(self._backfill_at, (self.now_s // beat + 1) * beat)

    # --- priority ---------------------------------------------------------------------------------

    def _shares(self) -> Mapping[str, float]:
        """Return each user's fair-share factor, 1 = nothing used, ½ = the even share."""
        book = self._book
        even = max(sum(book.usage.values()) / max(len(book.usage), 1), 1.0)
        return {user: 2 ** -(used / even) for user, used in book.usage.items()} | {OWN_USER: OWN_FAIRSHARE}

    def _priority(self, entry: Entry, shares: Mapping[str, float]) -> int:
        job, setup = entry.job, self.setup
        age = min((self.now_s - job.submit_s) / (7 * DAY), 1.0)
        share = shares.get(job.user, 1.0)
        return int(
            setup.age_weight * age + setup.fairshare_weight * share + setup.size_weight * log2(1 + job.nodes)
        )

    def priority_of(self, job: Job) -> int:
        """Return the priority a job would get now; what `sprio` would tell its owner."""
        ask = Ask(job.nodes, job.cpus, job.memory_mib, job.gpus, job.limit_s)
        return self._priority(Entry(job, ask, 1), self._shares())

    def _rank(self) -> None:
        shares = self._shares()
        before = [entry.job.number for entry in self.queue]
        for entry in self.queue:
            entry.priority = self._priority(entry, shares)
        self.queue.sort(key=lambda entry: entry.order)
        self._ranked_at_s = self.now_s
        if before != [entry.job.number for entry in self.queue]:
            self._touch()

    def free_on(self, node: int) -> tuple[int, int, int, bool]:
        """Return free CPUs, memory and GPUs of a node, and whether it is drained."""
        free = self._free
        return free.cpus[node], free.memory_mib[node], free.gpus[node], free.is_down[node]

    # --- passes -----------------------------------------------------------------------------------

    def is_eligible(self, entry: Entry) -> bool:
        """Return whether an entry waits for resources or priority only, not for its limits or another job."""
        return self.reason_of(entry) == PRIORITY

    def reason_of(self, entry: Entry) -> str:
        """Return why an entry waits, in the scheduler's words."""
        job, shape, book = entry.job, self.shape, self._book
        if job.after is not None and job.after in self._unfinished:
            return "Dependency"
        if job.throttle is not None and entry.running >= job.throttle:
            return "JobArrayTaskLimit"
        tasks, gpus = book.tasks.get(job.user, 0), book.gpus.get(job.user, 0)
        if shape.max_running_per_user is not None and tasks >= shape.max_running_per_user:
            return "QOSMaxJobsPerUserLimit"
        if shape.max_gpus_per_user is not None and gpus + job.gpus_total > shape.max_gpus_per_user:
            return "QOSMaxGRESPerUser"
        return PRIORITY

    def _main_pass(self) -> None:
        tried = 0
        for entry in self.queue:
            tried += self.is_eligible(entry)
            if tried > self.setup.main_depth:
                break
            while entry.left and self.is_eligible(entry):
                nodes = self._fit_now(entry.ask)
                if nodes is None:
                    self._sweep()
                    return
                self._start(entry, nodes)
        self._sweep()

    def _fit_now(self, ask: Ask) -> list[int] | None:
        """Return nodes for a job now, the busiest that fit; None when too few do."""
        free = self._free
        fits = [
            node
            for node in range(self.shape.nodes)
            if free.gpus[node] >= ask.gpus
            and free.cpus[node] >= ask.cpus
            and free.memory_mib[node] >= ask.memory_mib
            and not free.is_down[node]
        ]
        if len(fits) < ask.nodes:
            return None
        if len(fits) > ask.nodes:
            fits.sort(key=lambda node: (free.gpus[node], free.cpus[node], node))
        return fits[: ask.nodes]

    def _backfill(self) -> None:
        profile, reserved = self._profile(), 0
        not_now: set[Ask] = set()
        for entry in self.queue[: self.setup.depth]:
            while entry.left and entry.ask not in not_now and self.is_eligible(entry):
                positions = profile.at_once(entry.ask, self.now_s)
                if positions is not None:
                    self._start(entry, profile.take(positions, entry.ask, self.now_s))
                    continue
                not_now.add(entry.ask)
            if entry.left and reserved < self.setup.reservations and self.is_eligible(entry):
                found = profile.earliest(entry.ask, self.now_s + 1)
                if found is not None:
                    profile.take(found[1], entry.ask, found[0])
                    reserved += 1
        self._sweep()

    def _sweep(self) -> None:
        """Drop entries with no task left to start."""
        if any(not entry.left for entry in self.queue):
            self.queue = [entry for entry in self.queue if entry.left]

    def _profile(self) -> Profile:
        free = self._free
        order = sorted(
            (node for node in range(self.shape.nodes) if not free.is_down[node]),
            key=lambda node: (free.gpus[node], free.cpus[node], node),
        )
        return Profile([(node, self._steps_of(node)) for node in order])

    def _steps_of(self, node: int) -> list[Step]:
        """Return a node's free resources from now on, kept until something starts or ends on it."""
        kept = self._steps.get(node)
        if kept is not None:
            return kept
        free = self._free
        cpus, memory_mib, gpus = free.cpus[node], free.memory_mib[node], free.gpus[node]
        steps: list[Step] = [(0, cpus, memory_mib, gpus)]
        runs = sorted(
            (self.running[number] for number in self._on_node[node]),
            key=lambda run: run.start_s + run.ask.limit_s,
        )
        for run in runs:
            cpus, memory_mib, gpus = cpus + run.ask.cpus, memory_mib + run.ask.memory_mib, gpus + run.ask.gpus
            end_s = run.start_s + run.ask.limit_s
            if end_s == steps[-1][0]:
                steps.pop()
            steps.append((end_s, cpus, memory_mib, gpus))
        self._steps[node] = steps
        return steps

    # --- starts and ends --------------------------------------------------------------------------

    def _start(self, entry: Entry, nodes: list[int]) -> None:
        job, ask, free, book = entry.job, entry.ask, self._free, self._book
        runtime_s = job.runtimes_s[len(job.runtimes_s) - entry.left]
        entry.left -= 1
        entry.running += 1
        self._run_number += 1
        self.running[self._run_number] = Run(job, ask, tuple(nodes), self.now_s, runtime_s)
        heappush(self._ends, (self.now_s + min(runtime_s, job.limit_s), self._run_number))
        for node in nodes:
            free.cpus[node] -= ask.cpus
            free.memory_mib[node] -= ask.memory_mib
            free.gpus[node] -= ask.gpus
            self._on_node[node].add(self._run_number)
            self._steps.pop(node, None)
        book.tasks[job.user] = book.tasks.get(job.user, 0) + 1
        book.gpus[job.user] = book.gpus.get(job.user, 0) + job.gpus_total
        if job.user == OWN_USER:
            self.started_at.setdefault(job.number, self.now_s)

    def _end(self, number: int) -> None:
        run = self.running.pop(number)
        job, ask, free, book = run.job, run.ask, self._free, self._book
        for node in run.nodes:
            free.cpus[node] += ask.cpus
            free.memory_mib[node] += ask.memory_mib
            free.gpus[node] += ask.gpus
            self._on_node[node].discard(number)
            self._steps.pop(node, None)
        book.tasks[job.user] -= 1
        book.gpus[job.user] -= job.gpus_total
        self._charge(run)
        self.ended.append(Ended(job.user, self.now_s, self.now_s - run.start_s, job.limit_s))
        self._left_queue(job)
        self._touch()

    def _charge(self, run: Run) -> None:
        book = self._book
        fade = 0.5 ** ((self.now_s - book.usage_at_s) / self.setup.half_life_s)
        book.usage = {user: used * fade for user, used in book.usage.items()}
        book.usage_at_s = self.now_s
        shape, ask = self.shape, run.ask
        part = max(ask.cpus / shape.cpus, ask.gpus / shape.gpus if shape.gpus else 0)
        used = part * ask.nodes * (self.now_s - run.start_s)
        book.usage[run.job.user] = book.usage.get(run.job.user, 0.0) + used

    def _left_queue(self, job: Job) -> None:
        """Count a task out; a job is finished when none waits or runs, and its dependents may go."""
        for entry in self.queue:
            if entry.job.number == job.number:
                entry.running -= 1
                return
        if not any(run.job.number == job.number for run in self.running.values()):
            self._unfinished.discard(job.number)


def _turns(outages: tuple[Outage, ...]) -> list[tuple[int, int, bool]]:
    """Return every drain and return by time; a node drained twice is back when the last drain ends."""
    turns = []
    down_until: dict[int, int] = {}
    for outage in outages:
        if outage.start_s < down_until.get(outage.node, -1):
            continue
        down_until[outage.node] = outage.end_s
        turns += [(outage.start_s, outage.node, True), (outage.end_s, outage.node, False)]
    return sorted(turns)
