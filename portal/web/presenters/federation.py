"""The federation at a glance: one card per system, one square per GPU, one row per partition."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from math import ceil

from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _

from portal.web.presenters.access import AccessView, ProbeRow
from portal.web.presenters.history import HistoryView
from portal.web.presenters.shared import SystemRef
from portal.web.presenters.tasks import EventRow
from portal.web.presenters.work import WorkView

MAX_SQUARES = 256
"""Squares drawn per system; beyond that one square stands for several devices, and the page says so."""

NICE_STEPS = (1, 2, 4, 8, 10, 16, 20, 32, 40, 50, 64, 80, 100)


@dataclass(frozen=True, slots=True)
class Pool:
    """Devices of one type on one system (or nodes, where it has no GPUs), each counted once.

    `ours` are in use by the caller's own jobs, `busy` by others; `down` cannot be used now.
    """

    label: str
    free: int
    ours: int
    busy: int
    down: int
    per_square: int = 1
    """Devices that one square stands for; the same for every pool of a card, so that squares compare."""

    @property
    def total(self) -> int:
        """All devices, whatever their state."""
        return self.free + self.ours + self.busy + self.down

    @property
    def is_dense(self) -> bool:
        """So many squares that they are drawn smaller."""
        return self.total // self.per_square > 100

    @property
    def is_loose(self) -> bool:
        """So few squares that they should not stretch over the card."""
        return self.total // self.per_square < 16

    @property
    def squares(self) -> SafeString:
        """The squares as HTML: ours, busy, free, down."""
        step = self.per_square
        drawn = squares((self.ours, self.busy, self.free, self.down), step)
        html = "".join(f'<i class="{look}"></i>' * n for look, n in zip("mbfd", drawn, strict=True))
        return mark_safe(html)  # noqa: S308  made of four constant letters

    @property
    def spoken(self) -> str:
        """The same in words, for those who cannot see squares."""
        return _("%(label)s: %(free)d free, %(ours)d yours, %(busy)d busy, %(down)d down") % {
            "label": self.label,
            "free": self.free,
            "ours": self.ours,
            "busy": self.busy,
            "down": self.down,
        }


def per_square(total: int) -> int:
    """Return the smallest pleasant number of devices per square that keeps within MAX_SQUARES."""
    need = ceil(total / MAX_SQUARES)
    return next((step for step in NICE_STEPS if step >= need), need)


def on_one_scale(pools: Sequence[Pool]) -> tuple[Pool, ...]:
    """Return the pools of one card with the same devices per square, within MAX_SQUARES together."""
    step = per_square(sum(pool.total for pool in pools))
    return tuple(replace(pool, per_square=step) for pool in pools)


def squares(counts: Sequence[int], step: int) -> tuple[int, ...]:
    """Return squares per kind: largest remainders, and no kind that has devices vanishes.

    The sum may exceed ceil(total / step) by the kinds that were kept alive.
    """
    whole = [n // step for n in counts]
    left = round(sum(counts) / step) - sum(whole)
    by_remainder = sorted(range(len(counts)), key=lambda kind: (-(counts[kind] % step), kind))
    for kind in by_remainder[: max(left, 0)]:
        whole[kind] += 1
    return tuple(max(n, 1) if count else 0 for n, count in zip(whole, counts, strict=True))


@dataclass(frozen=True, slots=True)
class QueueBar:
    """Who waits and runs: shares of all jobs in percent, ours first. `pending_gpus` None = not known."""

    pending: int | None
    running: int | None
    ours_pending: int
    ours_running: int
    hidden: bool = False
    """The site hides other users' jobs."""

    @property
    def parts(self) -> tuple[tuple[float, int], ...]:
        """(width %, colour strength %) of ours running, others running, pending."""
        running, pending = self.running or 0, self.pending or 0
        total = max(running + pending, 1)
        ours = min(self.ours_running, running)
        widths = (ours, running - ours, pending)
        return tuple(
            (round(100 * part / total, 2), look)
            for part, look in zip(widths, (100, 55, 26), strict=True)
            if part
        )


@dataclass(frozen=True, slots=True)
class SystemCard:
    """One system at a glance. Free and total count GPUs, or nodes where it has no GPUs (`unit`)."""

    ref: SystemRef
    centre: str
    scheduler: str
    health: str
    health_reason: str
    observed_at: datetime | None
    unit: str
    free: int | None
    total: int
    pools: tuple[Pool, ...]
    queue: QueueBar
    wait_p50_s: int | None
    wait_p90_s: int | None
    wait_for: str
    """What the expected wait was asked for, for example "1 GPU, 1 h"."""
    connected: bool = True

    @property
    def is_faded(self) -> bool:
        """Figures that should not be trusted as present."""
        return self.health in {"stale", "offline", "disabled"}


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """One partition now. `largest_free` is the most GPUs free on one node; None = not known."""

    ref: SystemRef
    name: str
    state: str
    accelerator: str
    gpus_free: int | None
    gpus_total: int
    largest_free: int | None
    cpus_free: int | None
    cpus_total: int | None
    nodes_usable: int
    nodes_total: int
    pending: int | None
    running: int | None
    max_walltime_s: int | None
    wait_p50_s: int | None
    wait_p90_s: int | None
    account: str = ""
    blocked: str = ""
    """Why Facet does not place there; "" = it may."""


@dataclass(frozen=True, slots=True)
class FederationPage:
    """The whole first page."""

    cards: tuple[SystemCard, ...]
    partitions: tuple[PartitionRow, ...]
    gpus_free: int
    gpus_total: int
    systems_online: int
    centres: int
    active_tasks: int
    observed_at: datetime | None
    work: WorkView | None
    events: tuple[EventRow, ...]


@dataclass(frozen=True, slots=True)
class NodeSquare:
    """One node of a system: `look` is f(ree), p(artly free), b(usy), d(own)."""

    name: str
    look: str
    title: str


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes of one shape; `hidden` more are not drawn."""

    label: str
    squares: tuple[NodeSquare, ...]
    free: int
    total: int
    hidden: int = 0


@dataclass(frozen=True, slots=True)
class QueueRow:
    """One job in the queue as any user may see it. `ours` links to the task."""

    job_id: str
    user: str
    partition: str
    state: str
    size: str
    walltime_s: int | None
    submitted_at: datetime | None
    start_at: datetime | None
    reason: str
    task: str | None = None


@dataclass(frozen=True, slots=True)
class LimitRow:
    """One limit of the caller there: what it bounds, how much, how much of it is used, and who set it."""

    name: str
    value: str
    used: str
    source: str


@dataclass(frozen=True, slots=True)
class MaintenanceRow:
    """One reservation that keeps jobs away."""

    name: str
    start_at: datetime
    end_at: datetime | None
    nodes: int


@dataclass(frozen=True, slots=True)
class ForecastRow:
    """How good the caller's own forecasts of one kind were at one partition; percent of `n` attempts."""

    partition: str
    measure: str
    """What was forecast: wait, runtime or charge, as a person reads it."""
    kind: str
    """The class of a wait; what a runtime or a charge rested on."""
    n: int
    within_minute: int | None
    """None for charges, which are no times."""
    within_twice: int
    factor: float
    """By how much a forecast is usually off, up or down; 1 = exact."""
    p90_held: int


@dataclass(frozen=True, slots=True)
class SystemPage:
    """One system in full."""

    card: SystemCard
    partitions: tuple[PartitionRow, ...]
    node_groups: tuple[NodeGroup, ...]
    queue: tuple[QueueRow, ...]
    queue_hidden: int
    limits: tuple[LimitRow, ...]
    maintenance: tuple[MaintenanceRow, ...]
    forecasts: tuple[ForecastRow, ...]
    remote_user: str
    profile_revision: str
    warnings: tuple[str, ...]
    history: HistoryView | None
    access: AccessView
    probes: tuple[ProbeRow, ...]
    max_age_s: int | None
    """Older figures are not used for placement; None = no record yet."""
