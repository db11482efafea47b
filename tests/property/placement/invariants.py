"""The invariants of choice, and the list of all, as plain functions that raise AssertionError when broken.

They live apart from the tests so that each can also be run against a mutant, and must fail there.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from federation.types import NodeView, ResourceRecord
from orchestrator.envelope.types import Envelope, Policy, Range
from orchestrator.placement import cache, types
from orchestrator.placement.place import place, reserve
from orchestrator.placement.trace import decision_bytes
from tests.property.placement.planning import (
    a_bigger_or_longer_request_never_starts_earlier,
    a_node_is_never_overcommitted,
    a_reservation_takes_what_it_says,
    a_start_is_the_earliest_there_is,
    counting_is_never_later_than_naming,
    fewer_running_jobs_never_delay,
    jobs,
    machines,
    remembered_answers_equal_fresh_ones,
    what_fits_the_empty_machine_gets_a_start,
)
from tests.property.placement.sharing import (
    a_decision_is_a_valid_value,
    a_full_store_answers_the_same,
    accounts_are_judged_as_if_alone,
    askers,
    kept_plans_equal_fresh_ones,
)
from tests.property.placement.turning import (
    a_throttled_array_leaves_the_rest_free,
    a_turn_is_taken_before_ours,
    lengths,
    partitions,
    requests,
    what_is_reserved_is_taken_from_both_pictures,
    who_is_held_back_delays_nothing_before_their_turn,
)
from tests.property.placement.views import (
    MODEL,
    NOW,
    envelopes,
    federations,
    records,
)

Place = tuple[str, str, str | None]


def decide(request: Envelope, views: list[ResourceRecord], **options: Any) -> types.Decision:
    return place(request, views, now=NOW, model=MODEL, **options)


def chosen(decision: types.Decision) -> Place | None:
    won = decision.selected
    return None if won is None else (won.system, won.partition, won.account)


# --- choice --------------------------------------------------------------------------------------


def order_does_not_matter(request: Envelope, views: list[ResourceRecord]) -> None:
    straight, reversed_ = decide(request, views), decide(request, views[::-1])
    assert decision_bytes(straight) == decision_bytes(reversed_)


def every_candidate_is_feasible_or_explained(request: Envelope, views: list[ResourceRecord]) -> None:
    decision = decide(request, views)
    assert len(decision.candidates) == len(views)
    for each in decision.candidates:
        assert each.feasible == (not each.rejections)
        assert each.feasible == (each.estimates is not None)
        for failed in each.rejections:
            assert types.RULE_OF[failed.code] is failed.rule
            assert len(failed.remedy) > 10


def only_feasible_is_chosen(request: Envelope, views: list[ResourceRecord]) -> None:
    """The obvious conditions are written again, independently of the rules."""
    decision = decide(request, views)
    if decision.selected is None:
        return
    won = next(v for v in views if (v.system, v.partition, v.account) == chosen(decision))
    shape = decision.selected.shape
    assert won.health == "online"
    assert won.max_walltime_s is None or shape.walltime_s <= won.max_walltime_s
    wanted = request.accelerator.types if request.accelerator else ()
    holding = [
        n
        for n in won.nodes
        if n.is_up
        and n.gpus >= shape.gpus_per_node
        and n.cpus >= shape.cpus_per_node
        and (shape.gpus == 0 or not wanted or n.gpu_type in wanted)
    ]
    assert len(holding) >= shape.nodes
    assert shape.gpus % shape.nodes == 0


def nine_of_ten_waits_last_to_the_later_plan(request: Envelope, views: list[ResourceRecord]) -> None:
    """Whichever plan says now: who avoids risk goes by the worse of the two."""
    for each in decide(request, views).candidates:
        if each.estimates is None or each.estimates.wait.plan_limits_s is None:
            continue
        wait = each.estimates.wait
        assert each.estimates.wait_s.p90 >= max(wait.plan_limits_s or 0, wait.plan_means_s or 0)
        assert each.estimates.completion_p90_s >= each.estimates.completion_s


def size_stays_in_bounds(request: Envelope, views: list[ResourceRecord]) -> None:
    for each in decide(request, views).candidates:
        if each.shape is None:
            continue
        view = next(v for v in views if (v.system, v.partition) == (each.system, each.partition))
        assert request.gpus.min <= each.shape.gpus <= request.gpus.max
        assert request.cpus.min <= each.shape.cpus <= max(request.cpus.max, each.shape.nodes)
        assert request.walltime_s.min <= each.shape.walltime_s <= request.walltime_s.max
        assert request.nodes is None or request.nodes.holds(each.shape.nodes)
        for asked, cap in (
            (each.shape.nodes, view.max_nodes),
            (each.shape.nodes, view.limits.max_nodes_per_job),
            (each.shape.gpus, view.limits.max_gpus_per_job),
        ):
            assert cap is None or asked <= cap


def charge_stays_in_credit(request: Envelope, views: list[ResourceRecord]) -> None:
    for each in decide(request, views).candidates:
        if each.shape is None or each.estimates is None:
            continue
        view = next(v for v in views if (v.system, v.partition) == (each.system, each.partition))
        amount = each.estimates.charge.amount
        if view.charge is not None:
            per_node = Decimal(view.nodes[0].gpus) if view.is_exclusive else None
            gpus = each.shape.nodes * per_node if per_node is not None else Decimal(each.shape.gpus)
            rate = view.charge.per_gpu * gpus + view.charge.per_node * each.shape.nodes
            exact = rate * each.shape.walltime_s / 3600
            assert exact <= amount <= exact + Decimal("0.0001")
        assert view.credit_left is None or amount <= view.credit_left
        cap = request.policy.max_charge.get(view.system)
        assert cap is None or amount <= cap


def removing_a_loser_keeps_the_winner(request: Envelope, views: list[ResourceRecord]) -> None:
    won = chosen(decide(request, views))
    if won is None:
        return
    for loser in views:
        if (loser.system, loser.partition, loser.account) != won:
            assert chosen(decide(request, [v for v in views if v is not loser])) == won


def a_looser_request_never_loses_a_placement(request: Envelope, views: list[ResourceRecord]) -> None:
    before = {(c.system, c.partition) for c in decide(request, views).candidates if c.feasible}
    for looser in _loosened(request):
        after = {(c.system, c.partition) for c in decide(looser, views).candidates if c.feasible}
        assert before <= after


def _loosened(request: Envelope) -> list[Envelope]:
    def wider(found: Range) -> Range:
        return Range(min=max(0, found.min - 1), max=found.max * 2)

    return [
        request.model_copy(update={"gpus": wider(request.gpus)}),
        request.model_copy(update={"walltime_s": wider(request.walltime_s)}),
        request.model_copy(update={"nodes": None}),
        request.model_copy(update={"accelerator": None}),
        request.model_copy(update={"policy": Policy()}),
    ]


def more_resources_never_lose_a_placement(request: Envelope, views: list[ResourceRecord]) -> None:
    before = {(c.system, c.partition) for c in decide(request, views).candidates if c.feasible}
    richer = [_richer(view) for view in views]
    after = {(c.system, c.partition) for c in decide(request, richer).candidates if c.feasible}
    assert before <= after


def _richer(view: ResourceRecord) -> ResourceRecord:
    extra: NodeView = replace(view.nodes[0], name="extra", is_up=True, is_usable=True)
    credit = None if view.credit_left is None else view.credit_left * 2
    limits = replace(view.limits, max_gpus_per_job=None)
    return replace(view, nodes=(*view.nodes, extra), credit_left=credit, limits=limits, max_nodes=None)


def nothing_feasible_scores_better(request: Envelope, views: list[ResourceRecord]) -> None:
    """Path by path: each candidate asked alone is in no earlier class of 5 s than the winner."""
    decision = decide(request, views)
    for view in views:
        alone = decide(request, [view]).selected
        if alone is None:
            continue
        assert decision.selected is not None
        assert decision.selected.estimates.completion_s // 5 <= alone.estimates.completion_s // 5


def equal_scores_are_settled_by_the_ties(request: Envelope, views: list[ResourceRecord]) -> None:
    """Among candidates of the winner's class none has a smaller credit share, waste, preference, name."""
    decision = decide(request, views)
    ranked = sorted((c for c in decision.candidates if c.rank), key=lambda c: c.rank or 0)
    keys = [_tie_key(request, candidate, views) for candidate in ranked]
    assert keys == sorted(keys)


def _tie_key(request: Envelope, each: types.Candidate, views: list[ResourceRecord]) -> tuple[Any, ...]:
    view = next(v for v in views if (v.system, v.partition) == (each.system, each.partition))
    assert each.estimates is not None
    assert each.shape is not None
    share = Decimal(0)
    if view.credit_left is not None:
        share = each.estimates.charge.amount / view.credit_left
    on_node = view.nodes[0].gpus
    idle = each.shape.nodes * on_node - each.shape.gpus if view.is_exclusive or not each.shape.gpus else 0
    prefer = request.policy.prefer
    place_of = prefer.index(view.system) if view.system in prefer else len(prefer)
    late = each.estimates.runtime_s > each.shape.walltime_s
    memory = (view.nodes[0].gpu_memory_mib or 0) * each.shape.gpus
    score = each.estimates.completion_s // 5
    return (late, score, share, (idle, memory), place_of, view.system, view.partition)


def a_shorter_wait_keeps_the_winner(request: Envelope, views: list[ResourceRecord]) -> None:
    won = chosen(decide(request, views))
    if won is None:
        return
    better = [
        replace(v, dispatch_s=0) if (v.system, v.partition, v.account) == won else replace(v, dispatch_s=60)
        for v in views
    ]
    assert chosen(decide(request, better)) == won


def the_same_inputs_give_the_same_bytes(request: Envelope, views: list[ResourceRecord]) -> None:
    shared = cache.PlanCache()
    first = decision_bytes(decide(request, views, cache=shared))
    assert first == decision_bytes(decide(request, views, cache=shared))
    assert first == decision_bytes(decide(request, views))


def a_reserved_choice_is_planned_behind(request: Envelope, views: list[ResourceRecord]) -> None:
    """What is reserved again and again never costs more credit than there is."""
    shared = cache.PlanCache()
    spent: dict[str, Decimal] = {}
    for _ in range(4):
        decision = decide(request, views, cache=shared)
        if decision.selected is None:
            return
        reserve(shared, decision, envelope=request, records=views)
        won = next(v for v in views if (v.system, v.partition, v.account) == chosen(decision))
        key = f"{won.system}/{won.account}"
        spent[key] = spent.get(key, Decimal(0)) + decision.selected.estimates.charge.amount
        assert won.credit_left is None or spent[key] <= won.credit_left


EDITABLE = {"wall_time_over_limit", "accelerator_type", "charge_over_cap", "max_nodes", "max_gpus"}
"""Codes that a change of the envelope always answers."""


def unschedulable_tells_what_would_help(request: Envelope, views: list[ResourceRecord]) -> None:
    decision = decide(request, views)
    assert (decision.closest is None) == (decision.result == "placed")
    if decision.closest is not None:
        assert decision.closest.changes
        assert decision.closest.verified == all(c.field is not None for c in decision.closest.changes)
        stated = [{failed.code for failed in each.rejections} for each in decision.candidates]
        assert decision.closest.verified or not any(codes <= EDITABLE for codes in stated)


# --- what each invariant is asked on --------------------------------------------------------------


@dataclass(frozen=True)
class Invariant:
    """One claim and the strategies of its arguments."""

    claim: Callable[..., None]
    arguments: tuple[st.SearchStrategy[Any], ...]

    @property
    def name(self) -> str:
        return self.claim.__name__


CHOICE = [
    Invariant(claim, (envelopes(), federations(least=2)))
    for claim in (
        order_does_not_matter,
        every_candidate_is_feasible_or_explained,
        only_feasible_is_chosen,
        size_stays_in_bounds,
        charge_stays_in_credit,
        removing_a_loser_keeps_the_winner,
        a_looser_request_never_loses_a_placement,
        more_resources_never_lose_a_placement,
        nothing_feasible_scores_better,
        equal_scores_are_settled_by_the_ties,
        a_shorter_wait_keeps_the_winner,
        the_same_inputs_give_the_same_bytes,
        a_reserved_choice_is_planned_behind,
        unschedulable_tells_what_would_help,
        accounts_are_judged_as_if_alone,
        a_decision_is_a_valid_value,
        nine_of_ten_waits_last_to_the_later_plan,
    )
]
PLAN = [
    Invariant(claim, (machines(), jobs))
    for claim in (
        a_node_is_never_overcommitted,
        what_fits_the_empty_machine_gets_a_start,
        a_reservation_takes_what_it_says,
        a_start_is_the_earliest_there_is,
        a_bigger_or_longer_request_never_starts_earlier,
        remembered_answers_equal_fresh_ones,
        counting_is_never_later_than_naming,
    )
] + [Invariant(fewer_running_jobs_never_delay, (records("delta", "gpu"), envelopes()))]
KEPT = [
    Invariant(claim, (federations(), askers))
    for claim in (kept_plans_equal_fresh_ones, a_full_store_answers_the_same)
]
TURNS = [
    Invariant(claim, (partitions(), requests, lengths))
    for claim in (
        who_is_held_back_delays_nothing_before_their_turn,
        what_is_reserved_is_taken_from_both_pictures,
    )
] + [
    Invariant(a_turn_is_taken_before_ours, (lengths, lengths, requests)),
    Invariant(a_throttled_array_leaves_the_rest_free, (st.integers(1, 40), st.integers(1, 5), lengths)),
]
INVARIANTS = {each.name: each for each in CHOICE + PLAN + KEPT + TURNS}
