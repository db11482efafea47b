"""Reading what was predicted of attempts and what came, always for one user."""

from collections.abc import Iterator
from decimal import Decimal

from django.contrib.auth.models import AbstractBaseUser

from orchestrator.budget_selectors import charge_at
from orchestrator.lifecycle import AttemptState
from orchestrator.models import Attempt
from orchestrator.outcomes import Outcome, RunReliability, run_reliability
from orchestrator.shown import OutcomeShown

_RUNS = 400
"""Newest runs that count."""


def run_calibration(user: AbstractBaseUser) -> list[RunReliability]:
    """Return how good the runtimes and charges predicted for this user's newest runs were."""
    rows = (
        Attempt.objects.filter(
            task__user_id=user.pk, state=AttemptState.SUCCEEDED, restarts=0, started_at__isnull=False
        )
        .select_related("system")
        .only(
            *("system__slug", "partition", "predicted", "shape", "started_at", "ended_at", "charge_cost"),
            *("submitted_at", "state", "restarts"),
        )
        .order_by("-id")[:_RUNS]
    )
    return run_reliability(outcome for row in rows for outcome in _of_run(row))


def _of_run(attempt: Attempt) -> Iterator[Outcome]:
    """Yield what came of a run that ended well; what was ended before its time tells nothing of it."""
    predicted = attempt.predicted
    if attempt.state != AttemptState.SUCCEEDED or attempt.restarts or "runtime_p90_s" not in predicted:
        return
    if attempt.started_at is None or attempt.ended_at is None:
        return
    basis = predicted.get("runtime_source", "assumed")
    p50_s, p90_s = int(predicted["runtime_s"]), int(predicted["runtime_p90_s"])
    ran_s = max(0.0, (attempt.ended_at - attempt.started_at).total_seconds())
    where = (attempt.system.slug, attempt.partition, basis)
    yield Outcome("runtime", *where, unit="s", p50=p50_s, p90=p90_s, actual=ran_s)
    charge = predicted.get("charge") or {}
    if charge.get("unit") and attempt.charge_cost is not None:
        most, walltime_s = Decimal(str(charge["amount"])), attempt.shape["walltime_s"]
        p50, p90 = (float(charge_at(most, seconds, walltime_s)) for seconds in (p50_s, p90_s))
        cost = float(attempt.charge_cost)
        yield Outcome("charge", *where, unit=charge["unit"], p50=p50, p90=p90, actual=cost)


def outcomes_of(attempt: Attempt) -> list[OutcomeShown]:
    """Return what was predicted of an attempt's runtime and charge, and what came of it."""
    predicted = attempt.predicted
    if "runtime_p90_s" not in predicted:
        return []
    came: dict[str, Outcome] = {each.measure: each for each in _of_run(attempt)}
    walltime_s = attempt.shape["walltime_s"]
    expected = [("runtime", "s", float(predicted["runtime_s"]), float(predicted["runtime_p90_s"]))]
    charge = predicted.get("charge") or {}
    if charge.get("unit"):
        most = Decimal(str(charge["amount"]))
        p50, p90 = (
            float(charge_at(most, predicted[name], walltime_s)) for name in ("runtime_s", "runtime_p90_s")
        )
        expected.append(("charge", charge["unit"], p50, p90))
    return [
        OutcomeShown(
            measure=measure,
            unit=unit,
            p50=p50,
            p90=p90,
            actual=came[measure].actual if measure in came else None,
            within_2x=came[measure].is_within_twice if measure in came else None,
        )
        for measure, unit, p50, p90 in expected
    ]
