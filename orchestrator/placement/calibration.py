"""How well waits were predicted, and by how much a p90 must exceed its p50 to hold nine times of ten.

Ratios of actual to predicted waits decide, per system, partition and class of wait, because the classes fail
in different ways: `risky` waits are seconds or hours. Waits under a second count as one second.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, exp, log

from orchestrator.placement.model import P90_FACTORS
from orchestrator.placement.types import WaitClass

COVERAGE = 0.9
"""The share of outcomes that a p90 should hold."""
PRIOR_WEIGHT = 10
"""Outcomes that the prior factor of a class counts as."""
REMEMBERED = 100
"""Newest outcomes of one key that count."""
MINUTE_S = 60

FactorKey = tuple[str, str, WaitClass]


@dataclass(frozen=True, slots=True)
class WaitOutcome:
    """One own job that started: what was predicted for its wait and what it was, seconds."""

    system: str
    partition: str
    wait_class: WaitClass
    p50_s: float
    p90_s: float
    actual_s: float

    @property
    def ratio(self) -> float:
        """Return actual ÷ predicted wait."""
        return max(self.actual_s, 1.0) / max(self.p50_s, 1.0)

    @property
    def is_within_twice(self) -> bool:
        """Return whether the longer of the two waits is at most twice the shorter."""
        return 0.5 <= self.ratio <= 2


@dataclass(frozen=True, slots=True)
class Reliability:
    """How good the predicted waits of one class at one partition were. Shares are of `n` outcomes."""

    system: str
    partition: str
    wait_class: WaitClass
    n: int
    within_minute_frac: float
    """Actual and predicted wait at most 60 s apart."""
    within_twice_frac: float
    """The longer of the two at most twice the shorter."""
    mean_abs_log_error: float
    """Mean of |ln(actual ÷ predicted)|: 0 = exact, 0.69 = twice or half."""
    p90_coverage_frac: float
    """Actual wait not over the predicted p90; 0.9 is right, more is too careful."""


def conformal_quantile(ratios: Iterable[float], coverage: float = COVERAGE) -> float:
    """Return the smallest ratio that holds one more outcome with the given probability.

    That is the ⌈(n + 1) · coverage⌉-th smallest of n, the largest where there are too few.

    Raises:
        ValueError: there are no ratios.
    """
    ordered = sorted(ratios)
    if not ordered:
        raise ValueError("no ratios")
    # The product is rounded first: 10 · 0.9 must be 9, whatever binary fractions make of it.
    rank = ceil(round((len(ordered) + 1) * coverage, 9))
    return ordered[min(rank, len(ordered)) - 1]


def p90_factors(outcomes: Iterable[WaitOutcome]) -> dict[FactorKey, float]:
    """Return p90 ÷ p50 by system, partition and class, from outcomes in the order they happened.

    The conformal quantile of the newest ratios, drawn towards the prior of its class on a logarithmic scale,
    the prior counting as ten outcomes; never under 1.
    """
    ratios: dict[FactorKey, list[float]] = {}
    for each in outcomes:
        ratios.setdefault((each.system, each.partition, each.wait_class), []).append(each.ratio)
    factors = {}
    for key, seen in sorted(ratios.items()):
        newest = seen[-REMEMBERED:]
        learned, prior = log(conformal_quantile(newest)), log(P90_FACTORS[key[2]])
        weighed = (len(newest) * learned + PRIOR_WEIGHT * prior) / (len(newest) + PRIOR_WEIGHT)
        factors[key] = max(1.0, exp(weighed))
    return factors


def reliability(outcomes: Iterable[WaitOutcome]) -> list[Reliability]:
    """Return how good the predictions were, by system, partition and class in the order of their names."""
    keys: dict[FactorKey, list[WaitOutcome]] = {}
    for each in outcomes:
        keys.setdefault((each.system, each.partition, each.wait_class), []).append(each)
    return [_reliability(key, seen) for key, seen in sorted(keys.items())]


def _reliability(key: FactorKey, seen: list[WaitOutcome]) -> Reliability:
    n = len(seen)
    return Reliability(
        system=key[0],
        partition=key[1],
        wait_class=key[2],
        n=n,
        within_minute_frac=sum(abs(each.actual_s - each.p50_s) <= MINUTE_S for each in seen) / n,
        within_twice_frac=sum(each.is_within_twice for each in seen) / n,
        mean_abs_log_error=sum(abs(log(each.ratio)) for each in seen) / n,
        p90_coverage_frac=sum(each.actual_s <= each.p90_s for each in seen) / n,
    )
