"""History as a chart: a value over time, laid out in percent, so that the page can stretch it. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import ceil, floor, log10

from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _

from portal.web.presenters.timeline import STEPS_S

MAX_TICKS = 5
GAP_STEPS = 2.5
"""A pause longer than this many stretches is a gap: nothing is drawn over what was not seen."""


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart. `lines` and `areas` are SVG paths in a box of 100 by 100; ticks are in percent."""

    title: str
    lines: SafeString
    areas: SafeString
    y_ticks: tuple[tuple[int, int], ...]
    """(percent from the top, value), the highest first."""
    x_ticks: tuple[tuple[float, datetime], ...]
    now: float | None
    """The newest value; None = nothing was seen."""
    least: float
    most: float
    spoken: str

    @property
    def is_long(self) -> bool:
        """Whether ticks are days apart rather than hours."""
        return len(self.x_ticks) > 1 and self.x_ticks[1][1] - self.x_ticks[0][1] >= timedelta(hours=12)


Point = tuple[datetime, float]


def chart(
    title: str, points: Sequence[Point], *, start: datetime, end: datetime, step_s: float, top: float = 0
) -> Chart:
    """Lay out values over [start, end].

    Args:
        title: what is drawn, for people who do not see it, too.
        points: (instant, value) in order; each stands for the stretch of `step_s` seconds that begins there.
        start: left edge, aware.
        end: right edge, aware.
        step_s: length of a stretch, seconds.
        top: the axis reaches at least this far.
    """
    values = [value for _at, value in points]
    ceiling = nice(max([*values, top, 1]))
    length = (end - start).total_seconds()

    def place(at: datetime, value: float) -> tuple[float, float]:
        x = 100 * ((at - start).total_seconds() + step_s / 2) / length
        return round(min(max(x, 0), 100), 2), round(100 - 100 * value / ceiling, 2)

    runs = [[place(at, value) for at, value in run] for run in _runs(points, step_s)]
    least, most = min(values, default=0), max(values, default=0)
    return Chart(
        title=title,
        lines=mark_safe("".join(_line(run) for run in runs)),  # noqa: S308  numbers only
        areas=mark_safe("".join(_area(run) for run in runs)),  # noqa: S308  numbers only
        y_ticks=((0, ceiling), (50, ceiling // 2), (100, 0)) if ceiling > 1 else ((0, ceiling), (100, 0)),
        x_ticks=_x_ticks(start, end),
        now=values[-1] if values else None,
        least=least,
        most=most,
        spoken=_spoken(title, values),
    )


def nice(value: float) -> int:
    """Return the next pleasant even number for an axis: 1, 2, 4, 6, 8, 10, 20 … times a power of ten."""
    if value <= 1:
        return 1
    power = 10 ** floor(log10(value))
    for step in (1, 2, 4, 5, 6, 8, 10):
        if step * power >= value and (step * power) % 2 == 0:
            return int(step * power)
    return int(10 * power)


def _runs(points: Sequence[Point], step_s: float) -> list[list[Point]]:
    runs: list[list[Point]] = []
    for point in points:
        if not runs or (point[0] - runs[-1][-1][0]).total_seconds() > GAP_STEPS * step_s:
            runs.append([])
        runs[-1].append(point)
    return runs


def _line(run: Sequence[tuple[float, float]]) -> str:
    (x, y), *rest = run
    if not rest:
        return f"M{x - 0.3:.2f} {y}H{x + 0.3:.2f}"
    return f"M{x} {y}" + "".join(f"L{a} {b}" for a, b in rest)


def _area(run: Sequence[tuple[float, float]]) -> str:
    return f"M{run[0][0]} 100" + "".join(f"L{x} {y}" for x, y in run) + f"L{run[-1][0]} 100Z"


def _x_ticks(start: datetime, end: datetime) -> tuple[tuple[float, datetime], ...]:
    length = (end - start).total_seconds()
    step = next((s for s in STEPS_S if length / s <= MAX_TICKS), ceil(length / MAX_TICKS))
    first = ceil(start.timestamp() / step) * step
    found = []
    for second in range(first, int(end.timestamp()) + 1, step):
        x = round(100 * (second - start.timestamp()) / length, 2)
        if 4 <= x <= 96:
            found.append((x, datetime.fromtimestamp(second, UTC)))
    return tuple(found)


def _spoken(title: str, values: Sequence[float]) -> str:
    if not values:
        return _("%(title)s: nothing was seen in this time") % {"title": title}
    return _("%(title)s: %(now)s now, between %(least)s and %(most)s in this time") % {
        "title": title,
        "now": round(values[-1]),
        "least": round(min(values)),
        "most": round(max(values)),
    }
