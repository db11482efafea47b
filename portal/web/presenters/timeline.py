"""The attempts of one task on one time axis: what was predicted above, what happened below. Pure geometry."""

from collections.abc import Sequence
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
    waited_s: int | None = None
    """From its submission to its start, both by the scheduler."""
    forecast: str = ""
    """What was predicted of its wait: the median, what nine of ten stay under, and what that rests on."""

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
class Frame:
    """The axis. `ticks` are (percent, instant); `now_x` None = outside the axis."""

    start: datetime
    length_s: float
    ticks: tuple[tuple[float, datetime], ...]
    columns: int
    """How many columns the ticks cut the axis into."""
    now_x: float | None
    now: datetime

    @property
    def tick_style(self) -> str:
        """How ticks are written: seconds matter on a short axis, days on a long one."""
        spacing_s = (self.ticks[1][1] - self.ticks[0][1]).total_seconds() if len(self.ticks) > 1 else 60
        if spacing_s < 60:
            return "clock"
        return "hm" if spacing_s < 43_200 else "day"

    def x(self, at: datetime) -> float:
        """Return where an instant lies, in percent of the axis."""
        return round(100 * (at - self.start).total_seconds() / self.length_s, 2)


@dataclass(frozen=True, slots=True)
class Timeline:
    """The axis and one lane for each attempt."""

    frame: Frame
    lanes: tuple[Lane, ...]


def timeline(attempts: Sequence[AttemptFacts], *, now: datetime) -> Timeline | None:
    """Lay attempts out; None when there is none yet. Axis edges are whole ticks."""
    frame = frame_of(attempts, now=now)
    if frame is None:
        return None
    return Timeline(frame, tuple(Lane(a, predicted_span(a, frame), actual_span(a, frame)) for a in attempts))


def frame_of(
    attempts: Sequence[AttemptFacts], *, now: datetime, expects_of_ended: bool = True
) -> Frame | None:
    """Return the axis on which all these attempts lie; None when there is none.

    `expects_of_ended`: what was expected of attempts that have ended has its place on the axis, too.
    """
    if not attempts:
        return None
    running = any(a.state not in TERMINAL_ATTEMPT_STATES for a in attempts)
    first = min(a.planned_at for a in attempts)
    last = max(end for a in attempts for end in _ends(a, now=now, expects_of_ended=expects_of_ended))
    if running:
        last = max(last, now + (now - first) * 0.08)
    start, end, step = axis(first, last)
    length = (end - start).total_seconds()
    count = round(length / step)
    now_x = (
        round(100 * (now - start).total_seconds() / length, 2) if running and start <= now <= end else None
    )
    every = ((round(100 * k / count, 2), start + timedelta(seconds=k * step)) for k in range(1, count))
    ticks = tuple(tick for tick in every if now_x is None or abs(tick[0] - now_x) > BESIDE_NOW)
    return Frame(start, length, ticks, count, now_x, now)


def axis(first: datetime, last: datetime) -> tuple[datetime, datetime, int]:
    """Return start, end and tick distance (s): whole ticks around [first, last], MAX_TICKS + 1 at most."""
    length = max((last - first).total_seconds(), STEPS_S[0])
    step = next((s for s in STEPS_S if length / s <= MAX_TICKS - 1), ceil(length / (MAX_TICKS - 1)))
    low = first.timestamp() // step * step
    high: float = ceil(last.timestamp() / step) * step
    if high <= low:
        high = low + step
    return datetime.fromtimestamp(low, UTC), datetime.fromtimestamp(high, UTC), step


def _ends(a: AttemptFacts, *, now: datetime, expects_of_ended: bool) -> tuple[datetime, ...]:
    has_ended = a.state in TERMINAL_ATTEMPT_STATES
    expected = None if has_ended and not expects_of_ended else a.predicted_end_at
    known = tuple(at for at in (a.queued_at, a.started_at, a.ended_at, expected) if at is not None)
    return (a.planned_at, *known) if has_ended else (a.planned_at, *known, now)


def predicted_span(a: AttemptFacts, frame: Frame) -> Span | None:
    """Return what the decision expected of an attempt; None where it expected nothing that can be drawn."""
    x = frame.x
    if a.predicted_start_at is None or a.predicted_end_at is None:
        return None
    left = x(a.queued_at or a.planned_at)
    width = max(x(a.predicted_end_at) - left, 0.3)
    wait = min(max(100 * (x(a.predicted_start_at) - left) / width, 0), 100)
    return Span(
        left, round(width, 2), round(wait, 2), "planned", _("expected"), _("What the decision expected")
    )


def actual_span(a: AttemptFacts, frame: Frame, *, names_system: bool = False) -> Span | None:
    """Return what happened to an attempt so far; None while it is only planned.

    `names_system`: the words begin with the system, where the lane does not say it.
    """
    if a.state == "planned":
        return None
    x, now = frame.x, frame.now
    begin = a.queued_at or a.planned_at
    end = a.ended_at or (now if a.state not in TERMINAL_ATTEMPT_STATES else begin)
    left, right = x(begin), x(max(end, begin))
    width = max(right - left, 0.3)
    waited_until = x(a.started_at) if a.started_at else right
    wait = min(max(100 * (waited_until - left) / width, 0), 100)
    words = said(a.state, "attempt").word
    label = f"{words}: {a.cause_words}" if a.cause else str(words)
    title = f"{a.ref.name} {a.partition}: {label}"
    if names_system:
        label = f"{a.ref.name}: {(a.cause_words or str(words)).lower()}"
    shown = label if width >= ROOM_FOR_WORDS else ""
    return Span(left, round(width, 2), round(wait, 2), _look(a), shown, title)


def _look(a: AttemptFacts) -> str:
    if a.state in {"failed", "unknown"}:
        return a.state
    if a.started_at is None and a.state not in TERMINAL_ATTEMPT_STATES:
        return "waiting"
    return "running" if a.state == "running" else "done"
