"""Slurm's small languages: GRES lists, node counts, constraints, arrays."""

import re
from dataclasses import dataclass

from providers.dialects.scripts.quantities import Misspelled
from providers.dialects.scripts.types import ArrayAsk, Constraint, Span

_NUMBER = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class GpuWords:
    """GPUs of one option: their number, their type as written, and list members that are no whole GPU."""

    count: int
    types: tuple[str, ...] = ()
    others: tuple[str, ...] = ()


def read_count(text: str) -> int:
    """Return a plain count; `4K` and `1M` multiply by 1024 as Slurm does for node and GRES counts."""
    match = re.fullmatch(r"([0-9]{1,9})([kKmM]?)", text.strip())
    if not match:
        raise Misspelled("a whole number is expected")
    return int(match[1]) * {"": 1, "k": 1024, "m": 1024**2}[match[2].lower()]


def read_nodes(text: str) -> Span:
    """Return the node range of `n` or `min-max`."""
    low, dash, high = text.partition("-")
    span = Span(min=read_count(low), max=read_count(high) if dash else read_count(low))
    if span.min > span.max or span.max == 0:
        raise Misspelled("the form is n or min-max, at least 1")
    return span


def read_gres(text: str) -> GpuWords:
    """Return the GPUs of a `--gres` list: `name[[:type]:count]`, comma-joined."""
    total, types, others = 0, [], []
    for member in re.split(r",(?![^()]*\))", text):
        words = re.sub(r"\(.*?\)", "", member).strip().removeprefix("gres/").replace("=", ":").split(":")
        if words[0] != "gpu":
            if words != ["none"]:
                others.append(member.strip())
            continue
        count, kind = _typed(words[1:])
        total += count
        types.extend(kind)
    return GpuWords(count=total, types=tuple(types), others=tuple(others))


def read_gpus(text: str) -> GpuWords:
    """Return the GPUs of `--gpus` and its kin: `[type:]count`, comma-joined."""
    total, types = 0, []
    for member in text.split(","):
        words = member.strip().removeprefix("gpu:").split(":")
        count, kind = _typed(words)
        total += count
        types.extend(kind)
    return GpuWords(count=total, types=tuple(types))


def _typed(words: list[str]) -> tuple[int, list[str]]:
    """Return (count, [type]) of the words after `gpu`."""
    if not words or words == [""]:
        return 1, []
    if len(words) == 1:
        return (read_count(words[0]), []) if _NUMBER.match(words[0]) else (1, [_named(words[0])])
    if len(words) == 2:
        return read_count(words[1]), [_named(words[0])]
    raise Misspelled("the form is [type:]count")


def _named(word: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][\w.+-]*", word):
        raise Misspelled(f"{word!r} is no GPU type")
    return word


def read_constraint(text: str) -> Constraint:
    """Return a feature expression; what is neither all-of nor any-of keeps its text alone."""
    bare = text.strip()
    same = bare.startswith("[") and bare.endswith("]")
    inner = bare[1:-1] if same else bare.removeprefix("(").removesuffix(")")
    word = r"[\w.+:-]+"
    if re.fullmatch(rf"{word}([&,]{word})*", inner) and not same:
        return Constraint(text=text, all_of=tuple(re.split(r"[&,]", inner)))
    if re.fullmatch(rf"{word}(\|{word})*", inner):
        return Constraint(text=text, any_of=tuple(inner.split("|")), same_on_all=same)
    return Constraint(text=text)


def read_array(text: str) -> ArrayAsk:
    """Return an array expression: `0-9:2,20%4`."""
    members, percent, limit = text.partition("%")
    count, step = 0, 1
    for member in members.split(","):
        match = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([0-9]{1,9}))?)?", member.strip())
        if not match or match[3] == "0":
            return ArrayAsk(text=text)
        step = int(match[3] or 1)
        count += max(0, (int(match[2]) - int(match[1])) // step + 1) if match[2] else 1
    at_once = int(limit) if percent and _NUMBER.fullmatch(limit) else None
    return ArrayAsk(text=text, count=count, step=step, max_concurrent=at_once)
