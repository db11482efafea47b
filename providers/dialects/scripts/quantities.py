"""Times and sizes as each scheduler spells them in a script.

Every reader returns whole seconds or MiB, rounded up (a request rounds up), and raises
`Misspelled` for what that scheduler would refuse. None = no limit asked for.
"""

import math
import re

_DIGITS = 12
"""Longer numbers are no quantity of a job; the bound also keeps `int()` safe."""

MEMORY_UNITS_MIB = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2, "P": 1024**3}


class Misspelled(ValueError):
    """Words that are no quantity in that dialect; the message says which forms are."""


def _ints(parts: list[str]) -> list[int]:
    if not all(re.fullmatch(rf"[0-9]{{1,{_DIGITS}}}", part) for part in parts):
        raise Misspelled("digits expected between the separators")
    return [int(part) for part in parts]


def whole_number(text: str) -> int:
    """Return a plain count of at most nine digits."""
    if not re.fullmatch(r"[0-9]{1,9}", text.strip()):
        raise Misspelled("a whole number is expected")
    return int(text)


def slurm_exact_s(text: str) -> int | None:
    """Return the seconds of a Slurm time as written (minutes, min:s, h:m:s, d-h[:m[:s]]).

    Source: sbatch(1), --time. None for 0, -1, UNLIMITED and INFINITE: no limit asked for.
    """
    word = text.strip()
    if word.upper() in {"UNLIMITED", "INFINITE", "-1"}:
        return None
    match = re.fullmatch(r"(?:([0-9]{1,9})-)?((?:[0-9]{1,9}(?::[0-9]{1,9}){0,2})?)", word)
    if not match or not word or (match[1] is None and not match[2]):
        forms = "minutes, minutes:seconds, hours:minutes:seconds, days-hours[:minutes[:seconds]]"
        raise Misspelled(f"not a Slurm time; the forms are {forms}")
    fields = [int(field) for field in match[2].split(":") if field]
    if match[1] is not None:
        factors: tuple[int, ...] = (3600, 60, 1)
    else:
        factors = {1: (60,), 2: (60, 1), 3: (3600, 60, 1)}[len(fields)]
    total = sum(field * factor for field, factor in zip(fields, factors, strict=False))
    return total + int(match[1] or 0) * 86_400 or None


def slurm_limit_s(text: str) -> int | None:
    """Return the seconds of a Slurm time limit, which counts in whole minutes."""
    exact = slurm_exact_s(text)
    return None if exact is None else math.ceil(exact / 60) * 60


def colon_s(text: str) -> int:
    """Return the seconds of `[[hours:]minutes:]seconds[.fraction]` (PBS walltime, SGE h_rt)."""
    word, _, fraction = text.strip().partition(".")
    fields = word.split(":")
    if len(fields) > 3 or (fraction and not fraction.isdigit()):
        raise Misspelled("not a duration; the form is [[hours:]minutes:]seconds")
    total = 0
    for field in _ints(fields):
        total = total * 60 + field
    return total + (1 if fraction.strip("0") else 0)


def lsf_limit_s(text: str) -> int:
    """Return the seconds of an LSF run limit: `[hours:]minutes[/host]`."""
    fields = _ints(text.strip().split("/")[0].split(":"))
    if len(fields) > 2:
        raise Misspelled("not an LSF run limit; the form is [hours:]minutes")
    return (fields[0] * 60 + fields[1]) * 60 if len(fields) == 2 else fields[0] * 60


def hours_first_s(text: str) -> int:
    """Return the seconds of `hours[:minutes[:seconds]]` (OAR walltime)."""
    fields = _ints(text.strip().split(":"))
    if len(fields) > 3:
        raise Misspelled("not an OAR walltime; the form is hours[:minutes[:seconds]]")
    hours, minutes, seconds = (*fields, 0, 0)[:3]
    return hours * 3600 + minutes * 60 + seconds


def minutes_or_hms_s(text: str) -> int:
    """Return the seconds of a Cobalt time: minutes, or `[hours:]minutes:seconds`."""
    return colon_s(text) if ":" in text else _ints([text.strip()])[0] * 60


def flux_limit_s(text: str) -> int | None:
    """Return the seconds of a Flux time limit: a bare number is minutes, else s, m, h, d (FSD).

    Source: flux-batch(1), --time-limit. None for 0: not set.
    """
    match = re.fullmatch(rf"([0-9]{{1,{_DIGITS}}}(?:\.[0-9]{{1,{_DIGITS}}})?)(ms|s|m|h|d)?", text.strip())
    if not match:
        raise Misspelled("not a Flux duration; the forms are minutes, or a number with s, m, h or d")
    factor = {None: 60.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}[match[2]]
    return math.ceil(float(match[1]) * factor) or None


def slurm_memory_mib(text: str) -> int:
    """Return MiB of a Slurm memory size: integer with K, M, G, T (B allowed after); default M.

    Source: sbatch(1), --mem. 0 asks for all memory of a node; the caller knows what that means.
    """
    match = re.fullmatch(rf"([0-9]{{1,{_DIGITS}}})(?:([KMGT])B?)?", text.strip(), re.IGNORECASE)
    if not match:
        raise Misspelled("not a Slurm memory size; an integer with K, M, G or T (no fraction, no blank)")
    return math.ceil(int(match[1]) * MEMORY_UNITS_MIB[(match[2] or "M").upper()])


def pbs_size_bytes(text: str) -> int:
    """Return bytes of a PBS size: integer with b, kb, mb, gb, tb, pb, or words of 8 bytes (w, kw, mw ...)."""
    match = re.fullmatch(rf"([0-9]{{1,{_DIGITS}}})([kmgtp]?)([bw]?)", text.strip(), re.IGNORECASE)
    if not match:
        raise Misspelled("not a PBS size; an integer with b, kb, mb, gb or tb (no fraction)")
    scale: int = 1024 ** " kmgtp".index(match[2].lower() or " ")
    return int(match[1]) * scale * (8 if match[3].lower() == "w" else 1)


def pbs_memory_mib(text: str) -> int:
    """Return MiB of a PBS size, rounded up."""
    return math.ceil(pbs_size_bytes(text) / 1024**2)


def lsf_memory_mib(text: str, *, unit: str) -> int:
    """Return MiB of an LSF memory figure; `unit` (K, M, G, T) holds where none is written.

    Source: bsub(1): -M counts KB and rusage[mem] MB unless LSF_UNIT_FOR_LIMITS says otherwise.
    """
    match = re.fullmatch(
        rf"([0-9]{{1,{_DIGITS}}}(?:\.[0-9]{{1,6}})?)\s*([KMGT]?)B?", text.strip(), re.IGNORECASE
    )
    if not match:
        raise Misspelled("not an LSF memory size; a number with KB, MB, GB or TB")
    return math.ceil(float(match[1]) * MEMORY_UNITS_MIB[(match[2] or unit).upper()])


def sge_memory_mib(text: str) -> int:
    """Return MiB of a Grid Engine memory value: bytes, or K M G (1024), k m g (1000)."""
    match = re.fullmatch(rf"([0-9]{{1,{_DIGITS}}}(?:\.[0-9]{{1,6}})?)([KMGTkmgt]?)B?", text.strip())
    if not match:
        raise Misspelled("not a Grid Engine memory size; a number with K, M, G or k, m, g")
    base = 1024 if match[2].isupper() else 1000
    factor = math.pow(base, " kmgt".index(match[2].lower() or " "))
    return math.ceil(float(match[1]) * factor / 1024**2)
