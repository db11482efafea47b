"""Moving attempts, and the tasks that follow them. Every verb runs inside the caller's transaction."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from federation import circuits
from federation.circuit import Proof
from federation.ledger import Happening, record
from orchestrator.adaptation import Act, Adaptation, Ended, adapt, speaks_for_the_site
from orchestrator.budget_selectors import binding, gauges
from orchestrator.budgets import least_left
from orchestrator.continuation import next_actions
from orchestrator.doorbell import ring
from orchestrator.leavings import Leavings
from orchestrator.lifecycle import ATTEMPT_MOVES, TASK_MOVES, AttemptState, Cause, TaskState, is_terminal
from orchestrator.models import Attempt, Task
from orchestrator.observation import Fold
from orchestrator.services import environments, outputs, rivals, spending
from orchestrator.services.manifests import keep_manifest
from orchestrator.services.moves import attempt_event, move_attempt, move_task, task_event
from orchestrator.services.replacement import next_comparison
from providers.types import SubmitResult

NOTHING_LEFT = Leavings()
LOOK_AFTER = timedelta(seconds=1)
"""First look after the scheduler took a job."""

_FOLLOWS: Mapping[AttemptState, TaskState] = {
    AttemptState.SUBMITTED: TaskState.SUBMITTED,
    AttemptState.PENDING: TaskState.PENDING,
    AttemptState.RUNNING: TaskState.RUNNING,
}


def accept_submission(attempt: Attempt, *, job_id: str, now: datetime) -> None:
    """Record that the scheduler took the job."""
    move_attempt(
        attempt,
        AttemptState.SUBMITTED,
        now=now,
        job_id=job_id,
        submitted_at=now,
        observed_at=now,
        reason_explained="",
        due_at=now + LOOK_AFTER,
    )
    where = f"{attempt.system.slug}/{attempt.partition}"
    events = [
        attempt_event(
            attempt,
            "attempt.dispatched",
            f"job {job_id} accepted by {where}",
            data={"job_id": job_id, "number": attempt.number},
        )
    ]
    record([*events, *_task_follows(attempt, now=now)], now=now)


def reject_submission(attempt: Attempt, result: SubmitResult, *, cause: Cause, now: datetime) -> None:
    """Record that the scheduler refused the job, and go on with the task."""
    move_attempt(
        attempt,
        AttemptState.FAILED,
        now=now,
        cause=cause,
        reason_raw=result.said[:300],
        reason_explained=result.explained or result.said,
        ended_at=now,
    )
    summary = f"{attempt.system.slug} refused the job: {result.explained or result.said}"
    event = attempt_event(attempt, "attempt.moved", summary, data={"said": result.said[:500], "cause": cause})
    record([event], now=now)
    spending.settle(attempt, now=now)
    circuits.note_nothing(attempt.system, attempt.handle, now=now)
    conclude(attempt, now=now, is_retryable=result.retryable)


def apply_fold(
    attempt: Attempt,
    fold: Fold,
    *,
    now: datetime,
    due_at: datetime | None,
    left: Leavings = NOTHING_LEFT,
) -> None:
    """Write what one look changed, let the task follow, and conclude where the attempt ended."""
    if _is_found_again(attempt, fold):
        accept_submission(attempt, job_id=fold.changes["job_id"], now=now)
    was = attempt.state
    if fold.target is None:
        changed = Attempt.objects.filter(pk=attempt.pk, state=was).update(**fold.changes, due_at=due_at)
        if changed:
            for name, value in fold.changes.items():
                setattr(attempt, name, value)
        return
    move_attempt(attempt, fold.target, now=now, cause=fold.cause, **{**fold.changes, "due_at": due_at})
    record([_move_event(attempt, was, fold), *_task_follows(attempt, now=now)], now=now)
    if is_terminal(ATTEMPT_MOVES, fold.target):
        spending.settle(attempt, now=now)
        _tell_circuit(attempt, now=now)
        environments.note_use(attempt)
        conclude(attempt, now=now, left=left)


def _tell_circuit(attempt: Attempt, *, now: datetime) -> None:
    """Let an end count for or against the system it was at."""
    cause = Cause(attempt.cause) if attempt.cause else None
    verdict = speaks_for_the_site(AttemptState(attempt.state), cause)
    if verdict is None:
        circuits.note_nothing(attempt.system, attempt.handle, now=now)
    elif verdict:
        circuits.note_success(attempt.system, attempt.handle, Proof.WORK, now=now)
    else:
        reason = f"{attempt.handle} ended there: {cause}" + (
            f" ({attempt.reason_explained})" if attempt.reason_explained else ""
        )
        circuits.note_failure(attempt.system_id, attempt.handle, Proof.WORK, reason, now=now)


def _is_found_again(attempt: Attempt, fold: Fold) -> bool:
    """Whether this look resolved the doubt about a submission: the job is there, under our key."""
    return attempt.state == AttemptState.DISPATCHING and bool(fold.changes.get("job_id"))


def _move_event(attempt: Attempt, was: str, fold: Fold) -> Happening:
    data: dict[str, Any] = {
        "from": was,
        "to": attempt.state,
        "cause": attempt.cause or None,
        "state_raw": attempt.state_raw,
        "reason_raw": attempt.reason_raw,
        "job_id": attempt.job_id,
    }
    type_ = "attempt.moved"
    if fold.became_unseen:
        type_ = "attempt.unseen"
    elif was == AttemptState.UNKNOWN and fold.became_seen:
        type_ = "attempt.seen"
    elif attempt.state == AttemptState.SUPERSEDED:
        type_ = "attempt.superseded"
    words = attempt.reason_explained or attempt.reason_raw
    summary = f"attempt {attempt.number} on {attempt.system.slug}: {was} → {attempt.state}" + (
        f" ({words})" if words else ""
    )
    return attempt_event(attempt, type_, summary, data=data)


def _is_accepted(attempt: Attempt) -> bool:
    return attempt.task.attempt_id == attempt.pk


def _task_follows(attempt: Attempt, *, now: datetime) -> list[Happening]:
    """Move the task where its accepted attempt went; other attempts leave it alone."""
    state = AttemptState(attempt.state)
    target = _FOLLOWS.get(state)
    if is_terminal(ATTEMPT_MOVES, state) and attempt.started_at is not None:
        target = TaskState.RUNNING  # it started and ended between two looks; the log tells both
    task = attempt.task
    if target is None or not _is_accepted(attempt) or task.state == target:
        return []
    if target not in TASK_MOVES[TaskState(task.state)]:
        return []
    due_at = (
        next_comparison(task, attempt, now=now)
        if target in (TaskState.SUBMITTED, TaskState.PENDING)
        else None
    )
    move_task(task, target, now=now, reason=attempt.reason_explained, due_at=due_at)
    where = f"{attempt.system.slug}/{attempt.partition}"
    if target is TaskState.SUBMITTED:
        return [
            task_event(
                task,
                "task.submitted",
                f"{task.name} submitted to {where} as job {attempt.job_id}",
                attempt=attempt,
                data={"job_id": attempt.job_id},
            )
        ]
    if target is TaskState.RUNNING:
        waited = _seconds(attempt.submitted_at, attempt.started_at)
        text = f"{task.name} started on {where}" + (f" after {waited} s" if waited is not None else "")
        return [task_event(task, "task.started", text, attempt=attempt, data={"waited_s": waited})]
    return []


def _seconds(start: datetime | None, end: datetime | None) -> int | None:
    return None if start is None or end is None else max(0, round((end - start).total_seconds()))


def conclude(
    attempt: Attempt, *, now: datetime, is_retryable: bool = True, left: Leavings = NOTHING_LEFT
) -> None:
    """Decide what an ended attempt means for its task, and do it."""
    task = Task.objects.select_for_update(no_key=True, of=("self",)).get(pk=attempt.task_id)
    if task.attempt_id != attempt.pk or is_terminal(TASK_MOVES, TaskState(task.state)):
        return
    if rivals.ends_with_another(task, attempt):
        return
    heir = rivals.heir_of(task, attempt)
    if heir is not None:
        rivals.inherit(task, heir, attempt, now=now)
        record(_task_follows(heir, now=now), now=now)
        return
    retry = task.spec["retry"]
    cause = Cause(attempt.cause) if attempt.cause else None
    decision = adapt(
        Ended(
            state=AttemptState(attempt.state),
            cause=cause,
            attempts_made=attempt.number,
            max_attempts=_most_attempts(task, attempt),
            retry_on=frozenset(Cause(word) for word in retry["on"]),
            extend_walltime_factor=retry["extend_walltime_factor"],
            walltime_s=attempt.shape["walltime_s"],
            cancel_requested=task.cancel_requested_at is not None,
            replan_requested=attempt.cancel_reason == "superseded",
            is_retryable=is_retryable,
            saves_itself=bool(task.spec.get("checkpoint")) and attempt.started_at is not None,
            memory_mib=attempt.shape.get("memory_mib"),
            memory_most_mib=(task.envelope.body.get("memory_mib") or {}).get("max"),
        )
    )
    _act(task, attempt, decision, cause, now=now, left=left)


def _most_attempts(task: Task, attempt: Attempt) -> int:
    """Return how many attempts the task may make: as its retry says, and what its own budget has left now."""
    most: int = task.spec["retry"]["max_attempts"]
    left = least_left(gauges(binding(task.user_id, task=task.handle)), "attempts")
    return most if left is None else min(most, attempt.number + int(left))


def _act(
    task: Task,
    attempt: Attempt,
    decision: Adaptation,
    cause: Cause | None,
    *,
    now: datetime,
    left: Leavings,
) -> None:
    attempt.task = task
    if decision.act in (Act.RETRY, Act.REPLACE):
        _again(task, attempt, decision, cause, now=now)
        return
    target = {Act.SUCCEED: TaskState.SUCCEEDED, Act.FAIL: TaskState.FAILED, Act.CANCEL: TaskState.CANCELLED}[
        decision.act
    ]
    move_task(task, target, now=now, cause=cause, reason=decision.reason)
    manifest = keep_manifest(task, attempt, left.files, now=now, tails=left.tails)
    if target is TaskState.SUCCEEDED:
        outputs.register(task, attempt, manifest, left.files, now=now)
    event = task_event(
        task,
        f"task.{target}",
        _final_summary(task, attempt, decision),
        attempt=attempt,
        data={
            "manifest": manifest.handle,
            "cause": cause,
            "exit_code": attempt.exit_code,
            "attempts": attempt.number,
            "selected": {"system": attempt.system.slug, "partition": attempt.partition},
            "ran_s": _seconds(attempt.started_at, attempt.ended_at),
            **({"triage": found["cause"]} if (found := manifest.body.get("triage")) else {}),
        },
        next_actions=next_actions(task.handle, target, cause),
    )
    record([event], now=now)
    tell_group(task)


def fail_task(attempt: Attempt, reason: str, cause: Cause, *, now: datetime) -> None:
    """Fail the task of an attempt whose end no other attempt would better."""
    task = Task.objects.select_for_update(no_key=True, of=("self",)).get(pk=attempt.task_id)
    _act(task, attempt, Adaptation(Act.FAIL, reason), cause, now=now, left=NOTHING_LEFT)


def tell_group(task: Task) -> None:
    """Have the task's group looked at soon, after the commit."""
    group_id = task.group_id
    if group_id is not None:
        transaction.on_commit(lambda: ring("advance_group", group_id))


def _final_summary(task: Task, attempt: Attempt, decision: Adaptation) -> str:
    ran = _seconds(attempt.started_at, attempt.ended_at)
    after = f" after {ran} s" if ran is not None else ""
    where = f" on {attempt.system.slug}"
    if task.state == TaskState.SUCCEEDED:
        return f"{task.name} succeeded{where}{after}"
    return f"{task.name} {task.state}{where}{after}: {attempt.reason_explained or decision.reason}"


def _again(task: Task, attempt: Attempt, decision: Adaptation, cause: Cause | None, *, now: datetime) -> None:
    """Send the task back to placing, at once or after a pause; the control cycle places it."""
    place = [attempt.system.slug, attempt.partition, attempt.account]
    plan = {
        **{name: task.plan[name] for name in ("is_relaxed",) if name in task.plan},
        # Work that left a queue must not return to it at once, whatever an emptier snapshot promises;
        # unless it left to come back in another shape.
        "avoid": [place] if decision.avoid_place or task.plan.get("leaves") not in (None, "shape") else [],
        "never": [*task.plan.get("never", []), *([place] if decision.never_there_again else [])],
        **({"resume": attempt.system.slug} if decision.resumes else {}),
        "walltime_s": decision.walltime_s or task.plan.get("walltime_s"),
        "memory_mib": decision.memory_mib or task.plan.get("memory_mib"),
        "purpose": "retry" if decision.act is Act.RETRY else "replace",
    }
    at = now + timedelta(seconds=decision.delay_s)
    columns: dict[str, Any] = {"plan": plan, "not_before": at}
    if decision.act is Act.REPLACE:
        columns["replacements"] = task.replacements + 1
    if task.state == TaskState.PLACING:
        Task.objects.filter(pk=task.pk).update(**columns, due_at=at, reason=decision.reason, updated_at=now)
        for name, value in columns.items():
            setattr(task, name, value)
    else:
        move_task(task, TaskState.PLACING, now=now, reason=decision.reason, due_at=at, **columns)
    type_ = "task.retrying" if decision.act is Act.RETRY else "task.replaced"
    event = task_event(
        task,
        type_,
        f"{task.name}: {decision.reason}",
        attempt=attempt,
        data={"cause": cause, "next_attempt": attempt.number + 1, "in_s": decision.delay_s},
    )
    record([event], now=now)
    task_id = task.pk
    if decision.delay_s == 0:
        transaction.on_commit(lambda: ring("advance_task", task_id))
