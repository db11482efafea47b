"""Matched rounds on four real Slurm clusters of this machine, under background load, times scaled down.

Run as root where Slurm's packages are: python benchmarks/real_rounds.py --rounds 10

Every cluster is probed, every policy chooses, and copies of the job go to every feasible place within
seconds. What became of them is read from accounting. Ours decides on records made exactly as the product
makes them; a policy learns only from the copy it chose.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.lab_load import Load
from benchmarks.outcomes import HEADER, Outcome, compare, row
from benchmarks.policies import (
    OURS,
    PUBLISHED,
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
from benchmarks.recorded import Copy as KeptCopy
from benchmarks.recorded import Kept, write
from benchmarks.stations import PARTITIONS, RUNS_S, USER, Start, Station, use_of
from benchmarks.stretch import stretched
from orchestrator.envelope.types import Envelope, Range, Runtime
from orchestrator.placement.estimate import Work
from orchestrator.placement.model import GPU_SPEEDS, PlacementModel, SpeedSample
from orchestrator.placement.store import PlanStore
from providers.types import Probe
from tests.slurm.lab.cluster import Cluster
from tests.slurm.lab.laboratory import Lab
from tests.slurm.lab.sites import SITES, Site

WALLTIME_S = 60
IDLE_OTHERWISE = ("g004", "h003")
"""Nodes of anvil that the limits of its background users would leave free for ever; they are drained."""
PACE = 6
"""Slurm's backfill looks every 30 s by default, here every 5."""
SHARE_OF_OTHERS = 20
"""Their fair share against our 1: so we, who run little, come first at times and last at times."""

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
    question: Question
    probes: dict[str, Probe] = field(default_factory=dict)
    fulls: dict[str, Probe] = field(default_factory=dict)
    sent_after_s: dict[Copy, float] = field(default_factory=dict)
    waits: dict[Copy, int] = field(default_factory=dict)
    starts: dict[Copy, Start] = field(default_factory=dict)
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


def slowed(question: Question) -> Question:
    """Return the question as ours is asked it."""
    return stretched(question, PACE)


def share(cluster: Cluster) -> None:
    """Give everybody but us a larger share."""
    others = sorted({user for users in cluster.site.accounts.values() for user in users} - {USER})
    words = ("sacctmgr", "-i", "modify", "user", "where", f"name={','.join(others)}", "set")
    cluster.client("root", (*words, f"fairshare={SHARE_OF_OTHERS}"))


def at_scale(site: Site) -> Site:
    """Return a cluster whose priorities move with its jobs, which last a sixtieth of what others do.

    Fair shares count anew every minute, the least there is; by default it is five, in which most jobs of ours
    would meet others of the very same priority, and after which ours would come first.
    """
    return replace(site, extra=(*site.extra, "PriorityCalcPeriod=1", "PriorityMaxAge=0-02:48:00"))


def policies(seed: str, store: PlanStore) -> list[Policy]:
    """Return every policy of the table."""
    return [
        Fixed([("delta", "gpuA100x4")]),
        AtRandom(Random(f"{seed}/random")),
        ShortestQueue(),
        Published(per_node=False, name=PUBLISHED),
        Published(per_node=True, name="published, reading C"),
        Ours(name="ours, in the time of the clock", store=store),
        Ours(name="ours, without learning", learns=False, slowed=slowed, pace=PACE),
        Ours(name=OURS, slowed=slowed, pace=PACE),
    ]


class Campaign:
    """Rounds on running clusters."""

    def __init__(self, stations: Sequence[Station], *, seed: int, horizon_s: int) -> None:
        self.stations = {station.name: station for station in stations}
        self.random, self.horizon_s = Random(f"{seed}/rounds"), horizon_s
        store = PlanStore()
        self.policies = policies(str(seed), store)
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
        facts = replace(self.facts, limit_use=use_of(self.stations.values()))
        views = {(each.system, each.partition): each for each in seen}
        question = Question(envelope, Work(), now, views, {}, dict.fromkeys(views, RUNS_S), facts)
        shapes = fewest_nodes(decide(question, facts, self.store))
        question = replace(question, shapes=shapes)
        choices = [(policy, policy.choose(question)) for policy in self.policies]
        copies = {(place, shape.nodes): shape for place, shape in shapes.items()}
        copies |= {(choice.place, choice.shape.nodes): choice.shape for _, choice in choices}

        held = Round(now, kind, choices, {}, question)
        for name, station in self.stations.items():
            assert station.seen is not None
            assert station.full is not None
            held.probes[name] = station.seen
            held.fulls[name] = station.full.model_copy(update={"nodes": (), "jobs": (), "finished": None})

        def send(system: str) -> None:
            mine = {copy: shape for copy, shape in copies.items() if copy[0][0] == system}
            for copy, shape in mine.items():
                held.jobs[copy] = self.stations[system].submit(views[copy[0]], shape)
                held.sent_after_s[copy] = (datetime.now(UTC) - now).total_seconds()

        list(pool.map(send, self.stations))
        held.took_s = time.monotonic() - began
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
            starts = station.starts(job for _, _, job in wanted)
            late = []
            for held, copy, job in wanted:
                age_s = (datetime.now(UTC) - held.at).total_seconds()
                if job in starts:
                    held.starts[copy] = starts[job]
                    held.waits[copy] = min(starts[job].wait_s, self.horizon_s)
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

    def refresh(self, pool: ThreadPoolExecutor) -> None:
        """Probe every cluster fully."""
        list(pool.map(Station.refresh, self.stations.values()))

    def kept(self) -> Iterator[Kept]:
        """Yield the rounds as they are written down."""
        for held in self.rounds:
            use = held.question.facts.limit_use.rows()
            yield Kept(
                at=held.at,
                kind=held.kind,
                envelope=held.question.envelope,
                probes=held.probes,
                fulls=held.fulls,
                by_user=use[0],
                by_partition=use[1],
                took_s=held.took_s,
                copies=tuple(self._copy(held, copy) for copy in held.jobs),
            )

    @staticmethod
    def _copy(held: Round, copy: Copy) -> KeptCopy:
        (system, partition), nodes = copy
        told = asdict(held.starts[copy]) if copy in held.starts else {}
        return KeptCopy(
            system,
            partition,
            nodes,
            job=held.jobs[copy],
            sent_after_s=held.sent_after_s[copy],
            wait_s=held.waits[copy],
            **told,
        )

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
    parser.add_argument("--record", type=Path, help="write every round to this file (replay_rounds.py)")
    given = parser.parse_args(words)
    lab = Lab.start([at_scale(site) for site in SITES])
    try:
        stations = [Station(lab[name]) for name in PARTITIONS]
        clusters = list(lab.clusters.values())
        for node in IDLE_OTHERWISE:
            lab["anvil"].drain(node)
        for cluster in clusters:
            share(cluster)
        with Load(clusters, seed=given.seed, scale=given.load) as load, ThreadPoolExecutor(4) as pool:
            time.sleep(given.warm_up)
            campaign = Campaign(stations, seed=given.seed, horizon_s=given.horizon)
            for _ in range(given.rounds):
                due = time.monotonic() + given.every
                campaign.settle()
                campaign.refresh(pool)
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
            if given.record is not None:
                write(given.record, campaign.kept())
            print("\n".join(campaign.table()))
            print(f"background: {load.submitted} jobs, {load.refused} refused")
    finally:
        lab.stop()


if __name__ == "__main__":
    main()
