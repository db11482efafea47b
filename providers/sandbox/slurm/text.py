"""How Slurm spells times, spans, memory, host lists and ranges, and how it reads them.

Only cheap imports: every emulated command pays for them. Times are epoch seconds, printed in the
local zone as Slurm does; memory is MiB. Source: recorded output of Slurm 22.05.8, sbatch(1).
"""

from __future__ import annotations

import re
import time

INFINITE = 0
"""A time limit of zero seconds stands for "no limit" throughout the sandbox."""


class BadText(ValueError):
    """A word of the caller cannot be read; the message is the value itself."""


def clock(at: int, absent: str = "N/A") -> str:
    """Return an instant as `2026-11-29T16:28:18`; `absent` for 0."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(at)) if at else absent


def span(seconds: int) -> str:
    """Return a duration the short way of squeue and sinfo: `0:07`, `29:17`, `3:00:00`, `2-00:00:00`."""
    minutes, sec = divmod(max(0, int(seconds)), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days:
        return f"{days}-{hour:02}:{minute:02}:{sec:02}"
    return f"{hour}:{minute:02}:{sec:02}" if hour else f"{minute}:{sec:02}"


def full_span(seconds: int) -> str:
    """Return a duration the long way of scontrol and sacct: `00:29:18`, `2-00:00:00`."""
    minutes, sec = divmod(max(0, int(seconds)), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return f"{days}-{hour:02}:{minute:02}:{sec:02}" if days else f"{hour:02}:{minute:02}:{sec:02}"


def read_span(text: str) -> int:
    """Return seconds of a `--time` value: minutes, M:S, H:M:S, D-H, D-H:M, D-H:M:S; 0 when unlimited.

    Slurm keeps whole minutes and rounds up, so `2:30` is 180 s.
    """
    if text.upper() in {"INFINITE", "UNLIMITED", "-1"}:
        return INFINITE
    shape = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text)
    if shape is None:
        raise BadText(text)
    days, first, second, third = (int(part) if part is not None else None for part in shape.groups())
    if days is not None:
        seconds = days * 86400 + (first or 0) * 3600 + (second or 0) * 60 + (third or 0)
    elif third is not None:
        seconds = (first or 0) * 3600 + (second or 0) * 60 + third
    else:
        seconds = (first or 0) * 60 + (second or 0)
    return -(-seconds // 60) * 60


def read_moment(text: str, now: int) -> int:
    """Return epoch seconds of a `--begin`, `-S` or `-E` value.

    Reads `now`, `now+1hour`, `now-2days`, `today`, `midnight`, ISO dates with or without time, `HH:MM[:SS]`.
    """
    relative = re.fullmatch(r"now(?:([+-])(\d+)(\w*))?", text)
    if relative:
        sign, count, unit = relative.groups()
        size = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}.get((unit or "s")[:1])
        if size is None:
            raise BadText(text)
        return now + (int(count or 0) * size * (-1 if sign == "-" else 1))
    midnight = time.mktime((*time.localtime(now)[:3], 0, 0, 0, 0, 0, -1))
    if text in {"today", "midnight"}:
        return int(midnight)
    for layout in ("%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d", "%m/%d/%y", "%m/%d"):
        try:
            parts = time.strptime(text, layout)
        except ValueError:
            continue
        if layout == "%m/%d":
            parts = time.struct_time((time.localtime(now).tm_year, *parts[1:]))
        return int(time.mktime(time.struct_time((*parts[:8], -1))))
    for layout in ("%H:%M:%S", "%H:%M"):
        try:
            parts = time.strptime(text, layout)
        except ValueError:
            continue
        return int(midnight) + parts.tm_hour * 3600 + parts.tm_min * 60 + parts.tm_sec
    raise BadText(text)


def memory(mib: int) -> str:
    """Return MiB as TRES strings show it: the next unit while halves stay exact (`62.50G`, `32000M`)."""
    if not mib:
        return "0"
    amount, unit = float(mib), 0
    while amount >= 1024 and int(amount) % 512 == 0 and amount == int(amount):
        amount /= 1024
        unit += 1
    shown = str(int(amount)) if amount == int(amount) else f"{amount:.2f}"
    return shown + "MGTP"[unit]


def read_memory(text: str) -> int:
    """Return MiB of a `--mem` value: plain numbers are MiB; K, M, G, T suffixes, rounded up."""
    shape = re.fullmatch(r"(\d+)([KMGTkmgt]?)[bB]?", text)
    if shape is None:
        raise BadText(text)
    count, unit = int(shape.group(1)), shape.group(2).upper()
    return -(-count // 1024) if unit == "K" else count * {"": 1, "M": 1, "G": 1024, "T": 1024 * 1024}[unit]


def ranges(numbers: list[int], width: int = 0) -> str:
    """Return sorted numbers as `0-3,7`, each padded to `width` digits."""
    parts: list[str] = []
    first = last = None
    for number in [*sorted(set(numbers)), None]:
        if last is not None and number == last + 1:
            last = number
            continue
        if first is not None and last is not None:
            parts.append(f"{first:0{width}}" if first == last else f"{first:0{width}}-{last:0{width}}")
        first = last = number
    return ",".join(parts)


def read_ranges(text: str) -> list[int]:
    """Return the numbers of `0-3,7,10-20:5`, in order and once each."""
    numbers: list[int] = []
    for part in text.split(","):
        shape = re.fullmatch(r"(\d+)(?:-(\d+)(?::(\d+))?)?", part)
        if shape is None:
            raise BadText(text)
        low = int(shape.group(1))
        high = int(shape.group(2) or low)
        step = int(shape.group(3) or 1)
        if high < low or step < 1:
            raise BadText(text)
        numbers.extend(range(low, high + 1, step))
    return sorted(set(numbers))


def _split_name(name: str) -> tuple[str, str]:
    digits = len(name) - len(name.rstrip("0123456789"))
    return (name, "") if digits == 0 else (name[:-digits], name[-digits:])


def host_list(names: list[str]) -> str:
    """Return node names compressed: `cn[001-002],gpua003`."""
    groups: dict[tuple[str, int], list[int]] = {}
    for name in sorted(names):
        prefix, digits = _split_name(name)
        groups.setdefault((prefix, len(digits)), []).append(int(digits) if digits else 0)
    parts = []
    for (prefix, width), numbers in groups.items():
        if width == 0:
            parts.append(prefix)
        elif len(numbers) == 1:
            parts.append(f"{prefix}{numbers[0]:0{width}}")
        else:
            parts.append(f"{prefix}[{ranges(numbers, width)}]")
    return ",".join(parts)


def split_outside_brackets(text: str) -> list[str]:
    """Return the comma-separated parts of `text`, commas inside brackets kept."""
    return [part for part in re.split(r",(?![^\[]*\])", text) if part]


def hosts(text: str) -> list[str]:
    """Return the node names of a host list such as `cn[001-002],gpua003`."""
    names: list[str] = []
    for part in split_outside_brackets(text):
        shape = re.fullmatch(r"([^\[\]]+)\[([\d,-]+)\]([^\[\]]*)", part)
        if shape is None:
            if "[" in part or "]" in part:
                raise BadText(text)
            names.append(part)
            continue
        for piece in shape.group(2).split(","):
            low, _, high = piece.partition("-")
            if not low.isdigit() or (high and not high.isdigit()):
                raise BadText(text)
            width = len(low)
            numbers = range(int(low), int(high or low) + 1)
            names.extend(f"{shape.group(1)}{number:0{width}}{shape.group(3)}" for number in numbers)
    return names
