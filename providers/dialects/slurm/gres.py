"""Generic resources: what a node has, what is taken, and how many whole GPUs a job could still be given.

MIG profiles and shards are slices of GPUs, never GPUs. Memory in TRES strings is MiB, the rest counts.

Source: gres.html, scontrol(1) show node -d (Gres, GresUsed), sacct(1) (TRES), versions 20.11 to 25.11.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from providers.dialects.slurm.hostlist import read_tasks, split_outside
from providers.dialects.slurm.units import NOTHING, read_count, read_memory_mib
from providers.errors import UnparsableOutput
from providers.types import GpuPool, SlicePool

_ENTRY: Final = re.compile(
    r"(?:gres[:/])?(?P<name>[A-Za-z0-9_.\-]+)"
    r"(?P<words>(?::(?:\(null\)|[^:(),\s]+))*)"
    r"(?:\((?P<detail>[^()]*)\))?",
    re.ASCII,
)
_AMOUNT: Final = re.compile(r"\d+[KMGTP]?", re.ASCII)
_PER_DEVICE: Final = re.compile(r"\d+/\d+(?:,\d+/\d+)*", re.ASCII)
_MIG: Final = re.compile(
    r"(?:(?P<model>.*?)[_.\-:])?(?:\d+c\.)?(?P<compute>\d+)g[._]?(?P<memory>\d+)gb(?:[+._\-](?:me|gfx|all|media))*",
    re.ASCII | re.IGNORECASE,
)
_TRES_KEY: Final = re.compile(r"[A-Za-z][^\s=,]*", re.ASCII)
_SHARING: Final = ("shard", "mps")
"""Gres that hand out parts of a GPU."""


@dataclass(frozen=True, slots=True)
class Gres:
    """One entry of a Gres, GresUsed or TresPerNode list."""

    name: str
    type: str | None
    count: int
    consumed: bool = True
    """False for a property that jobs do not use up (no_consume)."""
    indexes: tuple[int, ...] | None = None
    """Devices in use; () for none, None where not printed."""
    per_device: tuple[tuple[int, int], ...] | None = None
    """Shards (in use, of) for each device in index order; None where not printed."""


@dataclass(frozen=True, slots=True)
class Mig:
    """A MIG profile: compute slices and memory of one slice, and the GPU model where the name holds it."""

    model: str | None
    compute_slices: int
    memory_gb: int


@lru_cache(maxsize=1024)
def read_mig(type_: str) -> Mig | None:
    """Return the MIG profile that a GRES type names, or None for a whole GPU's type."""
    match = _MIG.fullmatch(type_)
    if match is None:
        return None
    return Mig(match["model"] or None, int(match["compute"]), int(match["memory"]))


def _detail(
    detail: str | None, entry: str
) -> tuple[tuple[int, ...] | None, tuple[tuple[int, int], ...] | None]:
    if detail is None or detail.startswith(("S:", "CPU:")):
        return None, None
    if detail == "IDX:N/A":
        return (), None
    if detail.startswith("IDX:"):
        ranges, _ = read_tasks(detail.removeprefix("IDX:"))
        return tuple(index for span in ranges for index in span), None
    if _PER_DEVICE.fullmatch(detail):
        pairs = (pair.split("/") for pair in detail.split(","))
        return None, tuple((int(used), int(of)) for used, of in pairs)
    raise UnparsableOutput(f"{entry!r} has an unknown detail", field="gres", text=entry[:200])


def _entry(text: str) -> Gres:
    match = _ENTRY.fullmatch(text)
    if match is None:
        raise UnparsableOutput(f"{text[:80]!r} is no generic resource", field="gres", text=text[:200])
    words = match["words"].split(":")[1:]
    consumed = "no_consume" not in words
    words = [word for word in words if word != "no_consume"]
    count = read_count(words.pop()) if words and _AMOUNT.fullmatch(words[-1]) else 1
    if len(words) > 1:
        raise UnparsableOutput(f"{text[:80]!r} is no generic resource", field="gres", text=text[:200])
    indexes, per_device = _detail(match["detail"], text)
    kind = words[0] if words and words[0] != "(null)" else None
    return Gres(match["name"], kind, count, consumed, indexes, per_device)


@lru_cache(maxsize=2048)
def read_gres(text: str) -> tuple[Gres, ...]:
    """Return the entries of a GRES list; () for every spelling of none.

    name[:type][:no_consume][:count][(detail)], separated by commas outside parentheses. An entry
    without count is one piece. Job requests carry a "gres:" or "gres/" prefix (22.05, 23.11 and later).

    Raises:
        UnparsableOutput: an entry is not understood.
    """
    word = text.strip()
    if word in NOTHING:
        return ()
    return tuple(_entry(part) for part in split_outside(word, opening="(", closing=")"))


@lru_cache(maxsize=4096)
def read_tres(text: str) -> Mapping[str, int]:
    """Return a TRES string as numbers by key: "cpu=64,mem=500G,gres/gpu:a100=4"; {} for none.

    `mem` is MiB, everything else a count. "gres/gpu" is the total; typed entries repeat part of it.

    Raises:
        UnparsableOutput: a part is no key=number.
    """
    word = text.strip()
    found: dict[str, int] = {}
    if word in NOTHING:
        return MappingProxyType(found)
    for part in word.split(","):
        key, mark, value = part.partition("=")
        if not mark or _TRES_KEY.fullmatch(key) is None or key in found:
            raise UnparsableOutput(f"{word[:80]!r} is no TRES string", field="tres", text=text[:200])
        found[key] = read_memory_mib(value) if key == "mem" else read_count(value)
    return MappingProxyType(found)


def tres_gpus(tres: Mapping[str, int]) -> tuple[int, str | None]:
    """Return (GPUs, type) of a job's TRES; type None where it is not named or several are.

    Slices asked for as gres/shard are no GPUs.
    """
    typed = {key.removeprefix("gres/gpu:"): n for key, n in tres.items() if key.startswith("gres/gpu:") and n}
    total = max(tres.get("gres/gpu", 0), sum(typed.values()))
    return total, next(iter(typed)) if len(typed) == 1 else None


# --- one node -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NodeGres:
    """What one node has and what is taken of it."""

    configured: tuple[Gres, ...]
    used: tuple[Gres, ...]
    allocated: Mapping[str, int]
    """AllocTRES."""

    def pools(self, *, open_now: bool) -> tuple[tuple[GpuPool, ...], tuple[SlicePool, ...]]:
        """Return the node's GPUs and slices; nothing is free unless `open_now`.

        Where two sources disagree the larger use counts, and use that cannot be laid to one type is
        held against every type: a GPU is offered only when it is certainly free.
        """
        gpus = _totals(e for e in self.configured if e.name == "gpu")
        whole = {kind: n for kind, n in gpus.items() if not (kind and read_mig(kind))}
        migs = {kind: n for kind, n in gpus.items() if kind and read_mig(kind)}
        used = {kind: self._gpus_used(kind, alone=len(gpus) == 1) for kind in gpus}
        stray = max(0, self._gpus_allocated() - sum(used.values()))
        return (
            tuple(
                GpuPool(
                    type=kind,
                    total=total,
                    used=min(total, used[kind]),
                    free=max(0, total - used[kind] - stray - self._shared(kind)) if open_now else 0,
                )
                for kind, total in whole.items()
            ),
            (
                *(
                    SlicePool(
                        kind="mig",
                        profile=kind or "",
                        total=total,
                        used=min(total, used[kind]),
                        free=max(0, total - used[kind] - stray) if open_now else 0,
                    )
                    for kind, total in migs.items()
                ),
                *self._shards(whole, used=used, open_now=open_now),
            ),
        )

    def _gpus_allocated(self) -> int:
        typed = sum(n for key, n in self.allocated.items() if key.startswith("gres/gpu:"))
        return max(self.allocated.get("gres/gpu", 0), typed)

    def _gpus_used(self, kind: str | None, *, alone: bool) -> int:
        if alone:
            return max(sum(e.count for e in self.used if e.name == "gpu"), self._gpus_allocated())
        shown = sum(e.count for e in self.used if e.name == "gpu" and e.type == kind)
        return max(shown, self.allocated.get(f"gres/gpu:{kind}", 0))

    def _held_whole(self) -> frozenset[int]:
        return frozenset(i for e in self.used if e.name == "gpu" for i in e.indexes or ())

    def _shared(self, kind: str | None) -> int:
        """Return how many GPUs of this type are partly used through shards or MPS."""
        held = self._held_whole()
        devices: set[int] = set()
        unplaced = 0
        for entry in self.used:
            if entry.name not in _SHARING or (entry.type and kind and entry.type != kind):
                continue
            if entry.per_device is not None:
                devices |= {i for i, (used, _) in enumerate(entry.per_device) if used} - held
            elif entry.indexes is not None:
                devices |= set(entry.indexes) - held
            else:
                unplaced += entry.count
        if not devices:
            unplaced = max([unplaced, *(self.allocated.get(f"gres/{name}", 0) for name in _SHARING)])
        return len(devices) + unplaced

    def _shards(
        self, whole: Mapping[str | None, int], *, used: Mapping[str | None, int], open_now: bool
    ) -> tuple[SlicePool, ...]:
        """Return shard pools: shards on a GPU that a job holds whole are not free."""
        pools: list[SlicePool] = []
        totals = _totals(e for e in self.configured if e.name == "shard")
        for kind, total in totals.items():
            gpus = whole.get(kind) or sum(whole.values())
            shown = [e for e in self.used if e.name == "shard" and (e.type == kind or len(totals) == 1)]
            taken, free = _shards_left(
                total,
                per_gpu=total // gpus if gpus else total,
                shown=shown,
                allocated=self.allocated.get(f"gres/shard:{kind}", self.allocated.get("gres/shard", 0)),
                held=self._held_whole(),
                held_count=used[kind] if kind in whole else sum(used[k] for k in whole),
            )
            pools.append(
                SlicePool(
                    kind="shard", profile=kind or "", total=total, used=taken, free=free if open_now else 0
                )
            )
        return tuple(pools)


def _totals(entries: Iterable[Gres]) -> dict[str | None, int]:
    """Return counts by type; a type split over sockets is added up."""
    totals: dict[str | None, int] = {}
    for entry in entries:
        totals[entry.type] = totals.get(entry.type, 0) + entry.count
    return totals


def _shards_left(
    total: int,
    *,
    per_gpu: int,
    shown: list[Gres],
    allocated: int,
    held: frozenset[int],
    held_count: int,
) -> tuple[int, int]:
    """Return (used, free) shards of one pool.

    23.x and later print use per device. 22.05 prints the *number of GPUs* that carry shards with their
    indexes, so the count comes from AllocTRES; where that is not tracked those GPUs count as full.
    """
    used = sum(e.count for e in shown)
    for entry in shown:
        if entry.per_device is not None:
            free = sum(of - n for i, (n, of) in enumerate(entry.per_device) if i not in held)
            return max(used, allocated), max(0, min(free, total - max(used, allocated)))
        if entry.indexes:
            used = allocated or len(entry.indexes) * per_gpu
    used = min(total, max(used, allocated))
    return used, max(0, total - used - held_count * per_gpu)
