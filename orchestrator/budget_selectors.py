"""Reading budgets, approvals and costs, always for one user."""

from collections.abc import Collection, Iterable, Sequence
from decimal import ROUND_UP, Decimal
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db.models import Prefetch, Q, QuerySet

from orchestrator.budget_models import Approval, Budget, BudgetScope, Meter
from orchestrator.budgets import CENT, Ask, Gauge
from orchestrator.budgets_shown import ApprovalShown, BudgetShown, CostShown, MeterShown
from orchestrator.models import Attempt, Group, Task
from orchestrator.token_lines import above


def budgets(user: AbstractBaseUser, *, systems: Collection[str] | None = None) -> QuerySet[Budget]:
    """Return this user's budgets, closed ones too, newest first, with their meters.

    `systems` are the only ones whose charges, tasks and groups are seen; None = every one.
    """
    meters, rows = Meter.objects.order_by("measure", "system"), Budget.objects.filter(user_id=user.pk)
    if systems is not None:
        meters = meters.filter(system__in=["", *systems])
        away = Task.objects.filter(user_id=user.pk, attempt__isnull=False)
        away = away.exclude(attempt__system__slug__in=systems)
        rows = rows.exclude(scope=BudgetScope.TASK, subject__in=away.values("handle"))
        groups = away.filter(group__isnull=False).values("group__handle")
        rows = rows.exclude(scope=BudgetScope.GROUP, subject__in=groups)
    return rows.prefetch_related(Prefetch("meters", meters)).order_by("-id")


def approvals(user: AbstractBaseUser) -> QuerySet[Approval]:
    """Return what was to be approved of this user's work, newest first."""
    rows = Approval.objects.filter(user_id=user.pk)
    return rows.select_related("task", "decision").order_by("-id")


def approvals_for_admins() -> QuerySet[Approval]:
    """Return what waits for an administrator, of all users, oldest first."""
    rows = Approval.objects.filter(state="pending", needs_admin=True)
    return rows.select_related("task", "decision", "user").order_by("id")


def binding(
    user_id: int, *, task: str = "", group: str = "", project: str = "", token: str = ""
) -> QuerySet[Budget]:
    """Return the open budgets that bind work of this kind, oldest first; empty words name nothing.

    Those of a token bind every token made with it as well.
    """
    subjects = (
        (BudgetScope.TASK, task),
        (BudgetScope.GROUP, group),
        (BudgetScope.PROJECT, project),
        (BudgetScope.TOKEN, token),
    )
    named = Q(pk__in=())
    for scope, subject in subjects:
        if subject:
            named |= Q(scope=scope, subject=subject)
    if token:
        named |= Q(scope=BudgetScope.TOKEN, subject__in=above(user_id, token))
    return Budget.objects.filter(named, user_id=user_id, closed_at=None).order_by("pk")


def binding_task(task: Task) -> QuerySet[Budget]:
    """Return the open budgets that bind a task."""
    return binding(
        task.user_id,
        task=task.handle,
        group=task.group.handle if task.group else "",
        project=task.project,
        token=task.token,
    )


def gauges(rows: Iterable[Budget]) -> tuple[Gauge, ...]:
    """Return the meters of budgets as values, read now."""
    by_row = {row.pk: row for row in rows}
    meters = Meter.objects.filter(budget_id__in=by_row).order_by("pk")
    return tuple(_gauge(by_row[meter.budget_id], meter) for meter in meters) if by_row else ()


def _gauge(budget: Budget, meter: Meter) -> Gauge:
    return Gauge(
        meter=meter.pk,
        budget=budget.handle,
        scope=budget.scope,
        subject=budget.subject,
        measure=meter.measure,
        system=meter.system,
        unit=meter.unit,
        limit=meter.limit,
        approval_above=meter.approval_above,
        reserved=meter.reserved,
        used=meter.used,
        is_imposed=budget.is_imposed,
    )


def show_budget(row: Budget) -> BudgetShown:
    """Return a budget as the outside sees it; rows of `budgets()` need no further query."""
    meters = list(row.meters.all())
    state = "exhausted" if row.deadline_told >= 1 or any(each.exhausted_at for each in meters) else "open"
    return BudgetShown(
        id=row.handle,
        state="closed" if row.closed_at else state,
        scope=row.scope,
        subject=row.subject,
        name=row.name,
        meters=[_meter(each) for each in meters],
        thresholds=list(row.thresholds),
        on_exhaustion=row.on_exhaustion,
        deadline=row.deadline_at,
        imposed=row.is_imposed,
        created_by=row.created_by,
        created_at=row.created_at,
        updated_at=row.updated_at,
        closed_at=row.closed_at,
    )


def _meter(row: Meter) -> MeterShown:
    committed = row.used + row.reserved
    share = None if not row.limit else round(float(committed / row.limit), 4)
    return MeterShown(
        measure=row.measure,
        system=row.system or None,
        unit=row.unit,
        limit=row.limit,
        reserved=row.reserved,
        used=row.used,
        left=None if row.limit is None else row.limit - committed,
        used_frac=share,
        approval_above=row.approval_above,
        exhausted_at=row.exhausted_at,
    )


def show_approval(row: Approval) -> ApprovalShown:
    """Return an approval as the outside sees it."""
    return ApprovalShown(
        id=row.handle,
        state=row.state,
        task=row.task.handle,
        task_name=row.task.name,
        decision=row.decision.handle,
        system=row.decision.system or None,
        partition=row.decision.partition or None,
        asks=[Ask.model_validate(each) for each in row.asks],
        asked_by=row.asked_by,
        needs_admin=row.needs_admin,
        created_at=row.created_at,
        expires_at=row.expires_at,
        decided_by=row.decided_by or None,
        decided_via=row.decided_via or None,
        decided_at=row.decided_at,
        note=row.note or None,
    )


def costed_attempts() -> "Prefetch[str, QuerySet[Attempt], str]":
    """Return the prefetch by which a page of tasks has its costs in one query."""
    rows = Attempt.objects.select_related("system").only(
        "task_id", "number", "system__slug", "predicted", "shape", "charge_held", "charge_cost"
    )
    return Prefetch("attempts", rows.order_by("number"), to_attr="costed_attempts")


def costs_of(task: Task) -> list[CostShown]:
    """Return what a task costs, site by site in the order they were tried; free sites are left out."""
    rows: Sequence[Attempt] | None = getattr(task, "costed_attempts", None)
    if rows is None:
        rows = list(task.attempts.select_related("system").order_by("number"))
    found: dict[tuple[str, str], CostShown] = {}
    for attempt in rows:
        charge = (attempt.predicted or {}).get("charge") or {}
        if not charge.get("unit"):
            continue
        key = (attempt.system.slug, charge["unit"])
        before = found.get(key) or _nothing(*key)
        accepted = attempt.pk == task.attempt_id
        found[key] = before.model_copy(
            update={
                "reserved": before.reserved + attempt.charge_held,
                "settled": before.settled + (attempt.charge_cost or Decimal(0)),
                **(_predicted(attempt.predicted, attempt.shape) if accepted else {}),
            }
        )
    return list(found.values())


def costs_of_group(group: Group) -> list[CostShown]:
    """Return what all tasks of a group cost together, site by site; sites are never added up."""
    found: dict[tuple[str, str], CostShown] = {}
    rows = Task.objects.filter(group=group).only("attempt_id").prefetch_related(costed_attempts())
    for task in rows.order_by("pk"):
        for cost in costs_of(task):
            key = (cost.system, cost.unit)
            found[key] = _together(found[key], cost) if key in found else cost
    return [found[key] for key in sorted(found)]


def _together(one: CostShown, other: CostShown) -> CostShown:
    """Return the sum of two costs at one site; what neither was predicted to cost stays unknown."""
    told = {
        name: sum(
            (each for each in (getattr(one, name), getattr(other, name)) if each is not None), Decimal(0)
        )
        for name in ("predicted_p50", "predicted_p90", "predicted_most", "reserved", "settled")
        if getattr(one, name) is not None or getattr(other, name) is not None
    }
    return one.model_copy(update=told)


def _nothing(system: str, unit: str) -> CostShown:
    return CostShown(
        system=system,
        unit=unit,
        predicted_p50=None,
        predicted_p90=None,
        predicted_most=None,
        reserved=Decimal(0),
        settled=Decimal(0),
    )


def _predicted(predicted: dict[str, Any], shape: dict[str, Any]) -> dict[str, Decimal]:
    most = Decimal(str(predicted["charge"]["amount"]))
    return {
        "predicted_p50": charge_at(most, predicted.get("runtime_s"), shape["walltime_s"]),
        "predicted_p90": charge_at(most, predicted.get("runtime_p90_s"), shape["walltime_s"]),
        "predicted_most": most,
    }


def charge_at(most: Decimal, runtime_s: int | None, walltime_s: int) -> Decimal:
    """Return the charge of a runtime, at most that of the wall time: every formula is linear in time."""
    if runtime_s is None or walltime_s <= 0:
        return most
    held_s = min(runtime_s, walltime_s)
    return (most * held_s / walltime_s).quantize(CENT, rounding=ROUND_UP)
