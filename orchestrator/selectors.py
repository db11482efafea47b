"""Reading tasks, attempts, decisions and events, always for one user."""

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db.models import Count, OuterRef, Prefetch, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce

from federation.models import Connection, Event, EventPosition
from orchestrator.budget_selectors import costed_attempts, costs_of
from orchestrator.continuation import next_actions
from orchestrator.experience import wait_outcomes
from orchestrator.forecasts import forecast_of
from orchestrator.lifecycle import Cause, TaskState
from orchestrator.models import Attempt, Decision, Envelope, Group, Manifest, Task
from orchestrator.outcome_selectors import outcomes_of
from orchestrator.placement.calibration import Reliability, reliability
from orchestrator.shown import (
    AttemptShown,
    ChildShown,
    DecisionShown,
    EnvelopeShown,
    EventShown,
    GroupShown,
    TaskShown,
    Timeline,
    TimelineEntry,
)

_CHILDREN_SHOWN = 100


def tasks(user: AbstractBaseUser) -> QuerySet[Task]:
    """Return this user's tasks, newest first, with what showing them needs."""
    return (
        Task.objects.filter(user_id=user.pk)
        .select_related(
            "envelope", "group", "manifest", "attempt__system", "attempt__decision", "attempt__task"
        )
        .annotate(attempt_count=_attempts_of_each())
        .prefetch_related(costed_attempts())
        .order_by("-id")
    )


def with_words(rows: QuerySet[Task], user: AbstractBaseUser, words: str) -> QuerySet[Task]:
    """Return the tasks of `rows` whose name or objective holds the words, or whose handle or job id they are.

    A handle may be cut short; a job id is one of any attempt's. Each is looked up apart, by an index of its
    own: one condition over two tables would read every task of the user.
    """
    mine = Task.objects.filter(user_id=user.pk).order_by()
    named = mine.filter(Q(name__icontains=words) | Q(objective__icontains=words))
    handled = mine.filter(handle__startswith=words)
    ran = Attempt.objects.filter(job_id=words, task__user_id=user.pk).order_by()
    return rows.filter(pk__in=named.values("pk").union(handled.values("pk"), ran.values("task_id")))


def _attempts_of_each() -> Coalesce:
    """Return the number of a task's attempts, counted row by row.

    A join with GROUP BY would count all of a user's tasks before a list by name or by change takes its page.
    """
    counted = Attempt.objects.filter(task_id=OuterRef("pk")).order_by().values("task_id")
    return Coalesce(Subquery(counted.annotate(n=Count("pk")).values("n")), 0)


def attempts(user: AbstractBaseUser) -> QuerySet[Attempt]:
    """Return this user's attempts, newest first."""
    rows = Attempt.objects.filter(task__user_id=user.pk)
    return rows.select_related("system", "decision", "task").order_by("-id")


def calibration(user: AbstractBaseUser) -> list[Reliability]:
    """Return how good the waits predicted for this user's newest started attempts were.

    One value for each system, partition and class of wait, in the order of their names.
    """
    return reliability(wait_outcomes(Attempt.objects.filter(task__user_id=user.pk)))


def decisions(user: AbstractBaseUser) -> QuerySet[Decision]:
    """Return this user's kept decisions, newest first."""
    return Decision.objects.filter(user_id=user.pk).select_related("task").order_by("-id")


def envelopes(user: AbstractBaseUser) -> QuerySet[Envelope]:
    """Return this user's envelopes, newest first."""
    return Envelope.objects.filter(user_id=user.pk).order_by("-id")


def groups(user: AbstractBaseUser) -> QuerySet[Group]:
    """Return this user's groups, newest first, with what showing them needs."""
    children = Prefetch(
        "tasks", Task.objects.select_related("attempt__system").order_by("pk"), to_attr="prefetched_tasks"
    )
    return Group.objects.filter(user_id=user.pk).prefetch_related(children).order_by("-id")


def children(group: Group) -> list[Task]:
    """Return a group's tasks in the order they were given; rows of `groups()` need no query."""
    rows = group.tasks.select_related("attempt__system").order_by("pk")
    return list(getattr(group, "prefetched_tasks", rows))


def manifest_of(task: Task) -> Manifest | None:
    """Return what a finished task left behind."""
    return Manifest.objects.filter(task=task).first()


def events(user: AbstractBaseUser) -> QuerySet[Event]:
    """Return the events this user may see: their own, and those of systems they are connected to."""
    return (
        Event.objects.filter(
            Q(user_id=user.pk)
            | Q(
                user_id__isnull=True,
                system__in=Connection.objects.filter(user_id=user.pk).values("system__slug"),
            )
            | Q(user_id__isnull=True, system="")
        )
        .filter(position__isnull=False)
        .select_related("position")
    )


def events_after(
    user: AbstractBaseUser,
    cursor: int,
    *,
    types: Sequence[str] = (),
    subject: str | None = None,
    systems: Collection[str] | None = None,
    limit: int = 200,
) -> list[EventShown]:
    """Return the next events after a cursor, in commit order.

    `types` may end in `.*`; `subject` is the subject itself, or a task, group, attempt, transfer or system;
    `systems` leaves out what happened at any other.
    """
    rows = of_types(events(user).filter(position__seq__gt=cursor), types)
    if systems is not None:
        rows = rows.filter(system__in=["", *systems])
    if subject:
        rows = rows.filter(
            Q(subject=subject)
            | Q(task=subject)
            | Q(group=subject)
            | Q(attempt=subject)
            | Q(transfer=subject)
            | Q(system=subject)
        )
    return [show_event(row) for row in rows.order_by("position__seq")[:limit]]


def of_types(rows: QuerySet[Event], types: Sequence[str]) -> QuerySet[Event]:
    """Return the events of these types only; `task.*` means all of tasks, no types means any."""
    if not types:
        return rows
    wanted = Q()
    for word in types:
        wanted |= Q(type__startswith=word[:-1]) if word.endswith(".*") else Q(type=word)
    return rows.filter(wanted)


def head_cursor() -> int:
    """Return the place of the newest event; 0 before the first."""
    return EventPosition.objects.order_by("-seq").values_list("seq", flat=True).first() or 0


def oldest_cursor() -> int | None:
    """Return the place of the oldest event kept; None when there is none."""
    return EventPosition.objects.order_by("seq").values_list("seq", flat=True).first()


def show_event(event: Event) -> EventShown:
    """Return an event as the outside sees it."""
    return EventShown(
        id=event.handle,
        cursor=event.position.seq,
        type=event.type,
        subject=event.subject,
        task=event.task or None,
        group=event.group or None,
        attempt=event.attempt or None,
        transfer=event.transfer or None,
        system=event.system or None,
        actor=event.actor,
        on_behalf_of=event.on_behalf_of or None,
        at=event.at,
        state=event.state or None,
        summary=event.summary,
        data=event.data,
        next_actions=event.next_actions,
        wake=event.wake,
    )


def _span(start: datetime | None, end: datetime | None) -> int | None:
    return None if start is None or end is None else max(0, round((end - start).total_seconds()))


def show_attempt(attempt: Attempt) -> AttemptShown:
    """Return an attempt as the outside sees it."""
    return AttemptShown(
        id=attempt.handle,
        task=attempt.task.handle,
        number=attempt.number,
        state=attempt.state,
        cause=attempt.cause or None,
        system=attempt.system.slug,
        partition=attempt.partition,
        account=attempt.account or None,
        qos=attempt.qos or None,
        shape=attempt.shape,
        decision=attempt.decision.handle,
        predicted=attempt.predicted,
        forecast=forecast_of(attempt),
        outcomes=outcomes_of(attempt),
        job_id=attempt.job_id or None,
        state_raw=attempt.state_raw or None,
        reason_raw=attempt.reason_raw or None,
        reason_explained=attempt.reason_explained or None,
        observed_at=attempt.observed_at,
        planned_at=attempt.planned_at,
        submitted_at=attempt.submitted_at,
        eligible_at=attempt.eligible_at,
        expected_start_at=attempt.expected_start_at,
        started_at=attempt.started_at,
        ended_at=attempt.ended_at,
        finished_at=attempt.finished_at,
        waited_s=_span(attempt.submitted_at, attempt.started_at),
        ran_s=_span(attempt.started_at, attempt.ended_at),
        exit_code=attempt.exit_code,
        exit_signal=attempt.exit_signal,
        restarts=attempt.restarts,
        nodes=attempt.node_names,
        workdir=attempt.workdir or None,
        stdout=attempt.stdout_path or None,
        stderr=attempt.stderr_path or None,
        charge_reserved=attempt.charge_held,
        charge_settled=attempt.charge_cost,
        cancel_requested_at=attempt.cancel_requested_at,
        rivalry=attempt.rivalry or None,
    )


def show_task(task: Task) -> TaskShown:
    """Return a task as the outside sees it; rows of `tasks()` need no further query."""
    accepted = task.attempt
    count = getattr(task, "attempt_count", None)
    manifest = getattr(task, "manifest", None)
    cause = Cause(task.cause) if task.cause else None
    return TaskShown(
        id=task.handle,
        name=task.name,
        objective=task.objective,
        state=task.state,
        cause=task.cause or None,
        reason=task.reason or None,
        system=accepted.system.slug if accepted else None,
        partition=accepted.partition if accepted else None,
        account=(accepted.account or None) if accepted else None,
        shape=accepted.shape if accepted else None,
        attempt=show_attempt(accepted) if accepted else None,
        attempts=task.attempts.count() if count is None else count,
        envelope=task.envelope.handle,
        group=task.group.handle if task.group else None,
        client_ref=task.client_ref or None,
        project=task.project or None,
        cost=costs_of(task),
        manifest=manifest.handle if manifest else None,
        submitted_by=task.actor,
        cancel_requested=task.cancel_requested_at is not None,
        created_at=task.created_at,
        updated_at=task.updated_at,
        finished_at=task.finished_at,
        next_actions=[*next_actions(task.handle, TaskState(task.state), cause, task.plan.get("change"))],
    )


def show_envelope(envelope: Envelope) -> EnvelopeShown:
    """Return an envelope as the outside sees it."""
    return EnvelopeShown(
        id=envelope.handle,
        source=envelope.source,
        confidence=envelope.confidence,
        envelope=envelope.body,
        original=envelope.original,
        rationale=envelope.rationale,
        drafting=envelope.drafting,
        created_at=envelope.created_at,
    )


def show_decision(decision: Decision) -> DecisionShown:
    """Return a decision as the outside sees it, whole."""
    body = decision.body
    names = DecisionShown.model_fields.keys() - {"id", "state", "task", "purpose", "system", "partition"}
    return DecisionShown(
        id=decision.handle,
        state=body["result"],
        task=decision.task.handle if decision.task else None,
        purpose=decision.purpose,
        system=decision.system or None,
        partition=decision.partition or None,
        **{name: body[name] for name in names},
    )


def show_decision_in_list(decision: Decision) -> DecisionShown:
    """Return a decision without what its candidates' sizing tried and without remedies of the rejected."""
    shown = show_decision(decision)
    return shown.model_copy(update={"candidates": [_brief(each) for each in shown.candidates]})


def _brief(candidate: dict[str, Any]) -> dict[str, Any]:
    codes = [{"rule": each["rule"], "code": each["code"]} for each in candidate["rejections"]]
    return {**candidate, "sizing": None, "rejections": codes}


def show_group(group: Group, *, with_children: bool = True) -> GroupShown:
    """Return a group as the outside sees it; rows of `groups()` need no query but the children's."""
    tasks = children(group)
    return GroupShown(
        id=group.handle,
        name=group.name,
        objective=group.objective,
        state=group.state,
        diversity=group.spec.get("diversity", "none"),
        require=group.spec.get("require", "all"),
        rounds=len({task.group_round for task in tasks}),
        completed_rounds=group.completed_rounds,
        counts=dict(sorted(Counter(task.state for task in tasks).items())),
        children=[_child(task) for task in tasks[:_CHILDREN_SHOWN]] if with_children else None,
        cancel_requested=group.cancel_requested_at is not None,
        created_at=group.created_at,
        finished_at=group.finished_at,
    )


def _child(task: Task) -> ChildShown:
    attempt = task.attempt
    return ChildShown(
        key=task.group_key,
        round=task.group_round,
        after=task.group_after,
        id=task.handle,
        name=task.name,
        state=task.state,
        system=attempt.system.slug if attempt else None,
        partition=attempt.partition if attempt else None,
    )


def timeline(task: Task, *, now: datetime) -> Timeline:
    """Return waiting and running of every attempt, and beside them what the decision expected."""
    entries: list[TimelineEntry] = []
    for attempt in task.attempts.select_related("system").order_by("number"):
        entries += _predicted(attempt)
        entries += _actual(attempt)
    return Timeline(task=task.handle, now=now, entries=entries)


def _entry(
    attempt: Attempt, phase: str, start: datetime, end: datetime | None, *, predicted: bool = False
) -> TimelineEntry:
    return TimelineEntry(
        attempt=attempt.handle,
        number=attempt.number,
        system=attempt.system.slug,
        phase=phase,
        start_at=start,
        end_at=end,
        predicted=predicted,
        state=attempt.state,
    )


def _predicted(attempt: Attempt) -> list[TimelineEntry]:
    if not attempt.predicted:
        return []
    expected = attempt.predicted
    waits = attempt.planned_at + timedelta(seconds=expected.get("transfer_s", 0))
    start = waits + timedelta(seconds=expected.get("dispatch_s", 0) + expected["wait_s"]["p50"])
    end = start + timedelta(seconds=expected.get("preparation_s", 0) + expected["runtime_s"])
    return [
        _entry(attempt, "wait", waits, start, predicted=True),
        _entry(attempt, "run", start, end, predicted=True),
    ]


def _actual(attempt: Attempt) -> list[TimelineEntry]:
    began = attempt.submitted_at or attempt.planned_at
    ended = attempt.ended_at or attempt.finished_at
    if attempt.started_at is None:
        return [_entry(attempt, "wait", began, ended)]
    return [
        _entry(attempt, "wait", began, attempt.started_at),
        _entry(attempt, "run", attempt.started_at, ended),
    ]
