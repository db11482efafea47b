"""Placing a task: decide within its budgets, plan the attempt, say what became of it. Touches no site."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from federation import circuits
from federation.handles import new_handle
from federation.ledger import Happening
from federation.models import Connection, System
from orchestrator.budgets import Ask, Refusal, ask_words
from orchestrator.continuation import helping_change, next_actions
from orchestrator.envelope.types import Envelope as EnvelopeValue
from orchestrator.envelope.types import Range
from orchestrator.lifecycle import TaskState
from orchestrator.models import Attempt, Decision, Task
from orchestrator.placement.types import Decision as DecisionValue
from orchestrator.placement.types import Selected
from orchestrator.services import approvals, spending
from orchestrator.services.budgets import exhausted_by, lock_spending
from orchestrator.services.deciding import decide, keep
from orchestrator.services.moves import move_task, task_event
from orchestrator.services.spending import Purse, purse_of

SPREAD_FACTOR = 2
SPREAD_S = 600
"""Soft diversity gives up at most this much: twice the best completion and ten minutes."""
PICKED_UP_WITHIN = timedelta(seconds=10)
"""A planned attempt that no dispatcher took by then is handed out again by the control cycle."""
LOOK_AGAIN_AFTER = timedelta(seconds=60)
"""How often an unschedulable task that may retry is placed again."""


@dataclass(frozen=True, slots=True)
class Placed:
    """What became of placing: the kept decision, the planned attempt where there is one, and the events."""

    decision: Decision
    attempt: Attempt | None
    happenings: Sequence[Happening]


def plan_attempt(task: Task, decision: Decision, chosen: Selected, *, handle: str, now: datetime) -> Attempt:
    """Create the next attempt for a decision; the caller holds what it needs."""
    system = System.objects.get(slug=chosen.system)
    connection = Connection.objects.get(user_id=task.user_id, system=system)
    number = task.attempts.count() + 1
    return Attempt.objects.create(
        handle=handle,
        task=task,
        number=number,
        decision=decision,
        connection=connection,
        system=system,
        partition=chosen.partition,
        account=chosen.account or "",
        qos=chosen.qos or "",
        shape=chosen.shape.model_dump(mode="json"),
        predicted=chosen.estimates.model_dump(mode="json", by_alias=True),
        submit_key=submit_key(task.name, handle),
        planned_at=now,
        due_at=now + PICKED_UP_WITHIN,
    )


def submit_key(name: str, handle: str) -> str:
    """Return the unique job name at the site: a word of the task's name, then the attempt's own id."""
    word = "".join(char for char in name.lower() if char.isascii() and char.isalnum())[:12]
    return f"{word or 'task'}-{handle.removeprefix('att_')}"


def place_task(
    task: Task,
    *,
    purpose: str,
    now: datetime,
    actor: str = "facet",
    notes: Sequence[str] = (),
) -> Placed:
    """Decide for a task, keep the decision, and plan the attempt, ask a person, or mark it unschedulable.

    Runs inside the caller's transaction; the caller records the events and hands the attempt out on commit.
    `notes` join the decision's warnings: what was done for it before.
    """
    if TaskState(task.state) is TaskState.STAGING:  # what was being brought was for another placement
        move_task(task, TaskState.PLACING, now=now)
    handle = new_handle("att", now)
    found = _decide_and_enter(task, handle, now=now)
    value, purse = found.value, found.purse
    if notes:
        value = value.model_copy(update={"warnings": (*value.warnings, *notes)})
    approvals.withdraw(task, now=now)
    decision = keep(value, user_id=task.user_id, task=task, purpose=purpose, now=now)
    if value.selected is None:
        is_late = purse.too_late(now) is not None
        placed = _unschedulable(
            task, decision, value, now=now, actor=actor, reason=found.why, is_late=is_late
        )
        return replace(placed, happenings=(*placed.happenings, *found.told))
    if found.asked:
        return _ask_first(task, decision, found.asked, purse, now=now, actor=actor)
    if TaskState(task.state) is not TaskState.PLACING:
        move_task(task, TaskState.PLACING, now=now)
    attempt = plan_attempt(task, decision, value.selected, handle=handle, now=now)
    told = spending.hold(task, attempt, value.selected, purse, now=now)
    Task.objects.filter(pk=task.pk).update(attempt=attempt, due_at=None, not_before=None)
    task.attempt, task.due_at, task.not_before = attempt, None, None
    summary = _placed_summary(task, value.selected)
    event = task_event(
        task,
        "task.placed",
        summary,
        attempt=attempt,
        actor=actor,
        data={
            "decision": decision.handle,
            "system": value.selected.system,
            "partition": value.selected.partition,
            "shape": attempt.shape,
            "estimates": attempt.predicted,
        },
    )
    return Placed(decision, attempt, (event, *told))


_DECISIONS_AT_MOST = 4


@dataclass(frozen=True, slots=True)
class Outcome:
    """A decision that budgets and circuits let pass, or why not, and what is to be told of it."""

    value: DecisionValue
    purse: Purse
    why: str = ""
    """Which budget refuses it; empty: none does."""
    told: Sequence[Happening] = ()
    asked: Sequence[Ask] = ()
    """What a person must approve first."""


def _decide_and_enter(task: Task, handle: str, *, now: datetime) -> Outcome:
    """Return the decision, with a warning where the attempt is a system's trial.

    Where another task took the trial's place meanwhile, it is decided again without that system.
    """
    for _again in range(_DECISIONS_AT_MOST):
        value, purse = _affordable(task, now=now)
        value, why, told = _within_budgets(task, value, purse, now=now)
        if value.selected is None:
            break
        if asked := purse.asks(value.selected):
            return Outcome(value, purse, asked=asked)
        slug = value.selected.system
        admission = circuits.take_place(slug, handle, now=now)
        if admission is circuits.Admission.TRIAL:
            note = f"This attempt is a trial: new work for {slug} was stopped after failures there."
            value = value.model_copy(update={"warnings": (*value.warnings, note)})
        if admission is not circuits.Admission.REFUSED:
            break
    return Outcome(value, purse, why, told)


def _affordable(task: Task, *, now: datetime) -> tuple[DecisionValue, Purse]:
    """Return a decision that credit and budgets pay for, and what binds the task; others hold after commit.

    Decided before the lock is waited for, and once more under it where another placement took the rest.
    """
    envelope, purse = envelope_now(task), purse_of(task)
    value = _decide_for(task, envelope, purse, now=now)
    lock_spending(task.user_id)
    purse = purse_of(task)
    if value.selected is not None and not spending.fits(task, value.selected, purse):
        value = _decide_for(task, envelope, purse, now=now)
    return value, purse


def _within_budgets(
    task: Task, value: DecisionValue, purse: Purse, *, now: datetime
) -> tuple[DecisionValue, str, list[Happening]]:
    """Return the decision, or one without a choice, why budgets refuse it, and what they have to tell."""
    refused: Sequence[Refusal] = ()
    if (late := purse.too_late(now)) is not None:
        why = f"the deadline of the budget {late.handle} has passed"
    elif value.selected is None:
        refused = spending.refused_charges(value, purse)
        why = refused[0].sentence if refused else ""
        return value, why, exhausted_by(refused, task=task, now=now)
    else:
        refused = purse.refusals(value.selected)
        why = refused[0].sentence if refused else ""
    if not why:
        return value, "", []
    nowhere = {"selected": None, "runner_up": None, "margin_s": None, "result": "unschedulable"}
    warnings = (*value.warnings, f"Not placed: {why}.")
    return (
        value.model_copy(update={**nowhere, "warnings": warnings}),
        why,
        exhausted_by(refused, task=task, now=now),
    )


def _ask_first(
    task: Task, decision: Decision, asked: Sequence[Ask], purse: Purse, *, now: datetime, actor: str
) -> Placed:
    """Leave the placement to a person; nothing is held meanwhile."""
    imposed = purse.is_imposed(asked)
    _, event = approvals.ask(task, decision, asked, needs_admin=imposed, now=now, actor=actor)
    reason = f"A person must approve: {ask_words(asked)}."
    if TaskState(task.state) is not TaskState.PENDING_APPROVAL:
        move_task(task, TaskState.PENDING_APPROVAL, now=now, reason=reason)
    else:
        Task.objects.filter(pk=task.pk).update(reason=reason, updated_at=now, due_at=None)
    return Placed(decision, None, (event,))


def could_place(task: Task, *, now: datetime) -> bool:
    """Return whether a task that fits nowhere would fit now; nothing is kept or held."""
    purse = purse_of(task)
    if purse.too_late(now) is not None:
        return False
    chosen = _decide_for(task, envelope_now(task), purse, now=now).selected
    return chosen is not None and not purse.refusals(chosen)


def _decide_for(task: Task, given: EnvelopeValue, purse: Purse, *, now: datetime) -> DecisionValue:
    """Return the decision that heeds the task's history, its budgets and its group's wish to spread."""
    envelope, load = spending.within(given, purse), diversity_load(task)
    hard = sorted(load) if keeps_apart(task) else []
    never, avoid = _places(task.plan.get("never", [])), _places(task.plan.get("avoid", []))
    wanted = _wanted(task, purse, load, now=now)
    excluded = [*task.excluded_systems, *hard]
    if home := task.plan.get("resume"):
        # Its checkpoint lies there; elsewhere it would begin anew.
        others = System.objects.exclude(slug=home).values_list("slug", flat=True)
        value = decide(task.user, envelope, avoid=never, exclude_systems=[*excluded, *others], **wanted)
        if value.selected is not None:
            return value
    value = decide(task.user, envelope, avoid=never | avoid, exclude_systems=excluded, **wanted)
    if value.selected is None and avoid:
        # Better the same place again than none: what failed there may have passed.
        value = decide(task.user, envelope, avoid=never, exclude_systems=excluded, **wanted)
    crowded = _crowded(value, load)
    if hard or value.selected is None or value.selected.system not in crowded:
        return value
    spread = decide(
        task.user, envelope, avoid=never | avoid, exclude_systems=[*excluded, *sorted(crowded)], **wanted
    )
    if spread.selected is None:
        return value
    best_s, spread_s = value.selected.estimates.completion_s, spread.selected.estimates.completion_s
    if spread_s > best_s * SPREAD_FACTOR + SPREAD_S:
        return value
    note = (
        f"The group prefers distinct systems: {', '.join(sorted(crowded))} already hold more of it, "
        f"at the cost of {max(0, spread_s - best_s)} s."
    )
    return spread.model_copy(update={"warnings": (*spread.warnings, note)})


def _wanted(task: Task, purse: Purse, load: Mapping[str, int], *, now: datetime) -> dict[str, Any]:
    """Return what every decision for a task is asked with."""
    return {
        "now": now,
        "kind": task.kind,
        "environment": task.spec["environment"],
        "diversity_load": load,
        "budgets": purse.charges_left(),
    }


def decide_beside(
    task: Task,
    *,
    barred: Collection[str] = (),
    avoid: Collection[tuple[str, str, str]] = (),
    purse: Purse | None = None,
    keeps_checkpoint: bool = True,
    now: datetime,
) -> DecisionValue:
    """Return the decision for another placement than the accepted one, at none of the barred systems.

    It heeds what the first one did: where the task failed, its image, its budgets, and its group's wish to
    spread. Where a checkpoint lies at one system the task stays there, unless that is not asked for.
    """
    purse, load = purse or purse_of(task), diversity_load(task)
    envelope = spending.within(envelope_now(task), purse)
    excluded = {*task.excluded_systems, *barred, *(load if keeps_apart(task) else ())}
    if keeps_checkpoint and (home := task.plan.get("resume")):
        excluded |= set(System.objects.exclude(slug=home).values_list("slug", flat=True))
    failed = _places([*task.plan.get("never", []), *task.plan.get("avoid", [])])
    wanted = _wanted(task, purse, load, now=now)
    return decide(task.user, envelope, avoid=failed | {*avoid}, exclude_systems=sorted(excluded), **wanted)


def _crowded(value: DecisionValue, load: Mapping[str, int]) -> set[str]:
    """Return the systems that hold more of the group than the least used one that is feasible."""
    feasible = {candidate.system for candidate in value.candidates if candidate.feasible}
    if not load or not feasible:
        return set()
    least = min(load.get(system, 0) for system in feasible)
    return {system for system in feasible if load.get(system, 0) > least}


def diversity_load(task: Task) -> dict[str, int]:
    """Return how many siblings are at each system; empty where the group wants no spreading (any more)."""
    if task.group is None or task.group.spec["diversity"] == "none" or is_relaxed(task):
        return {}
    return siblings_at(task)


def siblings_at(task: Task) -> dict[str, int]:
    """Return how many siblings are, or ended, at each system."""
    systems = (
        Task.objects.filter(group=task.group_id, attempt__isnull=False)
        .exclude(pk=task.pk)
        .values_list("attempt__system__slug", flat=True)
    )
    return dict(Counter(systems))


def is_relaxed(task: Task) -> bool:
    """Return whether the wish to spread was given up for a stalled child; a rule to spread never is."""
    return (
        task.group is not None
        and task.group.spec["diversity"] == "soft"
        and bool(task.plan.get("is_relaxed"))
    )


def keeps_apart(task: Task) -> bool:
    """Return whether the task's group wants every child at a system of its own."""
    return task.group is not None and task.group.spec["diversity"] == "hard"


def _places(rows: Sequence[Sequence[str]]) -> frozenset[tuple[str, str, str]]:
    return frozenset((row[0], row[1], row[2]) for row in rows)


def envelope_now(task: Task) -> EnvelopeValue:
    """Return the task's envelope, with the wall time and the memory that earlier attempts taught."""
    envelope = EnvelopeValue.model_validate(task.envelope.body)
    walltime_s, memory_mib = task.plan.get("walltime_s"), task.plan.get("memory_mib")
    taught = {}
    if walltime_s:
        taught["walltime_s"] = Range(min=walltime_s, max=max(walltime_s, envelope.walltime_s.max))
    if memory_mib and envelope.memory_mib is not None:
        most = envelope.memory_mib.max
        taught["memory_mib"] = Range(min=max(envelope.memory_mib.min, min(memory_mib, most)), max=most)
    return envelope.model_copy(update=taught) if taught else envelope


def _placed_summary(task: Task, chosen: Selected) -> str:
    wait = chosen.estimates.wait_s
    return (
        f"{task.name} goes to {chosen.system}/{chosen.partition}: "
        f"expected to start in {wait.p50} s (90 % within {wait.p90} s)"
    )


def _unschedulable(
    task: Task,
    decision: Decision,
    value: DecisionValue,
    *,
    now: datetime,
    actor: str,
    reason: str = "",
    is_late: bool = False,
) -> Placed:
    reason = reason or _why_nowhere(value)
    again = now + LOOK_AGAIN_AFTER if task.spec["retry"]["max_attempts"] > 1 else None
    if is_late:
        again = now  # the next cycle ends it
    change = helping_change(task.envelope.body, decision.body["closest"])
    task.plan = {**task.plan, "change": change}
    if TaskState(task.state) is TaskState.UNSCHEDULABLE:
        columns = {"due_at": again, "reason": reason, "plan": task.plan, "updated_at": now}
        Task.objects.filter(pk=task.pk).update(**columns)
        return Placed(decision, None, ())
    move_task(task, TaskState.UNSCHEDULABLE, now=now, reason=reason, due_at=again, plan=task.plan)
    event = task_event(
        task,
        "task.unschedulable",
        f"{task.name} fits nowhere: {reason}",
        actor=actor,
        data={"decision": decision.handle, "closest": decision.body["closest"]},
        next_actions=next_actions(task.handle, TaskState.UNSCHEDULABLE, change=change),
    )
    return Placed(decision, None, (event,))


def _why_nowhere(value: DecisionValue) -> str:
    """Return the shortest true account of why no candidate is feasible."""
    if not value.candidates:
        return "no system is configured"
    if value.closest is not None and value.closest.changes:
        place_ = f"{value.closest.system}/{value.closest.partition}"
        return f"closest is {place_}: {value.closest.changes[0].sentence}"
    counts: dict[str, int] = {}
    for candidate in value.candidates:
        for rejection in candidate.rejections:
            counts[rejection.code] = counts.get(rejection.code, 0) + 1
    worst = sorted(counts, key=lambda code: (-counts[code], code))[:3]
    return "rejected for " + ", ".join(f"{code} ({counts[code]})" for code in worst)
