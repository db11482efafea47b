"""The invariants of the forward plan, as plain functions that raise AssertionError when broken."""

from dataclasses import replace

from hypothesis import strategies as st

from federation.types import Health, ResourceRecord
from orchestrator.envelope.types import Envelope
from orchestrator.placement.cache import PlanCache
from orchestrator.placement.place import place
from orchestrator.placement.sizing import shapes
from orchestrator.placement.timeline import Need, NodeCounts, NodeSteps, NodeTimelines
from tests.property.placement.views import MODEL, NOW

Machine = list[list[tuple[int, int, int, int]]]
Jobs = list[tuple[Need, int]]
CAPACITY = (8, 64, 4)


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    """Draw one to four nodes of 8 CPUs, 64 MiB, 4 GPUs that free in one or two steps."""
    found = []
    for _ in range(draw(st.integers(1, 4))):
        cpus, gpus = draw(st.integers(0, 8)), draw(st.integers(0, 4))
        steps = [(0, cpus, draw(st.sampled_from([0, 64])), gpus)]
        if draw(st.booleans()):
            steps.append((draw(st.integers(1, 50)), 8, 64, draw(st.integers(gpus, 4))))
        steps.append((100, *CAPACITY))
        found.append(steps)
    return found


needs = st.builds(
    Need,
    nodes=st.integers(1, 3),
    cpus=st.integers(1, 8),
    memory_mib=st.sampled_from([0, 32, 64]),
    gpus=st.integers(0, 4),
)
jobs = st.lists(st.tuples(needs, st.integers(1, 80)), min_size=1, max_size=8)


def timelines(machine: Machine) -> NodeTimelines:
    return NodeTimelines([NodeSteps(0, steps) for steps in machine])


def a_node_is_never_overcommitted(machine: Machine, queue: Jobs) -> None:
    planned = timelines(machine)
    for need, duration in queue:
        planned.reserve(need, duration)
    for each in planned.nodes:
        for free in (each.cpus, each.memory_mib, each.gpus):
            assert min(free) >= 0
        assert (each.cpus[-1], each.memory_mib[-1], each.gpus[-1]) == CAPACITY


def what_fits_the_empty_machine_gets_a_start(machine: Machine, queue: Jobs) -> None:
    planned = timelines(machine)
    for need, duration in queue:
        assert (planned.reserve(need, duration) is not None) == (need.nodes <= len(machine))


def a_reservation_takes_what_it_says(machine: Machine, queue: Jobs) -> None:
    """The area of free GPU-seconds falls by exactly what was reserved."""
    planned = timelines(machine)
    for need, duration in queue:
        before = _free_gpu_seconds(planned)
        if planned.reserve(need, duration) is not None:
            assert before - _free_gpu_seconds(planned) == need.nodes * need.gpus * duration


def _free_gpu_seconds(planned: NodeTimelines) -> int:
    total = 0
    for each in planned.nodes:
        ends = [*each.times[1:], 10_000]
        total += sum(g * (e - t) for g, t, e in zip(each.gpus, each.times, ends, strict=True))
    return total


def a_start_is_the_earliest_there_is(machine: Machine, queue: Jobs) -> None:
    """Second by second no earlier instant has enough nodes free for the whole duration."""
    planned = timelines(machine)
    for need, duration in queue:
        start = planned.earliest(need, duration)
        at = next((t for t in range(1000) if _free_together(planned, need, duration, t)), None)
        assert start == at
        planned.reserve(need, duration)


def _free_together(planned: NodeTimelines, need: Need, duration: int, at: int) -> bool:
    count = 0
    for each in planned.nodes:
        steps = list(zip(each.times, each.cpus, each.memory_mib, each.gpus, strict=True))
        active = [
            s
            for i, s in enumerate(steps)
            if s[0] < at + duration and (i + 1 == len(steps) or steps[i + 1][0] > at)
        ]
        count += all(c >= need.cpus and m >= need.memory_mib and g >= need.gpus for _, c, m, g in active)
    return count >= need.nodes


def a_bigger_or_longer_request_never_starts_earlier(machine: Machine, queue: Jobs) -> None:
    planned = timelines(machine)
    for need, duration in queue[1:]:
        planned.reserve(need, duration)
    need, duration = queue[0]
    start = planned.earliest(need, duration)
    if start is None:
        return
    for bigger, longer in (
        (replace(need, nodes=need.nodes + 1), duration),
        (replace(need, gpus=min(4, need.gpus + 1)), duration),
        (need, duration * 2),
    ):
        later = planned.earliest(bigger, longer)
        assert later is None or later >= start


def remembered_answers_equal_fresh_ones(machine: Machine, queue: Jobs) -> None:
    asked, fresh = timelines(machine), timelines(machine)
    for need, duration in queue:
        for other, length in queue:
            asked.earliest(other, length)
        assert asked.reserve(need, duration) == fresh.reserve(need, duration)
    assert [n.gpus for n in asked.nodes] == [n.gpus for n in fresh.nodes]


def counting_is_never_later_than_naming(machine: Machine, queue: Jobs) -> None:
    frees = [steps[-1][0] if steps[0][1:] != CAPACITY else 0 for steps in machine]
    whole = [[(0, 0, 0, 0), (f, *CAPACITY)] if f else [(0, *CAPACITY)] for f in frees]
    named = NodeTimelines([NodeSteps(0, steps) for steps in whole], is_exclusive=True)
    counts = [(t, sum(f <= t for f in frees)) for t in sorted({0, *frees})]
    counted = NodeCounts(Need(1, *CAPACITY), counts)
    for need, duration in queue:
        by_name, by_count = named.reserve(need, duration), counted.reserve(need, duration)
        assert (by_name is None) == (by_count is None)
        if by_name is None or by_count is None:
            return
        assert by_count <= by_name
        if by_count < by_name:
            return


def fewer_running_jobs_never_delay(view: ResourceRecord, request: Envelope) -> None:
    """With an empty queue, a partition with one job less starts us no later."""
    empty = replace(view.queue, pending=())
    view = replace(view, queue=empty, health=Health.ONLINE)
    before = _plan_starts(view, request)
    for index, gone in enumerate(empty.running):
        left = tuple(share for i, share in enumerate(empty.running) if i != index)
        freed = tuple(
            replace(n, cpus_free=n.cpus, gpus_free=n.gpus, memory_free_mib=n.memory_mib)
            if n.name in gone.node_names
            else n
            for n in view.nodes
        )
        after = _plan_starts(replace(view, nodes=freed, queue=replace(empty, running=left)), request)
        for size, start in before.items():
            assert after[size] <= start


def _plan_starts(view: ResourceRecord, request: Envelope) -> dict[tuple[int, int, int], int]:
    candidate = place(request, [view], now=NOW, model=MODEL).candidates[0]
    if candidate.sizing is None:
        return {}
    planned = PlanCache().plan_of(view, now=NOW, model=MODEL)
    kinds = PlanCache().kinds_of(view.nodes)
    found = {}
    for sized in shapes(request, view, kinds=kinds, budgets={}, now=NOW):
        start = planned.forecast(sized.layout).limits_s
        if start is not None:
            found[sized.layout.nodes, sized.layout.gpus, sized.layout.walltime_s] = start
    return found
