"""What our own finished attempts taught, as the placement model."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db.models import QuerySet

from federation.selectors import profile_of, use_of_limits
from orchestrator.lifecycle import AttemptState
from orchestrator.models import Attempt
from orchestrator.placement.calibration import WaitOutcome, p90_factors
from orchestrator.placement.model import PlacementModel, RuntimeSample
from orchestrator.placement.types import WaitClass

_WAITS = 400
"""Own started attempts that feed what is learned of waits; older ones have decayed to nothing."""
_RUNS = 30
_FRESH = timedelta(seconds=30)
_Started = tuple[str, str, dict[str, Any], datetime, datetime]
"""System, partition, predicted estimates, submission, start."""


def placement_model(user: AbstractBaseUser, *, kind: str, now: datetime) -> PlacementModel:
    """Return the model for one decision: waits of all placed jobs, runtimes of this user's kind of work."""
    base = _waits(int(now.timestamp() // _FRESH.total_seconds()))
    if not kind:
        return base
    runs = _runs(user, kind, base=base)
    if not runs:
        return base
    return replace(base, version=f"{base.version}+{kind[:8]}:{len(runs)}", runtimes={kind: runs})


@lru_cache(maxsize=2)
def _waits(tick: int) -> PlacementModel:
    """Return the model of waits; `tick` makes it at most half a minute old."""
    seen, limit_use = _started(Attempt.objects.all()), use_of_limits()
    if not seen:
        return PlacementModel(limit_use=limit_use) if limit_use else PlacementModel()
    model = PlacementModel(
        version=f"own-{len(seen)}@{tick}", p90_factors=p90_factors(_outcomes(seen)), limit_use=limit_use
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


def _runs(user: AbstractBaseUser, kind: str, *, base: PlacementModel) -> tuple[RuntimeSample, ...]:
    """Return this user's newest runs of a kind at reference speed, so that fast sites teach slow ones."""
    rows = (
        Attempt.objects.filter(
            task__user_id=user.pk,
            task__kind=kind,
            state=AttemptState.SUCCEEDED,
            started_at__isnull=False,
            ended_at__isnull=False,
        )
        .order_by("-id")
        .values_list("system__slug", "system__profile_id", "partition", "shape", "started_at", "ended_at")
    )
    samples = []
    for system, profile_id, partition, shape, started_at, ended_at in rows[:_RUNS]:
        if started_at is None or ended_at is None:
            continue
        accelerator = shape.get("gpu_type") if shape["gpus"] else None
        speed = base.speed_at(system, accelerator, declared=_declared_speed(profile_id, partition))
        ran_s = (ended_at - started_at).total_seconds()
        samples.append(RuntimeSample(runtime_s=ran_s * speed, gpus=shape["gpus"], cpus=shape["cpus"]))
    return tuple(samples)


def _declared_speed(profile_id: int | None, partition: str) -> Decimal:
    """Return the speed the profile in force declares; 1 where it says nothing, or no longer lists it."""
    if profile_id is None:
        return Decimal(1)
    declared = profile_of(profile_id).partitions.get(partition)
    return declared.speed if declared is not None else Decimal(1)
