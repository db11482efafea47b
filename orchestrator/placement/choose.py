"""The order of candidate shapes: one key per shape that depends on that shape alone.

Scores are put on a fixed grid of 5 s: estimates in one cell are equal, and tie-breaks decide. A window of
5 s around the best would make the winner depend on who else is listed; the grid does not.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from federation.types import ResourceRecord
from orchestrator.envelope.types import Envelope
from orchestrator.placement.capacity import Layout
from orchestrator.placement.charge import credit_share
from orchestrator.placement.estimate import ShapeTimes

GRID_S = 5
RISK_AVERSE = "risk_averse"
"""The earliest end that nine of ten such jobs keep, which is never before the worse of the two plans."""

PARTS = (
    "wall time or deadline",
    "objective",
    "completion",
    "diversity",
    "credit share",
    "specialised resource",
    "preference",
    "name",
    "nodes",
    "size",
)
"""What each place of a key stands for; the first two are the score, the rest are tie-breaks."""

Key = tuple[
    int,
    Decimal,
    int,
    int,
    Decimal,
    tuple[int, int],
    int,
    tuple[str, str, str, str],
    int,
    tuple[int, int, int],
]


@dataclass(frozen=True, slots=True)
class Aim:
    """What is minimised and what breaks ties, the same for every candidate of a decision."""

    objective: str
    risk_averse: bool
    now: datetime
    diversity_load: Mapping[str, int]
    """How much of the group runs at a system already."""


def key_of(
    aim: Aim,
    envelope: Envelope,
    record: ResourceRecord,
    layout: Layout,
    estimates: ShapeTimes,
    *,
    credit: Decimal | None,
) -> Key:
    """Return the order of one shape; smaller is better, and no two shapes of a decision are equal."""
    completion = grid(estimates.completion_p90_s if aim.risk_averse else estimates.completion_s)
    return (
        misses(envelope, layout, estimates, now=aim.now),
        _score(aim, estimates, completion),
        completion,
        aim.diversity_load.get(record.system, 0),
        credit_share(estimates.charge, credit),
        waste(envelope, record, layout),
        preference(envelope, record.system),
        name_of(record),
        layout.nodes,
        (layout.gpus, layout.cpus, -(layout.memory_mib or 0)),
    )


def name_of(record: ResourceRecord) -> tuple[str, str, str, str]:
    """Return the part of a key that tells any two records apart."""
    return record.system, record.partition, record.account or "", record.qos or ""


def grid(seconds: int) -> int:
    """Return the cell of the fixed grid a time falls in."""
    return seconds // GRID_S


def misses(envelope: Envelope, layout: Layout, estimates: ShapeTimes, *, now: datetime) -> int:
    """Return how many promises a shape would break: to end within its wall time, and by the deadline.

    The environment is prepared within the wall time. The deadline is missed when the p90 completion passes
    it.
    """
    overruns = estimates.preparation_s + estimates.runtime_s > layout.walltime_s
    deadline = envelope.deadline_at
    late = deadline is not None and now + timedelta(seconds=estimates.completion_p90_s) > deadline
    return int(overruns) + int(late)


def _score(aim: Aim, estimates: ShapeTimes, completion: int) -> Decimal:
    if aim.objective == "lowest_charge":
        return estimates.charge.amount
    if aim.objective == "soonest_start":
        ends_s, runs_s = estimates.completion_s, estimates.runtime_s
        if aim.risk_averse:
            ends_s, runs_s = estimates.completion_p90_s, estimates.runtime_p90_s
        return Decimal(grid(ends_s - estimates.preparation_s - runs_s))
    return Decimal(completion)


def waste(envelope: Envelope, record: ResourceRecord, layout: Layout) -> tuple[int, int]:
    """Return the GPUs held or kept from others without need, and the GPU memory over what was asked."""
    kind = layout.smallest_kind
    keeps_all = record.is_exclusive or layout.gpus == 0
    idle = layout.nodes * kind.gpus - layout.gpus if keeps_all else 0
    wanted = envelope.accelerator.min_memory_mib if envelope.accelerator is not None else None
    excess = max(0, (kind.gpu_memory_mib or 0) - (wanted or 0)) * layout.gpus
    return idle, excess


def preference(envelope: Envelope, system: str) -> int:
    """Return a system's place in the user's list of preferences; those not listed come last."""
    listed = envelope.policy.prefer
    return listed.index(system) if system in listed else len(listed)


def tie_break(better: Key, worse: Key) -> str | None:
    """Return which tie-break separates two keys of equal score; None when the score does."""
    for part, mine, other in zip(PARTS, better, worse, strict=True):
        if mine != other:
            return None if part in PARTS[:2] else part
    return None


def is_strictly_better(
    current_completion_s: int, fresh_completion_s: int, *, min_gain_s: int = 120, min_gain_frac: float = 0.10
) -> bool:
    """Return whether a fresh placement beats a waiting one by enough to move it.

    Both count from now. The margin is a fixed part and a share of the fresh estimate, which keeps moves few.
    """
    return fresh_completion_s * (1 + min_gain_frac) + min_gain_s < current_completion_s
