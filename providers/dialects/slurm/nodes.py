"""Nodes as Slurm shows them: one record per node, whatever the number of its partitions.

Source: scontrol(1) show node -d, sinfo(1) NODE STATE CODES, versions 20.11 to 25.11, data_parser
v0.0.38 to v0.0.44.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from providers.dialects.slurm.gres import NodeGres, read_gres, read_tres
from providers.dialects.slurm.records import (
    Record,
    reading,
    split_records,
)
from providers.dialects.slurm.units import NOTHING, read_count, read_words
from providers.errors import UnparsableOutput
from providers.types import Node

SHOW_NODES: Final = ("scontrol", "-a", "-o", "-d", "show", "node")
_COMMAND: Final = " ".join(SHOW_NODES)
_NONE: Final[Mapping[str, int]] = MappingProxyType({})

_BASES: Final = {
    "IDLE": "idle",
    "MIXED": "mixed",
    "MIX": "mixed",
    "ALLOCATED": "allocated",
    "ALLOC": "allocated",
    "DOWN": "down",
    "ERROR": "error",
    "ERR": "error",
    "FUTURE": "future",
    "FUTR": "future",
    "UNKNOWN": "unknown",
    "UNK": "unknown",
}
_COMPOSED: Final = {
    "DRAINED": ("idle", "DRAIN"),
    "DRAIN": ("idle", "DRAIN"),
    "DRAINING": ("mixed", "DRAIN"),
    "DRNG": ("mixed", "DRAIN"),
    "MAINT": ("idle", "MAINTENANCE"),
    "RESERVED": ("idle", "RESERVED"),
    "RESV": ("idle", "RESERVED"),
    "PLANNED": ("idle", "PLANNED"),
    "PLND": ("idle", "PLANNED"),
    "COMPLETING": ("idle", "COMPLETING"),
    "COMP": ("idle", "COMPLETING"),
    "FAIL": ("idle", "FAIL"),
    "FAILING": ("mixed", "FAIL"),
    "FAILG": ("mixed", "FAIL"),
    "INVAL": ("idle", "INVALID_REG"),
    "INVALID": ("idle", "INVALID_REG"),
    "REBOOT": ("idle", "REBOOT_REQUESTED"),
    "BOOT": ("idle", "REBOOT_REQUESTED"),
    "PERFCTRS": ("idle", "PERFCTRS"),
    "NPC": ("idle", "PERFCTRS"),
    "BLOCKED": ("idle", "BLOCKED"),
    "BLOCK": ("idle", "BLOCKED"),
    "NO_RESPOND": ("unknown", "NOT_RESPONDING"),
    "POWERED_DOWN": ("idle", "POWERED_DOWN"),
    "POWER_DOWN": ("idle", "POWER_DOWN"),
    "POWERING_DOWN": ("idle", "POWERING_DOWN"),
    "POWERING_UP": ("idle", "POWERING_UP"),
    "POW_DN": ("idle", "POWERING_DOWN"),
    "POW_UP": ("idle", "POWERING_UP"),
}
"""One word of sinfo (or of scontrol 20.11) for a base state and a flag."""

_FLAG_SPELLINGS: Final = {
    "POWER": "POWERED_DOWN",
    "MAINT": "MAINTENANCE",
    "RES": "RESERVED",
    "RESV": "RESERVED",
    "NO_RESPOND": "NOT_RESPONDING",
    "REBOOT": "REBOOT_REQUESTED",
    "COMP": "COMPLETING",
    "": "COMPLETING",
}
"""Older spellings; "ALLOCATED+" means some of its jobs are completing."""

_SYMBOLS: Final = {
    "*": "NOT_RESPONDING",
    "~": "POWERED_DOWN",
    "#": "POWERING_UP",
    "%": "POWERING_DOWN",
    "!": "POWER_DOWN",
    "$": "MAINTENANCE",
    "@": "REBOOT_REQUESTED",
    "^": "REBOOT_ISSUED",
    "-": "PLANNED",
}
_HARMLESS: Final = frozenset(
    {"CLOUD", "PLANNED", "DYNAMIC", "DYNAMIC_NORM", "DYNAMIC_FUTURE", "EXTERNAL", "UNDRAIN", "RESUME"}
    | {"REBOOT_CANCELED"}
)
"""Flags that keep nobody out. Every other flag does, a new version's unknown one included."""
KNOWN_FLAGS: Final = (
    _HARMLESS
    | set(_SYMBOLS.values())
    | {flag for _, flag in _COMPOSED.values()}
    | {"POWER_DRAIN", "POWER_UP", "NET"}
)
"""Flags of Slurm 20.11 to 25.11."""
_STARTABLE: Final = frozenset({"idle", "mixed", "allocated"})
_WORD: Final = re.compile(r"([A-Z_]*)([*~#%!$@^-]*)", re.ASCII)


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node's state over all spellings: base word in lower case, flags in upper case."""

    base: str
    flags: frozenset[str]

    @property
    def usable(self) -> bool:
        """Whether an ordinary user's job could start, as far as the state goes."""
        return self.base in _STARTABLE and self.flags <= _HARMLESS


@lru_cache(maxsize=1024)
def read_state(text: str) -> NodeState:
    """Return a printed node state: "MIXED+DRAIN", "MIXED#+CLOUD", "drng", "idle~", "mixed-".

    A base word of a version we do not know gives base "unknown" and the word as a flag: such a node is
    shown and never used.

    Raises:
        UnparsableOutput: it is no state at all.
    """
    # Upper case can turn another letter into ours ("ß" into "SS"), so what is not ASCII is refused before.
    first, *rest = (text.strip().upper() if text.isascii() else "\0").split("+")
    flags: set[str] = set()
    words: list[str] = []
    for part in (first, *rest):
        match = _WORD.fullmatch(part)
        if match is None:
            raise UnparsableOutput(f"{text[:80]!r} is no node state", field="state", text=text[:200])
        words.append(match[1])
        flags |= {_SYMBOLS[symbol] for symbol in match[2]}
    if not words[0]:
        raise UnparsableOutput(f"{text[:80]!r} is no node state", field="state", text=text[:200])
    flags |= {_FLAG_SPELLINGS.get(word, word) for word in words[1:]}
    base = _BASES.get(words[0])
    if base is None:
        base, flag = _COMPOSED.get(words[0], ("unknown", words[0]))
        flags.add(flag)
    if "POWERING_UP" in flags:
        flags.discard("NOT_RESPONDING")  # booting nodes never respond; 20.11 cannot print both
    return NodeState(base, frozenset(flags))


@dataclass(frozen=True, slots=True)
class _Seen:
    """The figures of one node, before what is free is worked out."""

    name: str
    partitions: tuple[str, ...]
    state: NodeState
    cpus_total: int
    cpus_allocated: int
    threads_per_core: int
    memory_mib: int
    memory_allocated_mib: int
    gres: NodeGres
    features: tuple[str, ...]
    architecture: str | None
    reason: str


def _node(seen: _Seen, *, reserved_cores: int | None) -> Node:
    """Return the node. `reserved_cores`: how many are set aside where only a part of it is reserved."""
    state = seen.state
    usable = state.usable
    if reserved_cores is not None and "RESERVED" in state.flags:
        usable = NodeState(state.base, state.flags - {"RESERVED"}).usable
    set_aside = (reserved_cores or 0) * seen.threads_per_core
    cpus_free = max(0, seen.cpus_total - seen.cpus_allocated - set_aside) if usable else 0
    memory_free = max(0, seen.memory_mib - seen.memory_allocated_mib) if usable else 0
    gpus, slices = seen.gres.pools(open_now=cpus_free > 0 and memory_free > 0)
    return Node(
        name=seen.name,
        partitions=seen.partitions,
        state=state.base,
        flags=state.flags,
        usable=usable,
        cpus_total=seen.cpus_total,
        cpus_free=cpus_free,
        memory_total_mib=seen.memory_mib,
        memory_free_mib=memory_free,
        gpus=gpus,
        slices=slices,
        features=seen.features,
        architecture=seen.architecture,
        reason=seen.reason,
    )


def read_nodes(
    text: str, *, partly_reserved: Mapping[str, int] = _NONE, command: str = _COMMAND
) -> tuple[Node, ...]:
    """Return the nodes of `scontrol [-a] [-o] [-d] show node`, sorted as printed.

    Without -d there is no GresUsed and GPUs are counted by AllocTRES alone. `partly_reserved` gives the
    reserved cores of nodes of which a reservation takes only some: those stay usable for the rest.

    Raises:
        UnparsableOutput: a record is not understood, a node comes twice, or there is none: a controller
            always has nodes, and an empty answer is not believed.
    """
    nodes: dict[str, Node] = {}
    for record in split_records(text, first_key="NodeName", command=command):
        with reading(command, record.line):
            seen = _seen_text(record)
            if seen.name in nodes:
                raise UnparsableOutput(f"node {seen.name} comes twice", field="NodeName")
            nodes[seen.name] = _node(seen, reserved_cores=partly_reserved.get(seen.name))
    if not nodes:
        raise UnparsableOutput(f"{command} printed no node", command=command, line="")
    return tuple(nodes.values())


def _seen_text(record: Record) -> _Seen:
    return _Seen(
        name=record.need("NodeName"),
        partitions=read_words(record.get("Partitions")),
        state=read_state(record.need("State")),
        cpus_total=read_count(record.get("CPUEfctv") or record.need("CPUTot")),
        cpus_allocated=read_count(record.need("CPUAlloc")),
        threads_per_core=read_count(record.get("ThreadsPerCore", "1")),
        memory_mib=read_count(record.need("RealMemory")),
        memory_allocated_mib=read_count(record.need("AllocMem")),
        gres=NodeGres(
            configured=read_gres(record.need("Gres")),
            used=read_gres(record.get("GresUsed")),
            allocated=_held_tres(record.need("AllocTRES"), read_count(record.need("CPUAlloc"))),
        ),
        features=read_words(record.get("ActiveFeatures") or record.get("AvailableFeatures")),
        architecture=record.get("Arch") or None,
        reason=record.get("Reason"),
    )


def _held_tres(text: str, cpus_allocated: int) -> Mapping[str, int]:
    """Return AllocTRES as far as a job can hold it: every job on a node has at least one of its CPUs.

    A controller that was killed can come back with a GPU in AllocTRES of a node without a job, and keep it
    there until its next start (seen on 22.05, GresUsed 0, CPUAlloc 0); it still gives that GPU to jobs.
    """
    return read_tres(text) if cpus_allocated else _NONE


def _or_none(word: str) -> str | None:
    return None if word in NOTHING else word


def controller_version(text: str) -> str:
    """Return the newest slurmd version in a listing of nodes, "" when none is shown."""
    versions = set(re.findall(r"\sVersion=(\d+\.\d+\.\d+\S*)", text))
    return max(versions, key=lambda v: [int(n) for n in re.findall(r"\d+", v)[:3]], default="")
