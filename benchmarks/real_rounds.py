"""Matched rounds on four real Slurm clusters of this machine, under background load, times scaled down.

Run as root where Slurm's packages are: python benchmarks/real_rounds.py --rounds 10

Every cluster is probed, every policy chooses, and copies of the job go to every feasible place within
seconds. What became of them is read from accounting. Ours decides on records made exactly as the product
makes them; a policy learns only from the copy it chose.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.lab_load import Load
from benchmarks.outcomes import HEADER, Outcome, compare, row
from benchmarks.policies import (
    AtRandom,
    Choice,
    Fixed,
    Ours,
    Place,
    Policy,
    Published,
    Question,
    ShortestQueue,
    decide,
    fewest_nodes,
    started_at,
)
from federation.merge import prepare
from federation.profile import ProfileDocument
from federation.records import records
from federation.types import Access, Credit, Health, ResourceRecord, Standing
from orchestrator.envelope.types import Envelope, Range, Runtime
from orchestrator.placement.estimate import Work
from orchestrator.placement.model import GPU_SPEEDS, PlacementModel, SpeedSample
from orchestrator.placement.store import PlanStore
from orchestrator.placement.types import Shape
from providers.dialects.slurm.dialect import SlurmDialect
from providers.links.local import Become, LocalLink
from providers.types import JobRequest, Probe
from tests.slurm.lab.cluster import Cluster
from tests.slurm.lab.laboratory import Lab

USER = "alice"
RUNS_S = 10
WALLTIME_S = 60
SACCT_FIELDS = "JobIDRaw,Submit,Start"
IDLE_OTHERWISE = ("g004", "h003")
"""Nodes of anvil that the limits of its background users would leave free for ever; they are drained."""
PUBLISHED = "published, reading A"
OURS = "ours"

PARTITIONS: dict[str, dict[str, dict[str, object]]] = {
    "delta": {
        "gpuA100x4": {"accounts": ["*-gpu"]},
        "gpuA40x4": {"accounts": ["*-gpu"]},
        "cpu": {"accounts": ["*-cpu"]},
    },
    "deltaai": {"ghx4": {}},
    "anvil": {"shared": {"accounts": ["cis220051"]}, "gpu": {}, "ai": {}},
    "vista": {"gh": {}, "gh-dev": {}},
}


@dataclass(slots=True)
class Station:
    """One cluster as one user of the product meets it."""

    cluster: Cluster
    dialect: SlurmDialect = field(default_factory=SlurmDialect)
    full: Probe | None = None
    copies: int = 0

    @property
    def name(self) -> str:
        """Return the system's name."""
        return self.cluster.name

    def look(self) -> tuple[ResourceRecord, ...]:
        """Probe the cluster and return our records, one for each partition that admits us."""
        probe = self._probe(full=self.full is None)
        if self.full is None:
            self.full = probe
        profile = ProfileDocument.model_validate(
            {
                "system": self.name,
                "name": self.name,
                "architecture": "x86_64",
                "only_listed_partitions": True,
                "partitions": PARTITIONS[self.name],
            }
        )
        prepared = prepare(profile, probe, self.full.partitions)
        mine = [each for each in self.full.associations or () if each.user == USER]
        credit = Credit(unit="SU", granted=None, left=None)
        access = Access(
            is_connected=True,
            remote_user=USER,
            associations=tuple(mine),
            qos=self.full.qos or (),
            credits={each.account: credit for each in mine},
        )
        key = f"{self.name}-{probe.taken_at.timestamp()}"
        standing = Standing(health=Health.ONLINE, snapshot_id=key, observed_at=probe.taken_at)
        return tuple(each for each in records(prepared, access, standing) if each.access_denied is None)

    def submit(self, record: ResourceRecord, shape: Shape) -> str:
        """Submit one copy as the product renders it, and return its job id.

        Raises:
            RuntimeError: the scheduler did not take it.
        """
        self.copies += 1
        spelling = next((node.gpu_spelling for node in record.nodes if node.gpus), None)
        workdir = self.cluster.jobs_dir / USER
        if not workdir.exists():
            workdir.mkdir()
            os.chown(workdir, self.cluster.uid(USER), self.cluster.uid(USER))
        job = JobRequest(
            submit_key=f"round-{os.getpid()}-{self.copies}",
            name="round",
            partition=record.partition,
            account=record.account,
            nodes=shape.nodes,
            cpus=shape.cpus,
            gpus=shape.gpus,
            gpu_type=spelling if shape.gpus else None,
            memory_mib=shape.memory_mib,
            walltime_s=shape.walltime_s,
            workdir=str(workdir),
            stdout_path=str(workdir / f"{self.copies}.out"),
            stderr_path=str(workdir / f"{self.copies}.err"),
            shell_command=f"sleep {RUNS_S}",
        )
        result = self.dialect.read_submit(self._link().run(self.dialect.submit(job)))
        if result.outcome != "accepted" or result.job_id is None:
            raise RuntimeError(f"{self.name}/{record.partition}: {result.said}")
        return result.job_id

    def waits(self, jobs: Iterable[str]) -> dict[str, int]:
        """Return the wait of each job that has started, from accounting."""
        ids = ",".join(jobs)
        if not ids:
            return {}
        said = self.cluster.ask("sacct", "-X", "-n", "-P", "-j", ids, "-o", SACCT_FIELDS)
        found = {}
        for line in said.splitlines():
            job_id, submitted, started = line.split("|")
            if started not in {"Unknown", "None"}:
                began = datetime.fromisoformat(started) - datetime.fromisoformat(submitted)
                found[job_id] = int(began.total_seconds())
        return found

    def cancel(self, jobs: Sequence[str]) -> None:
        """Cancel what never started."""
        if jobs:
            self.cluster.client("root", ("scancel", *jobs))

    def _probe(self, *, full: bool) -> Probe:
        reply = self._link().run(self.dialect.probe(full=full))
        return self.dialect.read_probe(reply, now=datetime.now(UTC))

    def _link(self) -> LocalLink:
        uid, env = self.cluster.uid(USER), self.cluster.env(USER)
        return LocalLink(become=Become(name=USER, uid=uid, gid=uid, home=env["HOME"]), env=env)


Copy = tuple[Place, int]
"""A place and the number of nodes asked for there."""


@dataclass(slots=True)
class Round:
    """One request, what everybody chose, and what became of the copies."""

    at: datetime
    kind: str
    choices: list[tuple[Policy, Choice]]
    jobs: dict[Copy, str]
    """Job ids."""
    waits: dict[Copy, int] = field(default_factory=dict)
    taught: set[str] = field(default_factory=set)
    took_s: float = 0.0
    """From the first probe to the last submission."""

    @property
    def missing(self) -> dict[Copy, str]:
        """Return the copies whose start is not known yet."""
        return {copy: job for copy, job in self.jobs.items() if copy not in self.waits}


def request(random: Random) -> tuple[str, Envelope]:
    """Return a probe of the published kinds, scaled down."""
    kind, gpus, cpus = random.choices([("cpu", 0, 16), ("1 gpu", 1, 16), ("4 gpus", 4, 64)], [7, 6, 6])[0]
    envelope = Envelope(
        gpus=Range.exactly(gpus),
        cpus=Range.exactly(cpus),
        memory_mib=Range.exactly(16_000 * max(gpus, 1)),
        walltime_s=Range.exactly(WALLTIME_S),
        runtime=Runtime(estimate_s=RUNS_S),
    )
    return kind, envelope


class Campaign:
    """Rounds on running clusters."""

    def __init__(self, stations: Sequence[Station], *, seed: int, horizon_s: int) -> None:
        self.stations = {station.name: station for station in stations}
        self.random, self.horizon_s = Random(f"{seed}/rounds"), horizon_s
        store = PlanStore()
        self.policies: list[Policy] = [
            Fixed([("delta", "gpuA100x4")]),
            AtRandom(Random(f"{seed}/random")),
            ShortestQueue(),
            Published(per_node=False, name=PUBLISHED),
            Published(per_node=True, name="published, reading C"),
            Ours(name="ours, without learning", learns=False, store=store),
            Ours(name=OURS, store=store),
        ]
        exact = {(name, kind): SpeedSample(1.0, 1 << 30) for name in self.stations for kind in GPU_SPEEDS}
        self.facts = PlacementModel(speeds=exact)
        self.store = store
        self.rounds: list[Round] = []

    def play(self, pool: ThreadPoolExecutor) -> Round:
        """Hold one round: look everywhere, let everybody choose, submit every copy."""
        began = time.monotonic()
        kind, envelope = request(self.random)
        seen = [each for found in pool.map(Station.look, self.stations.values()) for each in found]
        now = datetime.now(UTC)
        views = {(each.system, each.partition): each for each in seen}
        question = Question(envelope, Work(), now, views, {}, dict.fromkeys(views, RUNS_S), self.facts)
        shapes = fewest_nodes(decide(question, self.facts, self.store))
        question = Question(envelope, Work(), now, views, shapes, question.own_s, self.facts)
        choices = [(policy, policy.choose(question)) for policy in self.policies]
        copies = {(place, shape.nodes): shape for place, shape in shapes.items()}
        copies |= {(choice.place, choice.shape.nodes): choice.shape for _, choice in choices}

        def send(system: str) -> dict[Copy, str]:
            mine = {copy: shape for copy, shape in copies.items() if copy[0][0] == system}
            return {copy: self.stations[system].submit(views[copy[0]], shape) for copy, shape in mine.items()}

        jobs = {copy: job for sent in pool.map(send, self.stations) for copy, job in sent.items()}
        held = Round(now, kind, choices, jobs, took_s=time.monotonic() - began)
        self.rounds.append(held)
        return held

    def settle(self, *, is_last: bool = False) -> bool:
        """Read accounting, teach the policies, and return whether every copy's outcome is known.

        A copy that has not started within the horizon counts as waiting that long, and is cancelled.
        """
        for name, station in self.stations.items():
            wanted = [
                (held, copy, job)
                for held in self.rounds
                for copy, job in held.missing.items()
                if copy[0][0] == name
            ]
            waits = station.waits(job for _, _, job in wanted)
            late = []
            for held, copy, job in wanted:
                age_s = (datetime.now(UTC) - held.at).total_seconds()
                if job in waits:
                    held.waits[copy] = min(waits[job], self.horizon_s)
                elif age_s > self.horizon_s or is_last:
                    held.waits[copy] = self.horizon_s
                    late.append(job)
            station.cancel(late)
        for held in self.rounds:
            self._teach(held)
        return not any(held.missing for held in self.rounds)

    def _teach(self, held: Round) -> None:
        for policy, choice in held.choices:
            wait_s = held.waits.get((choice.place, choice.shape.nodes))
            if wait_s is not None and policy.name not in held.taught:
                policy.learn(choice, wait_s=wait_s, known_at=started_at(held.at, wait_s))
                held.taught.add(policy.name)

    def table(self) -> list[str]:
        """Return the table, line by line."""
        by_policy: dict[str, list[Outcome]] = {policy.name: [] for policy in self.policies}
        for held in self.rounds:
            best_s = min(held.waits.values()) + RUNS_S
            for policy, choice in held.choices:
                wait_s = held.waits[choice.place, choice.shape.nodes]
                by_policy[policy.name].append(Outcome(wait_s, wait_s + RUNS_S, best_s))
        waits = [wait_s for held in self.rounds for wait_s in held.waits.values()]
        late = sum(wait_s >= self.horizon_s for wait_s in waits)
        slowest_s = max(held.took_s for held in self.rounds)
        lines = [
            f"{len(self.rounds)} rounds, {len(waits)} jobs, {late} not started within {self.horizon_s} s",
            f"looking everywhere and submitting every copy took {slowest_s:.1f} s at most",
            HEADER,
        ]
        lines += [row(name, outcomes) for name, outcomes in by_policy.items()]
        best = [Outcome(0, each.best_s, each.best_s) for each in by_policy[OURS]]
        lines.append(row("fastest copy", best))
        better, worse = compare(by_policy[OURS], by_policy[PUBLISHED])
        lines.append(f"ours against {PUBLISHED}: earlier by over 5 s in {better:.1%}, later in {worse:.1%}")
        return lines


def main(words: Sequence[str] | None = None) -> None:
    """Start the clusters, load them, hold the rounds, print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--every", type=int, default=40, help="seconds from round to round")
    parser.add_argument("--warm-up", type=int, default=60, help="seconds of load before the first round")
    parser.add_argument("--horizon", type=int, default=150, help="seconds after which a copy is given up")
    parser.add_argument("--load", type=float, default=1.0, help="background load, as a multiple")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--verbose", action="store_true", help="print every round")
    given = parser.parse_args(words)
    lab = Lab.start()
    try:
        stations = [Station(lab[name]) for name in PARTITIONS]
        clusters = list(lab.clusters.values())
        for node in IDLE_OTHERWISE:
            lab["anvil"].drain(node)
        with Load(clusters, seed=given.seed, scale=given.load) as load, ThreadPoolExecutor(4) as pool:
            time.sleep(given.warm_up)
            campaign = Campaign(stations, seed=given.seed, horizon_s=given.horizon)
            for _ in range(given.rounds):
                due = time.monotonic() + given.every
                campaign.settle()
                held = campaign.play(pool)
                if given.verbose:
                    print(
                        held.kind, {policy.name: choice.place for policy, choice in held.choices}, flush=True
                    )
                time.sleep(max(0.0, due - time.monotonic()))
            ends = time.monotonic() + given.horizon
            while not campaign.settle(is_last=time.monotonic() > ends):
                time.sleep(5)
            if given.verbose:
                for held in campaign.rounds:
                    print(held.kind, {"/".join(place): wait for (place, _), wait in held.waits.items()})
            print("\n".join(campaign.table()))
            print(f"background: {load.submitted} jobs, {load.refused} refused")
    finally:
        lab.stop()


if __name__ == "__main__":
    main()
