"""Placing a task at one system, and where it asked for that and both sites allow it, at a second one too.

Whoever is seen to start first is the task's attempt; the other is cancelled (`services.rivals`). Both hold
their charge until they end; what the second one cost is booked as any other's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from django.db import transaction

from federation import circuits
from federation.handles import new_handle
from federation.selectors import profile_of, systems
from orchestrator.doorbell import ring
from orchestrator.models import Attempt, Task
from orchestrator.placement.types import Decision as DecisionValue
from orchestrator.rivals import Hedge, Rivalry, why_not_hedged
from orchestrator.services import spending
from orchestrator.services.deciding import keep
from orchestrator.services.moves import attempt_event, task_event
from orchestrator.services.placing import Placed, decide_beside, keeps_apart, place_task, plan_attempt
from orchestrator.services.spending import purse_of


def place(
    task: Task, *, purpose: str, now: datetime, actor: str = "facet", notes: Sequence[str] = ()
) -> Placed:
    """Place a task, hedged where it asks for it; what is not hedged says why in an event.

    Runs inside the caller's transaction, which records the events and hands the first attempt out.
    """
    placed = place_task(task, purpose=purpose, now=now, actor=actor, notes=notes)
    wanted: Mapping[str, Any] = task.spec.get("hedge") or {}
    if placed.attempt is None or not wanted.get("enabled"):
        return placed
    allowing = _allowing()
    first = placed.attempt
    value = _second(task, first, allowing, now=now) if first.system.slug in allowing else None
    chosen = value.selected if value is not None else None
    why_not = why_not_hedged(
        Hedge(
            first_allows=first.system.slug in allowing,
            wait_p90_s=int(first.predicted["wait_s"]["p90"]),
            min_wait_s=int(wanted["min_wait_s"]),
            second=chosen.system if chosen else None,
            keeps_apart=keeps_apart(task),
            brings_inputs=bool((task.envelope.body.get("data") or {}).get("inputs")),
        )
    )
    if why_not is not None or value is None:
        return _told(placed, why_not or "")
    return _beside(task, placed, value, now=now)


def _told(placed: Placed, why: str) -> Placed:
    """Return what was placed, with an event on why it is not hedged."""
    assert placed.attempt is not None  # noqa: S101  # the caller asked
    told = attempt_event(placed.attempt, "attempt.moved", f"not hedged: {why}", data={"hedge": why})
    return replace(placed, happenings=(*placed.happenings, told))


def _allowing() -> set[str]:
    """Return the systems where work may wait that may be cancelled because it started elsewhere."""
    return {
        system.slug
        for system in systems()
        if system.profile_id is not None and profile_of(system.profile_id).policy.allow_hedging
    }


def _second(task: Task, first: Attempt, allowing: set[str], *, now: datetime) -> DecisionValue:
    barred = {system.slug for system in systems(only_enabled=False)} - allowing
    return decide_beside(task, barred={*barred, first.system.slug}, now=now)


def _beside(task: Task, placed: Placed, value: DecisionValue, *, now: datetime) -> Placed:
    first, chosen, handle = placed.attempt, value.selected, new_handle("att", now)
    assert first is not None  # noqa: S101  # the caller asked
    assert chosen is not None  # noqa: S101  # the caller asked
    purse = purse_of(task)
    is_paid = spending.fits(task, chosen, purse) and not (purse.refusals(chosen) or purse.asks(chosen))
    if not is_paid:
        return _told(placed, "its budgets or the credit there do not cover a second placement")
    if circuits.take_place(chosen.system, handle, now=now) is circuits.Admission.REFUSED:
        return _told(placed, f"{chosen.system} takes no new work just now")
    note = (
        f"Hedged: {first.system.slug}/{first.partition} may keep it waiting for "
        f"{first.predicted['wait_s']['p90']} s. The first of the two that starts stays."
    )
    value = value.model_copy(update={"warnings": (*value.warnings, note)})
    decision = keep(value, user_id=task.user_id, task=task, purpose="hedge", now=now)
    second = plan_attempt(task, decision, chosen, handle=handle, now=now)
    held = spending.hold(task, second, chosen, purse, now=now)
    Attempt.objects.filter(pk__in=(first.pk, second.pk)).update(rivalry=Rivalry.HEDGE)
    second_id, first.rivalry = second.pk, Rivalry.HEDGE
    transaction.on_commit(lambda: ring("dispatch", second_id))
    event = task_event(
        task,
        "task.placed",
        f"{task.name} also waits at {chosen.system}/{chosen.partition}: the first that starts stays",
        attempt=second,
        data={
            "decision": decision.handle,
            "hedge": True,
            "beside": first.handle,
            "system": chosen.system,
            "partition": chosen.partition,
            "shape": second.shape,
            "estimates": second.predicted,
        },
    )
    return replace(placed, happenings=(*placed.happenings, event, *held))
