"""What Slurm's numbers mean: durations, memory, counts, instants, exit codes, and its JSON numbers.

Readers of *printed* values raise UnparsableOutput; readers of *requested* values (what a person writes
after `-t` or `--mem`) raise InvalidInput. Nothing unknown becomes a number.

Source: sbatch(1) --time and --mem, squeue(1), sacct(1), data_parser v0.0.38 to v0.0.44.
"""

import re
from datetime import datetime
from functools import lru_cache
from typing import Final, Literal, TypeAlias

from providers.errors import InvalidInput, UnparsableOutput

UNLIMITED: Final = "unlimited"
Limit: TypeAlias = int | Literal["unlimited"] | None
"""A limit as printed: a number, no limit at all, or (None) not known from what was printed."""

NOTHING: Final = frozenset({"", "(null)", "N/A", "n/a", "None", "NONE", "Unknown"})
"""Spellings of "no value" over programs and versions."""

_INFINITE: Final = frozenset({0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF})
_NO_VAL: Final = frozenset({0xFFFFFFFE, 0xFFFFFFFFFFFFFFFE})
_NO_LIMIT_WORDS: Final = frozenset({"unlimited", "infinite", "infinity", "-1"})
_UNKNOWN_LIMIT_WORDS: Final = frozenset(
    {"", "n/a", "(null)", "none", "invalid", "not_set", "partition_limit"}
)
_PLACEHOLDER_S: Final = 365 * 86_400
"""A job without limit in an unlimited partition is given 365-00:00:00 once it starts."""

_CLOCK: Final = re.compile(r"(?:(?P<days>\d{1,6})-)?(?P<clock>\d{1,9}(?::\d{1,2}){0,2})?", re.ASCII)
_UNIT: Final[dict[str, int]] = {unit: 1024**power for power, unit in enumerate(("", *"KMGTPE"))}
_MEMORY: Final = re.compile(
    r"(?P<number>\d{1,18}(?:\.\d{1,6})?)(?P<unit>[KMGTPE]?)B?(?P<per>[cn]?)", re.ASCII
)
_REQUESTED_MEMORY: Final = re.compile(r"(?P<number>\d{1,18})(?P<unit>[KMGT]?)B?", re.ASCII | re.IGNORECASE)
_COUNT: Final = re.compile(r"(?P<number>\d{1,20}(?:\.\d{1,6})?)(?P<unit>[KMGTPE]?)", re.ASCII)
_INSTANT: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", re.ASCII)
_EXIT: Final = re.compile(r"(?P<code>\d{1,5}):(?P<signal>\d{1,3})", re.ASCII)


def _clock_s(text: str) -> int | None:
    """Return seconds of `[days-]clock`, or None when the text is no such thing.

    minutes | minutes:seconds | hours:minutes:seconds | days-[hours[:minutes[:seconds]]].
    """
    match = _CLOCK.fullmatch(text)
    if match is None or not text:
        return None
    parts = [int(part) for part in (match["clock"] or "0").split(":")]
    if match["days"] is not None:
        hours, minutes, seconds = [*parts, 0, 0][:3]
        return int(match["days"]) * 86_400 + hours * 3600 + minutes * 60 + seconds
    if len(parts) == 1:
        return parts[0] * 60
    if len(parts) == 2:
        return parts[0] * 60 + parts[1]
    return parts[0] * 3600 + parts[1] * 60 + parts[2]


@lru_cache(maxsize=4096)
def read_duration_s(text: str) -> int:
    """Return the seconds of a printed duration: "53:20" is minutes, "1-12" is a day and a half.

    Raises:
        UnparsableOutput: it is none.
    """
    seconds = _clock_s(text.strip())
    if seconds is None:
        raise UnparsableOutput(f"{text!r} is no duration", field="duration", text=text[:200])
    return seconds


@lru_cache(maxsize=4096)
def read_limit_s(text: str) -> Limit:
    """Return a printed wall-time limit in seconds, UNLIMITED, or None when it is not resolved yet.

    365 days exactly is Slurm's placeholder for no limit.

    Raises:
        UnparsableOutput: it is neither a duration nor a word of Slurm's for a missing limit.
    """
    word = text.strip().casefold()
    if word in _NO_LIMIT_WORDS:
        return UNLIMITED
    if word in _UNKNOWN_LIMIT_WORDS:
        return None
    seconds = read_duration_s(text)
    return UNLIMITED if seconds == _PLACEHOLDER_S else seconds


def finite(limit: Limit) -> int | None:
    """Return the number, or None for both no limit and not known."""
    return None if limit == UNLIMITED else limit


def read_requested_walltime_s(text: str) -> int | None:
    """Return what `sbatch -t` makes of a value: seconds in whole minutes (rounded up), None = no limit.

    Raises:
        InvalidInput: sbatch would refuse it ("1d", "24h", "1.5", "2:00:00:00").
    """
    word = text.strip()
    if word.casefold() in _NO_LIMIT_WORDS:
        return None
    seconds = _clock_s(word)
    if seconds is None:
        raise InvalidInput(f"{text!r} is no wall time that Slurm accepts", text=text[:200])
    return -(-seconds // 60) * 60 or None


@lru_cache(maxsize=4096)
def read_memory_mib(text: str, *, round_up: bool = False) -> int:
    """Return printed memory in MiB: "500G", "16000M", "20264K"; a bare number is MiB.

    The suffix of accounting up to 20.11 (`4000Mc` per CPU, `16Gn` per node) is accepted and dropped:
    whoever needs it calls `memory_is_per`. Capacity rounds down, requests round up.

    Raises:
        UnparsableOutput: it is no amount of memory.
    """
    match = _MEMORY.fullmatch(text.strip())
    if match is None:
        raise UnparsableOutput(f"{text!r} is no amount of memory", field="memory", text=text[:200])
    return _mib(match["number"], unit=match["unit"] or "M", round_up=round_up)


def memory_is_per(text: str) -> Literal["cpu", "node"] | None:
    """Return what a ReqMem of up to 20.11 is counted per; None means the whole job (21.08 and later)."""
    return {"c": "cpu", "n": "node"}.get(text.strip()[-1:])  # type: ignore[return-value]  # literal values


def _mib(number: str, *, unit: str, round_up: bool) -> int:
    whole, _, part = number.partition(".")
    scale: int = 10 ** len(part)
    numerator = int(whole + part) * _UNIT[unit]
    divisor = scale * _UNIT["M"]
    return -(-numerator // divisor) if round_up else numerator // divisor


def read_requested_memory_mib(text: str) -> int:
    """Return what `--mem` makes of a value: MiB, kibibytes rounded up; integers only; 0 asks for all.

    Raises:
        InvalidInput: sbatch would refuse it ("1.5G", "4 GB").
    """
    match = _REQUESTED_MEMORY.fullmatch(text)
    if match is None:
        raise InvalidInput(f"{text!r} is no amount of memory that Slurm accepts", text=text[:200])
    return _mib(match["number"], unit=match["unit"].upper() or "M", round_up=True)


@lru_cache(maxsize=4096)
def read_count(text: str) -> int:
    """Return a printed count; K, M, G multiply by powers of 1024 ("2K" nodes are 2048).

    Raises:
        UnparsableOutput: it is no count.
    """
    match = _COUNT.fullmatch(text.strip())
    if match is None:
        raise UnparsableOutput(f"{text!r} is no count", field="count", text=text[:200])
    whole, _, part = match["number"].partition(".")
    scale: int = 10 ** len(part)
    return int(whole + part) * _UNIT[match["unit"]] // scale


def read_least_count(text: str) -> int:
    """Return the lower bound of a count that may be a range ("2-4") or a minimum ("8+").

    Raises:
        UnparsableOutput: it is no count.
    """
    return read_count(text.strip().removesuffix("+").split("-", 1)[0])


@lru_cache(maxsize=4096)
def read_maximum(text: str) -> int | None:
    """Return a printed maximum; None when there is none (UNLIMITED, an empty cell, N).

    Raises:
        UnparsableOutput: it is neither.
    """
    word = text.strip()
    if word in NOTHING or word == "N" or word.casefold() in _NO_LIMIT_WORDS:
        return None
    return read_count(word)


@lru_cache(maxsize=4096)
def read_instant(text: str) -> datetime | None:
    """Return a printed instant as aware UTC (clients run with TZ=UTC); None for N/A, Unknown, None.

    Raises:
        UnparsableOutput: it is neither.
    """
    word = text.strip()
    if word in NOTHING:
        return None
    if _INSTANT.fullmatch(word):
        try:
            return datetime.fromisoformat(word + "+00:00")
        except ValueError:
            pass
    raise UnparsableOutput(f"{text!r} is no instant", field="instant", text=text[:200])


def read_exit_code(text: str) -> tuple[int, int]:
    """Return (exit code, signal) of "code:signal".

    Raises:
        UnparsableOutput: it is none.
    """
    match = _EXIT.fullmatch(text.strip())
    if match is None:
        raise UnparsableOutput(f"{text!r} is no exit code", field="exit_code", text=text[:200])
    return int(match["code"]), int(match["signal"])


def read_words(value: object) -> tuple[str, ...]:
    """Return words: a comma-separated text, or a JSON list where a version prints one.

    Raises:
        UnparsableOutput: it is neither.
    """
    if value is None:
        return ()
    if isinstance(value, str):
        return tuple(word for word in value.split(",") if word not in NOTHING)
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        return tuple(value)
    raise UnparsableOutput("this JSON value is no list of words", field="words", text=repr(value)[:200])
