"""From a task's rows to its line in the list and its whole page. Asks the database for nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from orchestrator.forecasts import forecast_of
from orchestrator.lifecycle import ATTEMPT_MOVES, TASK_MOVES, AttemptState, TaskState, is_terminal
from orchestrator.placement import types as placement
from orchestrator.shown import ForecastShown
from portal.web.forms import command_line
from portal.web.presenters.allocations import ApprovalRow
from portal.web.presenters.decisions import DecisionRef, DecisionView
from portal.web.presenters.from_decision import WAIT_KINDS, decision_view, shape_words
from portal.web.presenters.from_envelope import envelope_lines
from portal.web.presenters.from_result import cost_lines, manifest_view, triage_view
from portal.web.presenters.shared import SystemRef
from portal.web.presenters.tasks import (
    EventRow,
    LogTail,
    TaskPage,
    TaskRow,
)
from portal.web.presenters.timeline import AttemptFacts, timeline
from portal.web.templatetags.units import duration

if TYPE_CHECKING:
    from federation.models import Charge
    from orchestrator.models import Attempt, Decision, Manifest, Task

Refs = Mapping[str, SystemRef]


@dataclass(frozen=True, slots=True)
class TaskRows:
    """All rows of one task, as its selectors return them; attempts in order of their numbers."""

    task: "Task"
    attempts: Sequence["Attempt"]
    decision: "Decision | None"
    manifest: "Manifest | None"
    decisions: Sequence[DecisionRef] = ()
    """Every decision of the task, newest first; `decision` is one of them."""
    charges: Sequence["Charge"] = ()
    """Ledger lines of its attempts."""
    approval: ApprovalRow | None = None


def attempt_facts(attempt: "Attempt", refs: Refs) -> AttemptFacts:
    """Return what the timeline and the table of attempts show of one attempt."""
    expected = attempt.predicted or {}
    queued = attempt.submitted_at or attempt.dispatch_started_at
    start = _foretold_start(attempt)
    forecast = forecast_of(attempt)
    return AttemptFacts(
        handle=attempt.handle,
        number=attempt.number,
        ref=ref_of(attempt.system.slug, refs),
        partition=attempt.partition,
        state=attempt.state,
        cause=attempt.cause,
        job_id=attempt.job_id or None,
        shape=shape_words(attempt.shape),
        planned_at=attempt.planned_at,
        queued_at=queued,
        started_at=attempt.started_at,
        ended_at=attempt.ended_at or attempt.finished_at,
        predicted_start_at=start,
        predicted_end_at=_after(start, _predicted_run_s(expected)),
        state_raw=" ".join(
            word for word in (attempt.state_raw, attempt.reason_raw) if word and word != "None"
        ),
        reason=_why(attempt),
        observed_at=attempt.observed_at,
        waited_s=forecast.actual_s if forecast else None,
        forecast=_forecast_words(forecast) if forecast else "",
    )


def _forecast_words(forecast: ForecastShown) -> str:
    said = _("expected %(p50)s, 9 of 10 within %(p90)s") % {
        "p50": duration(forecast.p50_s),
        "p90": duration(forecast.p90_s),
    }
    return f"{said} · {WAIT_KINDS[placement.WaitClass(forecast.wait_class)]}"


def _predicted_run_s(expected: Mapping[str, Any]) -> int | None:
    if expected.get("runtime_s") is None:
        return None
    return int(sum(expected.get(key) or 0 for key in ("runtime_s", "preparation_s")))


def _foretold_start(attempt: "Attempt") -> datetime | None:
    """Return when the decision expected it to start; before it is sent, its inputs must come."""
    expected = attempt.predicted or {}
    wait_s = (expected.get("wait_s") or {}).get("p50")
    queued = attempt.submitted_at or attempt.dispatch_started_at
    if queued is None:
        queued = _after(attempt.planned_at, expected.get("transfer_s") or 0)
    return _after(queued, wait_s)


def _after(at: datetime | None, seconds: int | None) -> datetime | None:
    return None if at is None or seconds is None else at + timedelta(seconds=seconds)


def ref_of(slug: str, refs: Refs) -> SystemRef:
    """Return how a system is named; one that pages do not know keeps its slug, without a colour."""
    return refs.get(slug) or SystemRef(slug, slug, 0)


_RIVALS = {
    "hedge": gettext_lazy("Waits beside another attempt; the first that starts stays."),
    "replaced": gettext_lazy("Out of sight with its system, so another attempt was made."),
    "successor": gettext_lazy("Made while the attempt before is out of sight."),
}


def _why(attempt: "Attempt") -> str:
    """Return why an attempt stands as it does, how often it began anew, why another may stand beside it."""
    beside = _RIVALS.get(attempt.rivalry, "") if attempt.finished_at is None else ""
    again = (
        ngettext(
            "Requeued %(n)s time by its scheduler.",
            "Requeued %(n)s times by its scheduler.",
            attempt.restarts,
        )
        % {"n": attempt.restarts}
        if attempt.restarts
        else ""
    )
    return " ".join(str(part) for part in (beside, again, attempt.reason_explained) if part)


def expected_start(attempt: "Attempt | None") -> datetime | None:
    """Return when it should start: as its scheduler says, else as the decision expected."""
    if attempt is None or attempt.started_at is not None:
        return None
    return attempt.expected_start_at or _foretold_start(attempt)


def expected_end(attempt: "Attempt | None") -> datetime | None:
    """Return when it should end, by the decision's runtime; never later than its wall time allows."""
    if attempt is None or attempt.ended_at is not None:
        return None
    start = attempt.started_at or expected_start(attempt)
    run_s = _predicted_run_s(attempt.predicted or {})
    limit_s = attempt.shape.get("walltime_s")
    known = [seconds for seconds in (run_s, limit_s) if seconds is not None]
    return _after(start, min(known)) if known else None


def headline(task: "Task", attempt: "Attempt | None", refs: Refs, *, now: datetime) -> str:
    """Return how the task stands, in one sentence a person would say."""
    place = f"{ref_of(attempt.system.slug, refs).name} {attempt.partition}" if attempt else ""
    match TaskState(task.state):
        case TaskState.RUNNING if attempt and attempt.started_at:
            return _running(place, attempt, now=now)
        case TaskState.PENDING | TaskState.SUBMITTED if attempt:
            return _waiting(place, attempt, now=now)
        case TaskState.SUCCEEDED if attempt:
            return _ended(_("Succeeded on %(place)s"), place, attempt)
        case TaskState.FAILED if attempt:
            said = _ended(_("Failed on %(place)s"), place, attempt)
            return f"{said} {task.reason}".strip()
        case _:
            return task.reason or _PLAIN.get(TaskState(task.state), "")


_PLAIN: Mapping[TaskState, str] = {
    TaskState.ACCEPTED: "Accepted; it will be placed in a moment.",
    TaskState.STAGING: "Its data is on the way.",
    TaskState.PLACING: "Being placed.",
    TaskState.CANCELLED: "Cancelled.",
    TaskState.UNSCHEDULABLE: "Nothing you may use fits it as asked.",
    TaskState.PENDING_APPROVAL: "A person must approve what it would use.",
    TaskState.ATTENTION: "Something needs your decision.",
}


def _running(place: str, attempt: "Attempt", *, now: datetime) -> str:
    assert attempt.started_at is not None  # noqa: S101  # the caller matched it
    said = _("Running on %(place)s for %(ran)s") % {
        "place": place,
        "ran": duration(max((now - attempt.started_at).total_seconds(), 0)),
    }
    end = expected_end(attempt)
    if end is None or end <= now:
        return f"{said}."
    return _("%(said)s; should end in about %(left)s.") % {
        "said": said,
        "left": duration((end - now).total_seconds()),
    }


def _waiting(place: str, attempt: "Attempt", *, now: datetime) -> str:
    said = _("In the queue of %(place)s") % {"place": place}
    start = expected_start(attempt)
    if attempt.reason_explained:
        said = f"{said}: {attempt.reason_explained.rstrip('.')}"
    if start is None or start <= now:
        return f"{said}."
    return _("%(said)s; should start in about %(left)s.") % {
        "said": said,
        "left": duration((start - now).total_seconds()),
    }


def _ended(words: str, place: str, attempt: "Attempt") -> str:
    said = words % {"place": place}
    if attempt.started_at is None or attempt.ended_at is None:
        return f"{said}."
    ran = duration((attempt.ended_at - attempt.started_at).total_seconds())
    return _("%(said)s after running for %(ran)s.") % {"said": said, "ran": ran}


def task_row(task: "Task", refs: Refs, *, attempts: int, now: datetime) -> TaskRow:
    """Return one line of the list; `task.attempt` and its system must have been loaded."""
    attempt = task.attempt
    return TaskRow(
        handle=task.handle,
        name=task.name,
        state=task.state,
        ref=ref_of(attempt.system.slug, refs) if attempt else None,
        partition=attempt.partition if attempt else "",
        shape=shape_words(attempt.shape) if attempt else "",
        attempts=attempts,
        created_at=task.created_at,
        changed_at=task.updated_at,
        hint=headline(task, attempt, refs, now=now),
        group=(task.group.handle, task.group.name) if task.group else None,
        may_cancel=may_cancel(task),
    )


def may_cancel(task: "Task") -> bool:
    """Return whether cancelling would do anything: not at its end, and not asked for already."""
    return not is_terminal(TASK_MOVES, TaskState(task.state)) and task.cancel_requested_at is None


def task_page(
    rows: TaskRows,
    refs: Refs,
    *,
    events: tuple[EventRow, ...],
    log: LogTail | None,
    now: datetime,
) -> TaskPage:
    """Return the whole page of one task."""
    task, attempt = rows.task, rows.task.attempt
    facts = tuple(attempt_facts(a, refs) for a in rows.attempts)
    state = TaskState(task.state)
    is_final = is_terminal(TASK_MOVES, state)
    work = task.spec.get("script") or command_line(task.spec.get("command") or "")
    manifest = manifest_view(rows.manifest)
    return TaskPage(
        handle=task.handle,
        name=task.name,
        objective=task.objective,
        state=task.state,
        headline=headline(task, attempt, refs, now=now),
        created_at=task.created_at,
        changed_at=task.finished_at or task.updated_at,
        ref=ref_of(attempt.system.slug, refs) if attempt else None,
        partition=attempt.partition if attempt else "",
        account=attempt.account if attempt else "",
        shape=shape_words(attempt.shape) if attempt else "",
        command=work,
        is_script=bool(task.spec.get("script")),
        expected_start_at=expected_start(attempt),
        expected_end_at=expected_end(attempt),
        charge=manifest.charge if manifest else _reserved(attempt),
        attempts=facts,
        timeline=timeline(facts, now=now),
        decision=_decision(rows, refs),
        envelope=envelope_lines(task.envelope.original, task.envelope.body, task.envelope.rationale),
        environment=environment_lines(task.spec.get("environment") or {}),
        manifest=manifest,
        log=log,
        events=events,
        decisions=tuple(rows.decisions),
        costs=cost_lines(rows.attempts, rows.charges, refs),
        triage=triage_view(rows.manifest),
        approval=rows.approval,
        elsewhere=tuple(sorted(refs.values(), key=lambda ref: ref.name)),
        group=(task.group.handle, task.group.name) if task.group else None,
        may_cancel=may_cancel(task),
        may_replan=not is_final and not (attempt and attempt.state == AttemptState.RUNNING),
        is_final=is_final,
    )


def _reserved(attempt: "Attempt | None") -> str:
    charge = (attempt.predicted or {}).get("charge") if attempt else None
    return (
        f"≤ {Decimal(charge['amount']).normalize():f} {charge['unit']}"
        if charge and charge.get("unit")
        else ""
    )


def _decision(rows: TaskRows, refs: Refs) -> DecisionView | None:
    if rows.decision is None:
        return None
    led_to = next((a.number for a in rows.attempts if a.decision_id == rows.decision.pk), None)
    return decision_view(placement.Decision.model_validate(rows.decision.body), refs, attempt=led_to)


def environment_lines(environment: Mapping[str, Any]) -> dict[str, str]:
    """Return what is loaded before the work, ready to read, only what was asked for."""
    lines = {
        "modules": " ".join(environment.get("modules") or ()),
        "conda": environment.get("conda") or "",
        "container": environment.get("container") or "",
        "variables": " ".join(
            f"{name}={value}" for name, value in (environment.get("variables") or {}).items()
        ),
        "setup": "; ".join(environment.get("setup") or ()),
    }
    return {name: value for name, value in lines.items() if value}


def is_over(attempt: "Attempt") -> bool:
    """Return whether no more output can come from this attempt."""
    return is_terminal(ATTEMPT_MOVES, AttemptState(attempt.state))
