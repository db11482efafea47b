"""Invariants of jobs that a limit of their own user holds back: nothing before their turn, then theirs."""

from dataclasses import replace

from hypothesis import strategies as st

from federation.types import PartitionQueue, ResourceRecord
from orchestrator.placement.outlook import Outlook, build_outlook
from orchestrator.placement.timeline import Need
from tests.property.placement.views import MODEL, NOW, busy, node, pending, record, running

ENDS = st.sampled_from([100, 600, 3600])


@st.composite
def partitions(draw: st.DrawFn) -> ResourceRecord:
    """Draw one to four nodes, some with a job of bob or eve, and waiting jobs of theirs, some held back."""
    nodes, shares = [], []
    for index in range(draw(st.integers(1, 4))):
        name = f"n{index}"
        if draw(st.booleans()):
            nodes.append(busy(name))
            user = draw(st.sampled_from(["bob", "eve"]))
            shares.append(running(name, ends_in_s=draw(ENDS), user=user))
        else:
            nodes.append(node(name))
    waiting = draw(
        st.lists(
            st.builds(
                pending,
                user=st.sampled_from(["bob", "eve", "carol"]),
                gpus=st.integers(1, 4),
                walltime_s=st.sampled_from([300, 3600]),
                priority=st.sampled_from([50, 100]),
                is_eligible=st.just(False),
                capped=st.sampled_from(["jobs", "gpus"]),
            ),
            min_size=1,
            max_size=4,
        )
    )
    queue = PartitionQueue(running=tuple(shares), pending=tuple(waiting))
    return record(nodes=tuple(nodes), queue=queue, own_priority=draw(st.sampled_from([60, 10])))


requests = st.builds(
    Need,
    nodes=st.integers(1, 2),
    cpus=st.just(8),
    memory_mib=st.just(0),
    gpus=st.integers(1, 4),
)
lengths = st.sampled_from([200, 1000, 7200])


def _outlook(view: ResourceRecord) -> Outlook:
    return build_outlook(view, at=NOW, model=MODEL)


def who_is_held_back_delays_nothing_before_their_turn(view: ResourceRecord, need: Need, lasts_s: int) -> None:
    """Ours starts never earlier for them, and not later where it starts before any of them could."""
    alone = replace(view, queue=replace(view.queue, pending=()))
    held = {job.user for job in view.queue.pending}
    ends = [
        int((share.start_at - NOW).total_seconds()) + (share.walltime_s or 0)
        for share in view.queue.running
        if share.user in held and share.start_at is not None
    ]
    without, _ = _outlook(alone).starts(need, lasts_s, after=(0, 0))
    start, _ = _outlook(view).starts(need, lasts_s, after=(0, 0))
    assert (start is None) == (without is None)
    if start is None or without is None:
        return
    assert start >= without
    if without < min(ends, default=1 << 40):
        assert start == without


def a_turn_is_taken_before_ours(ends_s: int, lasts_s: int, need: Need) -> None:
    """The only node is given back by bob, to bob."""
    waiting = pending(user="bob", walltime_s=lasts_s, is_eligible=False, capped="jobs")
    shares = (running("n1", ends_in_s=ends_s),)
    queue = PartitionQueue(running=shares, pending=(waiting,))
    outlook = _outlook(record(nodes=(busy("n1"),), queue=queue, own_priority=10))

    assert outlook.starts(replace(need, nodes=1), 60, after=(0, 0))[0] == ends_s + lasts_s


def what_is_reserved_is_taken_from_both_pictures(view: ResourceRecord, need: Need, lasts_s: int) -> None:
    """A second request like the first, for all that is there, starts only when the first has ended."""
    whole = replace(need, nodes=len(view.nodes), gpus=4, cpus=64)
    outlook = _outlook(view).fork()
    first, _ = outlook.starts(whole, lasts_s, after=(0, 0))
    end = outlook.reserve(whole, limit_s=lasts_s, run_s=lasts_s, after=(0, 0))
    second, _ = outlook.starts(whole, lasts_s, after=(0, 0))

    assert first is not None
    assert end is not None
    assert end[0] == first + lasts_s
    assert second is not None
    assert second >= end[0]


def a_throttled_array_leaves_the_rest_free(count: int, at_once: int, lasts_s: int) -> None:
    """Of its tasks, a node each, no more run together, one after the other until the last has ended."""
    array = pending(count=count, at_once=at_once, walltime_s=lasts_s)
    idle = record(
        nodes=tuple(node(f"n{index}") for index in range(6)),
        queue=PartitionQueue(pending=(array,)),
        own_priority=10,
    )
    outlook, whole = _outlook(idle), Need(nodes=1, cpus=64, memory_mib=0, gpus=4)
    together, rounds = min(count, at_once), -(-count // at_once)

    assert outlook.ahead == count
    assert outlook.starts(replace(whole, nodes=6 - together), 60, after=(0, 0))[0] == 0
    assert outlook.starts(replace(whole, nodes=7 - together), 60, after=(0, 0))[0] != 0
    assert outlook.starts(replace(whole, nodes=6), 60, after=(0, 0))[0] == rounds * lasts_s
