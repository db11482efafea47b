"""What experience taught: start latencies, runtimes, speeds, preparation and transfer rates, as one value.

An empty model is a good start: its priors alone came close to the learned tables in the study of placement
policies. Only our own placed jobs feed it, because other users' jobs wait for reasons that are not ours.
Durations are seconds, rates MiB/s.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from statistics import median

from federation.limit_use import UseOfLimits
from orchestrator.placement.types import WaitClass

HALF_LIFE = 40
"""Observations after which an old one counts half."""
DECAY = 0.5 ** (1 / HALF_LIFE)
PRIOR_WEIGHT = 4
MAX_LEARNED_WAIT_S = 3600
NOBODY_AHEAD_S = 5
SOMEBODY_AHEAD_S = 40
HIDDEN_PRIORS_S = (5400, 300, 40, 10)
"""By free slots of the request's size: 0, 1-2, 3-7, 8 and more."""
DEFAULT_SERIAL_FRACTION = 0.05
ASSUMED_WALLTIME_FRAC = 0.5
"""Share of the wall time a run is taken to last when nothing better is known."""
MIN_HISTORY = 3
SPEED_PRIOR_WEIGHT = 4
SLOWEST = 0.01
"""No speed is taken to be lower, whatever was measured: runtimes are divided by it."""
DEFAULT_RATE_MIB_S = 100.0
ANY_ENVIRONMENT = ""
"""Stands for every image of a system, where the one asked for was never prepared there."""
KINDS_OF_ENVIRONMENT = ("build:", "modules:")
"""What is built or loaded is named by a digest after one of these; the bare word stands for all of its kind.
All else are images."""

GPU_SPEEDS: Mapping[str, float] = {
    "v100": 0.5,
    "a40": 0.6,
    "a100": 1.0,
    "mi250x": 1.0,
    "mi300a": 1.8,
    "mi300x": 1.9,
    "h100": 1.9,
    "h200": 2.1,
    "gh200": 2.0,
    "b200": 3.0,
}
"""Speed relative to an A100 until own runs say better; round figures of the vendors' training claims."""

P90_FACTORS: Mapping[WaitClass, float] = {
    WaitClass.CERTAIN: 6.0,
    WaitClass.RISKY: 45.0,
    WaitClass.PLANNED: 1.5,
    WaitClass.HIDDEN: 4.0,
}
"""p90 ÷ p50 until residuals say better. `risky` is bimodal: median half a minute, tail of hours."""

LatencyKey = tuple[str, str, bool, bool]
"""System, partition, somebody eligible ahead, fits the free slots."""
HiddenKey = tuple[str, str, int]
"""System, partition, class of free slots (index into `HIDDEN_PRIORS_S`)."""


@dataclass(frozen=True, slots=True)
class DecayedSum:
    """An exponentially weighted sum of waits and its weight."""

    total_s: float = 0.0
    weight: float = 0.0

    def with_wait(self, wait_s: float) -> "DecayedSum":
        """Return the sum after one more own wait; waits are capped so that one disaster does not rule."""
        capped = min(max(wait_s, 0.0), MAX_LEARNED_WAIT_S)
        return DecayedSum(total_s=self.total_s * DECAY + capped, weight=self.weight * DECAY + 1)

    def mean_with_prior(self, prior_s: float) -> float:
        """Return the mean, pulled towards a prior that counts as four observations."""
        return (self.total_s + PRIOR_WEIGHT * prior_s) / (self.weight + PRIOR_WEIGHT)


@dataclass(frozen=True, slots=True)
class RuntimeSample:
    """One finished run of a kind of work: its size and its runtime at reference speed (runtime × speed)."""

    runtime_s: float
    gpus: int
    cpus: int


@dataclass(frozen=True, slots=True)
class SpeedSample:
    """A measured speed of one accelerator at one system relative to the reference, from `runs` runs."""

    speed: float
    runs: int


@dataclass(frozen=True, slots=True)
class PlacementModel:
    """Everything placement learned; tables not filled fall back to the priors above."""

    version: str = "priors-1"
    latency: Mapping[LatencyKey, DecayedSum] = field(default_factory=dict)
    hidden: Mapping[HiddenKey, DecayedSum] = field(default_factory=dict)
    p90_factors: Mapping[tuple[str, str, WaitClass], float] = field(default_factory=dict)
    """Recalibrated p90 ÷ p50 by system, partition and class."""
    limit_use: UseOfLimits = field(default_factory=UseOfLimits)
    """Which share of their time limits finished jobs used."""
    runtimes: Mapping[str, tuple[RuntimeSample, ...]] = field(default_factory=dict)
    """By kind of work."""
    speeds: Mapping[tuple[str, str], SpeedSample] = field(default_factory=dict)
    """By system and accelerator ("cpu" where none)."""
    environments: Mapping[tuple[str, str], bool] = field(default_factory=dict)
    """Whether an environment is present, by system and environment; absent key = not known."""
    preparations: Mapping[tuple[str, str], tuple[float, ...]] = field(default_factory=dict)
    """Measured preparation times by system and environment (`any_like`: all of one kind)."""
    pair_rates: Mapping[tuple[str, str], tuple[float, ...]] = field(default_factory=dict)
    """Last transfer rates by source collection and system."""
    overlaps_transfers: bool = False
    """Whether stage-in runs while the job waits; else it comes before the submission."""

    def start_latency_s(self, key: LatencyKey) -> float:
        """Return the expected wait of a job that the plan starts at once."""
        ahead, fits = key[2], key[3]
        prior = SOMEBODY_AHEAD_S if ahead else NOBODY_AHEAD_S
        alike = [seen for other, seen in self.latency.items() if other[2] == ahead and other[3] == fits]
        everywhere = DecayedSum(sum(s.total_s for s in alike), sum(s.weight for s in alike))
        return self.latency.get(key, DecayedSum()).mean_with_prior(everywhere.mean_with_prior(prior))

    def hidden_wait_s(self, system: str, partition: str, slots: int) -> float:
        """Return the expected wait where the queue is hidden, from free slots and own outcomes."""
        size_class = slots_class(slots)
        seen = self.hidden.get((system, partition, size_class), DecayedSum())
        return seen.mean_with_prior(HIDDEN_PRIORS_S[size_class])

    def with_start(self, key: LatencyKey, wait_s: float) -> "PlacementModel":
        """Return the model after one own job started `wait_s` after its submission."""
        seen = self.latency.get(key, DecayedSum()).with_wait(wait_s)
        return replace(self, latency={**self.latency, key: seen})

    def with_hidden_start(self, system: str, partition: str, slots: int, wait_s: float) -> "PlacementModel":
        """Return the model after one own job started in a hidden queue that showed `slots` free slots."""
        key = (system, partition, slots_class(slots))
        seen = self.hidden.get(key, DecayedSum()).with_wait(wait_s)
        return replace(self, hidden={**self.hidden, key: seen})

    def p90_factor(self, system: str, partition: str, wait_class: WaitClass) -> float:
        """Return p90 ÷ p50 of waits of a class at a partition; never under 1."""
        return max(1.0, self.p90_factors.get((system, partition, wait_class), P90_FACTORS[wait_class]))

    def speed(self, system: str, accelerator: str | None, *, default: float | None = None) -> float:
        """Return how much faster than the reference a run is, shrunk to the accelerator's default.

        `default` is the site profile's own factor; None falls back to the table of accelerators.
        """
        kind = accelerator or "cpu"
        expected = default if default is not None else GPU_SPEEDS.get(kind, 1.0)
        seen = self.speeds.get((system, kind))
        if seen is None:
            return expected
        weight = seen.runs + SPEED_PRIOR_WEIGHT
        return (seen.speed * seen.runs + expected * SPEED_PRIOR_WEIGHT) / weight

    def speed_at(self, system: str, accelerator: str | None, *, declared: Decimal) -> float:
        """Return the speed of one partition's accelerator; a declared 1 is the profile saying nothing."""
        default = None if declared == 1 else float(declared)
        return max(self.speed(system, accelerator, default=default), SLOWEST)

    def preparation_s(self, system: str, environment: str) -> float | None:
        """Return the median measured time to prepare an environment, else any there; None = unknown."""
        for name in (environment, any_like(environment)):
            if measured := self.preparations.get((system, name)):
                return median(measured)
        return None

    def transfer_rate_mib_s(self, collection: str, system: str) -> float | None:
        """Return the median of the last five rates of a pair, None when it was never used."""
        rates = self.pair_rates.get((collection, system), ())[-5:]
        return median(rates) if rates else None


def any_like(environment: str) -> str:
    """Return the word for every environment of the same kind: fetched, built or loaded."""
    return next((kind for kind in KINDS_OF_ENVIRONMENT if environment.startswith(kind)), ANY_ENVIRONMENT)


def slots_class(slots: int) -> int:
    """Return the class of a number of free slots: none, few, some, many."""
    return 0 if slots < 1 else 1 if slots < 3 else 2 if slots < 8 else 3
