"""The state of a node in all of Slurm's spellings.

Source: sinfo(1) NODE STATE CODES, recorded states of 22.05.8 (compact, long, complete, scontrol).
"""

from __future__ import annotations

from providers.sandbox.slurm.model import Cluster, Held, Node

BASES = {"UNKNOWN": 0, "DOWN": 1, "IDLE": 2, "ALLOCATED": 3, "MIXED": 5}
FLAGS = {
    "CLOUD": 0x80,
    "COMPLETING": 0x400,
    "DRAIN": 0x200,
    "FAIL": 0x2000,
    "INVALID_REG": 0x400000,
    "MAINTENANCE": 0x8000,
    "NOT_RESPONDING": 0x800,
    "POWERED_DOWN": 0x1000,
    "POWERING_DOWN": 0x40000,
    "POWERING_UP": 0x4000,
    "REBOOT_REQUESTED": 0x10000,
    "REBOOT_ISSUED": 0x100000,
    "RESERVED": 0x20,
    "PLANNED": 0x200000,
}
"""Flag bits in the order in which they are listed; the value orders sinfo's rows, highest first."""
SHORT = {
    "allocated": "alloc",
    "completing": "comp",
    "down": "down",
    "drained": "drain",
    "draining": "drng",
    "fail": "fail",
    "idle": "idle",
    "inval": "inval",
    "maint": "maint",
    "mixed": "mix",
    "planned": "plnd",
    "reboot": "boot",
    "reserved": "resv",
    "unknown": "unk",
}


class NodeView:
    """One node with what jobs hold on it, and its state now."""

    __slots__ = ("base", "flags", "held", "node")

    def __init__(self, cluster: Cluster, node: Node, held: Held, now: int, planned: set[str]) -> None:
        self.node, self.held = node, held
        flags = set(node.flags)
        for reservation in cluster.reservations:
            if reservation.start <= now < reservation.end and node.name in reservation.nodes:
                flags |= {"MAINTENANCE", "RESERVED"} if "MAINT" in reservation.flags else {"RESERVED"}
        if held.completing:
            flags.add("COMPLETING")
        self.base = (
            "DOWN"
            if "DOWN" in flags
            else "IDLE"
            if not held.cpus
            else "ALLOCATED"
            if held.cpus >= node.cpus
            else "MIXED"
        )
        if node.name in planned and self.base == "IDLE":
            flags.add("PLANNED")
        self.flags = [flag for flag in FLAGS if flag in flags]

    @property
    def number(self) -> int:
        """Return what sinfo sorts by."""
        return self.sinfo_base + sum(FLAGS[flag] for flag in self.flags)

    @property
    def sinfo_base(self) -> int:
        """Return the base that sinfo sees: a draining node that is partly used counts as allocated."""
        draining = "DRAIN" in self.flags and self.base == "MIXED"
        return BASES["ALLOCATED" if draining else self.base]

    @property
    def scontrol(self) -> str:
        """Return `MIXED+DRAIN`."""
        return "+".join([self.base, *self.flags])

    @property
    def complete(self) -> str:
        """Return `allocated+drain`."""
        base = next(name for name, value in BASES.items() if value == self.sinfo_base)
        return "+".join([base, *self.flags]).lower()

    def _word(self) -> str:
        flags, busy = self.flags, self.base in {"ALLOCATED", "MIXED"}
        ladder = (
            ("INVALID_REG" in flags, "inval"),
            ("REBOOT_ISSUED" in flags, "reboot"),
            ("MAINTENANCE" in flags and not busy and "DRAIN" not in flags, "maint"),
            (
                "DRAIN" in flags and self.base != "DOWN",
                "draining" if busy or "COMPLETING" in flags else "drained",
            ),
            ("FAIL" in flags, "fail"),
            (self.base == "DOWN", "down"),
            ("COMPLETING" in flags, "completing"),
            (self.base == "IDLE" and "RESERVED" in flags, "reserved"),
            (self.base == "IDLE" and "PLANNED" in flags, "planned"),
        )
        return next((word for true, word in ladder if true), self.base.lower())

    def _suffix(self) -> str:
        flags = self.flags
        ladder = (
            ("REBOOT_ISSUED" in flags, "^"),
            ("POWERING_UP" in flags, "#"),
            ("POWERING_DOWN" in flags, "%"),
            ("POWERED_DOWN" in flags, "~"),
            ("MAINTENANCE" in flags and self.base in {"ALLOCATED", "MIXED"}, "$"),
            ("REBOOT_REQUESTED" in flags, "@"),
            ("NOT_RESPONDING" in flags, "*"),
        )
        return next((mark for true, mark in ladder if true), "")

    @property
    def long(self) -> str:
        """Return `draining`, `mixed$`, `down*`."""
        return self._word() + self._suffix()

    @property
    def short(self) -> str:
        """Return `drng`, `mix$`, `down*`."""
        return SHORT[self._word()] + self._suffix()

    @property
    def cpus(self) -> tuple[int, int, int, int]:
        """Return CPUs allocated, idle, other, total."""
        total, taken = self.node.cpus, self.held.cpus
        lost = self.base == "DOWN" or "DRAIN" in self.flags
        return (taken, 0, total - taken, total) if lost else (taken, total - taken, 0, total)

    @property
    def load(self) -> str:
        """Return the CPU load as shown."""
        return self.node.load or f"{float(self.held.cpus):.2f}"

    @property
    def free_mem(self) -> int:
        """Return the memory that the node reports as free, MiB."""
        return self.node.free if self.node.free >= 0 else max(0, int((self.node.mem - self.held.mem) * 0.97))


def views(cluster: Cluster, now: int) -> dict[str, NodeView]:
    """Return every node's view by name."""
    held = cluster.used()
    planned = {name for job in cluster.jobs if job.state == "PENDING" for name in job.planned}
    return {name: NodeView(cluster, node, held[name], now, planned) for name, node in cluster.nodes.items()}
