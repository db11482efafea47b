"""What our own finished attempts taught, as the placement model."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db.models import QuerySet

from federation.models import System
from federation.selectors import profile_of, use_of_limits
from orchestrator.environments import environment_of
from orchestrator.lifecycle import AttemptState
from orchestrator.models import Attempt, EnvironmentUse
from orchestrator.placement.calibration import WaitOutcome, p90_factors
from orchestrator.placement.learning import Run, first_uses, learned_speeds, measured_preparations
from orchestrator.placement.model import MIN_HISTORY, PlacementModel, RuntimeSample
from orchestrator.placement.types import WaitClass

_WAITS = 400
"""Own started attempts that feed what is learned of waits; older ones have decayed to nothing."""
_RUNS = 30
_WITNESSES = 1000
"""Newest runs of everybody that tell speeds and preparations."""
_STAYS = timedelta(days=30)
"""An environment not used for longer may have been cleared away."""
_FRESH = timedelta(seconds=30)
_Started = tuple[str, str, dict[str, Any], datetime, datetime]
"""System, partition, predicted estimates, submission, start."""


def placement_model(
    user: AbstractBaseUser, *, kind: str, now: datetime, environment: str | None = None
) -> PlacementModel:
    """Return the model for one decision: waits of all placed jobs, runtimes of this user's kind of work.

    `environment` is what a site must have ready for it (`environments.environment_of`); None = nothing.
    """
    model = _common(int(now.timestamp() // _FRESH.total_seconds()))
    if environment is not None:
        here = _environments(user, environment, now=now)
        model = replace(model, version=f"{model.version}+env:{len(here)}", environments=here)
    runs = _samples(_runs_of_kind(user, kind), model) if kind else ()
    if not runs:
        return model
    return replace(model, version=f"{model.version}+{kind[:8]}:{len(runs)}", runtimes={kind: runs})


@lru_cache(maxsize=2)
def _common(tick: int) -> PlacementModel:
    """Return what is the same for every decision; `tick` makes it at most half a minute old."""
    seen, runs, limit_use = _started(Attempt.objects.all()), _runs(_succeeded()[:_WITNESSES]), use_of_limits()
    if not seen and not limit_use:
        return PlacementModel()
    model = PlacementModel(
        version=f"own-{len(seen)}@{tick}",
        p90_factors=p90_factors(_outcomes(seen)),
        limit_use=limit_use,
        speeds=learned_speeds(runs),
        preparations=measured_preparations(runs),
    )
    for system, partition, predicted, submitted_at, started_at in seen:
        basis = predicted.get("wait") or {}
        wait_s = (started_at - submitted_at).total_seconds()
        if basis.get("class") in (WaitClass.CERTAIN, WaitClass.RISKY):
            key = (system, partition, bool(basis.get("somebody_ahead")), bool(basis.get("fits_now")))
            model = model.with_start(key, wait_s)
        elif basis.get("class") == WaitClass.HIDDEN and basis.get("free_slots") is not None:
            model = model.with_hidden_start(system, partition, basis["free_slots"], wait_s)
    return model


def wait_outcomes(attempts: QuerySet[Attempt]) -> list[WaitOutcome]:
    """Return predicted and actual waits of the newest started attempts of a set, oldest first.

    Requeued attempts are left out: their first start is not known any more.
    """
    return _outcomes(_started(attempts))


def _started(attempts: QuerySet[Attempt]) -> list[_Started]:
    rows = (
        attempts.filter(started_at__isnull=False, submitted_at__isnull=False, restarts=0)
        .order_by("-id")
        .values_list("system__slug", "partition", "predicted", "submitted_at", "started_at")[:_WAITS]
    )
    return [
        (system, partition, predicted, submitted_at, started_at)
        for system, partition, predicted, submitted_at, started_at in reversed(rows)
        if submitted_at is not None and started_at is not None
    ]


def _outcomes(rows: Iterable[_Started]) -> list[WaitOutcome]:
    """Return the rows that hold a prediction; a start before the submission is a clock's error, no wait."""
    return [
        WaitOutcome(
            system=system,
            partition=partition,
            wait_class=WaitClass(predicted["wait"]["class"]),
            p50_s=predicted["wait_s"]["p50"],
            p90_s=predicted["wait_s"]["p90"],
            actual_s=max(0.0, (started_at - submitted_at).total_seconds()),
        )
        for system, partition, predicted, submitted_at, started_at in rows
        if "wait" in predicted and "wait_s" in predicted
    ]


def outcome_of(attempt: Attempt) -> WaitOutcome | None:
    """Return how one attempt's wait came out; None where it is open, not known, or was never predicted."""
    if attempt.started_at is None or attempt.submitted_at is None or attempt.restarts:
        return None
    row = (
        attempt.system.slug,
        attempt.partition,
        attempt.predicted,
        attempt.submitted_at,
        attempt.started_at,
    )
    return next(iter(_outcomes([row])), None)


def _succeeded() -> QuerySet[Attempt]:
    """Return the attempts that ran to a good end, the newest first."""
    ran = Attempt.objects.filter(
        state=AttemptState.SUCCEEDED, started_at__isnull=False, ended_at__isnull=False, restarts=0
    )
    return ran.order_by("-id")


def _runs_of_kind(user: AbstractBaseUser, kind: str) -> list[Run]:
    """Return this user's newest runs of a kind, but for those that had to prepare their environment first."""
    runs = _runs(_succeeded().filter(task__user_id=user.pk, task__kind=kind)[:_RUNS])
    skipped = first_uses(runs)
    again = [run for run in runs if run not in skipped]
    return again if len(again) >= MIN_HISTORY else runs


def _runs(attempts: QuerySet[Attempt]) -> list[Run]:
    """Return attempts as runs, the newest first."""
    rows = attempts.values_list(
        "pk",
        "task__user_id",
        "task__kind",
        "task__spec__environment",
        "task__envelope__body__container",
        "system__slug",
        "system__profile_id",
        "partition",
        "shape",
        "started_at",
        "ended_at",
    )
    told = list(rows)
    found = []
    firsts = set(
        EnvironmentUse.objects.filter(first_attempt_id__in=[row[0] for row in told]).values_list(
            "first_attempt_id", flat=True
        )
    )
    for row in told:
        pk, user, kind, stated, container, system, profile_id, partition, shape, started_at, ended_at = row
        if started_at is None or ended_at is None:
            continue
        accelerator = shape.get("gpu_type") if shape["gpus"] else None
        declared = _declared_speed(profile_id, partition)
        found.append(
            Run(
                user=user,
                kind=kind,
                environment=environment_of(stated, (container or {}).get("image")),
                system=system,
                accelerator=accelerator,
                default_speed=_NOTHING_LEARNED.speed_at(system, accelerator, declared=declared),
                gpus=shape["gpus"],
                cpus=shape["cpus"],
                runtime_s=(ended_at - started_at).total_seconds(),
                ended_at=ended_at,
                is_first_use=pk in firsts,
            )
        )
    return found


_NOTHING_LEARNED = PlacementModel()


def _samples(runs: Iterable[Run], model: PlacementModel) -> tuple[RuntimeSample, ...]:
    """Return runs at reference speed, so that fast sites teach slow ones."""
    return tuple(
        RuntimeSample(
            runtime_s=run.runtime_s * model.speed(run.system, run.accelerator, default=run.default_speed),
            gpus=run.gpus,
            cpus=run.cpus,
        )
        for run in runs
    )


def _environments(
    user: AbstractBaseUser, environment: str, *, now: datetime
) -> Mapping[tuple[str, str], bool]:
    """Return where an environment of this user's is: present where it ran lately, absent where it never did.

    Nothing is said of a system where it ran long ago, nor of any while it never ran: it may be there.
    """
    uses = EnvironmentUse.objects.filter(user_id=user.pk, environment=environment)
    last = dict(uses.values_list("system__slug", "last_at"))
    if not last:
        return {}
    slugs = System.objects.values_list("slug", flat=True)
    return {
        (slug, environment): slug in last for slug in slugs if slug not in last or last[slug] >= now - _STAYS
    }


def _declared_speed(profile_id: int | None, partition: str) -> Decimal:
    """Return the speed the profile in force declares; 1 where it says nothing, or no longer lists it."""
    if profile_id is None:
        return Decimal(1)
    declared = profile_of(profile_id).partitions.get(partition)
    return declared.speed if declared is not None else Decimal(1)
