"""place(): envelope + records + now -> Decision. Total, pure, and the same for any order of records.

Each record is judged by every rule on the minimum request; where it passes, every size from minimum to
maximum is laid out, planned and priced, and the best shape of all records wins.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from decimal import Decimal

from federation.types import ResourceRecord
from orchestrator.envelope.types import OBJECTIVES, Envelope
from orchestrator.placement import trace
from orchestrator.placement.cache import Commitment, PlanCache
from orchestrator.placement.capacity import Layout, Target, lay_out, suitable_kinds
from orchestrator.placement.choose import RISK_AVERSE, Aim, misses, tie_break
from orchestrator.placement.estimate import Work
from orchestrator.placement.judge import Judged, Option, Question, judge_all
from orchestrator.placement.model import PlacementModel
from orchestrator.placement.relax import closest_change
from orchestrator.placement.types import (
    Candidate,
    Decision,
    Estimates,
    Selected,
    Shape,
    Size,
    SizeTried,
    Sizing,
)


def place(
    envelope: Envelope,
    records: Iterable[ResourceRecord],
    *,
    now: datetime,
    model: PlacementModel,
    cache: PlanCache | None = None,
    work: Work | None = None,
    budgets: Mapping[str, Decimal] | None = None,
    objective: str | None = None,
    risk_averse: bool = False,
    exclude_systems: Collection[str] = (),
    diversity_load: Mapping[str, int] | None = None,
    decision_id: str = "",
) -> Decision:
    """Return the decision for one envelope.

    Args:
        envelope: The normalized request.
        records: The user's records, in any order.
        now: The instant of the decision, aware.
        model: What experience taught.
        cache: Plans shared by decisions on the same records and `now`; choices reserved in it are planned
            behind. None = a fresh one.
        work: Kind of work and environment, for history and preparation.
        budgets: The most this task may be charged by system, in that site's unit.
        objective: Instead of the envelope's.
        risk_averse: Score by p90 instead of p50.
        exclude_systems: Systems not to use this time, besides the envelope's policy.
        diversity_load: How much of the task's group is at each system; less is preferred among equals.
        decision_id: Handle the caller gave the decision.
    """
    ordered = sorted(records, key=lambda record: (record.key, record.qos or ""))
    question, warnings = _question(
        envelope,
        now=now,
        model=model,
        cache=cache or PlanCache(),
        work=work or Work(),
        budgets=budgets or {},
        objective=objective,
        risk_averse=risk_averse,
        exclude_systems=frozenset(exclude_systems),
        diversity_load=diversity_load or {},
    )
    judged = judge_all(question, ordered)
    options = sorted((each.best for each in judged if each.best is not None), key=lambda option: option.key)
    warnings += _warnings(question, options)
    return Decision(
        id=decision_id,
        input_hash=_input_hash(question, ordered),
        model_version=model.version,
        snapshot_ids=tuple(sorted({r.snapshot_id for r in ordered if r.snapshot_id is not None})),
        objective=question.aim.objective,
        result="placed" if options else "unschedulable",
        selected=_selected(options[0]) if options else None,
        runner_up=_selected(options[1]) if len(options) > 1 else None,
        margin_s=_margin(options),
        candidates=_candidates(question, judged, options),
        closest=None if options else closest_change(question, judged),
        warnings=tuple(warnings),
        generated_at=now,
    )


def _question(
    envelope: Envelope,
    *,
    now: datetime,
    model: PlacementModel,
    cache: PlanCache,
    work: Work,
    budgets: Mapping[str, Decimal],
    objective: str | None,
    risk_averse: bool,
    exclude_systems: frozenset[str],
    diversity_load: Mapping[str, int],
) -> tuple[Question, list[str]]:
    wanted = objective or envelope.policy.objective or envelope.objective
    warnings = []
    if wanted not in OBJECTIVES:
        warnings.append(f"Objective {wanted} is no placement objective; earliest_completion was used.")
        wanted = "earliest_completion"
    aim = Aim(wanted, risk_averse or wanted == RISK_AVERSE, now, diversity_load)
    return Question(envelope, aim, model, cache, work, now, budgets, exclude_systems), warnings


def reserve(
    cache: PlanCache,
    decision: Decision,
    *,
    envelope: Envelope,
    records: Sequence[ResourceRecord],
    is_own: bool = True,
) -> None:
    """Put a decision into the plan, so that the next one on the same records is planned behind it.

    An unschedulable decision takes nothing. `envelope` and `records` are those it was made from; a decision
    that is not `is_own` was made for another user of the site, whose limits are not ours.

    Raises:
        LookupError: the selected candidate is not among the records.
    """
    chosen = decision.selected
    if chosen is None:
        return
    place_of = (chosen.system, chosen.partition, chosen.account, chosen.qos)
    record = next((r for r in records if (r.system, r.partition, r.account, r.qos) == place_of), None)
    if record is None:
        raise LookupError(place_of)
    reserve_shape(
        cache,
        record,
        chosen.shape,
        envelope=envelope,
        runtime_s=chosen.estimates.runtime_s + chosen.estimates.preparation_s,
        amount=chosen.estimates.charge.amount,
        is_own=is_own,
    )


def reserve_shape(
    cache: PlanCache,
    record: ResourceRecord,
    shape: Shape,
    *,
    envelope: Envelope,
    runtime_s: int,
    amount: Decimal = Decimal(0),
    is_own: bool = True,
) -> None:
    """Put a granted shape into the plan of a record's partition; `amount` is not charged yet.

    One that is not `is_own` was made for another user of the site, whose limits are not ours.

    Raises:
        LookupError: the shape does not fit the partition's nodes.
    """
    kinds = suitable_kinds(cache.kinds_of(record.nodes), envelope, gpus=shape.gpus)
    target = Target(shape.gpus, shape.cpus, shape.memory_mib)
    layout = lay_out(target, shape.nodes, envelope=envelope, kinds=kinds, record=record)
    if layout is None:
        raise LookupError(record.key)
    cache.commit(
        Commitment(
            system=record.system,
            partition=record.partition,
            account=record.account,
            layout=replace(layout, walltime_s=shape.walltime_s),
            runtime_s=runtime_s,
            amount=amount,
            is_own=is_own,
        )
    )


def shape_of(layout: Layout) -> Shape:
    """Return the granted shape of a layout."""
    return Shape.made(
        nodes=layout.nodes,
        gpus=layout.gpus,
        cpus=layout.cpus,
        memory_mib=layout.memory_mib,
        walltime_s=layout.walltime_s,
        gpu_type=layout.smallest_kind.gpu_type if layout.gpus else None,
    )


def _selected(option: Option) -> Selected:
    record = option.record
    return Selected(
        system=record.system,
        partition=record.partition,
        account=record.account,
        qos=record.qos,
        shape=shape_of(option.layout),
        estimates=option.estimates.written(),
    )


def _margin(options: list[Option]) -> int | None:
    if len(options) < 2:
        return None
    return options[1].estimates.completion_s - options[0].estimates.completion_s


def _warnings(question: Question, options: list[Option]) -> list[str]:
    found = []
    if options and options[0].key[0]:
        best = options[0]
        lasts_s = best.estimates.preparation_s + best.estimates.runtime_s
        if lasts_s > best.layout.walltime_s:
            found.append(
                f"The expected runtime of {lasts_s} s exceeds the wall time of "
                f"{best.layout.walltime_s} s on every feasible candidate; the job may be ended early."
            )
        deadline = question.envelope.deadline_at
        without = question.envelope.model_copy(
            update={"policy": question.envelope.policy.model_copy(update={"deadline": None})}
        )
        if misses(without, best.layout, best.estimates, now=question.now) < best.key[0]:
            found.append(f"No candidate is sure to end by {deadline}; this is the best that was found.")
    if question.aim.objective == "lowest_charge" and len({o.estimates.charge.unit for o in options}) > 1:
        found.append("Charges are in different units; their amounts were compared as the sites state them.")
    if question.envelope.has_unsized_inputs:
        found.append("Some inputs have no known size; their transfer counts as nothing.")
    return found


def _candidates(question: Question, judged: list[Judged], options: list[Option]) -> tuple[Candidate, ...]:
    rank_of = {id(option): rank for rank, option in enumerate(options, start=1)}
    written: dict[int, tuple[Sizing, Shape, Estimates]] = {}
    """What a best shape is written down as, by the identity of its estimates: accounts share it."""
    found = []
    for each in judged:
        record, best = each.record, each.best
        rank, behind = None, None
        parts: tuple[Sizing, Shape, Estimates] | tuple[None, None, None] = (None, None, None)
        if best is not None:
            rank = rank_of[id(best)]
            behind = tie_break(options[rank - 2].key, best.key) if rank > 1 else None
            if id(best.estimates) not in written:
                sizing = _sizing(question.envelope, best.layout, each.tried)
                written[id(best.estimates)] = sizing, shape_of(best.layout), best.estimates.written()
            parts = written[id(best.estimates)]
        found.append(
            Candidate.made(
                system=record.system,
                partition=record.partition,
                account=record.account,
                qos=record.qos,
                feasible=best is not None,
                rejections=each.rejections,
                sizing=parts[0],
                shape=parts[1],
                estimates=parts[2],
                rank=rank,
                tie_break=behind,
            )
        )
    return tuple(found)


def _sizing(envelope: Envelope, layout: Layout, tried: tuple[SizeTried, ...]) -> Sizing:
    most = envelope.maximum()
    wanted = Size(gpus=most.gpus, cpus=most.cpus, nodes=most.nodes)
    granted = Size(gpus=layout.gpus, cpus=layout.cpus, nodes=layout.nodes)
    if envelope.gpus.is_fixed and envelope.cpus.is_fixed:
        why = f"The size is fixed; {len(tried)} layouts were compared."
    elif (layout.gpus, layout.cpus) == (most.gpus, most.cpus):
        why = f"The maximum is best of {len(tried)} sizes and layouts."
    else:
        dropped = sum(bool(size.dropped) for size in tried)
        why = f"Best of {len(tried)} sizes and layouts; {dropped} broke a cap."
    return Sizing(from_=wanted, to=granted, why=why, tried=tried)


def _input_hash(question: Question, records: list[ResourceRecord]) -> str:
    return trace.input_hash(
        {
            "envelope": question.envelope,
            "now": question.now,
            "model": question.cache.digest_of(question.model),
            "objective": question.aim.objective,
            "risk_averse": question.aim.risk_averse,
            "budgets": question.budgets,
            "exclude_systems": question.exclude_systems,
            "diversity_load": question.aim.diversity_load,
            "work": question.work,
            "commitments": question.cache.commitments_digest(),
        },
        [question.cache.record_digest(record) for record in records],
    )
