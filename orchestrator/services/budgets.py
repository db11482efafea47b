"""The verbs on budgets: set, close, hold, settle, give back. Each is one transaction, events included.

Whoever holds takes the spender's lock first (`lock_spending`) and looks at what is left under it, so that two
placements at once cannot hold the same rest twice. Settling and giving back only make room and need no lock.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db import connection, transaction
from django.db.models import F, Q

from federation.handles import new_handle
from federation.ledger import Happening, record
from federation.models import System
from federation.selectors import profile_of
from orchestrator.budget_input import BudgetInput
from orchestrator.budget_models import BudgetScope
from orchestrator.budget_selectors import binding, binding_task, gauges
from orchestrator.budgets import UNITS, Gauge, Need, Refusal, newly_passed, plain
from orchestrator.lifecycle import TaskState
from orchestrator.models import Budget, BudgetLine, Group, Meter, Task
from orchestrator.token_lines import below
from providers.errors import Conflict, InvalidInput, NotAuthorized, NotFound
from providers.reading import nearest

_SPENDING = 727_002
"""First half of the advisory locks by which one user's holdings follow one another."""


def lock_spending(user_id: int) -> None:
    """Wait until no other transaction holds for this user; the lock ends with the transaction."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", [_SPENDING, user_id])


# --- setting ---------------------------------------------------------------------------------------


@transaction.atomic
def set_budget(
    user_id: int,
    on: tuple[str, str],
    given: BudgetInput,
    *,
    actor: str,
    now: datetime,
    name: str = "",
    as_admin: bool = False,
    pointer: str = "",
) -> Budget:
    """Set the limits of what `on` (scope, subject) names; an open budget there keeps its counts.

    Raises:
        InvalidInput: an unknown system, or a deadline that has passed.
        NotFound: no such task or group of this user.
        NotAuthorized: an administrator imposed the budget.
    """
    scope, subject = on
    _check(user_id, scope, subject, given, now=now, pointer=pointer)
    budget, _ = Budget.objects.select_for_update(no_key=True).get_or_create(
        user_id=user_id,
        scope=scope,
        subject=subject,
        closed_at=None,
        defaults={
            "handle": new_handle("bud", now),
            "created_by": actor,
            "created_at": now,
            "updated_at": now,
        },
    )
    _may_change(budget, as_admin=as_admin)
    budget.name, budget.updated_at = name or budget.name, now
    budget.is_imposed = as_admin
    if budget.deadline_at != given.deadline:
        budget.deadline_told = 0
    budget.deadline_at = given.deadline
    budget.thresholds, budget.on_exhaustion = list(given.thresholds), given.on_exhaustion
    budget.save()
    wake(budget, now=now)  # tasks before meters, as whoever holds for a task locks them
    _set_meters(budget, given)
    return budget


def _check(
    user_id: int, scope: str, subject: str, given: BudgetInput, *, now: datetime, pointer: str
) -> None:
    problems: list[tuple[str, str, str]] = []
    known = set(System.objects.values_list("slug", flat=True))
    for where, systems in (
        ("max_charge", given.max_charge),
        ("approve_above/charge", given.approve_above.charge),
    ):
        problems += [
            (f"{pointer}/{where}/{slug}", "unknown_system", f"No system `{slug}`." + nearest(slug, known))
            for slug in systems
            if slug not in known
        ]
    if given.deadline is not None and given.deadline <= now:
        problems.append((f"{pointer}/deadline", "in_the_past", "The deadline has passed already."))
    if problems:
        raise InvalidInput(problems[0][2], problems=tuple(problems))
    table: Any = {"task": Task, "group": Group}.get(scope)
    if table is not None and not table.objects.filter(user_id=user_id, handle=subject).exists():
        raise NotFound(f"No {scope} {subject[:80]!r}.", pointer=f"/{scope}")


def _may_change(budget: Budget, *, as_admin: bool) -> None:
    if budget.is_imposed and not as_admin:
        raise NotAuthorized(
            f"An administrator set {budget.handle}; only an administrator changes it.",
            remediation="Ask an administrator of this installation.",
        )


def _set_meters(budget: Budget, given: BudgetInput) -> None:
    limits, unasked = given.limits(), given.unasked()
    rows = budget.meters.select_for_update(no_key=True).order_by("pk")  # the order of every verb
    meters = {(meter.measure, meter.system): meter for meter in rows}
    for key in sorted({*limits, *unasked, *meters}):
        meter = meters.get(key) or Meter(budget=budget, measure=key[0], system=key[1])
        meter.unit = meter.unit or UNITS.get(key[0]) or _unit_at(key[1])
        meter.limit, meter.approval_above = limits.get(key), unasked.get(key)
        meter.told = _told(meter, budget.thresholds)
        meter.exhausted_at = meter.exhausted_at if _is_used_up(meter) else None
        meter.save()


def _unit_at(slug: str) -> str:
    """Return the unit a system charges in: the first its profile names, else the usual one."""
    system = System.objects.filter(slug=slug, profile__isnull=False).first()
    if system is None or system.profile_id is None:
        return "SU"
    rules = (partition.charge for partition in profile_of(system.profile_id).partitions.values())
    return next((rule.unit for rule in rules if rule is not None), "SU")


def _told(meter: Meter, thresholds: Sequence[float]) -> float:
    """Return up to where a changed limit is told already: what was told before and is passed still."""
    passed = newly_passed(meter.used + meter.reserved, meter.limit, thresholds, 0.0)
    return min(meter.told, passed)


def _is_used_up(meter: Meter) -> bool:
    return meter.limit is not None and meter.used >= meter.limit


@transaction.atomic
def close_budget(user: AbstractBaseUser, handle: str, *, now: datetime, as_admin: bool = False) -> Budget:
    """End a budget: it binds nothing any more, and its ledger stays; a closed one stays as it is.

    Raises:
        NotFound: no such budget of this user.
        NotAuthorized: an administrator imposed it.
    """
    rows = Budget.objects.select_for_update(no_key=True).filter(handle=handle)
    budget = (rows if as_admin else rows.filter(user_id=user.pk)).first()
    if budget is None:
        raise NotFound(f"No budget {handle[:80]!r}.", pointer="/budget")
    if budget.closed_at is None:
        _may_change(budget, as_admin=as_admin)
        wake(budget, now=now)
        budget.closed_at = budget.updated_at = now
        budget.save(update_fields=["closed_at", "updated_at"])
    return budget


def bound_tasks(budget: Budget) -> Q:
    """Return the condition of the tasks a budget binds."""
    field = {"task": "handle", "group": "group__handle", "project": "project", "token": "token"}[budget.scope]
    bound = Q(**{field: budget.subject})
    if budget.scope == BudgetScope.TOKEN:
        bound |= Q(token__in=below(budget.user_id, [budget.subject]))
    return Q(user_id=budget.user_id) & bound


def wake(budget: Budget, *, now: datetime) -> None:
    """Have the tasks that fit nowhere placed again soon: there may be room now."""
    waiting = Task.objects.filter(bound_tasks(budget), state=TaskState.UNSCHEDULABLE.value)
    rows = waiting.filter(cancel_requested_at=None).select_for_update(no_key=True, of=("self",))
    Task.objects.filter(pk__in=list(rows.order_by("pk").values_list("pk", flat=True))).update(due_at=now)


# --- holding and booking ----------------------------------------------------------------------------


def hold(
    task: Task, attempt: str, gauges: Sequence[Gauge], needs: Sequence[Need], *, now: datetime
) -> list[Happening]:
    """Hold what an attempt needs on every meter; return what is to be told. Under `lock_spending`."""
    held = [(gauge, amount) for gauge in gauges if (amount := gauge.amount_in(needs)) > 0]
    if not held:
        return []
    for gauge, amount in held:
        Meter.objects.filter(pk=gauge.meter).update(reserved=F("reserved") + amount, exhausted_at=None)
    BudgetLine.objects.bulk_create(
        BudgetLine(meter_id=gauge.meter, subject=attempt, kind="reserve", amount=amount, at=now)
        for gauge, amount in held
    )
    return _tell([gauge.meter for gauge, _ in held], now=now, task=task)


def settle(task: Task, attempt: str, used: Sequence[Need], *, now: datetime) -> list[Happening]:
    """Book what an attempt used and give back what was held for it; a second call does nothing."""
    amounts = {(need.measure, need.system): need.amount for need in used}
    meters = []
    for line in _open_lines(attempt):
        meter = line.meter
        amount = amounts.get((meter.measure, meter.system), Decimal(0))
        Meter.objects.filter(pk=meter.pk).update(
            reserved=F("reserved") - line.amount, used=F("used") + amount
        )
        kind, booked = ("settle", amount) if amount > 0 else ("release", line.amount)
        BudgetLine.objects.create(meter=meter, subject=attempt, kind=kind, amount=booked, at=now)
        meters.append(meter.pk)
    return _tell(meters, now=now, task=task)


def give_back(attempt: str, *, now: datetime) -> None:
    """Give back what was held for an attempt that never reached its site; a second call does nothing."""
    for line in _open_lines(attempt):
        Meter.objects.filter(pk=line.meter_id).update(reserved=F("reserved") - line.amount)
        BudgetLine.objects.create(
            meter=line.meter, subject=attempt, kind="release", amount=line.amount, at=now
        )


def open_holdings(attempt: str) -> dict[int, Decimal]:
    """Return what an attempt holds now, by meter; what was settled or given back is held no more."""
    ended = BudgetLine.objects.filter(subject=attempt, kind__in=("settle", "release")).values("meter_id")
    open_ = BudgetLine.objects.filter(subject=attempt, kind="reserve").exclude(meter_id__in=ended)
    return dict(open_.values_list("meter_id", "amount"))


def _open_lines(attempt: str) -> list[BudgetLine]:
    """Return the reservations of an attempt that nothing ended, their meters locked in order."""
    meters = BudgetLine.objects.filter(subject=attempt, kind="reserve").values_list("meter_id", flat=True)
    locked = {
        row.pk: row
        for row in Meter.objects.select_for_update(no_key=True).filter(pk__in=list(meters)).order_by("pk")
    }
    found: dict[int, list[BudgetLine]] = {}
    for line in BudgetLine.objects.filter(subject=attempt, meter_id__in=locked).order_by("pk"):
        line.meter = locked[line.meter_id]
        found.setdefault(line.meter_id, []).append(line)
    return [
        next(line for line in lines if line.kind == "reserve")
        for _, lines in sorted(found.items())
        if not any(line.kind in ("settle", "release") for line in lines)
    ]


@transaction.atomic
def spend_tokens(budgets: Iterable[Budget], subject: str, tokens: int, *, now: datetime) -> None:
    """Book tokens that a model used; once for each budget and subject."""
    meters = Meter.objects.select_for_update(no_key=True).filter(
        budget__in=list(budgets), measure="model_tokens"
    )
    for meter in meters.order_by("pk"):
        _, is_new = BudgetLine.objects.get_or_create(
            meter=meter, subject=subject, kind="settle", defaults={"amount": tokens, "at": now}
        )
        if is_new:
            Meter.objects.filter(pk=meter.pk).update(used=F("used") + tokens)
    record(_tell([meter.pk for meter in meters], now=now), now=now)


def has_tokens_left(user: AbstractBaseUser, token: str) -> bool:
    """Return whether no budget of an API token's model tokens is used up; signed-in people have none."""
    rows = list(binding(user.pk, token=token)) if token else []
    return not any(
        gauge.measure == "model_tokens" and gauge.left is not None and gauge.left <= 0
        for gauge in gauges(rows)
    )


def book_drafting(user: AbstractBaseUser, token: str, envelope: str, tokens: int, *, now: datetime) -> None:
    """Book what a model used for a draft on the budgets of the API token that asked for it."""
    if token and tokens:
        spend_tokens(list(binding(user.pk, token=token)), envelope, tokens, now=now)


@transaction.atomic
def correct(meter_id: int, subject: str, amount: Decimal, *, note: str, now: datetime) -> BudgetLine | None:
    """Make what was booked for a subject what it truly is; None where it is that already.

    Raises:
        Conflict: nothing was booked for it.
        InvalidInput: the amount is below zero.
    """
    if amount < 0:
        raise InvalidInput(
            "What was used is not below zero.", problems=(("/amount", "too_small", "below 0"),)
        )
    meter = Meter.objects.select_for_update(no_key=True).get(pk=meter_id)
    lines = list(meter.lines.filter(subject=subject))
    booked = [line for line in lines if line.kind in ("settle", "correct")]
    if not any(line.kind in ("settle", "release") for line in lines):
        raise Conflict(f"Nothing was booked for {subject}.")
    by = amount - sum((line.amount for line in booked), Decimal(0))
    if by == 0:
        return None
    Meter.objects.filter(pk=meter.pk).update(used=F("used") + by)
    record(_tell([meter.pk], now=now), now=now)
    return BudgetLine.objects.create(
        meter=meter, subject=subject, kind="correct", amount=by, note=note[:200], at=now
    )


# --- telling ----------------------------------------------------------------------------------------


def _tell(meter_ids: Sequence[int], *, now: datetime, task: Task | None = None) -> list[Happening]:
    """Return what these meters have to tell after a change, and note that it was told."""
    found = []
    for meter in Meter.objects.select_related("budget").filter(pk__in=meter_ids).order_by("pk"):
        committed = meter.used + meter.reserved
        passed = newly_passed(committed, meter.limit, meter.budget.thresholds, meter.told)
        if passed:
            Meter.objects.filter(pk=meter.pk).update(told=passed)
            found.append(budget_event(meter.budget, "threshold", _facts(meter, passed), task=task))
        if _is_used_up(meter) and meter.exhausted_at is None:
            Meter.objects.filter(pk=meter.pk).update(exhausted_at=now)
            found.append(budget_event(meter.budget, "exhausted", _facts(meter, 1.0), task=task))
    return found


def exhausted_by(refused: Sequence[Refusal], *, task: Task, now: datetime) -> list[Happening]:
    """Return that budgets have too little left for a task; told once until something fits again."""
    found = []
    for each in refused:
        fresh = Meter.objects.filter(pk=each.gauge.meter, exhausted_at=None)
        if fresh.update(exhausted_at=now):
            meter = Meter.objects.select_related("budget").get(pk=each.gauge.meter)
            facts = {**_facts(meter, 1.0), "needed": plain(each.amount)}
            found.append(budget_event(meter.budget, "exhausted", facts, task=task))
    return found


def _facts(meter: Meter, threshold: float) -> dict[str, Any]:
    return {
        "measure": meter.measure,
        "system": meter.system or None,
        "unit": meter.unit,
        "limit": plain(meter.limit or Decimal(0)),
        "used": plain(meter.used),
        "reserved": plain(meter.reserved),
        "threshold": threshold,
    }


def budget_event(
    budget: Budget, word: str, facts: Mapping[str, Any], *, task: Task | None = None
) -> Happening:
    """Return the event `budget.threshold` or `budget.exhausted`; `task` is whose attempt led there."""
    what = f"{facts['unit']}" + (f" at {facts['system']}" if facts.get("system") else "")
    if facts["measure"] == "wall_clock":
        over = word == "exhausted"
        said = "its deadline has passed" if over else f"{facts['threshold']:.0%} of its time are over"
    elif word == "threshold":
        said = f"{facts['threshold']:.0%} of its {facts['limit']} {what} are used or held"
    else:
        said = f"too little is left of its {facts['limit']} {what}"
    return Happening(
        type=f"budget.{word}",
        subject=budget.handle,
        user_id=budget.user_id,
        system=facts.get("system") or "",
        task=task.handle if task else budget.subject if budget.scope == "task" else "",
        group=budget.subject if budget.scope == "group" else "",
        state="exhausted" if word == "exhausted" else "open",
        summary=f"The budget of {budget.scope} {budget.name or budget.subject}: {said}",
        data={"budget": budget.handle, "scope": budget.scope, "subject": budget.subject, **facts},
        next_actions=[
            {
                "skill": "set_budget",
                "arguments": {budget.scope: budget.subject},
                "why": "raise the limit, where that is right",
            }
        ],
    )


def budgets_of(task: Task) -> list[Budget]:
    """Return the open budgets that bind a task, read now."""
    return list(binding_task(task))
