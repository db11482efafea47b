"""One record judged: every rule on the minimum, then every size planned, priced and put in order."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal

from federation.types import ResourceRecord
from orchestrator.envelope.types import Envelope
from orchestrator.placement.cache import PlanCache
from orchestrator.placement.capacity import Layout
from orchestrator.placement.charge import charge_for, credit_for
from orchestrator.placement.choose import Aim, Key, key_of
from orchestrator.placement.estimate import Work, estimates_for, record_times
from orchestrator.placement.model import PlacementModel
from orchestrator.placement.rules import Asked, failures, snapshot_age_s
from orchestrator.placement.sizing import shapes
from orchestrator.placement.types import Estimates, Rejection, SizeTried, rejection


@dataclass(frozen=True, slots=True)
class Question:
    """One request with everything that is the same for all records."""

    envelope: Envelope
    aim: Aim
    model: PlacementModel
    cache: PlanCache
    work: Work
    now: datetime
    budgets: Mapping[str, Decimal]
    exclude_systems: frozenset[str]


@dataclass(frozen=True, slots=True)
class Option:
    """A feasible shape on one record with its estimates and its place in the order."""

    record: ResourceRecord
    layout: Layout
    estimates: Estimates
    key: Key


@dataclass(frozen=True, slots=True)
class Judged:
    """One record: its best option, or why there is none, and every size that was tried."""

    record: ResourceRecord
    best: Option | None
    rejections: tuple[Rejection, ...]
    tried: tuple[SizeTried, ...]


def judge(question: Question, record: ResourceRecord) -> Judged:
    """Return the best shape of one record, or every reason why it has none."""
    record = _behind_commitments(question, record)
    kinds = question.cache.kinds_of(record.nodes)
    asked = Asked(question.envelope, record, kinds, question.now, question.budgets, question.exclude_systems)
    rejections = failures(asked)
    if rejections:
        return Judged(record, None, rejections, ())
    options, tried = [], []
    for sized in shapes(question.envelope, record, kinds=kinds, budgets=question.budgets, now=question.now):
        option = None if sized.dropped else option_for(question, record, sized.layout)
        if option is not None:
            options.append(option)
        dropped = sized.dropped or (() if option else ("maintenance_window",))
        tried.append(_tried(sized.layout, dropped, option))
    if not options:
        return Judged(record, None, _nothing_left(record, tried), tuple(tried))
    best = min(options, key=lambda option: option.key)
    return Judged(record, best, (), tuple(tried))


def _behind_commitments(question: Question, record: ResourceRecord) -> ResourceRecord:
    """Return the record with the jobs and credit of choices made since its snapshot."""
    jobs = question.cache.committed_jobs(record.system)
    if not jobs:
        return record
    limits = replace(record.limits, submitted_jobs=record.limits.submitted_jobs + jobs)
    credit = record.credit_left
    if credit is not None:
        credit -= question.cache.committed_amount(record.system, record.account)
    return replace(record, limits=limits, credit_left=credit)


def option_for(question: Question, record: ResourceRecord, layout: Layout) -> Option | None:
    """Return a layout with its estimates and key; None when the plan never finds a window for it."""
    plan = question.cache.plan_of(record, now=question.now, model=question.model)
    forecast = plan.forecast(layout)
    if record.queue.is_visible and (forecast.limits_s is None or forecast.means_s is None):
        return None
    envelope, model, work = question.envelope, question.model, question.work
    age_s = snapshot_age_s(record, question.now)
    estimates = estimates_for(
        envelope,
        record,
        layout,
        forecast,
        times=record_times(envelope, record, model=model, work=work, age_s=age_s),
        charge=charge_for(layout, record),
        model=model,
        work=work,
    )
    credit = credit_for(record, question.budgets)
    key = key_of(question.aim, envelope, record, layout, estimates, credit=credit)
    return Option(record, layout, estimates, key)


def _tried(layout: Layout, dropped: tuple[str, ...], option: Option | None) -> SizeTried:
    return SizeTried(
        nodes=layout.nodes,
        gpus=layout.gpus,
        cpus=layout.cpus,
        walltime_s=layout.walltime_s,
        dropped=dropped,
        completion_s=option.estimates.completion_s if option else None,
    )


def _nothing_left(record: ResourceRecord, tried: list[SizeTried]) -> tuple[Rejection, ...]:
    """Return the reasons why no size is left although the minimum passed every rule."""
    codes = dict.fromkeys(code for size in tried for code in size.dropped)
    place = f"{record.system}/{record.partition}"
    return tuple(
        rejection(
            code,
            required="a size between minimum and maximum",
            observed="none",
            remedy=f"No size of this task finds room at {place} ({code}); widen its ranges or wait.",
        )
        for code in codes or {"nodes": None}
    )
