"""What is given back while others wait: by jobs of other partitions, and by users at a limit of their own."""

from dataclasses import replace
from typing import Any

import pytest

from federation.held_back import cap_of
from federation.merge import TIER
from federation.types import PartitionQueue, PendingShare, ResourceRecord
from orchestrator.placement.model import PlacementModel
from orchestrator.placement.outlook import build_outlook
from orchestrator.placement.place import place
from orchestrator.placement.types import WaitBasis, WaitClass
from tests.property.placement.views import MODEL, NOW, busy, envelope, node, pending, record, running


def basis(view: ResourceRecord, model: PlacementModel = MODEL) -> WaitBasis:
    decision = place(envelope(), [view], now=NOW, model=model)
    assert decision.selected is not None
    return decision.selected.estimates.wait


def held_back(**changes: Any) -> PendingShare:
    """Return a waiting job of bob that a limit of his own holds back: a whole node for an hour."""
    return pending(**({"user": "bob", "is_eligible": False, "capped": "jobs"} | changes))


def two(*waiting: PendingShare) -> ResourceRecord:
    """Return two busy nodes: bob's job ends in 1000 s, eve's in 5000 s."""
    shares = (running("n1", ends_in_s=1000), running("n2", ends_in_s=5000, user="eve"))
    queue = PartitionQueue(running=shares, pending=waiting)
    return record(nodes=(busy("n1"), busy("n2")), queue=queue, own_priority=50)


def test_a_node_that_a_job_of_another_partition_holds_is_free_when_that_job_ends() -> None:
    alone = record(nodes=(busy("n1"),), max_walltime_s=86_400)
    beside = replace(alone, queue=PartitionQueue(beside=(running("n1", ends_in_s=900),)))

    assert basis(alone).plan_limits_s == 86_400, "nobody is seen on it: the longest wall time"
    assert basis(beside).plan_limits_s == 900
    assert beside.queue.running_count == 0


def test_a_user_at_a_limit_takes_the_turn_that_their_own_job_gives_back() -> None:
    assert basis(two()).plan_limits_s == 1000
    assert basis(two(held_back())).plan_limits_s == 4600
    assert basis(two(held_back(), held_back())).plan_limits_s == 5000, "one after the other, on one node"
    assert basis(two(held_back(priority=10))).plan_limits_s == 1000, "ours comes before it"
    assert basis(two(held_back(capped=None))).plan_limits_s == 1000, "held or dependent: no turn to take"
    assert basis(two(held_back(user="carol"))).plan_limits_s == 1000, "nothing tells when carol's turn is"
    assert basis(two(held_back(user=None))).plan_limits_s == 1000


def test_turns_on_gpus_are_taken_as_many_as_the_users_jobs_hold() -> None:
    small = two(held_back(capped="gpus", gpus=4), held_back(capped="gpus", gpus=4))
    assert basis(small).plan_limits_s == 5000

    large = two(held_back(capped="gpus", nodes=2, cpus=128, gpus=8))
    assert basis(large).plan_limits_s == 1000, "bob never held so many: nothing tells his limit"


def test_who_is_held_back_is_nobody_ahead_while_something_else_is_free() -> None:
    queue = PartitionQueue(running=(running("n1", ends_in_s=1000),), pending=(held_back(),))
    view = record(nodes=(busy("n1"), node("n2")), queue=queue, own_priority=50)

    assert basis(view).wait_class is WaitClass.CERTAIN
    assert build_outlook(view, at=NOW, model=MODEL).ahead == 0


@pytest.mark.parametrize(
    ("reason", "cap"),
    [
        ("QOSMaxJobsPerUserLimit", "jobs"),
        ("AssocMaxJobsLimit", "jobs"),
        ("QOSMaxGRESPerUser", "gpus"),
        ("QOSMaxGRESPerUser,Resources", "gpus"),
        ("QOSMaxCpuPerUserLimit", "cpus"),
        ("QOSMaxNodePerUserLimit", "nodes"),
        ("QOSMaxGRESPerJob", None),
        ("Dependency", None),
        ("Priority", None),
        ("", None),
    ],
)
def test_the_limits_that_give_a_turn_back(reason: str, cap: str | None) -> None:
    assert cap_of(reason) == cap


def test_a_throttled_array_before_ours_takes_so_many_nodes_at_once() -> None:
    shares = tuple(running(name, ends_in_s=1000) for name in ("n1", "n2"))
    nodes = (busy("n1"), busy("n2"))

    def starts(array: PendingShare) -> int | None:
        queue = PartitionQueue(running=shares, pending=(array,))
        return basis(record(nodes=nodes, queue=queue, own_priority=50)).plan_limits_s

    tasks = pending(count=4, walltime_s=3600)
    assert starts(tasks) == 8200, "two at a time, twice"
    assert starts(replace(tasks, at_once=1)) == 1000, "one at a time, and the other node is for ours"
    assert starts(replace(tasks, at_once=9)) == 8200


def test_a_job_of_a_higher_tier_on_the_same_nodes_comes_before_ours_and_one_of_lower_priority_after() -> None:
    def starts(*rivals: PendingShare) -> tuple[int | None, bool | None]:
        view = two()
        found = basis(replace(view, queue=replace(view.queue, rivals=rivals)))
        return found.plan_limits_s, found.somebody_ahead

    assert starts() == (1000, False)
    assert starts(pending(priority=10 + TIER)) == (4600, True)
    assert starts(pending(priority=10)) == (1000, False)
