"""A fresh job's priority, added up from weights and factors, is what the controller gives to such a job."""

from datetime import UTC, datetime

import pytest

from providers.dialects.slurm.priority import (
    Weights,
    read_weights,
    weigh_associations,
    weigh_partitions,
    weigh_qos,
)
from providers.dialects.slurm.probe import read_probe
from providers.types import Association, BatchReply, Partition, Qos
from tests.unit.slurm_read.recordings import recorded

TOLD = {
    "PriorityType": "priority/multifactor",
    "PriorityWeightFairShare": "10000",
    "PriorityWeightPartition": "1000",
    "PriorityWeightQOS": "5000",
}
WEIGHTS = Weights(10_000, 1000, 5000)


def test_the_points_of_a_real_cluster_add_up_to_the_priority_its_controller_gave() -> None:
    reply = BatchReply.model_validate_json(recorded("probe/full-22.05.8.json"))
    probe = read_probe(reply, now=datetime(2026, 11, 29, 20, 31, 52, tzinfo=UTC))

    [waiting] = [job for job in probe.jobs if job.job_id == "13"]
    [mine] = [each for each in probe.associations or () if each.account == waiting.account]
    [part] = [each for each in probe.partitions or () if each.name == "ai"]
    [qos] = [each for each in probe.qos or () if each.name == waiting.qos]

    assert (mine.priority_points, part.priority_points, qos.priority_points) == (10_000, 1000, 0)
    assert waiting.priority == 11_000
    assert {each.name: each.priority_points for each in probe.qos or ()}["debug"] == 5000


@pytest.mark.parametrize(
    "missing",
    [{"PriorityType": "priority/basic"}, {"PriorityWeightQOS": "(null)"}, {"PriorityWeightFairShare": ""}],
)
def test_without_the_multifactor_plugin_or_a_weight_nothing_is_told(missing: dict[str, str]) -> None:
    assert read_weights(TOLD) == WEIGHTS
    assert read_weights(TOLD | missing) is None


def test_factors_are_relative_to_the_largest_and_round_down() -> None:
    low, high = (Partition(name="x", state="up", nodes_total=1, job_factor=factor) for factor in (1, 3))
    base, boost = Qos(name="normal"), Qos(name="debug", priority=1000)

    assert [each.priority_points for each in weigh_partitions([low, high], WEIGHTS)] == [333, 1000]
    assert [each.priority_points for each in weigh_qos([base, boost], WEIGHTS)] == [0, 5000]
    assert [each.priority_points for each in weigh_qos([base], WEIGHTS)] == [0]


def test_a_fair_share_that_is_not_known_gives_no_points() -> None:
    known = Association(account="a", user="alice", fairshare=0.25)

    weighed = weigh_associations([known, known.model_copy(update={"fairshare": None})], WEIGHTS)

    assert [each.priority_points for each in weighed] == [2500, None]
