"""One record judged: every rule on the minimum, then every size planned, priced and put in order."""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime
from decimal import Decimal
from operator import attrgetter
from typing import Any

from federation.types import ResourceRecord
from orchestrator.envelope.types import Envelope
from orchestrator.placement.cache import PlanCache
from orchestrator.placement.capacity import Layout
from orchestrator.placement.charge import credit_for
from orchestrator.placement.choose import PARTS, Aim, Key, key_of, name_of
from orchestrator.placement.estimate import RecordTimes, ShapeTimes, Work, record_times, times_for, wait_for
from orchestrator.placement.model import PlacementModel
from orchestrator.placement.plan import Forecast, PartitionPlan
from orchestrator.placement.rules import Asked, failures, snapshot_age_s
from orchestrator.placement.sizing import Sized, shapes
from orchestrator.placement.types import Quantiles, Rejection, SizeTried, WaitBasis, rejection


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
    estimates: ShapeTimes
    key: Key


@dataclass(frozen=True, slots=True)
class Judged:
    """One record: its best option, or why there is none, and every size that was tried."""

    record: ResourceRecord
    best: Option | None
    rejections: tuple[Rejection, ...]
    tried: tuple[SizeTried, ...]


_WRITTEN_DOWN_ONLY = {"account", "credit_granted", "nodes", "queue"}
_case_of = attrgetter(*(each.name for each in fields(ResourceRecord) if each.name not in _WRITTEN_DOWN_ONLY))
"""What a judgement depends on besides nodes and queue, which are compared by identity."""
_NAME = PARTS.index("name")
_CASES_COMPARED = 4


def judge_all(question: Question, records: Iterable[ResourceRecord]) -> list[Judged]:
    """Judge every record; accounts of one partition that differ in nothing else share one judgement.

    Records that lack an allocation are judged one by one, because their reasons name the account.
    """
    found: list[Judged] = []
    cases: deque[tuple[ResourceRecord, object, Judged]] = deque(maxlen=_CASES_COMPARED)
    for each in records:
        record = _behind_commitments(question, each)
        case = _case_of(record)
        twin = next(
            (
                judged
                for other, same, judged in cases
                if other.nodes is record.nodes and other.queue is record.queue and same == case
            ),
            None,
        )
        if twin is None or not record.has_allocation:
            twin = _judge(question, record)
            cases.append((record, case, twin))
            found.append(twin)
        else:
            found.append(_as_if(twin, record))
    return found


def _as_if(twin: Judged, record: ResourceRecord) -> Judged:
    """Return a judgement under the name of another account."""
    best = twin.best
    if best is not None:
        key: Any = (*best.key[:_NAME], name_of(record), *best.key[_NAME + 1 :])
        best = Option(record, best.layout, best.estimates, key)
    return Judged(record, best, twin.rejections, twin.tried)


def judge(question: Question, record: ResourceRecord) -> Judged:
    """Return the best shape of one record, or every reason why it has none."""
    return _judge(question, _behind_commitments(question, record))


def _judge(question: Question, record: ResourceRecord) -> Judged:
    kinds = question.cache.kinds_of(record.nodes)
    asked = Asked(question.envelope, record, kinds, question.now, question.budgets, question.exclude_systems)
    rejections = failures(asked)
    if rejections:
        return Judged(record, None, rejections, ())
    options, tried = [], []
    desk = _desk(question, record)
    for sized in shapes(question.envelope, record, kinds=kinds, budgets=question.budgets, now=question.now):
        option = None if sized.dropped else desk.option_for(sized)
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
    jobs = question.cache.committed_jobs(record.system, record.partition)
    amount = question.cache.committed_amount(record.system, record.account)
    if not jobs and not amount:
        return record
    limits = replace(record.limits, submitted_jobs=record.limits.submitted_jobs + jobs)
    credit = None if record.credit_left is None else record.credit_left - amount
    return replace(record, limits=limits, credit_left=credit)


@dataclass(slots=True)
class _Desk:
    """What the shapes of one record share while they are estimated."""

    question: Question
    record: ResourceRecord
    plan: PartitionPlan
    shared: RecordTimes
    credit: Decimal | None
    waits: dict[Forecast, tuple[Quantiles, WaitBasis]]

    def option_for(self, sized: Sized) -> Option | None:
        """Return a layout with its times and key; None when the plan never finds a window for it."""
        question, record, layout = self.question, self.record, sized.layout
        forecast = self.plan.forecast(layout)
        if record.queue.is_visible and (forecast.limits_s is None or forecast.means_s is None):
            return None
        waiting = self.waits.get(forecast)
        if waiting is None:
            waiting = wait_for(record, forecast, model=question.model, age_s=self.shared.age_s)
            self.waits[forecast] = waiting
        times = times_for(
            question.envelope,
            record,
            layout,
            waiting,
            shared=self.shared,
            charge=sized.charge,
            model=question.model,
            work=question.work,
        )
        key = key_of(question.aim, question.envelope, record, layout, times, credit=self.credit)
        return Option(record, layout, times, key)


def _desk(question: Question, record: ResourceRecord) -> _Desk:
    age_s = snapshot_age_s(record, question.now)
    return _Desk(
        question=question,
        record=record,
        plan=question.cache.plan_of(record, now=question.now, model=question.model),
        shared=record_times(question.envelope, record, model=question.model, work=question.work, age_s=age_s),
        credit=credit_for(record, question.budgets),
        waits={},
    )


def _tried(layout: Layout, dropped: tuple[str, ...], option: Option | None) -> SizeTried:
    return SizeTried.made(
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
