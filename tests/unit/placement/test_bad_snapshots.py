"""Snapshots that are odd, incomplete or late: each has a defined outcome, and the decision says which.

Three outcomes exist. A column that is missing makes the whole probe unreadable, and the last good snapshot
ages until its system is stale. A figure that is not known, or makes no sense, is planned with a stated
stand-in. A place that could never run the work is rejected with the reason.
"""

from dataclasses import fields, replace
from datetime import timedelta
from time import perf_counter
from typing import Any

import pytest

from federation.merge import prepare
from federation.records import records
from federation.types import (
    Access,
    Health,
    PartitionQueue,
    PendingShare,
    ResourceRecord,
    RunningShare,
    Standing,
    UserLimits,
)
from orchestrator.placement.model import PlacementModel
from orchestrator.placement.outlook import DEPTH, UNLIMITED_S
from orchestrator.placement.place import place
from orchestrator.placement.trace import decision_bytes
from orchestrator.placement.types import Decision, Estimates, WaitClass
from providers.dialects.slurm.probe import read_probe
from providers.dialects.slurm.queue import FIELD_END
from providers.errors import UnparsableOutput
from providers.types import BatchReply, Node, QueueJob
from tests.property.placement.views import MODEL, NOW, busy, envelope, node, pending, record, running
from tests.unit.federation.values import a_job, a_node, a_partition, a_probe, a_profile
from tests.unit.slurm_read.recordings import recorded


def decided(*views: ResourceRecord, **changes: Any) -> Decision:
    return place(envelope(), views, now=NOW, model=changes.pop("model", MODEL), **changes)


def estimated(view: ResourceRecord) -> Estimates:
    decision = decided(view)
    assert decision.selected is not None, decision.candidates[0].rejections
    return decision.selected.estimates


def refused(view: ResourceRecord) -> list[tuple[str, str]]:
    """Return (code, remedy) of every reason against a view; there must be some."""
    decision = decided(view)
    assert decision.result == "unschedulable"
    return [(found.code, found.remedy) for found in decision.candidates[0].rejections]


def full(*shares: RunningShare, waiting: tuple[PendingShare, ...] = (), **changes: Any) -> ResourceRecord:
    queue = PartitionQueue(running=shares, pending=waiting)
    return record(nodes=(busy("n1"), busy("n2")), queue=queue, **changes)


def joined(*nodes: Node, jobs: tuple[QueueJob, ...] = ()) -> ResourceRecord:
    """Return the record of partition gpu, made by the product's own joining of profile and probe."""
    probe = a_probe(*nodes, jobs=jobs, partitions=(a_partition(),), taken_at=NOW)
    prepared = prepare(a_profile(), probe, probe.partitions)
    standing = Standing(health=Health.ONLINE, snapshot_id="snap_1", observed_at=NOW)
    found = records(prepared, Access(is_connected=True, remote_user="alice"), standing)
    [view] = [each for each in found if each.partition == "gpu"]
    return replace(view, access_denied=None)


# --- missing columns ---------------------------------------------------------------------------------


def test_a_queue_without_one_of_its_columns_is_not_believed_at_all() -> None:
    reply = BatchReply.model_validate_json(recorded("probe/full-22.05.8.json"))
    queue = reply.replies["queue"]
    cut = [FIELD_END.join(line.split(FIELD_END)[:-1]) for line in lines(queue.stdout)]
    short = queue.model_copy(update={"stdout": "\x1e\n".join([*cut, ""])})

    with pytest.raises(UnparsableOutput):
        read_probe(reply.model_copy(update={"replies": {**reply.replies, "queue": short}}), now=NOW)


def lines(text: str) -> list[str]:
    return [line for line in text.split("\x1e\n") if line]


def test_what_was_last_seen_is_used_until_it_is_too_old_and_then_refused_with_its_age() -> None:
    young = record(observed_at=NOW - timedelta(seconds=600))
    old = record(observed_at=NOW - timedelta(seconds=601))

    assert estimated(young).wait.snapshot_age_s == 600
    assert refused(old) == [
        ("endpoint_stale", "delta was last seen 601 s ago, the limit is 600 s; probe it now.")
    ]


def test_a_node_without_a_memory_column_counts_as_having_enough() -> None:
    view = joined(a_node(memory_total_mib=None, memory_free_mib=None))

    assert estimated(view).wait.wait_class is WaitClass.CERTAIN


def test_a_job_without_times_memory_or_user_is_planned_with_the_limit_of_its_partition() -> None:
    taken = a_node(state="allocated", cpus_free=0, memory_free_mib=0, gpus=())
    holder = a_job(
        cpus=64, gpus=0, memory_mib=None, user=None, walltime_s=None, start_at=None, node_names=("gpua001",)
    )
    view = replace(joined(taken, jobs=(holder,)), max_walltime_s=7200)

    decision = place(envelope(gpus={"min": 0, "max": 0}), [view], now=NOW, model=MODEL)

    assert decision.selected is not None
    # its CPUs come back at 7200, and with them the memory it is not known to hold
    assert decision.selected.estimates.wait.plan_limits_s == 7200


# --- limits that make no sense, or are none ----------------------------------------------------------


@pytest.mark.parametrize("limit_s", [None, 0, -60])
def test_a_job_with_no_sensible_limit_holds_its_nodes_as_long_as_the_partition_allows(
    limit_s: int | None,
) -> None:
    odd = replace(running("n1", "n2"), walltime_s=limit_s, start_at=NOW - timedelta(seconds=1000))

    assert estimated(full(odd, max_walltime_s=10_000)).wait.plan_limits_s == 9000


def test_without_any_limit_a_month_is_taken_and_the_place_stays_feasible() -> None:
    endless = replace(running("n1", "n2"), walltime_s=None, start_at=NOW)

    found = estimated(full(endless, max_walltime_s=None))

    assert found.wait.plan_limits_s == UNLIMITED_S == 2_592_000


@pytest.mark.parametrize("limit_s", [None, 0, -60])
def test_a_waiting_job_with_no_sensible_limit_is_planned_at_the_partitions(limit_s: int | None) -> None:
    ahead = (pending(nodes=2, cpus=128, gpus=8, walltime_s=limit_s),)

    found = estimated(full(running("n1", "n2"), waiting=ahead, own_priority=50, max_walltime_s=10_000))

    assert found.wait.plan_limits_s == 3600 + 10_000


LIMITS = [each.name for each in fields(UserLimits)]


@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.parametrize("value", [0, -1, -1000, 1 << 60])
def test_a_limit_of_ours_that_makes_no_sense_is_kept_to_and_never_breaks_a_decision(
    name: str, value: int
) -> None:
    odd = UserLimits(**{name: value})
    counts_up = name in {"submitted_jobs", "running_jobs", "gpus_in_use"}
    alone, crowd = record(limits=odd), full(running("n1", "n2", user="alice"), limits=odd, user="alice")

    for view in (alone, crowd):
        decision = decided(view)
        rejected = decision.candidates[0].rejections
        assert (decision.result == "placed") is (counts_up or value > 0)
        assert not any("-" in str(found.observed) for found in rejected)


# --- jobs in the past --------------------------------------------------------------------------------


def test_memory_held_by_jobs_that_do_not_tell_theirs_comes_back_with_the_last_of_them() -> None:
    jobs = tuple(replace(running("n1", "n2", ends_in_s=end_s), memory_per_node_mib=0) for end_s in (600, 900))

    found = estimated(full(*(replace(job, gpus_per_node=2, cpus_per_node=32) for job in jobs)))

    assert found.wait.plan_limits_s == 900


def test_a_job_that_should_have_ended_long_ago_ends_in_half_a_minute() -> None:
    overdue = replace(running("n1", "n2"), start_at=NOW - timedelta(days=2), walltime_s=3600)

    found = estimated(full(overdue))

    assert (found.wait.plan_limits_s, found.wait.plan_means_s) == (30, 30)
    assert found.wait.wait_class is WaitClass.PLANNED


def test_a_job_submitted_before_there_were_computers_is_only_first_among_equals() -> None:
    ancient = pending(priority=100, submit_at=NOW - timedelta(days=36_500), walltime_s=600)
    fresh = pending(priority=100, submit_at=NOW)

    one = full(running("n1"), running("n2", ends_in_s=4000), waiting=(fresh, ancient), own_priority=100)
    other = full(running("n1"), running("n2", ends_in_s=4000), waiting=(ancient, fresh), own_priority=100)

    # n1: the ancient one 3600-4200, then ours; n2: the fresh one from 4000
    assert estimated(one).wait.plan_limits_s == estimated(other).wait.plan_limits_s == 4200


# --- hidden priorities -------------------------------------------------------------------------------


def test_waiting_jobs_of_hidden_priority_count_as_equals_and_so_come_before_ours() -> None:
    hidden = (pending(priority=None, nodes=2, cpus=128, gpus=8),)

    found = estimated(full(running("n1", "n2"), waiting=hidden))

    assert (found.wait.somebody_ahead, found.wait.plan_limits_s) == (True, 7200)


def test_a_hidden_queue_is_said_to_be_hidden_and_nothing_is_planned() -> None:
    view = record(queue=PartitionQueue(is_visible=False))

    found = estimated(view)

    assert found.wait.wait_class is WaitClass.HIDDEN
    assert (found.wait.plan_limits_s, found.wait.plan_means_s, found.wait.somebody_ahead) == (
        None,
        None,
        None,
    )
    assert found.wait_s.p50 == 10  # two nodes hold eight such requests


# --- thousands of array tasks in one record ----------------------------------------------------------


def test_an_array_of_a_million_tasks_is_planned_to_the_depth_and_counted_whole() -> None:
    array = pending(count=1_000_000, walltime_s=3600)
    began = perf_counter()

    view = full(running("n1", "n2"), waiting=(array,), own_priority=50)
    found = estimated(view)

    assert perf_counter() - began < 5
    assert view.queue.pending_count == 1_000_000
    # two nodes take two tasks an hour, the first three hundred of them before ours
    assert found.wait.plan_limits_s == 3600 + DEPTH // 2 * 3600


@pytest.mark.parametrize("count", [0, -3])
def test_an_array_with_no_task_left_delays_nobody(count: int) -> None:
    view = full(running("n1", "n2"), waiting=(pending(count=count),), own_priority=50)

    assert estimated(view).wait.plan_limits_s == 3600


# --- clock skew --------------------------------------------------------------------------------------


def test_a_site_whose_clock_is_ahead_is_seen_just_now() -> None:
    found = estimated(record(observed_at=NOW + timedelta(hours=1)))

    assert found.wait.snapshot_age_s == 0
    assert found.wait_s == estimated(record()).wait_s


def test_a_job_that_starts_in_our_future_ran_for_no_time_yet() -> None:
    ahead = replace(running("n1", "n2"), start_at=NOW + timedelta(seconds=300), walltime_s=3600)

    assert estimated(full(ahead)).wait.plan_limits_s == 3600


# --- empty, and all down -----------------------------------------------------------------------------


def test_a_partition_without_nodes_is_refused_for_each_thing_it_lacks() -> None:
    assert refused(record(nodes=())) == [
        ("accelerator_absent", "delta/gpu has no GPUs; choose a GPU partition or set gpus.min to 0."),
        ("nodes", "No suitable node of delta/gpu is up; wait or choose another partition."),
    ]


def test_a_partition_the_scheduler_does_not_show_is_blocked_by_name() -> None:
    probe = a_probe(a_node(), partitions=(a_partition(),), taken_at=NOW)
    prepared = prepare(a_profile(), probe, probe.partitions)
    standing = Standing(health=Health.ONLINE, snapshot_id="snap_1", observed_at=NOW)
    found = records(prepared, Access(is_connected=True), standing)
    [view] = [each for each in found if each.partition == "cpu"]

    assert view.blocked == "the scheduler shows no such partition"


def test_a_partition_whose_nodes_are_all_down_is_refused_not_planned() -> None:
    down = a_node("gpua001", state="down", usable=False)
    drained = a_node("gpua002", flags=frozenset({"DRAIN"}), usable=False)
    view = joined(down, drained)

    assert [code for code, _ in refused(view)] == ["nodes"]
    assert refused(view)[0][1] == "No suitable node of delta/gpu is up; wait or choose another partition."


def test_nodes_that_only_reboot_are_expected_back_in_ten_minutes() -> None:
    away = replace(node("n1"), is_usable=False, cpus_free=0, memory_free_mib=0, gpus_free=0)

    assert estimated(record(nodes=(away,))).wait.plan_limits_s == 600


def test_the_same_bad_snapshot_gives_the_same_decision_twice() -> None:
    odd = full(
        replace(running("n1"), walltime_s=-1),
        replace(running("n2"), start_at=None, user=None),
        waiting=(pending(priority=None, submit_at=None, count=5000), pending(walltime_s=None)),
    )

    assert decision_bytes(decided(odd)) == decision_bytes(decided(odd, model=PlacementModel()))
