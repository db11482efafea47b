"""Limits that a whole QoS shares delay our work until others' jobs give back enough, and reject only what
could never fit."""

from dataclasses import replace
from typing import Any

from federation.merge import prepare
from federation.records import records
from federation.types import Access, GroupLimit, Health, ResourceRecord, Standing
from orchestrator.envelope.types import Range
from orchestrator.placement.cache import PlanCache
from orchestrator.placement.place import place, reserve
from orchestrator.placement.types import Estimates
from providers.types import Association, JobState, Limits, Qos
from tests.property.placement.views import MODEL, NOW, envelope, pending, record, running
from tests.unit.federation.values import a_job, a_node, a_partition, a_probe, a_profile


def estimated(view: ResourceRecord, cache: PlanCache | None = None, **wanted: Any) -> Estimates:
    decision = place(envelope(**wanted), (view,), now=NOW, model=MODEL, cache=cache or PlanCache())
    assert decision.selected is not None, decision.candidates[0].rejections
    return decision.selected.estimates


def shared(*, max_gpus: int, ends_in_s: tuple[int, ...] = (), **changes: Any) -> ResourceRecord:
    """Return an idle partition whose QoS has jobs elsewhere that hold two GPUs each."""
    held = tuple(
        replace(running("other", ends_in_s=end_s), gpus_per_node=2, cpus_per_node=2) for end_s in ends_in_s
    )
    return record(groups=(GroupLimit("ai", max_gpus=max_gpus, running=held, **changes),), own_priority=50)


def test_a_limit_with_room_delays_nothing() -> None:
    assert estimated(shared(max_gpus=5, ends_in_s=(900, 1800))).wait.plan_limits_s == 0


def test_a_limit_that_is_used_up_admits_ours_when_enough_is_given_back() -> None:
    view = shared(max_gpus=4, ends_in_s=(900, 1800))

    assert estimated(view).wait.plan_limits_s == 900
    assert estimated(view, gpus=Range.exactly(4)).wait.plan_limits_s == 1800


def test_jobs_of_the_group_before_ours_take_what_is_given_back_first() -> None:
    first = pending(priority=90, gpus=2, walltime_s=600)
    view = shared(max_gpus=4, ends_in_s=(900, 1800), waiting=(first,))
    lower = shared(max_gpus=4, ends_in_s=(900, 1800), waiting=(replace(first, priority=10),))

    assert estimated(view).wait.plan_limits_s == 1500
    assert estimated(lower).wait.plan_limits_s == 900


def test_a_limit_on_jobs_counts_jobs() -> None:
    view = shared(max_gpus=100, ends_in_s=(900, 1800), max_jobs=2)

    assert estimated(view).wait.plan_limits_s == 900


def test_our_own_choices_count_in_the_limit_too() -> None:
    view, cache = shared(max_gpus=4), PlanCache()
    wanted = envelope(gpus=Range.exactly(4))
    first = place(wanted, (view,), now=NOW, model=MODEL, cache=cache)

    reserve(cache, first, envelope=wanted, records=(view,))

    assert first.selected is not None
    assert first.selected.estimates.wait.plan_limits_s == 0
    assert estimated(view, cache).wait.plan_limits_s == first.selected.shape.walltime_s


def test_the_jobs_of_a_qos_are_found_wherever_they_run_and_more_than_all_may_hold_is_refused() -> None:
    jobs = (
        a_job("1", qos="ai", partitions=("cpu",), gpus=3),
        a_job("2", qos="normal", partitions=("gpu",), gpus=1),
        a_job("3", qos="normal", partitions=("cpu",), gpus=1),
        a_job("4", state=JobState.QUEUED, reason="QOSGrpGRES", is_eligible=False, qos="ai"),
        a_job("5", state=JobState.QUEUED, reason="Dependency", is_eligible=False, qos="ai"),
    )
    live = (a_partition(qos="ai"), a_partition("cpu"))
    probe = a_probe(a_node(), jobs=jobs, partitions=live)
    rule = Qos(name="ai", group=Limits(max_gpus=6))
    access = Access(is_connected=True, remote_user="alice", qos=(rule, Qos(name="normal")))
    standing = Standing(health=Health.ONLINE, snapshot_id="snap_1", observed_at=NOW)

    found = {each.partition: each for each in records(prepare(a_profile(), probe, live), access, standing)}

    (group,) = found["gpu"].groups
    assert (group.qos, group.max_gpus, group.max_jobs) == ("ai", 6, None)
    assert sorted(share.gpus_per_node for share in group.running) == [1, 3]
    assert [job.is_eligible for job in group.waiting] == [True]
    assert (found["gpu"].limits.max_gpus_per_job, found["cpu"].limits.max_gpus_per_job) == (6, None)
    assert found["cpu"].groups == ()


def test_the_jobs_of_an_account_share_its_limits_wherever_they_run() -> None:
    elsewhere: dict[str, Any] = {"partitions": ("cpu",), "gpus": 2, "node_names": ("cn001",)}
    jobs = (
        a_job("1", account="ABC", user="bob", walltime_s=7200, start_at=NOW, **elsewhere),
        a_job("2", account="other", **elsewhere),
        a_job("3", account="abc", state=JobState.QUEUED, reason="AssocGrpGRES", is_eligible=False),
        a_job("4", account="abc", state=JobState.QUEUED, reason="JobHeldUser", is_eligible=False),
    )
    live = (a_partition(), a_partition("cpu"))
    probe = a_probe(a_node(), jobs=jobs, partitions=live, taken_at=NOW)
    associations = (
        Association(account="abc", user="alice", group=Limits(max_gpus=2)),
        Association(account="free", user="alice"),
    )
    access = Access(is_connected=True, remote_user="alice", associations=associations)
    standing = Standing(health=Health.ONLINE, snapshot_id="snap_1", observed_at=NOW)

    found = {
        (each.partition, each.account): each
        for each in records(prepare(a_profile(), probe, live), access, standing)
    }

    view = replace(found["gpu", "abc"], access_denied=None)
    (group,) = view.groups
    assert (group.qos, group.max_gpus, len(group.running), len(group.waiting)) == ("account abc", 2, 1, 1)
    assert (view.limits.max_gpus_per_job, found["gpu", "free"].limits.max_gpus_per_job) == (2, None)
    assert found["gpu", "free"].groups == ()
    alone = replace(view, groups=(replace(group, waiting=()),))
    assert estimated(alone).wait.plan_limits_s == 7200
    assert estimated(replace(found["gpu", "free"], access_denied=None)).wait.plan_limits_s == 0


def test_plans_of_one_outlook_differ_by_every_limit_that_is_shared() -> None:
    held = replace(running("other", ends_in_s=900), gpus_per_node=0, cpus_per_node=60)
    tight = record(groups=(GroupLimit("ai", max_cpus=64, running=(held,)),), own_priority=50)
    loose = replace(tight, account="xyz", groups=(replace(tight.groups[0], max_cpus=640),))
    cache = PlanCache()

    assert [estimated(view, cache).wait.plan_limits_s for view in (tight, loose)] == [900, 0]
