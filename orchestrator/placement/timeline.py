"""Free resources as step functions of time, and the earliest window where a request fits.

Times are whole seconds from the instant of the decision. Two pictures of a partition:
`NodeTimelines` names nodes; `NodeCounts` only counts them, enough where every job gets whole, equal nodes.
Both keep the promise that a window, once reserved, is taken from everybody after.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, heapreplace
from typing import Protocol, Self

FOREVER = 10 * 366 * 86_400
"""Nothing is planned past this many seconds."""
MAX_HEAPS = 256
"""Kinds of request whose bounds are remembered while the queue is planned; the oldest is forgotten first."""
MAX_SETTLED_HEAPS = 24
"""The same once the plan is made, and is asked only."""


@dataclass(frozen=True, slots=True)
class Need:
    """What a job asks of each of its nodes. `kinds`: node kinds that will do, None = all."""

    nodes: int
    cpus: int
    memory_mib: int
    gpus: int
    kinds: frozenset[int] | None = None


class Timeline(Protocol):
    """A partition's future that can be asked and reserved."""

    def earliest(self, need: Need, duration_s: int, *, after_s: int = 0) -> int | None:
        """Return the first start at or after `after_s`; None when it never fits."""

    def reserve(self, need: Need, duration_s: int, *, after_s: int = 0) -> int | None:
        """Take the earliest window and return its start; None when it never fits."""

    def fork(self) -> Self:
        """Return a copy that can be reserved without changing this one."""

    def settle(self) -> None:
        """Forget most of what only helped to plan the queue; answers stay the same."""


class NodeSteps:
    """One node: what is free from each step's time until the next, the last step lasting for ever."""

    __slots__ = ("cpus", "gpus", "is_rising", "kind", "memory_mib", "times", "version")

    def __init__(self, kind: int, steps: Sequence[tuple[int, int, int, int]]) -> None:
        """Take steps (time, cpus, memory, gpus) by growing time, the first at 0."""
        self.kind = kind
        self.times = [step[0] for step in steps]
        self.cpus = [step[1] for step in steps]
        self.memory_mib = [step[2] for step in steps]
        self.gpus = [step[3] for step in steps]
        self.is_rising = all(free == sorted(free) for free in (self.cpus, self.memory_mib, self.gpus))
        """Free resources only grow: the first start is the same for every duration."""
        self.version = 0

    def copy(self) -> "NodeSteps":
        """Return the same steps at the same version, to be changed on their own."""
        made = NodeSteps.__new__(NodeSteps)
        made.kind, made.version, made.is_rising = self.kind, self.version, self.is_rising
        made.times, made.cpus = self.times.copy(), self.cpus.copy()
        made.memory_mib, made.gpus = self.memory_mib.copy(), self.gpus.copy()
        return made

    def earliest(
        self, cpus: int, memory_mib: int, gpus: int, duration_s: int, after_s: int = 0
    ) -> int | None:
        """Return the first start at or after `after_s` of a window that is free all along."""
        times, free_cpus, free_memory, free_gpus = self.times, self.cpus, self.memory_mib, self.gpus
        last = len(times) - 1
        index = bisect_right(times, after_s) - 1 if after_s else 0
        start = -1
        while index <= last:
            if free_gpus[index] >= gpus and free_cpus[index] >= cpus and free_memory[index] >= memory_mib:
                if start < 0:
                    start = max(times[index], after_s)
                if index == last or times[index + 1] >= start + duration_s:
                    return start
            else:
                start = -1
            index += 1
        return None

    def take(self, start_s: int, end_s: int, cpus: int, memory_mib: int, gpus: int) -> None:
        """Take resources from `start_s` until `end_s`."""
        first, after = self._cut(start_s), self._cut(end_s)
        for index in range(first, after):
            self.cpus[index] -= cpus
            self.memory_mib[index] -= memory_mib
            self.gpus[index] -= gpus
        self.is_rising = False
        self.version += 1

    def close(self, start_s: int, end_s: int) -> None:
        """Leave nothing free from `start_s` until `end_s`: the node is given whole, or in maintenance."""
        for index in range(self._cut(start_s), self._cut(end_s)):
            self.cpus[index] = self.memory_mib[index] = self.gpus[index] = 0
        self.is_rising = False
        self.version += 1

    def _cut(self, at_s: int) -> int:
        """Return the index of the step that begins at a time, made where there is none."""
        index = bisect_right(self.times, at_s) - 1
        if self.times[index] == at_s:
            return index
        for column in (self.cpus, self.memory_mib, self.gpus):
            column.insert(index + 1, column[index])
        self.times.insert(index + 1, at_s)
        return index + 1


_Key = tuple[frozenset[int] | None, int, int, int, int]
_Bound = tuple[int, int, int]
"""A start not later than the true one, the node's index, the node's version it was computed at."""


class NodeTimelines:
    """A partition whose nodes are shared: every job is placed on named nodes.

    For each kind of request a heap holds lower bounds of each node's earliest start. Reserving only ever
    makes starts later, so a bound stays a bound, and only nodes that come to the top are looked at again.
    The answer is the smallest (start, node index): it does not depend on what was asked before.
    """

    def __init__(self, nodes: Sequence[NodeSteps], *, is_exclusive: bool = False) -> None:
        """Take the nodes in the order in which they are filled; exclusive ones are taken whole."""
        self.nodes = list(nodes)
        self.is_exclusive = is_exclusive
        self._heaps: dict[_Key, list[_Bound]] = {}
        self._max_heaps = MAX_HEAPS
        self._lent: set[int] = set()

    def fork(self) -> "NodeTimelines":
        """Return a copy that shares every node until it takes something from it.

        This one must not be reserved any more. Bounds hold for the copy too: it only ever has less.
        """
        made = NodeTimelines(self.nodes, is_exclusive=self.is_exclusive)
        made._heaps = {key: heap.copy() for key, heap in self._heaps.items()}
        made._lent = set(range(len(self.nodes)))
        return made

    def settle(self) -> None:
        """Forget all but the last few kinds of request; answers stay the same."""
        self._max_heaps = MAX_SETTLED_HEAPS
        for key in list(self._heaps)[:-MAX_SETTLED_HEAPS]:
            del self._heaps[key]

    def _own(self, index: int) -> NodeSteps:
        """Return a node that may be changed, copied first where it is lent."""
        if index in self._lent:
            self._lent.discard(index)
            self.nodes[index] = self.nodes[index].copy()
        return self.nodes[index]

    def earliest(self, need: Need, duration_s: int, *, after_s: int = 0) -> int | None:
        """Return the first start at or after `after_s`; None when it never fits."""
        found = self._window(need, duration_s, after_s)
        return None if found is None else found[0]

    def reserve(self, need: Need, duration_s: int, *, after_s: int = 0) -> int | None:
        """Take the earliest window on its nodes and return its start; None when it never fits."""
        found = self._window(need, duration_s, after_s)
        if found is None:
            return None
        start, chosen = found
        for index in chosen:
            node = self._own(index)
            if self.is_exclusive:
                node.close(start, start + duration_s)
            else:
                node.take(start, start + duration_s, need.cpus, need.memory_mib, need.gpus)
        return start

    def _window(self, need: Need, duration_s: int, after_s: int) -> tuple[int, list[int]] | None:
        """Return the first start and the nodes that are free together then, those free first preferred."""
        heap = self._heap(need, duration_s)
        seen: list[_Bound] = []
        starts: dict[int, int] = {}
        at_s = after_s
        try:
            while at_s < FOREVER:
                together = self._together(heap, seen, starts, need=need, duration_s=duration_s, at_s=at_s)
                if len(together) == need.nodes:
                    return at_s, together
                if len(starts) < need.nodes:
                    return None
                nth = sorted(starts.values())[need.nodes - 1]
                at_s = min(nth, heap[0][0]) if heap else nth
            return None
        finally:
            for bound in seen:
                heappush(heap, bound)

    def _together(
        self,
        heap: list[_Bound],
        seen: list[_Bound],
        starts: dict[int, int],
        *,
        need: Need,
        duration_s: int,
        at_s: int,
    ) -> list[int]:
        """Return at most the needed number of nodes free from `at_s`, moving bounds from `heap` to `seen`.

        Afterwards `starts` holds, for every seen node, its first start at or after some instant up to
        `at_s`, and for at least the needed number of nodes where there are so many.
        """
        nodes = self.nodes
        free: list[int] = []
        for _, index, _ in seen:
            if starts[index] < at_s:
                starts[index] = self._start(index, need, duration_s, at_s)
            if starts[index] == at_s:
                free.append(index)
        while heap and len(free) < need.nodes and (len(starts) < need.nodes or heap[0][0] <= at_s):
            bound, index, version = heap[0]
            node = nodes[index]
            if version != node.version:
                start = node.earliest(need.cpus, need.memory_mib, need.gpus, duration_s)
                if start is None or start >= FOREVER:
                    heappop(heap)
                else:
                    heapreplace(heap, (start, index, node.version))
                continue
            heappop(heap)
            seen.append((bound, index, version))
            starts[index] = bound if bound >= at_s else self._start(index, need, duration_s, at_s)
            if starts[index] == at_s:
                free.append(index)
        return free[: need.nodes]

    def _start(self, index: int, need: Need, duration_s: int, after_s: int) -> int:
        """Return a node's first start at or after an instant; FOREVER when it has none."""
        start = self.nodes[index].earliest(need.cpus, need.memory_mib, need.gpus, duration_s, after_s)
        return FOREVER if start is None else start

    def _heap(self, need: Need, duration_s: int) -> list[_Bound]:
        key = (need.kinds, need.gpus, need.cpus, need.memory_mib, duration_s)
        heap = self._heaps.get(key)
        if heap is None:
            heap = self._derived(key)
            self._remember(key, heap)
        return heap

    def _derived(self, key: _Key) -> list[_Bound]:
        """Return bounds for a new kind of request, from a shorter one of the same size.

        On a node whose free resources only grow, a start for one duration is the start for every other, so
        its bound stays exact.
        """
        parent, nodes = self._parent(key), self.nodes
        bounds = self._instants(key) if parent is None else self._heaps[parent]
        return [(bound, i, version if nodes[i].is_rising else -1) for bound, i, version in bounds]

    def _parent(self, key: _Key) -> _Key | None:
        """Return the longest request known that is of the same size and no longer than this one."""
        shorter = [other for other in self._heaps if other[:4] == key[:4] and other[4] <= key[4]]
        return max(shorter, key=lambda other: other[4], default=None)

    def _instants(self, key: _Key) -> list[_Bound]:
        """Return when each node first has the resources of a request free for an instant; remembered."""
        kinds, gpus, cpus, memory_mib, _ = key
        found = []
        for index, node in enumerate(self.nodes):
            if kinds is None or node.kind in kinds:
                start = node.earliest(cpus, memory_mib, gpus, 0)
                if start is not None:
                    found.append((start, index, node.version))
        self._remember((*key[:4], 0), found.copy())
        return found

    def _remember(self, key: _Key, heap: list[_Bound]) -> None:
        heapify(heap)
        if len(self._heaps) >= self._max_heaps:
            del self._heaps[next(iter(self._heaps))]
        self._heaps[key] = heap


class NodeCounts:
    """A partition of equal nodes given whole: only their number matters."""

    def __init__(self, node: Need, steps: Sequence[tuple[int, int]]) -> None:
        """Take one whole node's capacity and the free nodes (time, count) by growing time from 0."""
        self.node = node
        self.times = [step[0] for step in steps]
        self.free = [step[1] for step in steps]

    def fork(self) -> "NodeCounts":
        """Return a copy that can be reserved without changing this one."""
        return NodeCounts(self.node, list(zip(self.times, self.free, strict=True)))

    def settle(self) -> None:
        """Nothing is remembered here."""

    def earliest(self, need: Need, duration_s: int, *, after_s: int = 0) -> int | None:
        """Return the first start at or after `after_s`; None when it never fits."""
        if not self._fits_node(need):
            return None
        times, free, wanted = self.times, self.free, need.nodes
        last = len(times) - 1
        start = -1
        for index in range(bisect_right(times, after_s) - 1, last + 1):
            if free[index] < wanted:
                start = -1
                continue
            if start < 0:
                start = max(times[index], after_s)
            if index == last or times[index + 1] >= start + duration_s:
                return start if start < FOREVER else None
        return None

    def reserve(self, need: Need, duration_s: int, *, after_s: int = 0) -> int | None:
        """Take the earliest window and return its start; None when it never fits."""
        start = self.earliest(need, duration_s, after_s=after_s)
        if start is not None:
            first, after = self._cut(start), self._cut(start + duration_s)
            for index in range(first, after):
                self.free[index] -= need.nodes
        return start

    def close(self, start_s: int, end_s: int) -> None:
        """Leave no node free from `start_s` until `end_s`: the partition is in maintenance."""
        for index in range(self._cut(start_s), self._cut(end_s)):
            self.free[index] = 0

    def _fits_node(self, need: Need) -> bool:
        kinds_fit = need.kinds is None or self.node.kinds is None or bool(need.kinds & self.node.kinds)
        return (
            kinds_fit
            and need.cpus <= self.node.cpus
            and need.memory_mib <= self.node.memory_mib
            and need.gpus <= self.node.gpus
        )

    def _cut(self, at_s: int) -> int:
        index = bisect_right(self.times, at_s) - 1
        if self.times[index] == at_s:
            return index
        self.times.insert(index + 1, at_s)
        self.free.insert(index + 1, self.free[index])
        return index + 1
