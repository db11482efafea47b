"""The last hours of one system: free devices and waiting jobs, by partition. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from federation.shown import History
from portal.web.presenters.charts import Chart, chart

POINTS = 96
SPANS: tuple[tuple[int, str | Promise], ...] = (
    (1, gettext_lazy("1 h")),
    (6, gettext_lazy("6 h")),
    (24, gettext_lazy("24 h")),
    (168, gettext_lazy("7 d")),
)
"""How many hours may be asked for."""
USUAL_HOURS = 24


@dataclass(frozen=True, slots=True)
class HistoryView:
    """Two charts of one partition, and what else may be asked for."""

    partition: str
    partitions: tuple[str, ...]
    hours: int
    spans: tuple[tuple[int, str | Promise], ...]
    free: Chart
    waiting: Chart
    values: tuple[tuple[datetime, float, float], ...]
    """What both charts draw, for reading: (instant, free devices, waiting jobs), the newest first."""


def hours_of(word: str, *, known_for: timedelta | None = None) -> int:
    """Return the hours asked for; what is not offered means the usual, or less where less is known."""
    if word.isdigit() and int(word) in dict(SPANS):
        return int(word)
    usual = [hours for hours, _ in SPANS if hours <= USUAL_HOURS]
    if known_for is None:
        return USUAL_HOURS
    return next((hours for hours in usual if known_for <= timedelta(hours=hours)), USUAL_HOURS)


def history_view(
    found: Sequence[History],
    asked: str,
    gpus: dict[str, int],
    cpus: dict[str, int],
    *,
    hours: int,
    now: datetime,
) -> HistoryView | None:
    """Return the charts of the partition asked for, else of the one with most GPUs; None without partitions.

    Args:
        found: history by partition.
        asked: a partition; one that does not exist means the usual one.
        gpus: GPUs by partition: those that have none are drawn in CPUs.
        cpus: CPUs by partition.
        hours: how far back.
        now: right edge of the charts.
    """
    names = tuple(sorted(gpus, key=lambda name: (-gpus[name], name)))
    if not names:
        return None
    partition = asked if asked in gpus else names[0]
    points = next((each.points for each in found if each.partition == partition), [])
    start, step_s = now - timedelta(hours=hours), hours * 3600 / POINTS
    of_gpus = gpus[partition] > 0
    free = [(p.at, p.gpus_free if of_gpus else p.cpus_free) for p in points]
    top = gpus[partition] if of_gpus else cpus.get(partition, 0)
    title = _("Free GPUs") if of_gpus else _("Free CPUs")
    return HistoryView(
        partition=partition,
        partitions=names,
        hours=hours,
        spans=SPANS,
        free=chart(title, free, start=start, end=now, step_s=step_s, top=top),
        waiting=chart(
            _("Waiting jobs"), [(p.at, p.pending) for p in points], start=start, end=now, step_s=step_s
        ),
        values=tuple((at, value, p.pending) for (at, value), p in zip(free, points, strict=True))[::-1],
    )
