"""What a profile says differently from a probe, told field by field."""

from typing import Any

from federation.drift import Difference, differences
from providers.types import GpuPool, Qos
from tests.unit.federation.values import a_node, a_partition, a_probe, a_profile

CPU = a_node("cn1", partitions=("cpu",), cpus_total=128, gpus=())


def _agreeing(**changes: Any) -> Any:
    nodes = [{"type": "gpua", "count": 2}]
    entries = {"gpu": {"nodes": nodes, **changes}, "cpu": {"nodes": [{"type": "cn", "count": 1}]}}
    return a_profile(partitions=entries)


TABLE = [a_partition("gpu"), a_partition("cpu")]
PROBE = a_probe(a_node("g1"), a_node("g2"), CPU)


def test_where_all_agrees_there_is_nothing_to_tell() -> None:
    assert differences(_agreeing(), PROBE, TABLE) == ()


def test_a_partition_the_scheduler_lacks_is_told_once() -> None:
    assert differences(_agreeing(), PROBE, [a_partition("cpu")]) == (
        Difference("partitions.gpu", "gpu", "no such partition", "no work goes there; remove or rename it"),
    )


def test_without_a_partition_table_no_partition_is_missed() -> None:
    assert differences(_agreeing(), PROBE, None) == ()


def test_a_partition_the_profile_lacks_is_told_with_its_size() -> None:
    extra = [*TABLE, a_partition("extra", nodes_total=1), a_partition("admin", root_only=True)]
    opened = a_profile(partitions=_agreeing().model_dump()["partitions"], only_listed_partitions=False)

    assert differences(_agreeing(), PROBE, extra) == (
        Difference("partitions.extra", "not listed", "1 node", "not used"),
    )
    assert differences(opened, PROBE, extra)[0].note == "used, without a charge"


def test_other_numbers_of_nodes_and_other_gpus_are_told_with_both_sides() -> None:
    h100 = a_node("g3", gpus=(GpuPool(type="h100", total=4, used=0, free=4),))

    found = differences(_agreeing(), a_probe(a_node("g1"), h100, CPU), TABLE)

    assert found == (
        Difference(
            "partitions.gpu.nodes",
            "2 nodes of 4 × a100, 64 CPUs",
            "1 node of 4 × a100, 64 CPUs; 1 node of 4 × h100, 64 CPUs",
            "the probe's nodes are used",
        ),
        Difference(
            "node_types",
            "not listed",
            "GPU h100 in gpu",
            "add a node type, so that its memory is known",
        ),
    )


def test_a_partition_without_nodes_is_told() -> None:
    (found,) = differences(_agreeing(), a_probe(CPU), TABLE)

    assert (found.field, found.found) == ("partitions.gpu.nodes", "no nodes")


def test_features_that_no_node_has_are_told() -> None:
    (found,) = differences(_agreeing(features=["hbm80g"]), PROBE, TABLE)

    assert (found.field, found.stated, found.found) == (
        "partitions.gpu.features",
        "hbm80g",
        "no node has all of them",
    )


def test_other_caps_and_another_way_of_sharing_are_told() -> None:
    stated = _agreeing(max_walltime_s=172_800, max_nodes=4, exclusive=True)
    live = a_partition("gpu", max_walltime_s=3_600, max_nodes=8, exclusive=False)

    assert differences(stated, PROBE, [live, a_partition("cpu")]) == (
        Difference("partitions.gpu.max_walltime_s", "2-00:00:00", "01:00:00", "the smaller counts"),
        Difference("partitions.gpu.max_nodes", "4", "8", "the smaller counts"),
        Difference("partitions.gpu.exclusive", "whole nodes", "shared nodes", "the profile counts"),
    )


def test_a_qos_the_accounting_lacks_is_told() -> None:
    profile = a_profile(
        partitions=_agreeing(qos="high", scheduler_qos="gpu_high").model_dump()["partitions"],
        policy={"default_qos": "normal"},
    )
    probe = a_probe(a_node("g1"), a_node("g2"), CPU, qos=(Qos(name="high"),))

    assert [(d.field, d.stated) for d in differences(profile, probe, TABLE)] == [
        ("partitions.gpu.qos", "gpu_high"),
        ("policy.default_qos", "normal"),
    ]
    assert differences(profile, PROBE, TABLE) == ()
