"""Faults, one line each, and the invariant that must notice: an invariant counts only after a mutant died.

A mutant replaces one attribute of the placement package while its invariant runs.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from federation.types import ChargeRule
from orchestrator.envelope.types import Policy
from orchestrator.placement import (
    cache,
    choose,
    judge,
    occupancy,
    outlook,
    place,
    relax,
    rules,
    sizing,
    store,
    timeline,
    turns,
    types,
)
from tests.property.placement.views import bounds, envelope, now_by_limits_alone, record


@dataclass(frozen=True)
class Mutant:
    """What is broken, where, by what, and who must notice."""

    name: str
    target: Any
    attribute: str
    fault: Callable[[Any], Any]
    """Gets the healthy attribute, returns the faulty one."""
    killer: str
    witness: tuple[Any, ...] | None = None
    """Arguments that show the fault, where random ones rarely do; the healthy code passes on them."""


def _without_key_part(index: int) -> Callable[[Any], Any]:
    def fault(healthy: Callable[..., tuple[Any, ...]]) -> Any:
        def key_of(*args: Any, **named: Any) -> tuple[Any, ...]:
            key = list(healthy(*args, **named))
            key[index] = type(key[index])() if not isinstance(key[index], tuple) else ()
            return tuple(key)

        return key_of

    return fault


def _nothing(_healthy: Any) -> Any:
    return lambda *_args, **_named: []


def _keep_arrival_order(healthy: Any) -> Any:
    """Rank by score alone: equal scores keep the order of records."""
    return lambda *args, **named: (*healthy(*args, **named)[:2], *[0] * 8)


def _score_ignored(healthy: Any) -> Any:
    def key_of(*args: Any, **named: Any) -> Any:
        key = healthy(*args, **named)
        return (key[0], Decimal(0), 0, *key[3:])

    return key_of


def _sliding_window(_healthy: Any) -> Any:
    """Pick within 5 s of the best, instead of on the fixed grid."""

    def order(items: Any, key: Any = None) -> list[Any]:
        listed = sorted(items, key=key)
        if not listed or not isinstance(listed[0], judge.Option):
            return listed
        best = min(option.estimates.completion_s for option in listed)
        return sorted(listed, key=lambda o: (o.estimates.completion_s - best >= choose.GRID_S, *o.key[3:]))

    return order


def _idle_nodes_late(healthy: Any) -> Any:
    def steps(node: Any, releases: Any, unseen_s: int) -> Any:
        late = [(0, 0, 0, 0), (9_000, node.cpus, 1 << 50, node.gpus)]
        return healthy(node, releases, unseen_s) if releases else late

    return steps


def _reasons_lost(healthy: Any) -> Any:
    return lambda **named: healthy(**{**named, "rejections": ()})


def _records_as_given(_healthy: Any) -> Any:
    return lambda items, key=None: list(items)


def _overcommitting_take(healthy: Any) -> Any:
    def take(self: Any, start: int, end: int, cpus: int, memory_mib: int, gpus: int) -> None:
        healthy(self, start, max(start, end - 1), cpus, memory_mib, gpus)

    return take


def _no_gpu_check(_healthy: Any) -> Any:
    def earliest(self: Any, cpus: int, memory_mib: int, _gpus: int, duration: int, after: int = 0) -> Any:
        return _healthy(self, cpus, memory_mib, 0, duration, after)

    return earliest


def _first_step_only(_healthy: Any) -> Any:
    """Look whether it fits at the start, not all along."""

    def earliest(self: Any, cpus: int, memory_mib: int, gpus: int, _duration: int, after: int = 0) -> Any:
        return _healthy(self, cpus, memory_mib, gpus, 1, after)

    return earliest


def _late_by(seconds: int) -> Callable[[Any], Any]:
    def fault(healthy: Any) -> Any:
        def earliest(self: Any, *args: Any, **named: Any) -> Any:
            start = healthy(self, *args, **named)
            return None if start is None else start + seconds

        return earliest

    return fault


def _bounds_never_refreshed(healthy: Any) -> Any:
    """Reserve without telling the heaps that the node changed."""

    def take(self: Any, *args: Any) -> None:
        version = self.version
        healthy(self, *args)
        self.version = version

    return take


def _wrong_parent(_healthy: Any) -> Any:
    """Take the bounds of any known request, more demanding ones too."""
    return lambda self, _key: max(self._heaps, key=lambda known: known[1:], default=None)


def _gives_up_on_wide(healthy: Any) -> Any:
    """Leave jobs of several nodes without a reservation."""
    return lambda self, need, d, **n: None if need.nodes > 1 else healthy(self, need, d, **n)


def _shorter_is_harder(healthy: Any) -> Any:
    return lambda self, need, d, **n: healthy(self, need, max(1, 90 - d), **n)


def _random_answer(_healthy: Any) -> Any:
    calls: list[int] = []

    def digest_of(_self: Any, _model: Any) -> str:
        calls.append(1)
        return str(len(calls))

    return digest_of


def _first_tasks_only(healthy: Any) -> Any:
    def ahead(*args: Any) -> Any:
        jobs, number = healthy(*args)
        most = next((job.at_once for job in jobs if job.at_once), len(jobs))
        return jobs[:most], number

    return ahead


def _no_floor(healthy: Any) -> Any:
    """Leave out what the slower plan says where the other one says now."""

    def wait_for(*args: Any, **named: Any) -> Any:
        wait, basis = healthy(*args, **named)
        is_now = basis.wait_class in ("certain", "risky")
        return (type(wait).made(p50=wait.p50, p90=wait.p50) if is_now else wait), basis

    return wait_for


def _free(healthy: Any) -> Any:
    return lambda layout, record: healthy(layout, record).model_copy(update={"amount": Decimal(0)})


def _charge_shared(healthy: Any) -> Any:
    """Charge exclusive nodes by the share that is used."""
    return lambda layout, record: healthy(layout, replace(record, is_exclusive=False))


def _no_verification(_healthy: Any) -> Any:
    return lambda *_a, **_n: None


def _always_above(healthy: Any) -> Any:
    """Size past the envelope: twice the maximum."""

    def targets(envelope: Any) -> list[Any]:
        return [replace(target, cpus=target.cpus * 4) for target in healthy(envelope)]

    return targets


def _exact_minimum_only(_healthy: Any) -> Any:
    """Refuse shares that are rounded up to be even."""

    def lay_out(target: Any, nodes: int, **named: Any) -> Any:
        return None if target.gpus % nodes else _healthy(target, nodes, **named)

    return lay_out


def _more_is_worse(healthy: Any) -> Any:
    """Judge capacity by the smallest node of all instead of enough nodes."""

    def capacity_rule(asked: Any, layout: Any) -> Any:
        return healthy(asked, None if len(asked.record.nodes) > 4 else layout)

    return capacity_rule


def _credit_not_compared(_healthy: Any) -> Any:
    """Take accounts for alike that have different credit."""
    return lambda record: (record.system, record.partition, record.limits)


def _name_forgotten(healthy: Any) -> Any:
    """Let accounts that lack an allocation share their reasons, which name one of them."""
    return lambda twin, record: replace(twin, rejections=())


def _key_without(*parts: int) -> Callable[[Any], Any]:
    def fault(healthy: Any) -> Any:
        return lambda *args: tuple(p for i, p in enumerate(healthy(*args)) if i not in parts)

    return fault


def _counts_as_text(healthy: Any) -> Any:
    return lambda **named: healthy(**{**named, "cpus": str(named["cpus"])})


CAPPED = (
    envelope(gpus=bounds(1, 4), policy=Policy(max_charge={"delta": Decimal(2)})),
    [record(charge=ChargeRule(unit="SU", per_gpu=Decimal(1)))],
)
POOR = (
    envelope(gpus=bounds(1, 4)),
    [record(charge=ChargeRule(unit="SU", per_gpu=Decimal(1)), credit_left=Decimal(2))],
)
STAIRS = (
    envelope(),
    [
        record(name, charge=ChargeRule(unit="SU", per_gpu=Decimal(1)), dispatch_s=late, credit_left=credit)
        for name, late, credit in (("a", 0, Decimal(10)), ("b", 4, Decimal(20)), ("c", 8, Decimal(40)))
    ],
)
"""A first, B 4 s later and cheaper, C 8 s and cheapest: a window of 5 s picks B, and C without A."""

MUTANTS = [
    Mutant("records are not sorted", place, "sorted", _records_as_given, "order_does_not_matter"),
    Mutant("offline is fine", rules, "PLAIN_RULES", lambda r: r[1:], "only_feasible_is_chosen"),
    Mutant("wall time is not capped", rules, "wall_time", _nothing, "only_feasible_is_chosen"),
    Mutant(
        "the trace loses its reasons",
        types.Candidate,
        "made",
        _reasons_lost,
        "every_candidate_is_feasible_or_explained",
    ),
    Mutant("more CPUs than asked", sizing, "targets", _always_above, "size_stays_in_bounds"),
    Mutant("limits are not kept", sizing, "limit_codes", _nothing, "size_stays_in_bounds"),
    Mutant("the charge is not computed", sizing, "charge_for", _free, "charge_stays_in_credit"),
    Mutant(
        "exclusive nodes are charged by share", sizing, "charge_for", _charge_shared, "charge_stays_in_credit"
    ),
    Mutant(
        "credit is unlimited",
        sizing,
        "credit_for",
        lambda _h: lambda *_a: None,
        "charge_stays_in_credit",
        POOR,
    ),
    Mutant(
        "caps are ignored", sizing, "cap_for", lambda _h: lambda *_a: None, "charge_stays_in_credit", CAPPED
    ),
    Mutant("a sliding window", place, "sorted", _sliding_window, "removing_a_loser_keeps_the_winner", STAIRS),
    Mutant(
        "no rounding to even shares",
        sizing,
        "lay_out",
        _exact_minimum_only,
        "a_looser_request_never_loses_a_placement",
    ),
    Mutant(
        "more nodes are refused", rules, "capacity", _more_is_worse, "more_resources_never_lose_a_placement"
    ),
    Mutant("the score is ignored", judge, "key_of", _score_ignored, "nothing_feasible_scores_better"),
    Mutant(
        "no tie-break by credit",
        judge,
        "key_of",
        _without_key_part(4),
        "equal_scores_are_settled_by_the_ties",
    ),
    Mutant(
        "no tie-break by waste", judge, "key_of", _without_key_part(5), "equal_scores_are_settled_by_the_ties"
    ),
    Mutant(
        "no tie-break by preference",
        judge,
        "key_of",
        _without_key_part(6),
        "equal_scores_are_settled_by_the_ties",
    ),
    Mutant(
        "no tie-break at all", judge, "key_of", _keep_arrival_order, "equal_scores_are_settled_by_the_ties"
    ),
    Mutant("longer is better", choose, "grid", lambda h: lambda s: -h(s), "a_shorter_wait_keeps_the_winner"),
    Mutant(
        "answers depend on the call",
        cache.PlanCache,
        "digest_of",
        _random_answer,
        "the_same_inputs_give_the_same_bytes",
    ),
    Mutant(
        "reserved credit is forgotten",
        cache.PlanCache,
        "committed_amount",
        lambda _h: lambda *_a: Decimal(0),
        "a_reserved_choice_is_planned_behind",
    ),
    Mutant("edits are not tried", relax, "edit_for", _no_verification, "unschedulable_tells_what_would_help"),
    Mutant(
        "the last second is free",
        timeline.NodeSteps,
        "take",
        _overcommitting_take,
        "a_reservation_takes_what_it_says",
    ),
    Mutant(
        "GPUs are not looked at",
        timeline.NodeSteps,
        "earliest",
        _no_gpu_check,
        "a_node_is_never_overcommitted",
    ),
    Mutant(
        "only the start must fit",
        timeline.NodeSteps,
        "earliest",
        _first_step_only,
        "a_node_is_never_overcommitted",
    ),
    Mutant(
        "one second late", timeline.NodeTimelines, "earliest", _late_by(1), "a_start_is_the_earliest_there_is"
    ),
    Mutant(
        "stale bounds", timeline.NodeSteps, "take", _bounds_never_refreshed, "a_node_is_never_overcommitted"
    ),
    Mutant(
        "bounds of a bigger request",
        timeline.NodeTimelines,
        "_parent",
        _wrong_parent,
        "remembered_answers_equal_fresh_ones",
    ),
    Mutant(
        "wide jobs get no reservation",
        timeline.NodeTimelines,
        "reserve",
        _gives_up_on_wide,
        "what_fits_the_empty_machine_gets_a_start",
    ),
    Mutant(
        "long jobs start first",
        timeline.NodeTimelines,
        "earliest",
        _shorter_is_harder,
        "a_bigger_or_longer_request_never_starts_earlier",
    ),
    Mutant(
        "counting is late",
        timeline.NodeCounts,
        "earliest",
        _late_by(1),
        "counting_is_never_later_than_naming",
    ),
    Mutant(
        "idle nodes are late", occupancy, "_shared_steps", _idle_nodes_late, "fewer_running_jobs_never_delay"
    ),
    Mutant(
        "accounts share a judgement whatever their credit",
        judge,
        "_case_of",
        _credit_not_compared,
        "accounts_are_judged_as_if_alone",
    ),
    Mutant(
        "the second account loses its reasons",
        judge,
        "_as_if",
        _name_forgotten,
        "accounts_are_judged_as_if_alone",
    ),
    Mutant("counts are words", types.SizeTried, "made", _counts_as_text, "a_decision_is_a_valid_value"),
    Mutant(
        "reservations reach the kept plan",
        outlook.Outlook,
        "fork",
        lambda _h: lambda self: self,
        "kept_plans_equal_fresh_ones",
    ),
    Mutant(
        "nodes taken from a fork are taken from all",
        timeline.NodeTimelines,
        "_own",
        lambda _h: lambda self, index: self.nodes[index],
        "kept_plans_equal_fresh_ones",
    ),
    Mutant(
        "everybody has the first user's priority",
        store,
        "_key_of",
        _key_without(5),
        "kept_plans_equal_fresh_ones",
    ),
    Mutant(
        "a full store mixes partitions up",
        store,
        "_key_of",
        _key_without(0, 1, 2, 3),
        "a_full_store_answers_the_same",
    ),
    Mutant(
        "who is held back reserves from now on",
        turns.Turns,
        "first",
        lambda _h: lambda _self, _job, _limit_s: 0,
        "who_is_held_back_delays_nothing_before_their_turn",
    ),
    Mutant(
        "turns count before they come",
        turns.HeldBack,
        "later",
        lambda _h: (
            lambda self, need, lasts_s, _starts: (
                self.limits.earliest(need, lasts_s),
                self.means.earliest(need, lasts_s),
            )
        ),
        "who_is_held_back_delays_nothing_before_their_turn",
    ),
    Mutant(
        "nobody takes a turn",
        turns.HeldBack,
        "later",
        lambda _h: lambda _self, _need, _lasts_s, starts: starts,
        "a_turn_is_taken_before_ours",
    ),
    Mutant(
        "a choice is forgotten where turns count",
        outlook.Outlook,
        "_pictures",
        lambda healthy: lambda self, *given: list(healthy(self, *given))[:2],
        "what_is_reserved_is_taken_from_both_pictures",
    ),
    Mutant(
        "throttles are not heeded",
        turns.Lanes,
        "reserve",
        lambda _h: lambda _self, picture, _job, need, lasts_s: picture.reserve(need, lasts_s),
        "a_throttled_array_leaves_the_rest_free",
    ),
    Mutant(
        "a throttled array is planned for its first tasks only",
        outlook,
        "jobs_ahead",
        _first_tasks_only,
        "a_throttled_array_leaves_the_rest_free",
    ),
    Mutant(
        "p90 follows the plan that says now",
        judge,
        "wait_for",
        _no_floor,
        "nine_of_ten_waits_last_to_the_later_plan",
        witness=(envelope(), [now_by_limits_alone()]),
    ),
]
