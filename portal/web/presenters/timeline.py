"""The attempts of one task on one time axis: what was predicted above, what happened below. Pure geometry."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import ceil

from django.utils.translation import gettext as _

from portal.web.presenters.shared import TERMINAL_ATTEMPT_STATES, SystemRef, said

STEPS_S = (
    10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800,
)  # fmt: skip
"""Distances between ticks that people read easily."""
MAX_TICKS = 8
ROOM_FOR_WORDS = 9
"""Narrower bars, in percent of the axis, carry their words only on hover."""
BESIDE_NOW = 8
"""Ticks nearer to the now-label than this, in percent of the axis, would lie under it."""


@dataclass(frozen=True, slots=True)
class AttemptFacts:
    """What is known of one attempt. Instants are aware; None = has not happened or is not known."""

    handle: str
    number: int
    ref: SystemRef
    partition: str
    state: str
    cause: str
    job_id: str | None
    shape: str
    planned_at: datetime
    queued_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    predicted_start_at: datetime | None
    predicted_end_at: datetime | None
    state_raw: str = ""
    reason: str = ""
    observed_at: datetime | None = None

    @property
    def cause_words(self) -> str:
        """The cause in words: "out of memory"."""
        return self.cause.replace("_", " ")


@dataclass(frozen=True, slots=True)
class Span:
    """One bar: left edge and width in percent of the axis, the waiting share of the bar, look and words."""

    x: float
    width: float
    wait: float
    look: str
    label: str
    title: str


@dataclass(frozen=True, slots=True)
class Lane:
    """One attempt: its facts, the prediction and what happened (None = nothing to draw)."""

    attempt: AttemptFacts
    predicted: Span | None
    actual: Span | None


@dataclass(frozen=True, slots=True)
class Timeline:
    """The axis and its lanes. `ticks` are (percent, instant); `now_x` None = outside the axis."""

    ticks: tuple[tuple[float, datetime], ...]
    columns: int
    """How many columns the ticks cut the axis into."""
    now_x: float | None
    now: datetime
    lanes: tuple[Lane, ...]

    @property
    def tick_style(self) -> str:
        """How ticks are written: seconds matter on a short axis, days on a long one."""
        spacing_s = (self.ticks[1][1] - self.ticks[0][1]).total_seconds() if len(self.ticks) > 1 else 60
        if spacing_s < 60:
            return "clock"
        return "hm" if spacing_s < 43_200 else "day"


def timeline(attempts: Sequence[AttemptFacts], *, now: datetime) -> Timeline | None:
    """Lay attempts out; None when there is none yet. Axis edges are whole ticks."""
    if not attempts:
        return None
    running = any(a.state not in TERMINAL_ATTEMPT_STATES for a in attempts)
    first = min(a.planned_at for a in attempts)
    last = max(end for a in attempts for end in _ends(a, now=now))
    if running:
        last = max(last, now + (now - first) * 0.08)
    start, end, step = axis(first, last)
    length = (end - start).total_seconds()

    def x(at: datetime) -> float:
        return round(100 * (at - start).total_seconds() / length, 2)

    count = round(length / step)
    now_x = x(now) if running and start <= now <= end else None
    every = ((round(100 * k / count, 2), start + timedelta(seconds=k * step)) for k in range(1, count))
    ticks = tuple(tick for tick in every if now_x is None or abs(tick[0] - now_x) > BESIDE_NOW)
    return Timeline(
        ticks=ticks,
        columns=count,
        now_x=now_x,
        now=now,
        lanes=tuple(Lane(a, _predicted(a, x), _actual(a, x, now=now)) for a in attempts),
    )


def axis(first: datetime, last: datetime) -> tuple[datetime, datetime, int]:
    """Return start, end and tick distance (s): whole ticks around [first, last], MAX_TICKS + 1 at most."""
    length = max((last - first).total_seconds(), STEPS_S[0])
    step = next((s for s in STEPS_S if length / s <= MAX_TICKS - 1), ceil(length / (MAX_TICKS - 1)))
    low = first.timestamp() // step * step
    high: float = ceil(last.timestamp() / step) * step
    if high <= low:
        high = low + step
    return datetime.fromtimestamp(low, UTC), datetime.fromtimestamp(high, UTC), step


def _ends(a: AttemptFacts, *, now: datetime) -> tuple[datetime, ...]:
    open_end = () if a.state in TERMINAL_ATTEMPT_STATES else (now,)
    known = tuple(at for at in (a.queued_at, a.started_at, a.ended_at, a.predicted_end_at) if at is not None)
    return (a.planned_at, *known, *open_end)


def _predicted(a: AttemptFacts, x: Callable[[datetime], float]) -> Span | None:
    if a.predicted_start_at is None or a.predicted_end_at is None:
        return None
    left = x(a.queued_at or a.planned_at)
    width = max(x(a.predicted_end_at) - left, 0.3)
    wait = min(max(100 * (x(a.predicted_start_at) - left) / width, 0), 100)
    return Span(
        left, round(width, 2), round(wait, 2), "planned", _("expected"), _("What the decision expected")
    )


def _actual(a: AttemptFacts, x: Callable[[datetime], float], *, now: datetime) -> Span | None:
    if a.state == "planned":
        return None
    begin = a.queued_at or a.planned_at
    end = a.ended_at or (now if a.state not in TERMINAL_ATTEMPT_STATES else begin)
    left, right = x(begin), x(max(end, begin))
    width = max(right - left, 0.3)
    waited_until = x(a.started_at) if a.started_at else right
    wait = min(max(100 * (waited_until - left) / width, 0), 100)
    words = said(a.state, "attempt").word
    label = f"{words}: {a.cause_words}" if a.cause else str(words)
    title = f"{a.ref.name} {a.partition}: {label}"
    shown = label if width >= ROOM_FOR_WORDS else ""
    return Span(left, round(width, 2), round(wait, 2), _look(a), shown, title)


def _look(a: AttemptFacts) -> str:
    if a.state in {"failed", "unknown"}:
        return a.state
    if a.started_at is None and a.state not in TERMINAL_ATTEMPT_STATES:
        return "waiting"
    return "running" if a.state == "running" else "done"
