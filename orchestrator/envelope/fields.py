"""The small readers every envelope field is made of: counts, ranges, words, lists, objects.

Each returns its value, or None after recording what is wrong; nothing is guessed and nothing raises.
"""

import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation

from orchestrator.envelope.faults import Faults, nearest, shown, step
from orchestrator.envelope.spellings import duration_s, memory_mib
from orchestrator.envelope.types import Range
from providers.dialects.scripts.quantities import Misspelled

CEILINGS = {
    "gpus": 1_000_000,
    "cpus": 10_000_000,
    "nodes": 1_000_000,
    "memory_mib": 2**40,
    "walltime_s": 366 * 86_400,
    "bytes": 2**63 - 1,
}
"""Above these a figure is a slip, not a job: 2^40 MiB is an exbibyte, wall times end after a year."""

WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")
NAME = re.compile(r"[A-Za-z0-9][\w.+/@-]{0,127}", re.ASCII)
MAX_ITEMS = 1000

One = Callable[[object, str], int | None]


@dataclass(slots=True)
class Reader:
    """What the readers share: the faults so far, and the words the caller knows besides ours."""

    faults: Faults = field(default_factory=Faults)
    accelerators: Collection[str] = ()
    objectives: Collection[str] = ()
    systems: Collection[str] | None = None

    def members(self, value: object, pointer: str, keys: Collection[str]) -> Mapping[str, object] | None:
        """Return an object's members that are not null; unknown keys are faults."""
        if not isinstance(value, Mapping):
            self.wrong_type(value, pointer, "an object")
            return None
        found: dict[str, object] = {}
        for key, member in value.items():
            if not isinstance(key, str) or key not in keys:
                hint = nearest(shown(key), keys)
                self.faults.add(step(pointer, key), "unknown_field", f"{shown(key)} is no field here; {hint}")
            elif member is not None:
                found[key] = member
        return found

    def items(self, value: object, pointer: str, what: str) -> list[tuple[str, object]] | None:
        """Return a list's items with their pointers."""
        if not isinstance(value, list):
            self.wrong_type(value, pointer, f"a list of {what}")
            return None
        if len(value) > MAX_ITEMS:
            self.faults.add(pointer, "too_many", f"{pointer} holds {len(value)} items; at most {MAX_ITEMS}")
            return None
        return [(step(pointer, index), item) for index, item in enumerate(value)]

    def wrong_type(self, value: object, pointer: str, wanted: str) -> None:
        """Record that a value is of another type than wanted."""
        message = f"{pointer} must be {wanted}, not {shown(value)} ({type(value).__name__})"
        self.faults.add(pointer, "wrong_type", message)

    def count(self, value: object, pointer: str, *, ceiling: int) -> int | None:
        """Return a whole number from 0 to the ceiling."""
        if isinstance(value, bool) or not isinstance(value, int):
            fix = "a whole number"
            if isinstance(value, str) and re.fullmatch(r"[0-9]{1,18}", value.strip()):
                fix += f" (write {value.strip()} without quotes)"
            elif isinstance(value, float) and math.isfinite(value) and value == int(value):
                fix += f" (write {int(value)})" if abs(value) < 1e15 else ""
            self.wrong_type(value, pointer, fix)
        elif value < 0:
            self.faults.add(pointer, "negative", f"{pointer} is {shown(value)}; it must be 0 or more")
        elif value > ceiling:
            message = f"{pointer} is {shown(value)}; more than {ceiling} is taken for a slip"
            self.faults.add(pointer, "too_large", message)
        else:
            return value
        return None

    def counting(self, name: str) -> One:
        """Return the reader of one count."""
        return lambda value, pointer: self.count(value, pointer, ceiling=CEILINGS[name])

    def memory(self, value: object, pointer: str) -> int | None:
        """Return MiB of a number or a spelling."""
        return self._spelled(value, pointer, memory_mib, "memory_mib", "a number of MiB or a text like '64G'")

    def duration(self, value: object, pointer: str) -> int | None:
        """Return seconds of a number or a spelling."""
        return self._spelled(
            value, pointer, duration_s, "walltime_s", "seconds or a text like '2:00:00' or 'PT2H'"
        )

    def _spelled(
        self, value: object, pointer: str, read: Callable[[str], int], name: str, wanted: str
    ) -> int | None:
        if isinstance(value, str):
            try:
                value = read(value)
            except Misspelled as fault:
                self.faults.add(pointer, "wrong_unit", f"{pointer} is {shown(value)!r}: {fault}")
                return None
        elif isinstance(value, bool) or not isinstance(value, int):
            self.wrong_type(value, pointer, wanted)
            return None
        return self.count(value, pointer, ceiling=CEILINGS[name])

    def range(self, value: object, pointer: str, one: One) -> Range | None:
        """Return a range from a bare value or from `{"min": m, "max": M}`."""
        if not isinstance(value, Mapping):
            exact = one(value, pointer)
            return None if exact is None else Range.exactly(exact)
        members = self.members(value, pointer, ("min", "max"))
        if members is None:
            return None
        for name in ("min", "max"):
            if name not in members:
                message = f"{pointer} needs both min and max (or one bare value)"
                self.faults.add(step(pointer, name), "missing", message)
        low, high = (one(members[k], step(pointer, k)) if k in members else None for k in ("min", "max"))
        if low is None or high is None:
            return None
        if low > high:
            message = f"{pointer}: min {low} is greater than max {high}; swap them or widen the range"
            self.faults.add(pointer, "min_over_max", message)
            return None
        return Range(min=low, max=high)

    def text(self, value: object, pointer: str, *, limit: int = 1024) -> str | None:
        """Return a text that is not empty and holds no control characters."""
        if not isinstance(value, str):
            self.wrong_type(value, pointer, "a text")
        elif not value.strip() or len(value) > limit or re.search(r"[\x00-\x1f\x7f]", value):
            message = f"{pointer} must hold 1 to {limit} printable characters"
            self.faults.add(pointer, "bad_text", message)
        else:
            return value.strip()
        return None

    def word(self, value: object, pointer: str, *, pattern: re.Pattern[str] = WORD) -> str | None:
        """Return one word as written."""
        if not isinstance(value, str):
            self.wrong_type(value, pointer, "a word")
        elif not pattern.fullmatch(value.strip()):
            message = f"{pointer}: {shown(value)!r} is no word (letters, digits, . _ + -)"
            self.faults.add(pointer, "bad_word", message)
        else:
            return value.strip()
        return None

    def known_word(
        self,
        value: object,
        pointer: str,
        known: Collection[str],
        code: str,
        aliases: Mapping[str, str] | None = None,
    ) -> str | None:
        """Return a lower-case word out of a known set; others are faults with the nearest names."""
        word = self.word(value, pointer)
        if word is None:
            return None
        lowered = word.lower()
        lowered = (aliases or {}).get(lowered, lowered)
        if lowered in known:
            return lowered
        self.faults.add(pointer, code, f"{pointer}: {shown(word)!r} is not known; {nearest(lowered, known)}")
        return None

    def words(
        self, value: object, pointer: str, one: Callable[[object, str], str | None], what: str
    ) -> tuple[str, ...] | None:
        """Return a list of different words, each read by `one`."""
        items = self.items(value, pointer, what)
        if items is None:
            return None
        found: list[str] = []
        for at, item in items:
            word = one(item, at)
            if word in found:
                self.faults.add(at, "duplicate", f"{at}: {word!r} is listed twice; drop one")
            elif word is not None:
                found.append(word)
        return tuple(found)

    def capability(self, value: object, pointer: str) -> str | None:
        """Return one capability word in lower case."""
        word = self.word(value, pointer)
        return None if word is None else word.lower()

    def fraction(self, value: object, pointer: str) -> float | None:
        """Return a number from 0 to 1."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.wrong_type(value, pointer, "a number from 0 to 1")
        elif not 0 <= value <= 1:
            self.faults.add(pointer, "out_of_range", f"{pointer} is {shown(value)}; it must be from 0 to 1")
        else:
            return float(value)
        return None

    def amount(self, value: object, pointer: str) -> Decimal | None:
        """Return a charge: a number, or a text of one, 0 or more."""
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            self.wrong_type(value, pointer, "a number")
            return None
        try:
            amount = Decimal(str(value) if not isinstance(value, str) else value.strip()[:40])
        except InvalidOperation:
            self.wrong_type(value, pointer, "a number")
            return None
        if not amount.is_finite() or not 0 <= amount <= Decimal(10) ** 15:
            message = f"{pointer} is {shown(value)}; it must be from 0 to 10^15"
            self.faults.add(pointer, "out_of_range", message)
            return None
        return amount
