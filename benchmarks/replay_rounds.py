"""Recorded rounds decided again: the same tables without the clusters, and why ours lost where it did.

Run: python benchmarks/replay_rounds.py ROUNDS.jsonl ... --lost 10

Files come from `real_rounds.py --record`, one campaign each: policies learn within it, from the copies
they chose, as they did then. A choice that no copy was sent for is judged by the copy of the same place.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.outcomes import HEADER, Outcome, compare, row
from benchmarks.policies import (
    OURS,
    PUBLISHED,
    Choice,
    Ours,
    Policy,
    Question,
    decide,
    fewest_nodes,
    started_at,
)
from benchmarks.real_rounds import PACE, policies, slowed
from benchmarks.recorded import Kept, read
from benchmarks.stations import records_of
from orchestrator.placement.estimate import Work
from orchestrator.placement.model import GPU_SPEEDS, PlacementModel, SpeedSample
from orchestrator.placement.store import PlanStore

HOW_MANY_SHOWN = 12


def facts_of(kept: Kept) -> PlacementModel:
    """Return what every policy knows: speeds are equal everywhere; limits were used as accounting told."""
    exact = {(name, kind): SpeedSample(1.0, 1 << 30) for name in kept.probes for kind in GPU_SPEEDS}
    return PlacementModel(speeds=exact, limit_use=kept.use)


def question_of(kept: Kept, store: PlanStore) -> Question:
    """Return the question of a round."""
    seen = [records_of(name, probe, kept.fulls[name]) for name, probe in kept.probes.items()]
    views = {(each.system, each.partition): each for found in seen for each in found}
    facts, runtime = facts_of(kept), kept.envelope.runtime
    runs_s = runtime.estimate_s if runtime is not None and runtime.estimate_s else 0
    asked = Question(kept.envelope, Work(), kept.at, views, {}, dict.fromkeys(views, runs_s), facts)
    shapes = fewest_nodes(decide(asked, facts, store))
    return Question(kept.envelope, Work(), kept.at, views, shapes, asked.own_s, facts)


def wait_of(kept: Kept, choice: Choice) -> int:
    """Return what the copy of a choice waited.

    Raises:
        LookupError: no copy went to that place.
    """
    there = [each for each in kept.copies if (each.system, each.partition) == choice.place]
    same = [each for each in there if each.nodes == choice.shape.nodes] or there
    if not same:
        raise LookupError(choice.place)
    return same[0].wait_s


def replay(rounds: Sequence[Kept], seed: str, *, lost_s: int | None = None) -> dict[str, list[Outcome]]:
    """Return the outcomes of policies on the rounds of one campaign; explain where ours lost so much."""
    store = PlanStore()
    entrants = policies(seed, store)
    found: dict[str, list[Outcome]] = {each.name: [] for each in entrants}
    for number, kept in enumerate(rounds, start=1):
        question = question_of(kept, store)
        best_s = min(each.wait_s for each in kept.copies)
        for policy in entrants:
            choice = policy.choose(question)
            wait_s, run_s = wait_of(kept, choice), question.own_s[choice.place]
            policy.learn(choice, wait_s=wait_s, known_at=started_at(kept.at, wait_s))
            found[policy.name].append(Outcome(wait_s, wait_s + run_s, best_s + run_s))
            if policy.name == OURS and lost_s is not None and wait_s - best_s > lost_s:
                print("\n".join(explained(number, kept, question, choice, policy)))
    return found


def explained(number: int, kept: Kept, question: Question, choice: Choice, policy: Policy) -> list[str]:
    """Return what ours believed of each place, what happened there, and the queue of the place it chose."""
    model = policy._with_facts(question.facts) if isinstance(policy, Ours) else question.facts
    decision = decide(slowed(question), model, PlanStore())
    lines = [f"round {number} at {kept.at:%H:%M:%S}, {kept.kind}: chose {'/'.join(choice.place)}"]
    for each in decision.candidates:
        if each.estimates is None:
            continue
        copy = next(c for c in kept.copies if (c.system, c.partition) == (each.system, each.partition))
        wait, queue = each.estimates.wait, question.records[each.system, each.partition].queue
        plans = [None if s is None else s // PACE for s in (wait.plan_limits_s, wait.plan_means_s)]
        lines.append(
            f"  {each.system + '/' + each.partition:<18} p50 {each.estimates.wait_s.p50 / PACE:>4.0f} really "
            f"{copy.wait_s:>4} s  {wait.wait_class:<8} limits {plans[0]} means {plans[1]} "
            f"fits {wait.fits_now} slots {wait.free_slots} ahead {wait.somebody_ahead} "
            f"running {queue.running_count} pending {queue.pending_count} eligible {queue.eligible_count} "
            f"age {wait.snapshot_age_s // PACE} sent +{copy.sent_after_s:.1f} s, started {copy.start[11:]} "
            f"priority {copy.priority}"
        )
    record = question.records[choice.place]
    lines.append(f"  own priority {record.own_priority}, running there:")
    for share in record.queue.running[:HOW_MANY_SHOWN]:
        since_s = (kept.at - share.start_at).total_seconds() if share.start_at else None
        lines.append(
            f"    {share.user} {share.node_names} {share.cpus_per_node}c {share.gpus_per_node}g, "
            f"for {since_s:.0f} of {share.walltime_s} s"
        )
    lines.append("  waiting there:")
    lines += [
        f"    {job.user} {job.nodes}n {job.cpus}c {job.gpus}g limit {job.walltime_s} priority {job.priority}"
        f"{'' if job.is_eligible else ' not eligible'}"
        for job in record.queue.pending[:HOW_MANY_SHOWN]
    ]
    return lines


def main(words: Sequence[str] | None = None) -> None:
    """Replay files and print the table over all of them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--lost", type=int, help="explain rounds in which ours lost more seconds than this")
    given = parser.parse_args(words)
    totals: dict[str, list[Outcome]] = {}
    for path in given.files:
        outcomes = replay(read(path), path.stem, lost_s=given.lost)
        for name, found in outcomes.items():
            totals.setdefault(name, []).extend(found)
    print(f"{len(totals[OURS])} rounds of {len(given.files)} campaigns", HEADER, sep="\n")
    print("\n".join(row(name, outcomes) for name, outcomes in totals.items()))
    better, worse = compare(totals[OURS], totals[PUBLISHED])
    print(f"ours against {PUBLISHED}: earlier by over 5 s in {better:.1%}, later in {worse:.1%}")


if __name__ == "__main__":
    main()
