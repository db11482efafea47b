"""Reliability figures and p90 factors from predicted and actual waits, to the digit."""

from dataclasses import replace
from math import exp, log

import pytest

from orchestrator.placement.calibration import (
    Reliability,
    WaitOutcome,
    conformal_quantile,
    p90_factors,
    reliability,
)
from orchestrator.placement.model import P90_FACTORS, PlacementModel
from orchestrator.placement.types import WaitClass

KEY = ("delta", "gpu", WaitClass.PLANNED)


def outcome(actual_s: float, *, p50_s: float = 100, p90_s: float = 150, place: str = "gpu") -> WaitOutcome:
    return WaitOutcome("delta", place, WaitClass.PLANNED, p50_s, p90_s, actual_s)


def test_the_conformal_quantile_of_nineteen_is_the_eighteenth() -> None:
    assert conformal_quantile(range(1, 20)) == 18


def test_the_conformal_quantile_of_nine_is_the_largest_and_of_fewer_too() -> None:
    assert conformal_quantile(range(1, 10)) == 9
    assert conformal_quantile([7.0]) == 7.0


def test_the_conformal_quantile_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no ratios"):
        conformal_quantile([])


def test_ten_outcomes_weigh_as_much_as_the_prior() -> None:
    factors = p90_factors([outcome(600)] * 10)

    assert factors == {KEY: pytest.approx(exp((log(6) + log(P90_FACTORS[WaitClass.PLANNED])) / 2))}


def test_many_outcomes_outweigh_the_prior() -> None:
    spread = [outcome(10 * share) for share in range(1, 101)]

    assert p90_factors(spread)[KEY] == pytest.approx(exp((100 * log(9.1) + 10 * log(1.5)) / 110))


def test_only_the_newest_hundred_count() -> None:
    assert p90_factors([outcome(90_000)] * 50 + [outcome(200)] * 100) == p90_factors([outcome(200)] * 100)


def test_waits_that_were_overestimated_never_bring_the_factor_under_one() -> None:
    assert p90_factors([outcome(0)] * 100)[KEY] == 1.0


def test_a_wait_predicted_under_a_second_counts_as_one() -> None:
    assert outcome(0, p50_s=0).ratio == 1.0
    assert outcome(3, p50_s=0).ratio == 3.0


def test_each_class_and_partition_learns_for_itself() -> None:
    risky = WaitOutcome("delta", "gpu", WaitClass.RISKY, 40, 1800, 40)

    assert list(p90_factors([outcome(600, place="a"), outcome(50, place="b"), risky])) == [
        ("delta", "a", WaitClass.PLANNED),
        ("delta", "b", WaitClass.PLANNED),
        ("delta", "gpu", WaitClass.RISKY),
    ]


def test_the_model_uses_the_recalibrated_factor() -> None:
    model = PlacementModel(p90_factors=p90_factors([outcome(600)] * 10))

    assert model.p90_factor(*KEY) == pytest.approx(3.0)
    assert model.p90_factor("delta", "cpu", WaitClass.PLANNED) == 1.5


def test_reliability_counts_what_it_says() -> None:
    seen = [outcome(100), outcome(160), outcome(161), outcome(250), outcome(40)]

    (found,) = reliability(seen)

    assert found.mean_abs_log_error == pytest.approx((log(1.6) + log(1.61) + log(2.5) + log(2.5)) / 5)
    assert replace(found, mean_abs_log_error=0) == Reliability(
        system="delta",
        partition="gpu",
        wait_class=WaitClass.PLANNED,
        n=5,
        within_minute_frac=3 / 5,
        within_twice_frac=3 / 5,
        mean_abs_log_error=0,
        p90_coverage_frac=2 / 5,
    )


def test_reliability_is_told_place_by_place_in_order() -> None:
    assert [(each.partition, each.n) for each in reliability([outcome(1, place=p) for p in "bab"])] == [
        ("a", 1),
        ("b", 2),
    ]


def test_each_class_of_wait_is_told_apart() -> None:
    seen = [outcome(100), replace(outcome(3), wait_class=WaitClass.CERTAIN), outcome(90)]

    assert [(each.wait_class, each.n, each.within_twice_frac) for each in reliability(seen)] == [
        (WaitClass.CERTAIN, 1, 0.0),
        (WaitClass.PLANNED, 2, 1.0),
    ]


def test_nothing_seen_has_no_reliability() -> None:
    assert reliability([]) == []
    assert p90_factors([]) == {}
