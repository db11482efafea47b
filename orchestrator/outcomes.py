"""How runtimes and charges came out against predictions, as waits do in `placement/calibration`. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import log
from typing import Literal

Measure = Literal["wait", "runtime", "charge"]
MEASURES = ("wait", "runtime", "charge")
MINUTE_S = 60
_LEAST = {"wait": 1.0, "runtime": 1.0, "charge": 0.0001}
"""What less counts as, so that nothing is infinitely wrong."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One prediction and what came: seconds, or the site's own unit for a charge."""

    measure: Measure
    system: str
    partition: str
    basis: str
    """What a runtime rested on (declared, history, assumed); the class of a wait."""
    unit: str
    p50: float
    p90: float
    actual: float

    @property
    def ratio(self) -> float:
        """Return actual ÷ predicted."""
        least = _LEAST[self.measure]
        return max(self.actual, least) / max(self.p50, least)

    @property
    def is_within_twice(self) -> bool:
        """Return whether the larger of the two is at most twice the smaller."""
        return 0.5 <= self.ratio <= 2


@dataclass(frozen=True, slots=True)
class RunReliability:
    """How good predictions of one measure and basis at one partition were. Shares are of `n` outcomes."""

    measure: Measure
    system: str
    partition: str
    basis: str
    unit: str
    n: int
    within_minute_frac: float | None
    """None for charges, which are no times."""
    within_twice_frac: float
    mean_abs_log_error: float
    p90_coverage_frac: float


def run_reliability(outcomes: Iterable[Outcome]) -> list[RunReliability]:
    """Return how good the predictions were, by measure, system, partition and basis in the order of names."""
    keys: dict[tuple[Measure, str, str, str, str], list[Outcome]] = {}
    for each in outcomes:
        key = (each.measure, each.system, each.partition, each.basis, each.unit)
        keys.setdefault(key, []).append(each)
    return [
        RunReliability(
            *key,
            n=len(seen),
            within_minute_frac=None
            if key[0] == "charge"
            else sum(abs(each.actual - each.p50) <= MINUTE_S for each in seen) / len(seen),
            within_twice_frac=sum(each.is_within_twice for each in seen) / len(seen),
            mean_abs_log_error=sum(abs(log(each.ratio)) for each in seen) / len(seen),
            p90_coverage_frac=sum(each.actual <= each.p90 for each in seen) / len(seen),
        )
        for key, seen in sorted(keys.items())
    ]
