"""What our own finished attempts taught, as the placement model."""

from datetime import datetime, timedelta
from functools import lru_cache

from django.contrib.auth.models import AbstractBaseUser

from orchestrator.lifecycle import AttemptState
from orchestrator.models import Attempt
from orchestrator.placement.model import PlacementModel, RuntimeSample

_WAITS = 400
"""Own started attempts that feed the start-latency table; older ones have decayed to nothing."""
_RUNS = 30
_FRESH = timedelta(seconds=30)


def placement_model(user: AbstractBaseUser, *, kind: str, now: datetime) -> PlacementModel:
    """Return the model for one decision: waits of all placed jobs, runtimes of this user's kind of work."""
    base = _latencies(int(now.timestamp() // _FRESH.total_seconds()))
    if not kind:
        return base
    runs = _runs(user, kind)
    if not runs:
        return base
    return PlacementModel(
        version=f"{base.version}+{kind[:8]}:{len(runs)}",
        latency=base.latency,
        hidden=base.hidden,
        runtimes={kind: runs},
    )


@lru_cache(maxsize=2)
def _latencies(tick: int) -> PlacementModel:
    """Return the model of waits; `tick` makes it at most half a minute old."""
    model = PlacementModel()
    rows = (
        Attempt.objects.filter(started_at__isnull=False, submitted_at__isnull=False, restarts=0)
        .order_by("-id")
        .values_list("system__slug", "partition", "predicted", "submitted_at", "started_at")[:_WAITS]
    )
    learned = list(rows)
    for system, partition, predicted, submitted_at, started_at in reversed(learned):
        basis = predicted.get("wait") or {}
        if basis.get("class") in ("certain", "risky"):
            key = (system, partition, bool(basis.get("somebody_ahead")), bool(basis.get("fits_now")))
            model = model.with_start(key, (started_at - submitted_at).total_seconds())
    return PlacementModel(
        version=f"own-{len(learned)}@{tick}" if learned else model.version,
        latency=model.latency,
        hidden=model.hidden,
    )


def _runs(user: AbstractBaseUser, kind: str) -> tuple[RuntimeSample, ...]:
    rows = (
        Attempt.objects.filter(
            task__user_id=user.pk,
            task__kind=kind,
            state=AttemptState.SUCCEEDED,
            started_at__isnull=False,
            ended_at__isnull=False,
        )
        .order_by("-id")
        .values_list("shape", "started_at", "ended_at")[:_RUNS]
    )
    return tuple(
        RuntimeSample(
            runtime_s=(ended_at - started_at).total_seconds(), gpus=shape["gpus"], cpus=shape["cpus"]
        )
        for shape, started_at, ended_at in rows
    )
