"""What a partition charges where memory counts too, as on Delta and Anvil."""

from decimal import Decimal
from typing import Any

import pytest

from federation.merge import prepare
from federation.records import records
from federation.types import Access, Health, Standing
from orchestrator.placement.capacity import Layout, NodeKind
from orchestrator.placement.charge import charge_for
from tests.unit.federation.values import a_probe, a_profile

KIND = NodeKind(
    index=0, cpus=64, memory_mib=262_144, gpus=4, gpu_type="a100", gpu_memory_mib=40_960, total=2, up=2
)


def _charge(rule: dict[str, Any], *, exclusive: bool = False, **layout: Any) -> Decimal:
    profile = a_profile(partitions={"gpu": {"charge": {"unit": "SU", **rule}, "exclusive": exclusive}})
    prepared = prepare(profile, a_probe(), None)
    (record,) = records(prepared, Access(is_connected=True), Standing(Health.ONLINE))
    given = {"nodes": 1, "gpus": 1, "cpus": 8, "cpus_per_node": 8, "memory_per_node_mib": 32_768, **layout}
    return charge_for(
        Layout(memory_mib=None, walltime_s=3_600, gpus_per_node=1, kinds=(KIND,), **given), record
    ).amount


DELTA = {"per_gpu": 1, "per_cpu": "0.0625", "per_gib": "0.015625", "combine": "max"}


@pytest.mark.parametrize(
    ("layout", "amount"),
    [
        ({}, "1"),
        ({"cpus": 32}, "2"),
        ({"memory_per_node_mib": 196_608}, "3"),
        ({"nodes": 2, "gpus": 2, "memory_per_node_mib": 196_608}, "6"),
    ],
    ids=["the GPU", "its CPUs", "its memory", "the memory of both nodes"],
)
def test_the_largest_share_of_a_node_is_charged(layout: dict[str, Any], amount: str) -> None:
    assert _charge(DELTA, **layout) == Decimal(amount)


def test_added_up_each_share_is_charged() -> None:
    assert _charge({"per_cpu": 1, "per_gib": "0.5"}) == 8 + 16


def test_of_whole_nodes_all_memory_is_charged() -> None:
    assert _charge({"per_gib": 1}, exclusive=True) == 256


def test_the_factor_counts_once() -> None:
    assert _charge({**DELTA, "factor": 2}, memory_per_node_mib=196_608) == 6
