"""Slurm's compact lists: node names ("gh[001-003],login1") and array tasks ("3-10%2").

Source: hostlist(3) of Slurm; job_array.html for task expressions.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby, product
from typing import Final

from providers.errors import UnparsableOutput

MAX_NAMES: Final = 200_000
"""More than any machine has: beyond it the text is garbage, not a node list."""

_NO_NODES: Final = frozenset({"", "(null)", "None", "None assigned", "N/A", "n/a"})
_NAME: Final = re.compile(r"[A-Za-z0-9._\-]+", re.ASCII)
_PIECE: Final = re.compile(r"[A-Za-z0-9._\-]+|\[[0-9,\-]+\]", re.ASCII)
_RANGE: Final = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)
_LAST_NUMBER: Final = re.compile(r"(.*?)(\d{1,9})", re.ASCII | re.DOTALL)
_TASKS: Final = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?", re.ASCII)
_JOB_ID: Final = re.compile(
    r"(?P<job>\d{1,10})(?:_(?:\[(?P<tasks>[^\]]*)\]|(?P<task>\d{1,9}))|\+(?P<offset>\d{1,4}))?", re.ASCII
)


def _garbage(text: str, why: str) -> UnparsableOutput:
    return UnparsableOutput(f"{why}: {text[:80]!r}", field="node_list", text=text[:200])


def split_outside(text: str, *, opening: str, closing: str) -> Iterator[str]:
    """Yield the comma-separated parts of `text`, keeping commas inside brackets.

    Raises:
        UnparsableOutput: brackets do not pair.
    """
    depth = start = 0
    for place, letter in enumerate(text):
        if letter == opening:
            depth += 1
        elif letter == closing:
            depth -= 1
            if depth < 0:
                raise _garbage(text, "brackets do not pair")
        elif letter == "," and not depth:
            yield text[start:place]
            start = place + 1
    if depth:
        raise _garbage(text, "brackets do not pair")
    yield text[start:]


def _numbers(expression: str, *, text: str) -> list[str]:
    numbers: list[str] = []
    for part in expression.split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise _garbage(text, "no range of node numbers")
        low, high = match[1], match[2] or match[1]
        if int(high) < int(low) or int(high) - int(low) >= MAX_NAMES:
            raise _garbage(text, "a range of node numbers runs backwards or too far")
        numbers += [str(number).zfill(len(low)) for number in range(int(low), int(high) + 1)]
    return numbers


@lru_cache(maxsize=2048)
def expand(text: str) -> tuple[str, ...]:
    """Return the node names of a host list in its own order; () for every spelling of "no nodes".

    Zero padding is kept; several brackets give the product, the last one fastest.

    Raises:
        UnparsableOutput: it is no host list, or one of more than MAX_NAMES nodes.
    """
    word = text.strip()
    if word in _NO_NODES:
        return ()
    names: list[str] = []
    for element in split_outside(word, opening="[", closing="]"):
        if _NAME.fullmatch(element):
            names.append(element)
            continue
        pieces = _PIECE.findall(element)
        if not pieces or "".join(pieces) != element:
            raise _garbage(text, "no host list")
        choices = [_numbers(p[1:-1], text=text) if p[0] == "[" else [p] for p in pieces]
        names += map("".join, product(*choices))
        if len(names) > MAX_NAMES:
            raise _garbage(text, "more nodes than any machine has")
    return tuple(names)


def compress(names: Iterable[str]) -> str:
    """Return the shortest list in Slurm's spelling that expands to these names, sorted, each once.

    Ranges are made over the last number of a name, for numbers of one width; other names stay whole.
    """
    keyed: list[tuple[str, int, int]] = []
    plain: list[str] = []
    for name in sorted(set(names)):
        match = _LAST_NUMBER.fullmatch(name)
        if match is None:
            plain.append(name)
        else:
            keyed.append((match[1], len(match[2]), int(match[2])))
    parts = list(plain)
    for (prefix, width), group in groupby(sorted(keyed), key=lambda key: key[:2]):
        runs = _runs([number for *_, number in group], width=width)
        parts.append(f"{prefix}[{','.join(runs)}]" if len(runs) > 1 or "-" in runs[0] else prefix + runs[0])
    return ",".join(parts)


def _runs(numbers: list[int], *, width: int) -> list[str]:
    runs: list[str] = []
    for _, group in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        run = [number for _, number in group]
        first, last = str(run[0]).zfill(width), str(run[-1]).zfill(width)
        runs.append(first if first == last else f"{first}-{last}")
    return runs


# --- job ids --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JobId:
    """A printed job id taken apart: plain, an array task, the waiting rest of an array, a het component."""

    job: int
    task: int | None = None
    offset: int | None = None
    """Component of a heterogeneous job, from 0."""
    tasks: int | None = None
    """How many array tasks this record stands for; None when it is no array record or was cut."""
    is_array_rest: bool = False
    throttle: int | None = None


def _task_ranges(expression: str) -> Iterator[range]:
    for part in expression.split(","):
        match = _TASKS.fullmatch(part)
        if match is None:
            raise UnparsableOutput(f"{expression[:80]!r} is no list of array tasks", text=expression[:200])
        low, high, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if high < low or step < 1:
            raise UnparsableOutput(f"{expression[:80]!r} is no list of array tasks", text=expression[:200])
        yield range(low, high + 1, step)


def read_tasks(expression: str) -> tuple[tuple[range, ...], int | None]:
    """Return the ranges of an array's task expression and its throttle: "1-999:2%8".

    Raises:
        UnparsableOutput: it is none.
    """
    body, mark, throttle = expression.partition("%")
    if mark and not (throttle.isascii() and throttle.isdigit()):
        raise UnparsableOutput(f"{expression[:80]!r} has no throttle after %", text=expression[:200])
    return tuple(_task_ranges(body)), int(throttle) if mark else None


def read_job_id(text: str) -> JobId:
    """Return a printed job id taken apart: "44", "12_1", "12_[3-10%2]", "20+1".

    A task list that squeue cut ("[1,3,5,...]") leaves `tasks` None.

    Raises:
        UnparsableOutput: it is no job id.
    """
    match = _JOB_ID.fullmatch(text.strip())
    if match is None:
        raise UnparsableOutput(f"{text[:80]!r} is no job id", field="job_id", text=text[:200])
    job = int(match["job"])
    if match["task"] is not None:
        return JobId(job, task=int(match["task"]), tasks=1)
    if match["offset"] is not None:
        return JobId(job, offset=int(match["offset"]))
    if match["tasks"] is None:
        return JobId(job)
    body, mark, throttle = match["tasks"].partition("%")
    if body.endswith("..."):
        read_tasks(body.removesuffix("...").rstrip(",") + mark + throttle)
        return JobId(job, is_array_rest=True, throttle=int(throttle) if mark else None)
    ranges, limit = read_tasks(match["tasks"])
    return JobId(job, tasks=sum(map(len, ranges)), is_array_rest=True, throttle=limit)


def split_federated_id(job_id: int) -> tuple[int, int]:
    """Return (origin cluster index, local id) of a job id; the index is 0 outside a federation.

    Bits 0 to 25 hold the local id, 26 to 31 the cluster.
    """
    return job_id >> 26, job_id & (1 << 26) - 1
