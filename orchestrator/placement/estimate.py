"""How long a candidate shape takes from submission to its end: transfer, wait, preparation, runtime.

Every figure is whole seconds. p50 is what choices are made on; p90 is what nine of ten stay under, widened
with the age of the snapshot.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, log, sqrt
from statistics import median
from typing import Literal

from federation.types import ResourceRecord
from orchestrator.envelope.types import Envelope, ScalingPoint
from orchestrator.environments import environment_of
from orchestrator.placement.capacity import Layout
from orchestrator.placement.model import (
    ANY_ENVIRONMENT,
    ASSUMED_WALLTIME_FRAC,
    DEFAULT_RATE_MIB_S,
    DEFAULT_SERIAL_FRACTION,
    MIN_HISTORY,
    PlacementModel,
    any_like,
)
from orchestrator.placement.plan import Forecast
from orchestrator.placement.types import Charge, Estimates, Quantiles, WaitBasis, WaitClass

PLANNED_NOW_S = 30
"""A planned start within this is now: the scheduler's own latency decides."""
AGE_DOUBLES_P90_S = 720
"""A snapshot this old doubles the p90 of a wait (180 s cost a quarter in the study of policies)."""
RUNTIME_P90 = {"declared": 1.2, "history": 1.3, "assumed": 1.0 / ASSUMED_WALLTIME_FRAC}
"""p90 ÷ p50 of runtimes by what they rest on; never over the wall time, where the job is ended."""
MIB = 1 << 20

RuntimeSource = Literal["declared", "history", "assumed"]


@dataclass(frozen=True, slots=True)
class Work:
    """What is known of the work beyond its envelope."""

    kind: str | None = None
    """For its history."""
    environment: str | None = None
    """What must be ready for it, as `environments.environment_of` names it."""


def wait_for(
    record: ResourceRecord, forecast: Forecast, *, model: PlacementModel, age_s: int
) -> tuple[Quantiles, WaitBasis]:
    """Return the wait from the scheduler's first look to the start, and what it rests on."""
    place = (record.system, record.partition)
    limits_s, means_s = forecast.limits_s, forecast.means_s
    floor_s = 0
    if limits_s is None or means_s is None:
        wait_class = WaitClass.HIDDEN
        p50 = model.hidden_wait_s(*place, forecast.free_slots)
    elif min(limits_s, means_s) < PLANNED_NOW_S:
        wait_class = WaitClass.RISKY if forecast.somebody_ahead else WaitClass.CERTAIN
        p50 = model.start_latency_s((*place, forecast.somebody_ahead, forecast.fits_now))
    else:
        wait_class = WaitClass.PLANNED
        p50 = sqrt(max(limits_s, 1) * max(means_s, 1))
    if limits_s is not None and means_s is not None:
        floor_s = max(limits_s, means_s)
    widened = 1 + age_s / AGE_DOUBLES_P90_S
    p90 = max(p50 * model.p90_factor(*place, wait_class), floor_s) * widened
    basis = WaitBasis.made(
        wait_class=wait_class,
        plan_limits_s=limits_s,
        plan_means_s=means_s,
        somebody_ahead=forecast.somebody_ahead if limits_s is not None else None,
        fits_now=forecast.fits_now,
        free_slots=forecast.free_slots,
        snapshot_age_s=age_s,
    )
    return Quantiles.made(p50=ceil(p50), p90=ceil(p90)), basis


def runtime_for(
    envelope: Envelope, layout: Layout, record: ResourceRecord, *, model: PlacementModel, work: Work
) -> tuple[int, int, RuntimeSource]:
    """Return p50 and p90 of the runtime of a layout, and whether it was declared, learned or assumed."""
    speed = _speed(envelope, layout, record, model)
    declared = declared_runtime_s(envelope, layout)
    source: RuntimeSource = "declared"
    if declared is not None:
        p50 = declared / speed
    elif (learned := _learned_runtime_s(envelope, layout, model, work)) is not None:
        source = "history"
        p50 = learned / _own_speed(layout, record, model)
    else:
        source = "assumed"
        base_s = ASSUMED_WALLTIME_FRAC * envelope.walltime_s.max
        p50 = min(base_s * _amdahl(envelope, layout) / speed, layout.walltime_s)
    p90 = max(p50, min(p50 * RUNTIME_P90[source], layout.walltime_s))
    return ceil(p50), ceil(p90), source


def declared_runtime_s(envelope: Envelope, layout: Layout) -> float | None:
    """Return the declared runtime at the layout's size on the reference accelerator, None if none was."""
    runtime = envelope.runtime
    if runtime is None:
        return None
    if runtime.scaling is not None and runtime.scaling.points:
        return _from_points(runtime.scaling.points, layout)
    if runtime.estimate_s is None:
        return None
    return runtime.estimate_s * _amdahl(envelope, layout)


def _amdahl(envelope: Envelope, layout: Layout) -> float:
    """Return runtime at the layout's size ÷ runtime at the reference size: s + (1 - s) · reference ÷ size.

    The reference is the declared one, else the envelope's minimum. Size is what varies: GPUs, else CPUs.
    """
    runtime = envelope.runtime
    at = runtime.at if runtime is not None else None
    scaling = runtime.scaling if runtime is not None else None
    serial = DEFAULT_SERIAL_FRACTION
    if scaling is not None and scaling.serial_fraction is not None:
        serial = scaling.serial_fraction
    if layout.gpus and (envelope.gpus.max > 1 or (at is not None and at.gpus)):
        reference, size = (at.gpus if at is not None else None) or envelope.gpus.min or 1, layout.gpus
    elif at is not None and at.nodes and not at.cpus:
        reference, size = at.nodes, layout.nodes
    else:
        reference, size = (at.cpus if at is not None else None) or envelope.cpus.min or 1, layout.cpus
    return serial + (1 - serial) * reference / max(size, 1)


def _from_points(points: Sequence[ScalingPoint], layout: Layout) -> float:
    """Return the runtime at the layout's size: straight lines between points on logarithmic scales.

    Under the smallest point runtime grows in proportion; over the largest nothing more is gained.
    """
    known = sorted((p.gpus or p.cpus or 1, max(p.runtime_s, 1)) for p in points)
    size = layout.gpus if points[0].gpus is not None else layout.cpus
    size = max(size, 1)
    if size <= known[0][0]:
        return known[0][1] * known[0][0] / size
    for (left, left_s), (right, right_s) in pairwise(known):
        if left <= size <= right and left < right:
            share = log(size / left) / log(right / left)
            return float(left_s * (right_s / left_s) ** share)
    return known[-1][1]


def _learned_runtime_s(envelope: Envelope, layout: Layout, model: PlacementModel, work: Work) -> float | None:
    """Return the median of the kind's runs, each brought to this size; None with fewer than three."""
    samples = model.runtimes.get(work.kind, ()) if work.kind is not None else ()
    if len(samples) < MIN_HISTORY:
        return None
    serial = DEFAULT_SERIAL_FRACTION
    scaling = envelope.runtime.scaling if envelope.runtime is not None else None
    if scaling is not None and scaling.serial_fraction is not None:
        serial = scaling.serial_fraction
    brought = []
    for sample in samples:
        reference, size = (
            (sample.gpus, layout.gpus) if layout.gpus and sample.gpus else (sample.cpus, layout.cpus)
        )
        brought.append(sample.runtime_s * (serial + (1 - serial) * reference / max(size, 1)))
    return median(brought)


def _own_speed(layout: Layout, record: ResourceRecord, model: PlacementModel) -> float:
    """Return the speed of the layout's nodes here relative to the reference accelerator."""
    gpu_type = layout.smallest_kind.gpu_type if layout.gpus else None
    return model.speed_at(record.system, gpu_type, declared=record.speed)


def _speed(envelope: Envelope, layout: Layout, record: ResourceRecord, model: PlacementModel) -> float:
    """Return the speed relative to what the declaration was made for: the first accelerator it names."""
    own = _own_speed(layout, record, model)
    named = envelope.accelerator.types if envelope.accelerator is not None and layout.gpus else ()
    return own / model.speed("", named[0]) if named else own


def preparation_for(envelope: Envelope, record: ResourceRecord, *, model: PlacementModel, work: Work) -> int:
    """Return the time to prepare the environment: none where present, half of it where not known.

    Measured there for this environment, else for any of its kind; for images the profile's word last.
    """
    environment = work.environment
    if environment is None and envelope.container is not None:
        environment = environment_of(None, envelope.container.image)
    if environment is None:
        return 0
    known = model.environments.get((record.system, environment))
    if known is True:
        return 0
    measured = model.preparation_s(record.system, environment)
    is_image = any_like(environment) == ANY_ENVIRONMENT
    stated = float(record.preparation_s or 0) if is_image else 0.0
    typical = stated if measured is None else measured
    return ceil(typical if known is False else typical / 2)


def transfer_for(envelope: Envelope, record: ResourceRecord, *, model: PlacementModel) -> int:
    """Return the time to bring inputs that are not here; inputs of unknown size count as nothing.

    Rates: measured for the pair, else the record's own, else 100 MiB/s. Paths of the site itself
    (`file:///…`) are moved only where a rate is known.
    """
    seconds = 0.0
    for ref in envelope.data.inputs:
        if ref.uri in record.held_uris or not ref.bytes:
            continue
        scheme, _, rest = ref.uri.partition("://")
        own = None if record.transfer_rate_mib_s is None else float(record.transfer_rate_mib_s)
        rate = model.transfer_rate_mib_s(rest.partition("/")[0], record.system) or own
        if rate is None and scheme == "file":
            continue
        seconds += ref.bytes / MIB / (rate or DEFAULT_RATE_MIB_S)
    return ceil(seconds)


@dataclass(frozen=True, slots=True)
class RecordTimes:
    """What every shape of one record shares."""

    preparation_s: int
    transfer_s: int
    age_s: int


def record_times(
    envelope: Envelope, record: ResourceRecord, *, model: PlacementModel, work: Work, age_s: int
) -> RecordTimes:
    """Return the times that do not depend on the shape."""
    return RecordTimes(
        preparation_s=preparation_for(envelope, record, model=model, work=work),
        transfer_s=transfer_for(envelope, record, model=model),
        age_s=age_s,
    )


@dataclass(frozen=True, slots=True)
class ShapeTimes:
    """The times and the charge of one shape, before they are written down as `Estimates`."""

    wait_s: Quantiles
    wait: WaitBasis
    runtime_s: int
    runtime_p90_s: int
    runtime_source: RuntimeSource
    preparation_s: int
    transfer_s: int
    dispatch_s: int
    completion_s: int
    completion_p90_s: int
    charge: Charge

    def written(self) -> Estimates:
        """Return the same figures as part of a decision."""
        return Estimates.made(
            wait_s=self.wait_s,
            wait=self.wait,
            runtime_s=self.runtime_s,
            runtime_p90_s=self.runtime_p90_s,
            runtime_source=self.runtime_source,
            preparation_s=self.preparation_s,
            transfer_s=self.transfer_s,
            dispatch_s=self.dispatch_s,
            completion_s=self.completion_s,
            completion_p90_s=self.completion_p90_s,
            charge=self.charge,
        )


def times_for(
    envelope: Envelope,
    record: ResourceRecord,
    layout: Layout,
    waiting: tuple[Quantiles, WaitBasis],
    *,
    shared: RecordTimes,
    charge: Charge,
    model: PlacementModel,
    work: Work,
) -> ShapeTimes:
    """Return the times of one shape; stage-in comes before the wait unless the model says they overlap."""
    wait, basis = waiting
    runtime_s, runtime_p90_s, source = runtime_for(envelope, layout, record, model=model, work=work)

    def completion(wait_s: int, run_s: int) -> int:
        queued = wait_s + record.dispatch_s
        before = max(queued, shared.transfer_s) if model.overlaps_transfers else queued + shared.transfer_s
        return before + shared.preparation_s + run_s

    return ShapeTimes(
        wait_s=wait,
        wait=basis,
        runtime_s=runtime_s,
        runtime_p90_s=runtime_p90_s,
        runtime_source=source,
        preparation_s=shared.preparation_s,
        transfer_s=shared.transfer_s,
        dispatch_s=record.dispatch_s,
        completion_s=completion(wait.p50, runtime_s),
        completion_p90_s=completion(wait.p90, runtime_p90_s),
        charge=charge,
    )
