"""Joining profile and probe: which nodes count, as what, and what waits where."""

from datetime import timedelta
from typing import Any

import pytest

from federation.merge import TIER, PreparedPartition, PreparedSystem, prepare
from federation.shown import figures
from federation.types import Maintenance, NodeView
from providers.types import GpuPool, JobState, Node, Partition, Reservation
from tests.unit.federation.values import NOW, a_job, a_node, a_partition, a_probe, a_profile


def _named(prepared: PreparedSystem) -> dict[str, PreparedPartition]:
    return {partition.name: partition for partition in prepared.partitions}


def _view(node: Node) -> NodeView:
    (view,) = _named(prepare(a_profile(), a_probe(node), None))["gpu"].nodes
    return view


def test_an_idle_node_is_seen_with_all_it_has() -> None:
    assert _view(a_node()) == NodeView(
        name="gpua001",
        is_up=True,
        is_usable=True,
        cpus=64,
        cpus_free=64,
        memory_mib=250_000,
        memory_free_mib=200_000,
        gpus=4,
        gpus_free=4,
        gpu_type="a100",
        gpu_spelling="a100",
        gpu_memory_mib=40_960,
        is_idle=True,
    )


def test_a_node_shared_by_partitions_is_one_node_in_each() -> None:
    shared = a_node(partitions=("gpu", "cpu"))

    found = _named(prepare(a_profile(), a_probe(shared, a_node("gpua002")), None))

    assert [node.name for node in found["gpu"].nodes] == ["gpua001", "gpua002"]
    assert [node.name for node in found["cpu"].nodes] == ["gpua001"]
    assert len({node.name for entry in found.values() for node in entry.nodes}) == 2


@pytest.mark.parametrize(
    ("changes", "is_up", "is_usable"),
    [
        ({"state": "mixed"}, True, True),
        ({"state": "down", "usable": False}, False, False),
        ({"state": "idle", "flags": frozenset({"DRAIN"}), "usable": False}, False, False),
        ({"state": "idle", "flags": frozenset({"MAINTENANCE"}), "usable": False}, False, False),
        ({"state": "allocated", "usable": False}, True, False),
        ({"state": "idle", "flags": frozenset({"RESERVED"}), "usable": False}, True, False),
    ],
)
def test_up_means_sometime_and_usable_means_now(
    changes: dict[str, Any], *, is_up: bool, is_usable: bool
) -> None:
    view = _view(a_node(**changes))

    assert (view.is_up, view.is_usable) == (is_up, is_usable)
    assert (view.memory_free_mib == 0) is not is_usable


def test_a_node_with_some_work_is_not_idle() -> None:
    assert _view(a_node(cpus_free=63)).is_idle is False


def test_an_unnamed_gpu_is_the_only_kind_with_that_many() -> None:
    view = _view(a_node(gpus=(GpuPool(type=None, total=4, used=1, free=3),)))

    assert (view.gpu_type, view.gpu_spelling, view.gpu_memory_mib, view.gpus_free) == (
        "a100",
        None,
        40_960,
        3,
    )


def _two_kinds_of_four(**partition: object) -> PreparedSystem:
    kinds = {
        "g": {"cpus": 64, "memory_mib": 1, "gpus": 4, "gpu": "a100", "gpu_memory_mib": "40G"},
        "h": {"cpus": 64, "memory_mib": 1, "gpus": 4, "gpu": "h100", "gpu_memory_mib": "80G"},
    }
    return prepare(
        a_profile(node_types=kinds, partitions={"gpu": partition}),
        a_probe(a_node(gpus=(GpuPool(type=None, total=4, used=0, free=4),))),
        None,
    )


def test_an_unnamed_gpu_that_could_be_two_kinds_stays_unknown() -> None:
    (view,) = _named(_two_kinds_of_four())["gpu"].nodes

    assert (view.gpu_type, view.gpu_memory_mib) == (None, None)


def test_the_partition_tells_which_of_two_kinds_an_unnamed_gpu_is() -> None:
    (view,) = _named(_two_kinds_of_four(nodes=[{"type": "h", "count": 1}]))["gpu"].nodes

    assert (view.gpu_type, view.gpu_memory_mib) == ("h100", 81_920)


def test_a_gpu_the_profile_does_not_list_keeps_its_own_name() -> None:
    known = _view(a_node(gpus=(GpuPool(type="tesla_v100-sxm2-32gb", total=2, used=0, free=2),)))
    unknown = _view(a_node(gpus=(GpuPool(type="zx9000", total=2, used=0, free=2),)))

    assert (known.gpu_type, known.gpu_spelling, known.gpu_memory_mib) == (
        "v100",
        "tesla_v100-sxm2-32gb",
        32_768,
    )
    assert (unknown.gpu_type, unknown.gpu_spelling, unknown.gpu_memory_mib) == ("zx9000", "zx9000", None)


MIXED = a_node(
    "gpux1",
    cpus_free=40,
    memory_total_mib=200_000,
    memory_free_mib=100_001,
    gpus=(GpuPool(type="a40", total=1, used=0, free=1), GpuPool(type="a100", total=3, used=2, free=1)),
)


def test_a_node_with_two_types_is_offered_by_each_pool_with_its_share_of_the_node() -> None:
    large, small = _named(prepare(a_profile(), a_probe(MIXED), None))["gpu"].nodes

    assert (large.name, large.gpu_type, large.gpus, large.gpus_free) == ("gpux1", "a100", 3, 1)
    assert (small.name, small.gpu_type, small.gpus, small.gpus_free) == ("gpux1/a40", "a40", 1, 1)
    assert [
        (each.cpus, each.cpus_free, each.memory_mib, each.memory_free_mib) for each in (large, small)
    ] == [
        (48, 30, 150_000, 75_001),
        (16, 10, 50_000, 25_000),
    ]
    assert [each.gpu_memory_mib for each in (large, small)] == [40_960, 49_152]
    shown = figures((large, small))
    assert (shown.nodes_total, shown.gpus_total, shown.cpus_total) == (1, 4, 64)


def test_a_mixed_node_whose_gpus_were_not_found_is_offered_without_any() -> None:
    none = tuple(GpuPool(type=word, total=0, used=0, free=0) for word in ("a40", "a100"))

    (view,) = _named(prepare(a_profile(), a_probe(a_node("gpux1", gpus=none)), None))["gpu"].nodes

    assert (view.name, view.gpus, view.cpus) == ("gpux1", 0, 64)


def test_a_mixed_node_that_is_given_whole_is_offered_once() -> None:
    live = [a_partition(exclusive=True)]

    (node,) = _named(prepare(a_profile(), a_probe(MIXED), live))["gpu"].nodes

    assert (node.cpus, node.gpu_type, node.gpus) == (64, "a100", 3)


def test_a_running_job_holds_the_pool_its_gpus_are_of() -> None:
    held: dict[str, Any] = {"node_names": ("gpux1",), "gpus": 1}
    jobs = (
        a_job("1", gpu_type="a40", **held),
        a_job("2", gpu_type="a100", **held),
        a_job("3", gpu_type=None, **held),
        a_job("4", node_names=("gpux1",), gpus=0),
    )

    queue = _named(prepare(a_profile(), a_probe(MIXED, jobs=jobs), None))["gpu"].queue

    assert [each.node_names for each in queue.running] == [("gpux1/a40",), ("gpux1",), ("gpux1",), ("gpux1",)]


def test_instants_of_a_clock_that_is_off_are_brought_to_ours() -> None:
    hour = timedelta(hours=1)
    jobs = (
        a_job("1", start_at=NOW + hour, submit_at=NOW),
        a_job("2", state=JobState.QUEUED, submit_at=NOW + hour),
    )
    reserved = Reservation(
        name="maint", start_at=NOW + hour, end_at=None, node_names=("gpua001",), flags=frozenset({"MAINT"})
    )
    probe = a_probe(a_node(), jobs=jobs, reservations=(reserved,), clock_ahead_s=3600)

    found = _named(prepare(a_profile(), probe, None))["gpu"]

    assert [each.start_at for each in found.queue.running] == [NOW]
    assert [each.submit_at for each in found.queue.pending] == [NOW]
    assert [each.start_at for each in found.maintenance] == [NOW]


QOS_ENTRIES = {
    "regular": {
        "scheduler_partition": "gpu_ss11",
        "features": ["hbm40g"],
        "nodes": [{"type": "small", "count": 1}],
    },
    "large": {
        "scheduler_partition": "gpu_ss11",
        "features": ["hbm80g"],
        "nodes": [{"type": "large", "count": 1}],
    },
    "any": {"scheduler_partition": "gpu_ss11"},
}
KINDS = {
    "small": {"cpus": 64, "memory_mib": 1, "gpus": 4, "gpu": "a100", "gpu_memory_mib": "40G"},
    "large": {"cpus": 64, "memory_mib": 1, "gpus": 4, "gpu": "a100", "gpu_memory_mib": "80G"},
}


def _chosen_by_feature() -> dict[str, PreparedPartition]:
    theirs = ("gpu_ss11",)
    probe = a_probe(
        a_node("n1", partitions=theirs, features=("gpu", "hbm40g")),
        a_node("n2", partitions=theirs, features=("gpu", "hbm80g")),
        jobs=(a_job(partitions=theirs), a_job("2", state=JobState.QUEUED, partitions=theirs)),
    )
    profile = a_profile(node_types=KINDS, partitions=QOS_ENTRIES)
    return _named(prepare(profile, probe, [a_partition("gpu_ss11", max_walltime_s=100)]))


def test_entries_of_one_scheduler_partition_take_the_nodes_with_their_features() -> None:
    found = _chosen_by_feature()

    assert {name: [(n.name, n.gpu_memory_mib) for n in entry.nodes] for name, entry in found.items()} == {
        "regular": [("n1", 40_960)],
        "large": [("n2", 81_920)],
        "any": [("n1", 40_960), ("n2", 40_960)],
    }


def test_entries_of_one_scheduler_partition_share_its_queue_and_its_limits() -> None:
    found = _chosen_by_feature()

    assert found["regular"].queue is found["large"].queue
    assert (found["large"].queue.running_count, found["large"].queue.pending_count) == (1, 1)
    assert {entry.live.max_walltime_s for entry in found.values() if entry.live} == {100}
    assert [entry.scheduler_name for entry in found.values()] == ["gpu_ss11"] * 3


def test_partitions_beyond_the_listed_ones_count_only_where_the_profile_says_so() -> None:
    table = [a_partition("gpu"), a_partition("extra"), a_partition("root", root_only=True)]
    probe = a_probe(a_node(partitions=("gpu", "extra", "root")))

    closed = _named(prepare(a_profile(), probe, table))
    opened = _named(prepare(a_profile(only_listed_partitions=False), probe, table))

    assert list(closed) == ["gpu", "cpu"]
    assert list(opened) == ["gpu", "cpu", "extra"]
    assert [node.name for node in opened["extra"].nodes] == ["gpua001"]


def test_a_partition_listed_under_another_name_is_not_listed_twice() -> None:
    profile = a_profile(node_types=KINDS, partitions=QOS_ENTRIES, only_listed_partitions=False)

    assert list(_named(prepare(profile, a_probe(), [a_partition("gpu_ss11")]))) == ["regular", "large", "any"]


def test_declared_nodes_stand_in_before_the_first_probe_and_none_is_free() -> None:
    found = _named(prepare(a_profile(), None, None))

    assert [(node.name, node.gpus, node.gpus_free, node.is_usable) for node in found["gpu"].nodes] == [
        ("gpua-0", 4, 0, False),
        ("gpua-1", 4, 0, False),
    ]
    assert len(found["cpu"].nodes) == 3
    assert found["gpu"].queue.is_visible is False


def test_once_there_was_a_probe_only_what_it_saw_counts() -> None:
    assert _named(prepare(a_profile(), a_probe(), None))["gpu"].nodes == ()


def test_running_and_waiting_jobs_are_shares_rounded_up() -> None:
    jobs = (
        a_job("1", nodes=3, cpus=100, gpus=7, memory_mib=100, node_names=("a", "b", "c"), walltime_s=60),
        a_job("2", state=JobState.QUEUED, nodes=2, gpus=8, gpu_type="A100", array_pending=5, priority=9),
        a_job("3", state=JobState.HELD),
        a_job("4", state=JobState.COMPLETED),
    )

    queue = _named(prepare(a_profile(), a_probe(jobs=jobs), None))["gpu"].queue

    (running,) = queue.running
    assert (running.cpus_per_node, running.memory_per_node_mib, running.gpus_per_node) == (34, 34, 3)
    assert [(job.gpus, job.gpu_type, job.count, job.is_eligible) for job in queue.pending] == [
        (8, "a100", 5, True),
        (1, None, 1, False),
    ]
    assert (queue.running_count, queue.pending_count, queue.eligible_count) == (1, 6, 5)


def test_what_runs_in_another_partition_on_the_same_node_is_beside_and_not_of_the_queue() -> None:
    nodes = (a_node("n1", partitions=("gpu", "cpu")), a_node("n2"), a_node("n3", partitions=("cpu",)))
    jobs = (
        a_job("1", node_names=("n1",), partitions=("cpu",)),
        a_job("2", node_names=("n2",)),
        a_job("3", nodes=2, node_names=("n1", "n3"), partitions=("cpu",)),
        a_job("4", node_names=("n3",), partitions=("cpu",)),
        a_job("5", node_names=("n1",), partitions=("elsewhere",)),
        a_job("6", state=JobState.QUEUED, partitions=("cpu",)),
    )

    found = _named(prepare(a_profile(), a_probe(*nodes, jobs=jobs), None))

    assert [share.node_names for share in found["gpu"].queue.running] == [("n2",)]
    assert [share.node_names for share in found["gpu"].queue.beside] == [("n1",), ("n1", "n3"), ("n1",)]
    assert [share.node_names for share in found["cpu"].queue.beside] == [("n1",)]
    assert found["gpu"].queue.running_count == 1


def test_who_waits_for_the_same_nodes_elsewhere_is_served_with_the_queue_by_tier_and_priority() -> None:
    shared = ("gpu", "quick", "idle", "down")
    nodes = (a_node("n1", partitions=shared), a_node("n2", partitions=(*shared, "part")))
    live = (
        a_partition(priority_tier=2),
        a_partition("quick", priority_tier=5),
        a_partition("idle", priority_tier=1),
        a_partition("down", priority_tier=9, state="down"),
        a_partition("part", priority_tier=9),
    )
    waits: dict[str, Any] = {"state": JobState.QUEUED, "priority": 7}
    jobs = (
        a_job("1", **waits),
        a_job("2", partitions=("quick",), **waits),
        a_job("3", partitions=("idle",), **waits),
        a_job("4", partitions=("down",), **waits),
        a_job("5", partitions=("part",), **waits),
        a_job("6", partitions=("quick",), is_eligible=False, **waits),
        a_job("7", partitions=("gpu", "quick"), **waits),
        a_job("8", partitions=("quick",)),
    )

    def rivals(*table: Partition) -> list[tuple[str | None, int | None]]:
        queue = _named(prepare(a_profile(), a_probe(*nodes, jobs=jobs), table))["gpu"].queue
        assert queue.pending_count == 2, "they are not of its queue"
        return [(job.job_id, job.priority) for job in queue.rivals]

    assert rivals(*live) == [("2", 7 + 3 * TIER)]
    assert rivals(live[0], a_partition("idle", priority_tier=2)) == [("3", 7)]
    assert rivals(live[0], a_partition("quick", priority_tier=None)) == []
    assert rivals() == []


def test_a_job_that_a_limit_of_its_user_holds_back_says_which() -> None:
    limited = a_job("1", state=JobState.QUEUED, is_eligible=False, reason="QOSMaxGRESPerUser")
    jobs = (limited, a_job("2", state=JobState.QUEUED, reason="Priority"))

    queue = _named(prepare(a_profile(), a_probe(jobs=jobs), None))["gpu"].queue

    assert [job.capped for job in queue.pending] == ["gpus", None]


def test_a_job_in_two_partitions_waits_in_both() -> None:
    job = a_job(state=JobState.QUEUED, partitions=("gpu", "cpu", "elsewhere"))

    found = _named(prepare(a_profile(), a_probe(jobs=(job,)), None))

    assert (found["gpu"].queue.pending_count, found["cpu"].queue.pending_count) == (1, 1)


def test_announced_windows_and_maintenance_reservations_are_told_in_order() -> None:
    later, end = NOW + timedelta(hours=5), NOW + timedelta(hours=9)
    profile = a_profile(
        maintenance=[
            {"start_at": later, "end_at": end, "reason": "power"},
            {"start_at": later, "end_at": end, "partitions": ["cpu"]},
        ]
    )
    reserved = Reservation(
        name="maint", start_at=NOW, end_at=end, node_names=("gpua001",), flags=frozenset({"MAINT"})
    )
    class_ = Reservation(name="class", start_at=NOW, end_at=end, node_names=("gpua001",))

    found = _named(prepare(profile, a_probe(reservations=(reserved, class_)), None))

    assert found["gpu"].maintenance == (
        Maintenance(NOW, end, frozenset({"gpua001"}), "maint"),
        Maintenance(later, end, frozenset(), "power"),
    )
    assert [window.name for window in found["cpu"].maintenance] == ["maint", "announced maintenance", "power"]
