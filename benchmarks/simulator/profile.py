"""What is free on each node over time, as a backfill scheduler sees it: running jobs end at their limits.

Written apart from the product's own planner, so that a fault of one does not hide in the other. Times are
seconds of the simulated world.
"""

from collections.abc import Sequence
from dataclasses import dataclass

Step = tuple[int, int, int, int]
"""From this time on: CPUs, memory, GPUs free."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What a job asks of each of so many nodes, and for how long at most."""

    nodes: int
    cpus: int
    memory_mib: int
    gpus: int
    limit_s: int


class Profile:
    """The nodes in the order in which they are filled; windows taken from it are gone for all later jobs."""

    def __init__(self, nodes: Sequence[tuple[int, list[Step]]]) -> None:
        """Take (node, steps by growing time) of every node in service; the steps are copied when taken."""
        self._names = [name for name, _ in nodes]
        self._steps = [steps for _, steps in nodes]
        self._own = [False] * len(nodes)

    def earliest(self, ask: Ask, now_s: int) -> tuple[int, list[int]] | None:
        """Return the first start at or after an instant and the positions of the nodes; None when never."""
        after_s = now_s
        while True:
            starts = []
            for position, steps in enumerate(self._steps):
                start_s = _first(steps, ask, after_s)
                if start_s is not None:
                    starts.append((start_s, position))
                    if ask.nodes == 1 and start_s == after_s:
                        return start_s, [position]
            if len(starts) < ask.nodes:
                return None
            starts.sort()
            at_s = starts[ask.nodes - 1][0]
            chosen = [
                position
                for start_s, position in starts
                if start_s == at_s or (start_s < at_s and _first(self._steps[position], ask, at_s) == at_s)
            ]
            if len(chosen) >= ask.nodes:
                return at_s, sorted(chosen)[: ask.nodes]
            after_s = at_s

    def at_once(self, ask: Ask, now_s: int) -> list[int] | None:
        """Return the positions of nodes that are free now for the whole limit; None when too few are."""
        found = []
        for position, steps in enumerate(self._steps):
            _, cpus, memory_mib, gpus = steps[0]
            if cpus < ask.cpus or gpus < ask.gpus or memory_mib < ask.memory_mib:
                continue
            if len(steps) == 1 or _first(steps, ask, now_s, only_now=True) == now_s:
                found.append(position)
                if len(found) == ask.nodes:
                    return found
        return None

    def take(self, positions: Sequence[int], ask: Ask, start_s: int) -> list[int]:
        """Take a window and return the names of its nodes."""
        for position in positions:
            steps = self._steps[position] if self._own[position] else list(self._steps[position])
            self._own[position] = True
            self._steps[position] = _without(steps, ask, start_s, start_s + ask.limit_s)
        return [self._names[position] for position in positions]


def _first(steps: list[Step], ask: Ask, after_s: int, *, only_now: bool = False) -> int | None:
    """Return the first start at or after an instant of a window free for the whole limit."""
    cpus, memory_mib, gpus, limit_s = ask.cpus, ask.memory_mib, ask.gpus, ask.limit_s
    start_s: int | None = None
    last = len(steps) - 1
    for index, (at_s, free_cpus, free_mib, free_gpus) in enumerate(steps):
        if index < last and steps[index + 1][0] <= after_s:
            continue
        if free_gpus >= gpus and free_cpus >= cpus and free_mib >= memory_mib:
            if start_s is None:
                start_s = max(after_s, at_s)
            if index == last or steps[index + 1][0] >= start_s + limit_s:
                return start_s
        else:
            start_s = None
        if only_now and start_s != after_s:
            return None
    return None


def _without(steps: list[Step], ask: Ask, start_s: int, end_s: int) -> list[Step]:
    """Return the steps with a window taken out."""
    found: list[Step] = []
    for index, (at_s, cpus, memory_mib, gpus) in enumerate(steps):
        next_s = steps[index + 1][0] if index + 1 < len(steps) else None
        begin_s, until_s = max(at_s, start_s), end_s if next_s is None else min(next_s, end_s)
        if begin_s >= until_s:
            found.append((at_s, cpus, memory_mib, gpus))
            continue
        if at_s < begin_s:
            found.append((at_s, cpus, memory_mib, gpus))
        found.append((begin_s, cpus - ask.cpus, memory_mib - ask.memory_mib, gpus - ask.gpus))
        if next_s is None or until_s < next_s:
            found.append((until_s, cpus, memory_mib, gpus))
    return found
