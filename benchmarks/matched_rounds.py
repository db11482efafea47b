"""Matched rounds on simulated clusters: the same job submitted to every feasible place at the same instant.

Run: python benchmarks/matched_rounds.py --seeds 1 2 3 --days 6 --warm-up 2 --suites P M
As long as the study: --seeds 1 2 3 4 5 6 --days 16 --warm-up 4 --every 2400

Every policy sees the same records; a copy of each partition then tells how long each copy of the job would
have waited. A policy learns only from the copy it chose, and only once that copy has started.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from time import process_time

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.outcomes import HEADER, NEAR_S, Outcome, compare, quantile, row
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
from benchmarks.simulator.shapes import DAY, SYSTEMS, scaled
from benchmarks.simulator.state import Setup
from benchmarks.simulator.suites import (
    Request,
    facts_of,
    job_of,
    mixed_request,
    probe_request,
)
from benchmarks.simulator.view import instant
from benchmarks.simulator.workload import Job
from benchmarks.simulator.world import Federation
from orchestrator.placement.estimate import Work
from orchestrator.placement.model import PlacementModel
from orchestrator.placement.store import PlanStore
from orchestrator.placement.types import Shape

ROUND_EVERY_S = 2400
HORIZON_S = DAY
"""A copy that waits longer counts as waiting this long."""


@dataclass(frozen=True, slots=True)
class Campaign:
    """What to simulate."""

    seeds: Sequence[int]
    days: float = 6.0
    warm_up_days: float = 2.0
    suites: Sequence[str] = ("P", "M")
    scale: float = 1.0
    load: float = 1.0
    every_s: int = ROUND_EVERY_S
    max_rounds: int | None = None
    """Rounds of one world and suite; None = as many as fit."""
    scheduler: Setup = field(default_factory=Setup)


@dataclass(slots=True)
class Results:
    """Outcomes by suite and policy, in the order of the rounds, the same rounds for every policy."""

    outcomes: dict[str, dict[str, list[Outcome]]] = field(default_factory=dict)
    kinds: dict[str, list[str]] = field(default_factory=dict)
    waits: dict[tuple[str, str], list[tuple[int, int, int]]] = field(default_factory=dict)
    """(predicted p50, predicted p90, actual) of a policy's own choices, by suite and policy."""
    worlds: int = 0

    def note(self, suite: str, policy: str, choice: Choice, outcome: Outcome) -> None:
        """Keep one policy's outcome of one round."""
        self.outcomes.setdefault(suite, {}).setdefault(policy, []).append(outcome)
        if choice.estimates is not None:
            seen = choice.estimates.wait_s
            self.waits.setdefault((suite, policy), []).append((seen.p50, seen.p90, outcome.wait_s))


@dataclass(frozen=True, slots=True)
class Entrant:
    """A policy and what it sees besides, or does not see, of what an ordinary user may know."""

    policy: Policy
    sees_priority: bool = True
    """Our own priority, as fair share and weights give it."""
    sees_history: bool = False
    """The finished jobs of others, as accounting tells them."""


def entrants_of(seed: int, suite: str) -> list[Entrant]:
    """Return every policy."""
    fixed = [("delta", "gpuA100x4"), ("delta", "gpuA40x4")]
    return [
        Entrant(Fixed(fixed)),
        Entrant(AtRandom(Random(f"{seed}/{suite}"))),
        Entrant(ShortestQueue()),
        Entrant(Published(per_node=False, name=PUBLISHED)),
        Entrant(Published(per_node=True, name="published, reading C")),
        Entrant(Ours(name="ours, only limits, no priority"), sees_priority=False),
        Entrant(Ours(name="ours, only limits, no outcomes", learns=False)),
        Entrant(Ours(name="ours, only limits")),
        Entrant(Ours(name=OURS), sees_history=True),
    ]


def run(campaign: Campaign) -> Results:
    """Return the outcomes of a campaign; the same campaign gives the same ones."""
    results = Results()
    systems = scaled(SYSTEMS, campaign.scale, load=campaign.load)
    for seed in campaign.seeds:
        federation = Federation(seed=seed, days=campaign.days, systems=systems, setup=campaign.scheduler)
        entrants = {suite: entrants_of(seed, suite) for suite in campaign.suites}
        store = PlanStore()
        for each in entrants.values():
            for entrant in each:
                if isinstance(entrant.policy, Ours):
                    entrant.policy.store = store
        facts = {s: facts_of(systems, seed=seed, is_mixed=s == "M") for s in campaign.suites}
        streams = {suite: Random(f"{seed}/{suite}/requests") for suite in campaign.suites}
        for at_s in _instants(campaign, seed):
            federation.run_until(at_s)
            for suite in campaign.suites:
                request = (mixed_request if suite == "M" else probe_request)(streams[suite])
                _Round(federation, request, facts[suite], store).play(suite, entrants[suite], results)
        results.worlds += 1
    return results


def _instants(campaign: Campaign, seed: int) -> Iterator[int]:
    """Yield when rounds are held: every so often, give or take 30 %, after the warm-up."""
    random = Random(f"{seed}/instants")
    at_s, held = campaign.warm_up_days * DAY, 0
    while at_s < campaign.days * DAY and (campaign.max_rounds is None or held < campaign.max_rounds):
        yield int(at_s)
        held += 1
        at_s += campaign.every_s * random.uniform(0.7, 1.3)


class _Round:
    """One request at one instant: who sees what, and what each copy really waits."""

    def __init__(
        self, federation: Federation, request: Request, facts: PlacementModel, store: PlanStore
    ) -> None:
        self.federation, self.request, self.store = federation, request, store
        self.now = instant(federation.now_s)
        self.facts = facts
        plain = federation.records()
        records = {(each.system, each.partition): each for each in plain}
        question = Question(
            request.envelope, Work(environment=request.environment), self.now, records, {}, {}, facts
        )
        decision = decide(question, facts, store)
        shapes = fewest_nodes(decision)
        own_s = {
            (each.system, each.partition): each.estimates.runtime_s + each.estimates.preparation_s
            for each in decision.candidates
            if each.estimates is not None
        }
        self.question = replace(question, shapes=shapes, own_s=own_s)
        self._waits: dict[tuple[Place, int], int] = {}

    def play(self, suite: str, entrants: Sequence[Entrant], results: Results) -> None:
        """Let every policy choose, and note what became of it."""
        if not self.question.shapes:
            return
        choices = [(each.policy, each.policy.choose(self._asked(each))) for each in entrants]
        for each, shape in self.question.shapes.items():
            self.wait(each, shape)
        for _, choice in choices:
            self.wait(choice.place, choice.shape)
        best_s = min(wait_s + self.question.own_s[each] for (each, _), wait_s in self._waits.items())
        for policy, choice in choices:
            wait_s = self.wait(choice.place, choice.shape)
            outcome = Outcome(wait_s, wait_s + self.question.own_s[choice.place], best_s)
            results.note(suite, policy.name, choice, outcome)
            policy.learn(choice, wait_s=wait_s, known_at=started_at(self.now, wait_s))
        results.kinds.setdefault(suite, []).append(self.request.kind)

    def wait(self, place: Place, shape: Shape) -> int:
        """Return how long this copy really waits."""
        key = place, shape.nodes
        if key not in self._waits:
            job = self._job(place, shape)
            found = self.federation.wait(place, job, horizon_s=HORIZON_S)
            self._waits[key] = HORIZON_S if found is None else found
        return self._waits[key]

    def _job(self, place: Place, shape: Shape) -> Job:
        return job_of(shape, now_s=self.federation.now_s, runtime_s=self.question.own_s[place])

    def _asked(self, entrant: Entrant) -> Question:
        """Return the question with what a policy may see."""
        question = self.question
        if not entrant.sees_priority:
            hidden = {place: replace(each, own_priority=None) for place, each in question.records.items()}
            question = replace(question, records=hidden)
        if entrant.sees_history:
            facts = replace(self.facts, limit_use=self.federation.limit_use())
            question = replace(question, facts=facts)
        return question


@dataclass(frozen=True, slots=True)
class Figure:
    """Additional completion of one policy in the study of policies, on worlds of its own, seconds."""

    fastest: float
    mean_s: int
    p95_s: int


STUDY: dict[str, dict[str, Figure]] = {
    "P": {
        "fixed site": Figure(0.558, 577, 3054),
        "random feasible": Figure(0.177, 2706, 15873),
        "shortest queue": Figure(0.754, 339, 2048),
        PUBLISHED: Figure(0.872, 313, 604),
        OURS: Figure(0.978, 31, 1),
    },
    "M": {
        "fixed site": Figure(0.011, 12941, 74465),
        "random feasible": Figure(0.0, 13230, 46209),
        "shortest queue": Figure(0.265, 12920, 87548),
        PUBLISHED: Figure(0.767, 4520, 34892),
        OURS: Figure(0.891, 379, 718),
    },
}
"""Six worlds of 16 days, 2,273 rounds a suite; under our own name stands the policy it recommends."""


def beside_the_study(suite: str, by_policy: Mapping[str, Sequence[Outcome]]) -> list[str]:
    """Return lines that set our figures beside the study's, and say how much kinder our worlds are."""
    lines = ["beside the study (within 5 s, mean and p95 additional; ours is its recommended policy):"]
    means: dict[str, float] = {}
    for name, theirs in STUDY[suite].items():
        added = [float(each.additional_s) for each in by_policy[name]]
        near = sum(each <= NEAR_S for each in added) / len(added)
        means[name] = sum(added) / len(added)
        lines.append(
            f"  {name:<22}{near:5.0%} {means[name]:6.0f} {quantile(added, 0.95):6.0f}   "
            f"study {theirs.fastest:4.0%} {theirs.mean_s:6} {theirs.p95_s:6}"
        )
    if means[PUBLISHED]:
        share, best, published = means[OURS] / means[PUBLISHED], STUDY[suite][OURS], STUDY[suite][PUBLISHED]
        lines.append(
            f"  ours loses {share:.0%} of what {PUBLISHED} loses; "
            f"in the study {best.mean_s / published.mean_s:.0%}"
        )
    return lines


def table(results: Results, suite: str) -> list[str]:
    """Return the table of one suite, line by line."""
    by_policy = results.outcomes[suite]
    rounds = len(results.kinds[suite])
    lines = [f"Suite {suite}: {rounds} rounds in {results.worlds} worlds", HEADER]
    lines += [row(name, outcomes) for name, outcomes in by_policy.items()]
    best = [Outcome(0, each.best_s, each.best_s) for each in by_policy[PUBLISHED]]
    lines.append(row("fastest copy", best))
    better, worse = compare(by_policy[OURS], by_policy[PUBLISHED])
    lines.append(f"ours against {PUBLISHED}: earlier by more than 5 s in {better:.1%}, later in {worse:.1%}")
    lines += beside_the_study(suite, by_policy)
    seen = results.waits[suite, OURS]
    held = sum(actual <= p90 for _, p90, actual in seen) / len(seen)
    lines.append(f"waits of our choices within their p90: {held:.1%}")
    for kind in sorted(set(results.kinds[suite])):
        chosen = [number for number, each in enumerate(results.kinds[suite]) if each == kind]
        means = {
            name: sum(by_policy[name][number].additional_s for number in chosen) / len(chosen)
            for name in (PUBLISHED, OURS)
        }
        lines.append(
            f"  {kind}: {len(chosen)} rounds, mean additional "
            f"{means[PUBLISHED]:.0f} s ({PUBLISHED}), {means[OURS]:.0f} s (ours)"
        )
    return lines


def main(words: Sequence[str] | None = None) -> None:
    """Run a campaign and print its tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--days", type=float, default=4.0)
    parser.add_argument("--warm-up", type=float, default=2.0, help="days before the first round")
    parser.add_argument("--suites", nargs="+", choices=["P", "M"], default=["P", "M"])
    parser.add_argument("--scale", type=float, default=1.0, help="nodes, as a multiple")
    parser.add_argument("--load", type=float, default=1.0, help="work of other users, as a multiple")
    parser.add_argument("--every", type=int, default=ROUND_EVERY_S, help="seconds between rounds")
    parser.add_argument("--rounds", type=int, help="at most so many per world and suite")
    parser.add_argument("--easy", action="store_true", help="one reservation, backfill every 180 s")
    given = parser.parse_args(words)
    scheduler = Setup(reservations=1, backfill_every_s=180, depth=200) if given.easy else Setup()
    campaign = Campaign(
        seeds=given.seeds,
        days=given.days,
        warm_up_days=given.warm_up,
        suites=given.suites,
        scale=given.scale,
        load=given.load,
        every_s=given.every,
        max_rounds=given.rounds,
        scheduler=scheduler,
    )
    began = process_time()
    results = run(campaign)
    for suite in campaign.suites:
        print("\n".join(table(results, suite)), end="\n\n")
    print(f"{process_time() - began:.0f} s of CPU time")


if __name__ == "__main__":
    main()
