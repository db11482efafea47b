"""What our own finished runs teach of speeds and of preparing environments. Pure.

Speeds: the same kind of work at several places tells how their accelerators compare. Each run's runtime is
that of its kind ÷ the speed of its place; both are fitted together, on logarithms, and a place is drawn to
its default by as many runs as the model's prior counts. Medians of different work are never compared.

Preparation: the first run of an environment at a system against the next ones of the same work and size.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import exp, log
from statistics import fmean, median

from orchestrator.placement.model import (
    DEFAULT_SERIAL_FRACTION,
    SPEED_PRIOR_WEIGHT,
    SpeedSample,
    any_like,
)

REMEMBERED_PREPARATIONS = 9
"""Newest measured preparations of one key that count."""
MOST_OF_A_KIND = 10
"""Runs of one kind at one place count no more than this: one campaign is no crowd of witnesses."""
_ROUNDS = 30
"""Of fitting; it converges in a handful."""

Place = tuple[str, str]
"""System and accelerator ("cpu" where none)."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of ours that succeeded."""

    user: int
    kind: str
    environment: str | None
    """What had to be ready for it (`environments.environment_of`), None = nothing."""
    system: str
    accelerator: str | None
    default_speed: float
    """Of its partition, before anything was learned."""
    gpus: int
    cpus: int
    runtime_s: float
    ended_at: datetime
    is_first_use: bool = False
    """It was its user's first of this environment there, of all there ever were."""

    @property
    def place(self) -> Place:
        """Return where it ran, as speeds are kept."""
        return self.system, self.accelerator or "cpu"

    @property
    def one_unit_s(self) -> float:
        """Return the runtime brought to one GPU or CPU."""
        share = DEFAULT_SERIAL_FRACTION + (1 - DEFAULT_SERIAL_FRACTION) / max(self.gpus or self.cpus, 1)
        return max(self.runtime_s, 1.0) / share


def first_uses(runs: Iterable[Run]) -> frozenset[Run]:
    """Return the runs that were a user's first of an environment at a system: they had to prepare it."""
    return frozenset(run for run in runs if run.is_first_use)


def learned_speeds(runs: Sequence[Run]) -> dict[Place, SpeedSample]:
    """Return the speed of each place that shares a kind of work with another, and how many runs tell it."""
    cells: dict[tuple[str, Place], list[Run]] = {}
    skipped = first_uses(runs)
    for run in runs:
        if run not in skipped:
            cells.setdefault((run.kind, run.place), []).append(run)
    places_of: dict[str, set[Place]] = {}
    for kind, place in cells:
        places_of.setdefault(kind, set()).add(place)
    told = {
        key: (
            median(log(run.one_unit_s * run.default_speed) for run in seen),
            min(len(seen), MOST_OF_A_KIND),
        )
        for key, seen in sorted(cells.items())
        if len(places_of[key[0]]) > 1
    }
    faster = _fitted(told)
    defaults: dict[Place, list[float]] = {}
    for (kind, place), seen in cells.items():
        if (kind, place) in told:
            defaults.setdefault(place, []).extend(log(run.default_speed) for run in seen)
    return {
        place: SpeedSample(speed=exp(fmean(defaults[place]) + deviation), runs=weight)
        for place, (deviation, weight) in faster.items()
    }


def _fitted(told: Mapping[tuple[str, Place], tuple[float, int]]) -> dict[Place, tuple[float, int]]:
    """Return how much faster than its default each place is (a logarithm, not drawn to it yet), and its runs.

    Kinds and places are fitted in turn; while that goes on places are drawn to their defaults, so that only
    differences which many runs agree on are taken for a place's own.
    """
    drawn = {place: 0.0 for _, place in told}
    kinds: dict[str, float] = {}
    for _ in range(_ROUNDS):
        for kind in {kind for kind, _ in told}:
            own = [(seen + drawn[place], weight) for (k, place), (seen, weight) in told.items() if k == kind]
            kinds[kind] = sum(value * weight for value, weight in own) / sum(weight for _, weight in own)
        for place in drawn:
            gained, runs = _gain(told, kinds, place)
            drawn[place] = gained / (runs + SPEED_PRIOR_WEIGHT)
    found = {place: _gain(told, kinds, place) for place in drawn}
    return {place: (gained / runs, runs) for place, (gained, runs) in found.items()}


def _gain(
    told: Mapping[tuple[str, Place], tuple[float, int]], kinds: Mapping[str, float], place: Place
) -> tuple[float, int]:
    """Return the sum of a place's gains over what its kinds of work take, and the runs that tell."""
    own = [(kinds[kind] - seen, weight) for (kind, at), (seen, weight) in told.items() if at == place]
    return sum(value * weight for value, weight in own), sum(weight for _, weight in own)


def measured_preparations(runs: Sequence[Run]) -> dict[tuple[str, str], tuple[float, ...]]:
    """Return what preparing took, by system and environment, and by system for any of the same kind.

    A first run's excess over the median of the later ones of the same user, work and size there; none where
    there is no later one. Nothing is negative.
    """
    found: dict[tuple[str, str], list[float]] = {}
    for first in sorted(first_uses(runs), key=lambda run: (run.ended_at, run.system, run.environment or "")):
        later = [run.runtime_s for run in runs if run is not first and _is_same_again(run, first)]
        if later and first.environment is not None:
            took_s = max(0.0, first.runtime_s - median(later))
            for environment in (first.environment, any_like(first.environment)):
                found.setdefault((first.system, environment), []).append(took_s)
    return {key: tuple(took[-REMEMBERED_PREPARATIONS:]) for key, took in found.items()}


def _is_same_again(run: Run, first: Run) -> bool:
    return (run.user, run.kind, run.environment, run.place, run.gpus, run.cpus) == (
        first.user,
        first.kind,
        first.environment,
        first.place,
        first.gpus,
        first.cpus,
    ) and run.ended_at > first.ended_at
