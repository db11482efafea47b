"""One user's records: who may, who may not and why, and the least of all limits."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from federation.merge import prepare
from federation.profile import ProfileDocument
from federation.records import records
from federation.types import Access, Credit, Health, ResourceRecord, Standing
from providers.types import Association, JobState, Limits, Qos
from tests.unit.federation.values import NOW, a_job, a_node, a_partition, a_probe, a_profile

ONLINE = Standing(Health.ONLINE, snapshot_id="snap_1", observed_at=NOW)


def _access(**changes: Any) -> Access:
    held = {"x-gpu": Credit("SU", Decimal(100), Decimal(60))}
    given: dict[str, Any] = {"is_connected": True, "remote_user": "alice", "credits": held}
    return Access(**given | changes)


def _record(
    profile: ProfileDocument | None = None,
    access: Access | None = None,
    *,
    partition: dict[str, Any] | None = None,
    standing: Standing = ONLINE,
    **probe: Any,
) -> ResourceRecord:
    """Return the record of partition `gpu` for the first account."""
    seen = a_probe(a_node(), **probe)
    prepared = prepare(profile or a_profile(), seen, [a_partition("gpu", **partition or {})])
    return next(r for r in records(prepared, access or _access(), standing) if r.partition == "gpu")


def test_a_record_carries_snapshot_health_credit_and_site_facts() -> None:
    profile = a_profile(containers=["apptainer"], network=["slingshot"], preparation_s=30)

    record = _record(profile)

    assert (record.key, record.snapshot_id, record.observed_at) == (("delta", "gpu", "x-gpu"), "snap_1", NOW)
    assert (record.health, record.max_age_s, record.partition_state) == (Health.ONLINE, 600, "up")
    assert (record.credit_left, record.credit_granted) == (Decimal(60), Decimal(100))
    assert (record.containers, record.network, record.preparation_s) == (("apptainer",), ("slingshot",), 30)
    assert (record.access_denied, record.blocked, record.software_known) == (None, None, False)
    assert record.user == "alice"


def test_there_is_one_record_for_each_partition_and_account_in_order_of_names() -> None:
    held = {account: Credit("SU", None, None) for account in ("y-gpu", "x-cpu")}

    found = records(prepare(a_profile(), a_probe(), None), _access(credits=held), ONLINE)

    assert [record.key[1:] for record in found] == [
        ("cpu", "x-cpu"),
        ("cpu", "y-gpu"),
        ("gpu", "x-cpu"),
        ("gpu", "y-gpu"),
    ]


def test_without_credits_the_accounts_are_those_of_the_sites_accounting() -> None:
    associations = (Association(account="b-gpu", user="alice"), Association(account="a-gpu", user="alice"))

    found = records(prepare(a_profile(), None, None), _access(credits={}, associations=associations), ONLINE)

    assert sorted({record.account for record in found if record.account}) == ["a-gpu", "b-gpu"]


def test_where_nothing_is_known_the_sites_default_account_is_used() -> None:
    found = records(prepare(a_profile(), None, None), _access(credits={}), ONLINE)

    assert {record.account for record in found} == {None}


@pytest.mark.parametrize(
    ("account", "patterns", "denied"),
    [
        ("x-gpu", ["*-gpu"], None),
        ("x-cpu", ["*-gpu"], "accounts here must match *-gpu"),
        ("x-cpu", None, None),
        ("x", ["!*-gpu", "!*-ai"], None),
        ("x-ai", ["!*-gpu", "!*-ai"], "accounts here must match !*-gpu, !*-ai"),
        ("x-gpu", ["x-*", "!*-gpu"], "accounts here must match x-*, !*-gpu"),
        ("y", ["x-*", "!*-gpu"], "accounts here must match x-*, !*-gpu"),
        ("X-GPU", ["*-gpu"], None),
    ],
)
def test_account_patterns_admit_and_keep_out(
    account: str, patterns: list[str] | None, denied: str | None
) -> None:
    profile = a_profile(partitions={"gpu": {"accounts": patterns}})

    record = _record(profile, _access(credits={account: Credit("SU", None, None)}))

    assert record.access_denied == denied


@pytest.mark.parametrize(
    ("partition", "denied"),
    [
        ({"root_only": True}, "only root may submit here"),
        ({"allow_accounts": ("y-gpu",)}, "account x-gpu is not allowed here"),
        ({"allow_accounts": ("x-gpu",)}, None),
        ({"deny_accounts": ("x-gpu",)}, "account x-gpu is denied here"),
        ({"allow_qos": ("high",)}, "QoS normal is not allowed here"),
        ({"deny_qos": ("normal",)}, "QoS normal is denied here"),
    ],
)
def test_the_partitions_own_rules_are_told(partition: dict[str, Any], denied: str | None) -> None:
    profile = a_profile(policy={"default_qos": "normal"})

    assert _record(profile, partition=partition).access_denied == denied


def test_a_translated_qos_is_held_against_the_rules_under_its_own_name() -> None:
    entry = {"qos": "regular", "scheduler_qos": "gpu_regular"}
    qos = (Qos(name="gpu_regular", per_job=Limits(max_nodes=8)),)

    record = _record(
        a_profile(partitions={"gpu": entry}),
        _access(qos=qos),
        partition={"allow_qos": ("gpu_regular",)},
    )

    assert (record.qos, record.access_denied, record.limits.max_nodes_per_job) == ("regular", None, 8)


def test_an_account_without_association_is_denied_where_the_site_keeps_them() -> None:
    other = (Association(account="y-gpu", user="alice"),)

    record = _record(access=_access(associations=other))

    assert record.access_denied == "the site's accounting has no association of account x-gpu for this user"


def test_no_accounting_denies_nobody() -> None:
    assert _record(access=_access(associations=None)).access_denied is None


@pytest.mark.parametrize(
    ("profile", "blocked"),
    [
        ({"partitions": {"gpu": {"blocked": "being rebuilt"}}}, "being rebuilt"),
        ({"policy": {"blocked_partitions": ["gpu"]}}, "blocked by the site profile"),
        ({}, None),
    ],
)
def test_a_blocked_partition_says_why(profile: dict[str, Any], blocked: str | None) -> None:
    assert _record(a_profile(**profile)).blocked == blocked


def test_a_partition_the_scheduler_does_not_show_is_blocked() -> None:
    prepared = prepare(a_profile(), a_probe(a_node()), [a_partition("gpu")])

    found = {record.partition: record.blocked for record in records(prepared, _access(), ONLINE)}

    assert found == {"cpu": "the scheduler shows no such partition", "gpu": None}


def test_the_least_of_profile_partition_qos_and_association_is_the_limit() -> None:
    profile = a_profile(
        partitions={
            "gpu": {"max_walltime_s": 7200, "max_nodes": 10, "max_gpus_per_job": 16, "max_gpus_per_user": 12,
                    "max_nodes_per_user": 9, "max_running_jobs": 7, "max_submit_jobs": 50, "qos": "normal"}
        },
        policy={"max_gpus_per_job": 20, "max_nodes_per_job": 6},
    )  # fmt: skip
    access = _access(
        associations=(
            Association(account="x-gpu", user="alice", limits=Limits(max_submit_jobs=40, max_gpus=14)),
        ),
        qos=(
            Qos(
                name="normal", per_user=Limits(max_jobs=5, max_cpus=900), per_job=Limits(max_walltime_s=3600)
            ),
            Qos(name="part-gpu", per_job=Limits(max_gpus=8, max_cpus=128), per_user=Limits(max_nodes=4)),
            Qos(name="unrelated", per_user=Limits(max_jobs=1)),
        ),
    )

    record = _record(profile, access, partition={"qos": "part-gpu", "max_walltime_s": 5000, "max_nodes": 12})

    limits = record.limits
    assert (record.max_walltime_s, record.max_nodes) == (3600, 10)
    assert (limits.max_submit_jobs, limits.max_running_jobs, limits.max_walltime_s) == (40, 5, 3600)
    assert (limits.max_gpus_per_user, limits.max_gpus_per_job) == (12, 8)
    assert (limits.max_nodes_per_job, limits.max_nodes_per_user) == (6, 4)
    assert (limits.max_cpus_per_job, limits.max_cpus_per_user) == (128, 900)


def test_without_any_limit_there_is_none() -> None:
    limits = _record(a_profile(partitions={"gpu": {}})).limits

    assert (limits.max_submit_jobs, limits.max_gpus_per_job, limits.max_walltime_s) == (None, None, None)


def test_the_association_for_the_partition_comes_before_the_general_one() -> None:
    associations = (
        Association(account="x-gpu", user="alice", limits=Limits(max_jobs=9)),
        Association(account="x-gpu", user="alice", partition="gpu", limits=Limits(max_jobs=2)),
    )

    assert _record(access=_access(associations=associations)).limits.max_running_jobs == 2


def test_own_use_counts_this_user_and_this_partition_alone() -> None:
    jobs = (
        a_job("1", gpus=3),
        a_job("2", state=JobState.QUEUED, array_pending=4),
        a_job("3", user="bob", gpus=8),
        a_job("4", partitions=("cpu",), gpus=1),
    )

    limits = _record(jobs=jobs).limits

    assert (limits.submitted_jobs, limits.running_jobs, limits.gpus_in_use) == (5, 1, 3)


def test_own_priority_is_that_of_the_newest_eligible_waiting_job() -> None:
    def waiting(job_id: str, minutes: int, priority: int, **changes: Any) -> Any:
        submit_at = NOW - timedelta(minutes=minutes)
        return a_job(job_id, state=JobState.QUEUED, submit_at=submit_at, priority=priority, **changes)

    jobs = (
        waiting("1", 30, 100),
        waiting("2", 10, 70),
        waiting("3", 5, 900, is_eligible=False),
        waiting("4", 1, 50, user="bob"),
    )

    assert _record(jobs=jobs).own_priority == 70
    assert _record().own_priority is None


def test_without_a_waiting_job_own_priority_is_added_up_from_what_the_scheduler_weighs() -> None:
    mine = Association(account="x-gpu", user="alice", default_qos="debug", priority_points=2500)
    access = _access(associations=(mine,), qos=(Qos(name="debug", priority_points=5000),))

    assert _record(access=access, partition={"priority_points": 100}).own_priority == 7600
    assert _record(access=access).own_priority == 7500


def test_own_priority_is_not_known_where_fair_share_is_not() -> None:
    mine = Association(account="x-gpu", user="alice")

    view = _record(access=_access(associations=(mine,)), partition={"priority_points": 100})

    assert view.own_priority is None


def test_a_partition_that_takes_jobs_of_a_reservation_only_needs_one_in_the_profile() -> None:
    reserved = a_profile(scheduler={"reservation": "course"})

    assert _record(partition={"requires_reservation": True}).blocked == (
        "only jobs of a reservation run here, and the profile names none"
    )
    assert _record(reserved, partition={"requires_reservation": True}).blocked is None
    assert _record().blocked is None


@pytest.mark.parametrize(
    ("stated", "live", "exclusive"),
    [(None, True, True), (None, False, False), (False, True, False), (True, False, True)],
)
def test_the_profile_decides_on_whole_nodes_where_it_says_anything(
    *, stated: bool | None, live: bool, exclusive: bool
) -> None:
    profile = a_profile(partitions={"gpu": {"exclusive": stated}})

    assert _record(profile, partition={"exclusive": live}).is_exclusive is exclusive


def test_a_node_kind_of_another_architecture_is_told_as_such() -> None:
    kinds = {"gh": {"cpus": 72, "memory_mib": 1, "architecture": "aarch64"}}
    entry = {"gpu": {"nodes": [{"type": "gh", "count": 1}]}}

    assert _record(a_profile(node_types=kinds, partitions=entry)).architecture == "aarch64"
    assert _record().architecture == "x86_64"


def test_an_unseen_partition_of_an_offline_system_is_in_no_known_state() -> None:
    prepared = prepare(a_profile(), None, None)

    states = {
        health: records(prepared, _access(), Standing(health))[0].partition_state
        for health in (Health.OFFLINE, Health.ONLINE)
    }

    assert states == {Health.OFFLINE: "unknown", Health.ONLINE: "up"}
