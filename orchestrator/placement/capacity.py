"""What the nodes of a record can hold: nodes of one kind grouped, so that rules and sizing count kinds.

Unknown memory counts as enough: what is not known does not fail a rule. An unknown accelerator type never
matches a named one.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from federation.types import NodeView, ResourceRecord
from orchestrator.envelope.types import Accelerator, Envelope

PLENTY_MIB = 1 << 50
"""Stands for memory that the site does not tell."""

VENDORS: dict[str, tuple[str, ...]] = {
    "nvidia": ("a", "b", "h", "gh", "gb", "l", "p", "t", "v", "rtx", "quadro"),
    "amd": ("mi",),
    "intel": ("max", "pvc", "flex"),
}
"""Accelerator names by vendor: the word that comes before the digits."""


@dataclass(frozen=True, slots=True)
class NodeKind:
    """Nodes alike in everything a request can ask for. `up`: how many of them may run a job sometime."""

    index: int
    cpus: int
    memory_mib: int
    gpus: int
    gpu_type: str | None
    gpu_memory_mib: int | None
    total: int
    up: int


_KindKey = tuple[int, int, int, str | None, int | None]


def kind_key(node: NodeView) -> _KindKey:
    """Return what makes two nodes alike."""
    memory_mib = PLENTY_MIB if node.memory_mib is None else node.memory_mib
    return (node.cpus, memory_mib, node.gpus, node.gpu_type, node.gpu_memory_mib)


def node_kinds(nodes: Iterable[NodeView]) -> tuple[NodeKind, ...]:
    """Return the kinds of nodes, smallest first; a kind's index is its place in this order."""
    total: dict[_KindKey, int] = {}
    up: dict[_KindKey, int] = {}
    for node in nodes:
        key = kind_key(node)
        total[key] = total.get(key, 0) + 1
        up[key] = up.get(key, 0) + node.is_up
    ordered = sorted(total, key=lambda key: (key[2], key[0], key[1], key[3] or "", key[4] or 0))
    return tuple(NodeKind(i, *key, total=total[key], up=up[key]) for i, key in enumerate(ordered))


def vendor_of(gpu_type: str) -> str | None:
    """Return who makes an accelerator, None when its name does not tell."""
    word = gpu_type.lower().rstrip("abcdefghijklmnopqrstuvwxyz_-") or gpu_type.lower()
    letters = word.rstrip("0123456789").rstrip("_- ")
    return next((vendor for vendor, words in VENDORS.items() if letters in words), None)


def type_matches(kind: NodeKind, wanted: Accelerator | None) -> bool:
    """Return whether a kind of node has GPUs of a type that will do."""
    if kind.gpus == 0:
        return False
    if wanted is None:
        return True
    if wanted.types and kind.gpu_type not in wanted.types:
        return False
    return wanted.vendor is None or (
        kind.gpu_type is not None and vendor_of(kind.gpu_type) == wanted.vendor.lower()
    )


def memory_matches(kind: NodeKind, wanted: Accelerator | None) -> bool:
    """Return whether each GPU of a kind of node has the memory asked for; not known is not enough."""
    if wanted is None or wanted.min_memory_mib is None:
        return True
    return kind.gpu_memory_mib is not None and kind.gpu_memory_mib >= wanted.min_memory_mib


def accelerator_matches(kind: NodeKind, wanted: Accelerator | None) -> bool:
    """Return whether a kind of node has GPUs that will do."""
    return type_matches(kind, wanted) and memory_matches(kind, wanted)


def suitable_kinds(kinds: Iterable[NodeKind], envelope: Envelope, *, gpus: int) -> tuple[NodeKind, ...]:
    """Return the kinds a size with so many GPUs may use: with none, every kind."""
    if gpus == 0:
        return tuple(kinds)
    return tuple(kind for kind in kinds if accelerator_matches(kind, envelope.accelerator))


@dataclass(frozen=True, slots=True)
class Layout:
    """A size laid out evenly over nodes: totals, what each node gives, and the kinds that can give it."""

    nodes: int
    gpus: int
    cpus: int
    memory_mib: int | None
    """As granted; None = the site's default."""
    walltime_s: int
    gpus_per_node: int
    cpus_per_node: int
    memory_per_node_mib: int
    """What the plan counts on each node."""
    kinds: tuple[NodeKind, ...]

    @property
    def kind_indices(self) -> frozenset[int]:
        """Return the kinds by index."""
        return frozenset([kind.index for kind in self.kinds])

    @property
    def smallest_kind(self) -> NodeKind:
        """Return the least specialised kind that will do."""
        return self.kinds[0]


@dataclass(frozen=True, slots=True)
class Target:
    """A size before it is laid out, totals."""

    gpus: int
    cpus: int
    memory_mib: int | None


def lay_out(
    target: Target, nodes: int, *, envelope: Envelope, kinds: tuple[NodeKind, ...], record: ResourceRecord
) -> Layout | None:
    """Return the target on exactly so many nodes, rounded up to an even share; None when it cannot be.

    Rounding stays within the envelope's maximum, but every node of a GPU job, and of a job that must have
    so many nodes, gets one CPU at least. The wall time is the envelope's minimum.
    """
    gpus = -(-target.gpus // nodes) * nodes
    cpus = max(target.cpus, nodes)
    must_spread = gpus > 0 or (envelope.nodes is not None and nodes <= envelope.nodes.min)
    if gpus > envelope.gpus.max or (cpus > envelope.cpus.max and not must_spread):
        return None
    gpus_per_node, cpus_per_node = gpus // nodes, -(-cpus // nodes)
    asked_mib = 0 if target.memory_mib is None else -(-target.memory_mib // nodes)
    fitting = tuple(
        [
            kind
            for kind in kinds
            if kind.up
            and kind.gpus >= gpus_per_node
            and kind.cpus >= cpus_per_node
            and kind.memory_mib >= asked_mib
        ]
    )
    if sum([kind.up for kind in fitting]) < nodes:
        return None
    share_mib = asked_mib
    granted_mib = target.memory_mib
    if target.memory_mib is None:
        share_mib = default_memory_mib(record, fitting, cpus=cpus_per_node, gpus=gpus_per_node)
        granted_mib = share_mib * nodes or None
    return Layout(
        nodes=nodes,
        gpus=gpus,
        cpus=cpus,
        memory_mib=granted_mib,
        walltime_s=envelope.walltime_s.min,
        gpus_per_node=gpus_per_node,
        cpus_per_node=cpus_per_node,
        memory_per_node_mib=share_mib,
        kinds=fitting,
    )


def default_memory_mib(record: ResourceRecord, kinds: tuple[NodeKind, ...], *, cpus: int, gpus: int) -> int:
    """Return the memory each node gives when none is asked for, at most what the smallest fitting node has.

    The site's default per CPU where it has one, else the share of the node that goes with the GPUs or CPUs,
    rounded down. Whole nodes give all. 0 = not known.
    """
    known = [kind for kind in kinds if kind.memory_mib < PLENTY_MIB]
    if not known:
        return 0
    if record.is_exclusive:
        return min(kind.memory_mib for kind in known)
    shares = []
    for kind in known:
        share = kind.memory_mib * cpus // max(kind.cpus, 1)
        if record.default_memory_per_cpu_mib is not None:
            share = record.default_memory_per_cpu_mib * cpus
        elif gpus and kind.gpus:
            share = max(share, kind.memory_mib * gpus // kind.gpus)
        shares.append(min(share, kind.memory_mib))
    return min(shares)
