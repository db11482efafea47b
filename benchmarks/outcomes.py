"""What became of each policy's choices, as the table of the published study: one row per policy.

Additional completion = completion of the chosen copy minus that of the fastest copy of the same round.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from random import Random
from statistics import fmean, median

NEAR_S = 5
RESAMPLES = 1000


@dataclass(frozen=True, slots=True)
class Outcome:
    """One policy in one round, seconds. `best_s`: completion of the fastest copy."""

    wait_s: int
    completion_s: int
    best_s: int

    @property
    def additional_s(self) -> int:
        """Return the completion lost against the fastest copy."""
        return self.completion_s - self.best_s


def quantile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that so large a share does not exceed."""
    return sorted(values)[max(0, ceil(len(values) * share) - 1)]


def interval(
    values: Sequence[float], figure: Callable[[Sequence[float]], float], *, seed: int = 1
) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of a figure of the values."""
    random = Random(seed)
    drawn = sorted(figure(random.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return drawn[int(RESAMPLES * 0.025)], drawn[int(RESAMPLES * 0.975)]


HEADER = (
    "policy                          fastest (<=5 s)  med C  mean C  mean wait  med add  "
    "mean add [95 %]            p95 add [95 %]             p99 add"
)


def row(name: str, outcomes: Sequence[Outcome]) -> str:
    """Return one row of the table."""
    added = [float(each.additional_s) for each in outcomes]
    exact = fmean(each.additional_s == 0 for each in outcomes)
    near = fmean(each.additional_s <= NEAR_S for each in outcomes)
    low, high = interval(added, fmean)
    low95, high95 = interval(added, lambda values: quantile(values, 0.95))
    mean_text = f"{fmean(added):.0f} [{low:.0f}-{high:.0f}]"
    p95_text = f"{quantile(added, 0.95):.0f} [{low95:.0f}-{high95:.0f}]"
    completions = [each.completion_s for each in outcomes]
    wait_s = fmean(each.wait_s for each in outcomes)
    return (
        f"{name:<32}{exact:5.0%} ({near:5.1%})  {median(completions):7.0f}"
        f" {fmean(completions):7.0f} {wait_s:10.0f}"
        f" {median(added):8.0f}  {mean_text:<25}  {p95_text:<25}  {quantile(added, 0.99):7.0f}"
    )


def compare(mine: Sequence[Outcome], theirs: Sequence[Outcome]) -> tuple[float, float]:
    """Return the shares of rounds in which mine ended more than five seconds earlier, and later."""
    pairs = list(zip(mine, theirs, strict=True))
    better = fmean(a.completion_s < b.completion_s - NEAR_S for a, b in pairs)
    worse = fmean(a.completion_s > b.completion_s + NEAR_S for a, b in pairs)
    return better, worse
