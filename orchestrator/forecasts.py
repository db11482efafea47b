"""How predictions came out, as their owner sees it."""

from orchestrator.experience import outcome_of
from orchestrator.models import Attempt
from orchestrator.outcomes import RunReliability
from orchestrator.placement.calibration import Reliability
from orchestrator.shown import CalibrationShown, ForecastShown


def show_calibration(found: Reliability) -> CalibrationShown:
    """Return a reliability as the outside sees it, rounded to what a handful of outcomes can tell."""
    return CalibrationShown(
        measure="wait",
        system=found.system,
        partition=found.partition,
        wait_class=found.wait_class,
        basis=None,
        unit="s",
        n=found.n,
        within_1min=round(found.within_minute_frac, 3),
        within_2x=round(found.within_twice_frac, 3),
        log_error=round(found.mean_abs_log_error, 3),
        p90_coverage=round(found.p90_coverage_frac, 3),
    )


def show_run_calibration(found: RunReliability) -> CalibrationShown:
    """Return a reliability of runtimes or charges as the outside sees it."""
    minute = found.within_minute_frac
    return CalibrationShown(
        measure=found.measure,
        system=found.system,
        partition=found.partition,
        wait_class=None,
        basis=found.basis,
        unit=found.unit,
        n=found.n,
        within_1min=None if minute is None else round(minute, 3),
        within_2x=round(found.within_twice_frac, 3),
        log_error=round(found.mean_abs_log_error, 3),
        p90_coverage=round(found.p90_coverage_frac, 3),
    )


def forecast_of(attempt: Attempt) -> ForecastShown | None:
    """Return what was predicted of an attempt's wait and what came; None where nothing was predicted."""
    predicted = attempt.predicted
    if "wait" not in predicted or "wait_s" not in predicted:
        return None
    outcome = outcome_of(attempt)
    return ForecastShown(
        wait_class=predicted["wait"]["class"],
        p50_s=predicted["wait_s"]["p50"],
        p90_s=predicted["wait_s"]["p90"],
        actual_s=round(outcome.actual_s) if outcome is not None else None,
        within_2x=outcome.is_within_twice if outcome is not None else None,
    )
