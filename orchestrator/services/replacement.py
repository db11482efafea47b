"""Moving waiting work to the place or the shape that ends it earlier, by a margin that keeps moves few."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from federation.ledger import Happening, record
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
from orchestrator.placement.types import Selected
from orchestrator.rivals import Rivalry
from orchestrator.services.cancelling import ask_to_cancel
from orchestrator.services.moves import attempt_event, group_event
from orchestrator.services.placing import decide_beside, envelope_now, is_relaxed, siblings_at
from orchestrator.services.spending import Purse, purse_of, within

MAX_MOVES = 3
_LOOKS_AFTER_S = (300, 600, 1800, 3600, 7200, 14_400)
"""Seconds after the submission at which a waiting attempt is compared with others; then every 4 h."""


_SIZES = ("nodes", "gpus", "cpus")
"""What makes a shape another one."""


def sent_at(attempt: Attempt) -> datetime | None:
    """Return when a job was sent, by our clock; the scheduler's `submitted_at` is by the site's."""
    return None if attempt.submitted_at is None else attempt.dispatch_started_at or attempt.submitted_at


def may_move(task: Task) -> bool:
    """Return whether waiting work of a task may be moved once more."""
    wanted: Mapping[str, Any] = task.spec["replacement"]
    return bool(wanted["enabled"]) and task.replacements < MAX_MOVES


def next_comparison(task: Task, attempt: Attempt, *, now: datetime) -> datetime | None:
    """Return when to compare next; None when the task may not move any more."""
    if not may_move(task) or (sent := sent_at(attempt)) is None:
        return None
    for after_s in _LOOKS_AFTER_S:
        at = sent + timedelta(seconds=after_s)
        if at > now:
            return at
    return now + timedelta(seconds=_LOOKS_AFTER_S[-1])


def reconsider(task: Task, *, now: datetime) -> bool:
    """Ask the accepted attempt to give way when another placement beats it by the margin; return whether.

    Another placement is another place, or another legal shape where it waits.
    """
    attempt = task.attempt
    is_hedged = attempt is not None and attempt.rivalry == Rivalry.HEDGE
    if attempt is None or attempt.cancel_requested_at is not None or is_hedged or not may_move(task):
        Task.objects.filter(pk=task.pk).update(due_at=None)
        return False
    purse = purse_of(task, without=attempt.handle)
    fresh = _in_place(task, attempt, _same_size(envelope_now(task), attempt), purse, now=now)
    current_s = _remaining_s(attempt, fresh.estimates.completion_s if fresh else None, now=now)
    best = _best_other(task, attempt, purse, now=now)
    moves = (
        best is not None
        # A move that a budget refuses, or that waits for a person, would lose the place in the queue.
        and not (purse.refusals(best) or purse.asks(best))
        and is_strictly_better(
            current_s, best.estimates.completion_s, min_gain_s=task.spec["replacement"]["min_gain_s"]
        )
    )
    Task.objects.filter(pk=task.pk).update(due_at=next_comparison(task, attempt, now=now))
    if not moves or best is None:
        return False
    _leave(task, attempt, best, current_s, now=now)
    return True


def _leave(task: Task, attempt: Attempt, best: Selected, current_s: int, *, now: datetime) -> None:
    """Have the job give way to a better placement, and say why."""
    gain_s, stays = current_s - best.estimates.completion_s, _is_here(best, attempt)
    size = {name: getattr(best.shape, name) for name in _SIZES}
    told_size = ", ".join(f"{count} {name}" for name, count in size.items() if count)
    where = f"there with {told_size}" if stays else f"on {best.system}/{best.partition}"
    summary = (
        f"{task.name} would end {gain_s} s earlier {where}; "
        f"job {attempt.job_id} on {attempt.system.slug} is asked to give way"
    )
    data: dict[str, Any] = {
        "current_s": current_s,
        "other_s": best.estimates.completion_s,
        "other": best.system,
    }
    told = [attempt_event(attempt, "attempt.moved", summary, data=data | ({"shape": size} if stays else {}))]
    record([*told, *(() if stays else _relaxed(task, best.system))], now=now)
    Task.objects.filter(pk=task.pk).update(plan={**task.plan, "leaves": "shape" if stays else "place"})
    ask_to_cancel(attempt, "superseded", now=now)


def _is_here(chosen: Selected, attempt: Attempt) -> bool:
    return (chosen.system, chosen.partition) == (attempt.system.slug, attempt.partition)


def _best_other(task: Task, attempt: Attempt, purse: Purse, *, now: datetime) -> Selected | None:
    """Return the placement that would end earliest but for the present one; None where there is none."""
    if _waited_s(attempt, now=now) > int(attempt.predicted["wait_s"]["p90"]):
        # A fresh job might start here at once, as this one should have: only other places can help it.
        here = (attempt.system.slug, attempt.partition, attempt.account)
        found = [decide_beside(task, avoid=(here,), purse=purse, now=now).selected]
    else:
        beside = decide_beside(task, purse=purse, now=now).selected
        reshaped = _in_place(task, attempt, within(envelope_now(task), purse), purse, now=now)
        if reshaped is not None and all(
            getattr(reshaped.shape, name) == attempt.shape[name] for name in _SIZES
        ):
            reshaped = None
        found = [None if beside is None or _is_here(beside, attempt) else beside, reshaped]
    known = [each for each in found if each is not None]
    return min(known, key=lambda each: each.estimates.completion_s, default=None)


def _relaxed(task: Task, system: str) -> list[Happening]:
    """Return that a group's wish to spread gives way: a stalled child joins a system of its siblings."""
    if task.group is None or not is_relaxed(task) or system not in siblings_at(task):
        return []
    text = f"distinct systems no longer buy parallelism: {task.name} joins its siblings on {system}"
    return [
        group_event(
            task.group, "group.constraint_relaxed", text, data={"task": task.handle, "system": system}
        )
    ]


def _same_size(envelope: EnvelopeValue, attempt: Attempt) -> EnvelopeValue:
    sizes = {"gpus": Range.exactly(attempt.shape["gpus"]), "cpus": Range.exactly(attempt.shape["cpus"])}
    return envelope.model_copy(update=sizes)


def _in_place(
    task: Task, attempt: Attempt, envelope: EnvelopeValue, purse: Purse, *, now: datetime
) -> Selected | None:
    """Return how a fresh job would be placed at the same place; None where it could not run.

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
    image = (task.envelope.body.get("container") or {}).get("image")
    environment = environment_of(task.spec["environment"], image)
    return place(
        envelope.model_copy(update={"data": Data()}),
        (record,),
        now=now,
        model=placement_model(task.user, kind=task.kind, environment=environment, now=now),
        work=Work(kind=task.kind or None, environment=environment),
        budgets=purse.charges_left(),
    ).selected


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
