"""Human units for templates: the only place where seconds, MiB and bytes become words.

Every filter shows a value that is not known (None) as an en dash.
"""

from collections.abc import Mapping
from decimal import Decimal

from django import template

register = template.Library()

UNKNOWN = "–"
MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86_400


@register.filter
def duration(seconds: float | None) -> str:
    """Return seconds in the two largest fitting units: "45 s", "6 min", "1 h 12 min", "2 d 3 h"."""
    if seconds is None:
        return UNKNOWN
    whole = round(seconds)
    if whole < 0:
        return f"-{duration(-whole)}"
    if whole < 90:
        return f"{whole} s"
    if whole < HOUR_S:
        return f"{round(whole / MINUTE_S)} min"
    if whole < DAY_S:
        return _pair(whole // HOUR_S, "h", whole % HOUR_S // MINUTE_S, "min")
    return _pair(whole // DAY_S, "d", whole % DAY_S // HOUR_S, "h")


def _pair(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large} {large_unit} {small} {small_unit}" if small else f"{large} {large_unit}"


@register.filter
def wall_time(seconds: int | None) -> str:
    """Return a wall time as schedulers write it: "01:30:00", "2-12:00:00"."""
    if seconds is None:
        return UNKNOWN
    days, rest = divmod(int(seconds), DAY_S)
    clock = f"{rest // HOUR_S:02}:{rest % HOUR_S // MINUTE_S:02}:{rest % MINUTE_S:02}"
    return f"{days}-{clock}" if days else clock


@register.filter
def memory(mib: float | None) -> str:
    """Return MiB in the largest unit that keeps a figure before the point: "512 MiB", "64 GiB", "1.5 TiB"."""
    return UNKNOWN if mib is None else _scaled(mib, ("MiB", "GiB", "TiB", "PiB"))


@register.filter
def size(count: float | None) -> str:
    """Return bytes in binary units: "512 B", "1.5 KiB"."""
    return UNKNOWN if count is None else _scaled(count, ("B", "KiB", "MiB", "GiB", "TiB", "PiB"))


def _scaled(value: float, units: tuple[str, ...]) -> str:
    rank = 0
    while value >= 1024 and rank < len(units) - 1:
        value, rank = value / 1024, rank + 1
    return f"{value:.1f}".removesuffix(".0") + f" {units[rank]}"


@register.filter
def count(value: float | Decimal | None) -> str:
    """Return a count with thin spaces between thousands: 12 345."""
    if value is None:
        return UNKNOWN
    if isinstance(value, Decimal):
        whole, point, rest = f"{value:,f}".partition(".")
        written = whole + (point + rest).rstrip("0").rstrip(".")
    else:
        written = f"{value:,}"
    return written.replace(",", "\u202f")


@register.filter
def known(value: object) -> object:
    """Return the value, or an en dash where it is None or empty."""
    return UNKNOWN if value is None or value == "" else value


@register.filter
def words(text: str) -> list[str]:
    """Return the words of a constant, to loop over."""
    return text.split()


@register.filter
def at(mapping: Mapping[str, object], key: str) -> object:
    """Return what a mapping holds under a key; None where it holds nothing."""
    return mapping.get(key)
