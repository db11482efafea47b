"""Input spellings of memory and time, in words people use, as MiB and seconds.

Requests round up. A bare number is MiB (memory) or seconds (time); a bare number *in quotes* is
what Slurm means by it: MiB, and minutes.
"""

import math
import re
from decimal import Decimal

from providers.dialects.scripts.quantities import Misspelled, slurm_exact_s

_MEMORY = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)\s*([KMGTP]?)(i?B)?", re.IGNORECASE)
_POWER = {"K": -1, "M": 0, "G": 1, "T": 2, "P": 3}
_ISO = re.compile(
    r"P(?:([0-9]{1,6})W)?(?:([0-9]{1,6})D)?(?:T(?:([0-9]{1,8})H)?(?:([0-9]{1,9})M)?(?:([0-9]{1,10})S)?)?",
    re.IGNORECASE,
)
_WORDED = re.compile(
    r"(?:([0-9]{1,6}(?:\.[0-9]{1,3})?)\s*d(?:ays?)?)?\s*(?:([0-9]{1,8}(?:\.[0-9]{1,3})?)\s*h(?:ours?|rs?)?)?\s*"
    r"(?:([0-9]{1,9}(?:\.[0-9]{1,3})?)\s*m(?:in(?:ute)?s?)?)?\s*(?:([0-9]{1,10})\s*s(?:ec(?:ond)?s?)?)?",
    re.IGNORECASE,
)


def memory_mib(text: str) -> int:
    """Return MiB of `64G`, `512MiB`, `1.5 TB`, `4096` (MiB); all units are powers of 1024.

    Raises:
        Misspelled: with the forms that are known.
    """
    match = _MEMORY.fullmatch(text.strip())
    if not match:
        raise Misspelled("write memory as a number of MiB, or with a unit: '64G', '512MiB'")
    number = Decimal(match[1])
    if match[3] and not match[2]:
        return math.ceil(number / 1024**2)
    power = _POWER[(match[2] or "M").upper()]
    return math.ceil(number / 1024 if power < 0 else number * 1024**power)


def duration_s(text: str) -> int:
    """Return seconds of `1-12:00:00`, `2:30:00`, `90` (minutes, as Slurm), `PT2H`, `2h 30m`.

    Raises:
        Misspelled: with the forms that are known, also for no limit at all.
    """
    word = text.strip()
    if len(word) > 60:
        raise Misspelled("too long for a time")
    if (iso := _ISO.fullmatch(word)) and any(iso.groups()):
        factors = (604_800, 86_400, 3600, 60, 1)
        return sum(int(part) * factor for part, factor in zip(iso.groups(), factors, strict=True) if part)
    if (worded := _WORDED.fullmatch(word)) and any(worded.groups()):
        parts = zip(worded.groups(), (86_400, 3600, 60, 1), strict=True)
        return math.ceil(sum(Decimal(part) * factor for part, factor in parts if part))
    try:
        seconds = slurm_exact_s(word)
    except Misspelled:
        forms = "seconds as a number, or '1-12:00:00', '2:30:00', '90' (minutes), 'PT2H', '2h30m'"
        raise Misspelled(f"write time as {forms}") from None
    if seconds is None:
        raise Misspelled("no limit cannot be planned for: give a time")
    return seconds
