"""Moving waiting work to where it would end earlier, by a margin that keeps moves few."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from federation.ledger import record
from federation.selectors import clock_ahead_s, records_for
from federation.types import PendingShare
from orchestrator.envelope.types import Data, Range
from orchestrator.envelope.types import Envelope as EnvelopeValue
from orchestrator.environments import environment_of
from orchestrator.experience import placement_model
from orchestrator.models import Attempt, Task
from orchestrator.placement.choose import is_strictly_better
from orchestrator.placement.estimate import Work
from orchestrator.placement.place import place
from orchestrator.rivals import Rivalry
from orchestrator.services.cancelling import ask_to_cancel
from orchestrator.services.moves import attempt_event
from orchestrator.services.placing import decide_beside, envelope_now
from orchestrator.services.spending import purse_of

MAX_MOVES = 3
_LOOKS_AFTER_S = (300, 600, 1800, 3600, 7200, 14_400)
"""Seconds after the submission at which a waiting attempt is compared with others; then every 4 h."""


def sent_at(attempt: Attempt) -> datetime | None:
    """Return when a job was sent, by our clock; the scheduler's `submitted_at` is by the site's."""
    return None if attempt.submitted_at is None else attempt.dispatch_started_at or attempt.submitted_at


def next_comparison(task: Task, attempt: Attempt, *, now: datetime) -> datetime | None:
    """Return when to compare next; None when the task may not move any more."""
    wanted: Mapping[str, Any] = task.spec["replacement"]
    if not wanted["enabled"] or task.replacements >= MAX_MOVES or (sent := sent_at(attempt)) is None:
        return None
    for after_s in _LOOKS_AFTER_S:
        at = sent + timedelta(seconds=after_s)
        if at > now:
            return at
    return now + timedelta(seconds=_LOOKS_AFTER_S[-1])


def reconsider(task: Task, *, now: datetime) -> bool:
    """Ask the accepted attempt to give way when another placement beats it by the margin; return whether."""
    attempt = task.attempt
    is_hedged = attempt is not None and attempt.rivalry == Rivalry.HEDGE
    if attempt is None or attempt.cancel_requested_at is not None or is_hedged:
        Task.objects.filter(pk=task.pk).update(due_at=None)
        return False
    envelope = envelope_now(task)
    purse = purse_of(task, without=attempt.handle)
    value = decide_beside(task, purse=purse, now=now)
    current_s = _remaining_s(attempt, _in_place_s(task, attempt, envelope, now=now), now=now)
    if _waited_s(attempt, now=now) > int(attempt.predicted["wait_s"]["p90"]):
        # A fresh job might start here at once, as this one should have: only other places can help it.
        here = (attempt.system.slug, attempt.partition, attempt.account)
        value = decide_beside(task, avoid=(here,), purse=purse, now=now)
    best = value.selected
    moves = (
        best is not None
        # A move that a budget refuses, or that waits for a person, would lose the place in the queue.
        and not (purse.refusals(best) or purse.asks(best))
        and (best.system, best.partition) != (attempt.system.slug, attempt.partition)
        and is_strictly_better(
            current_s, best.estimates.completion_s, min_gain_s=task.spec["replacement"]["min_gain_s"]
        )
    )
    Task.objects.filter(pk=task.pk).update(due_at=next_comparison(task, attempt, now=now))
    if not moves or best is None:
        return False
    gain_s = current_s - best.estimates.completion_s
    summary = (
        f"{task.name} would end {gain_s} s earlier on {best.system}/{best.partition}; "
        f"job {attempt.job_id} on {attempt.system.slug} is asked to give way"
    )
    data = {"current_s": current_s, "other_s": best.estimates.completion_s, "other": best.system}
    record([attempt_event(attempt, "attempt.moved", summary, data=data)], now=now)
    Task.objects.filter(pk=task.pk).update(plan={**task.plan, "leaves": True})
    ask_to_cancel(attempt, "superseded", now=now)
    return True


def _in_place_s(task: Task, attempt: Attempt, envelope: EnvelopeValue, *, now: datetime) -> int | None:
    """Return when a fresh job of the same size would end at the same place; None where it could not run.

    The waiting job itself is taken out of the queue, or it would be planned behind itself. Its inputs were
    brought before it was submitted.
    """
    here = (attempt.system.slug, attempt.partition, attempt.account)
    seen = next((each for each in records_for(task.user, now=now) if each.key == here), None)
    if seen is None:
        return None

    def others(waiting: Iterable[PendingShare]) -> tuple[PendingShare, ...]:
        return tuple(job for job in waiting if job.job_id != attempt.job_id)

    record = replace(
        seen,
        queue=replace(seen.queue, pending=others(seen.queue.pending)),
        groups=tuple(replace(group, waiting=others(group.waiting)) for group in seen.groups),
        limits=replace(seen.limits, submitted_jobs=max(0, seen.limits.submitted_jobs - 1)),
    )
    sizes = {"gpus": Range.exactly(attempt.shape["gpus"]), "cpus": Range.exactly(attempt.shape["cpus"])}
    image = (task.envelope.body.get("container") or {}).get("image")
    environment = environment_of(task.spec["environment"], image)
    found = place(
        envelope.model_copy(update={**sizes, "data": Data()}),
        (record,),
        now=now,
        model=placement_model(task.user, kind=task.kind, environment=environment, now=now),
        work=Work(kind=task.kind or None, environment=environment),
    )
    return found.selected.estimates.completion_s if found.selected is not None else None


def _remaining_s(attempt: Attempt, fresh_s: int | None, *, now: datetime) -> int:
    """Return the seconds to the expected end of a waiting attempt where it is.

    A waiting job is never later than a fresh one at the same place, `fresh_s`; where fresh work could not run
    there any more, what the scheduler expects for this job counts, else what was predicted.
    """
    predicted = attempt.predicted
    run_s = int(predicted["preparation_s"]) + int(predicted["runtime_s"])
    waited_s = _waited_s(attempt, now=now)
    known: list[int] = []
    if attempt.expected_start_at is not None:
        starts_in_s = round((attempt.expected_start_at - now).total_seconds()) - clock_ahead_s(attempt.system)
        known.append(max(0, starts_in_s) + run_s)
    if fresh_s is not None:
        known.append(fresh_s)
    p90_s = int(predicted["wait_s"]["p90"])
    if not known:
        known.append(max(0, p90_s - waited_s) + run_s)
    # What has outlived its own p90 was misjudged: expect it to wait as long again.
    return max(min(known), waited_s + run_s) if waited_s > p90_s else min(known)


def _waited_s(attempt: Attempt, *, now: datetime) -> int:
    """Return how long the job has waited, by our clock alone."""
    return max(0, round((now - (sent_at(attempt) or attempt.planned_at)).total_seconds()))
