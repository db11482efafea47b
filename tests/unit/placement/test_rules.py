"""Each rule rejects with its code, what it required, what it observed; all failures are told."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from federation.types import ChargeRule, GroupLimit, Health, Maintenance, ResourceRecord, UserLimits
from orchestrator.envelope.types import Accelerator, Container, Envelope, Policy, Software
from orchestrator.placement.capacity import node_kinds
from orchestrator.placement.rules import Asked, failures
from orchestrator.placement.types import CODES, RULE_OF
from tests.property.placement.views import NOW, bounds, envelope, node, record

SOON = Maintenance(start_at=NOW + timedelta(minutes=10), end_at=NOW + timedelta(hours=2))
PARTLY = replace(SOON, node_names=frozenset({"n1"}))
NO_LIMITS = UserLimits()
SU = ChargeRule(unit="SU", per_gpu=Decimal(2))

CASES: list[tuple[str, dict[str, Any], dict[str, Any], list[tuple[str, Any, Any]]]] = [
    ("nothing", {}, {}, []),
    ("disabled", {"health": Health.DISABLED}, {}, [("system_disabled", "enabled", "disabled")]),
    ("offline", {"health": Health.OFFLINE}, {}, [("endpoint_offline", "online", "offline")]),
    ("stale by age", {"observed_at": NOW - timedelta(seconds=601)}, {}, [("endpoint_stale", 600, 601)]),
    ("never probed", {"observed_at": None}, {}, [("endpoint_stale", 600, None)]),
    ("a site's clock ahead of ours", {"observed_at": NOW + timedelta(seconds=90)}, {}, []),
    ("not connected", {"is_connected": False}, {}, [("not_authorized", "connection", "none")]),
    ("denied", {"access_denied": "group x"}, {}, [("not_authorized", "access", "group x")]),
    ("no allocation", {"has_allocation": False}, {}, [("no_allocation", "allocation", "abc")]),
    ("no account", {"has_allocation": False, "account": None}, {}, [("no_account", "allocation", None)]),
    ("blocked", {"blocked": "debug only"}, {}, [("partition_blocked", "open", "debug only")]),
    ("drained", {"partition_state": "drain"}, {}, [("partition_down", "up", "drain")]),
    (
        "excluded",
        {},
        {"policy": Policy(exclude_partitions=("delta/gpu",))},
        [("excluded_by_policy", "policy.exclude_partitions", "delta/gpu")],
    ),
    (
        "not allowed",
        {},
        {"policy": Policy(allow_systems=("anvil",))},
        [("excluded_by_policy", "policy.allow_systems", "delta")],
    ),
    ("architecture", {}, {"architecture": ("aarch64",)}, [("architecture_mismatch", ("aarch64",), "x86_64")]),
    (
        "unknown architecture",
        {"architecture": None},
        {"architecture": ("aarch64",)},
        [("architecture_mismatch", ("aarch64",), None)],
    ),
    ("no GPUs", {"nodes": (node(gpus=0),)}, {}, [("accelerator_absent", 1, 0), ("gpus", 1, 0)]),
    (
        "other GPUs",
        {},
        {"accelerator": Accelerator(types=("h100",))},
        [("accelerator_type", ("h100",), ("a100",))],
    ),
    (
        "another vendor",
        {},
        {"accelerator": Accelerator(vendor="amd")},
        [("accelerator_type", ("amd",), ("a100",))],
    ),
    (
        "small GPUs",
        {},
        {"accelerator": Accelerator(min_memory_mib=80_000)},
        [("accelerator_memory", 80_000, 40_960)],
    ),
    ("too few GPUs", {}, {"gpus": bounds(9)}, [("gpus", 9, 8)]),
    ("too few CPUs", {}, {"cpus": bounds(129)}, [("cpus", 129, 128)]),
    ("too little memory", {}, {"memory_mib": bounds(524_289)}, [("memory", 524_289, 524_288)]),
    ("too few nodes", {}, {"gpus": bounds(3), "nodes": bounds(3)}, [("nodes", 3, 2)]),
    ("all nodes down", {"nodes": (node(is_up=False, is_usable=False),)}, {}, [("nodes", 1, 0)]),
    ("an empty partition", {"nodes": ()}, {}, [("accelerator_absent", 1, 0), ("nodes", 1, 0)]),
    ("partition node cap", {"max_nodes": 1}, {"gpus": bounds(8)}, [("nodes", 2, 1)]),
    ("all on one node", {}, {"gpus": bounds(8), "nodes": bounds(1)}, [("gpus_per_node_shape", 8, 4)]),
    ("no even share", {}, {"gpus": bounds(3), "nodes": bounds(2)}, [("gpus_per_node_shape", 3, 8)]),
    ("CPUs on one node", {}, {"cpus": bounds(100), "nodes": bounds(1)}, [("cpus", 100, 64)]),
    ("wall time", {"max_walltime_s": 1800}, {}, [("wall_time_over_limit", 3600, 1800)]),
    (
        "wall time of the QoS",
        {"limits": replace(NO_LIMITS, max_walltime_s=60)},
        {},
        [("wall_time_over_limit", 3600, 60)],
    ),
    ("maintenance", {"maintenance": (SOON,)}, {}, [("maintenance_window", 3600, 600)]),
    ("maintenance elsewhere", {"maintenance": (PARTLY,)}, {}, []),
    (
        "maintenance leaves too few",
        {"maintenance": (PARTLY,)},
        {"gpus": bounds(8)},
        [("maintenance_window", 3600, 600)],
    ),
    (
        "maintenance is over",
        {"maintenance": (replace(SOON, start_at=NOW - timedelta(hours=2), end_at=NOW),)},
        {},
        [],
    ),
    ("no container", {}, {"container": Container(image="x.sif")}, [("container_unsupported", ("any",), ())]),
    (
        "other container",
        {"containers": ("podman",)},
        {"container": Container(runtime=("apptainer",))},
        [("container_unsupported", ("apptainer",), ("podman",))],
    ),
    ("software unknown", {}, {"software": (Software(name="gromacs"),)}, []),
    (
        "software missing",
        {"software_known": True},
        {"software": (Software(name="gromacs"),)},
        [("software_missing", "gromacs", None)],
    ),
    (
        "software too old",
        {"software_known": True, "software": {"GROMACS": ("2021.3",)}},
        {"software": (Software(name="gromacs", version=">=2022"),)},
        [("software_version", "gromacs >=2022", ("2021.3",))],
    ),
    (
        "software of unknown version",
        {"software_known": True, "software": {"gromacs": ()}},
        {"software": (Software(name="gromacs", version=">=2022"),)},
        [],
    ),
    (
        "network",
        {"network": ("ethernet",)},
        {"network": ("infiniband",)},
        [("network_missing", "infiniband", ("ethernet",))],
    ),
    ("filesystem", {}, {"filesystem": ("lustre",)}, [("filesystem_missing", "lustre", ())]),
    (
        "submitted jobs",
        {"limits": replace(NO_LIMITS, max_submit_jobs=2, submitted_jobs=2)},
        {},
        [("max_jobs", 3, 2)],
    ),
    ("no job may run", {"limits": replace(NO_LIMITS, max_running_jobs=0)}, {}, [("max_jobs", 1, 0)]),
    ("no job may be submitted", {"limits": replace(NO_LIMITS, max_submit_jobs=0)}, {}, [("max_jobs", 1, 0)]),
    ("no job of the group", {"groups": (GroupLimit("ai", max_jobs=0),)}, {}, [("max_jobs", 1, 0)]),
    ("running jobs only delay", {"limits": replace(NO_LIMITS, max_running_jobs=1, running_jobs=1)}, {}, []),
    (
        "GPUs per job",
        {"limits": replace(NO_LIMITS, max_gpus_per_job=1)},
        {"gpus": bounds(2)},
        [("max_gpus", 2, 1)],
    ),
    (
        "nodes per job",
        {"limits": replace(NO_LIMITS, max_nodes_per_job=1)},
        {"gpus": bounds(8)},
        [("max_nodes", 2, 1)],
    ),
    ("CPUs per user", {"limits": replace(NO_LIMITS, max_cpus_per_user=4)}, {}, [("qos_limit", 8, 4)]),
    ("credit", {"charge": SU, "credit_left": Decimal(1)}, {}, [("credit_exceeded", "2.0000", "1")]),
    (
        "cap",
        {"charge": SU},
        {"policy": Policy(max_charge={"delta": Decimal("1.5")})},
        [("charge_over_cap", "2.0000", "1.5")],
    ),
    ("credit pays exactly", {"charge": SU, "credit_left": Decimal(2)}, {}, []),
]


def ask(view: ResourceRecord, request: Envelope) -> list[tuple[str, Any, Any]]:
    found = failures(Asked(request, view, node_kinds(view.nodes), NOW))
    return [(each.code, each.required, each.observed) for each in found]


@pytest.mark.parametrize(("changes", "asked", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_the_rule_rejects_with_its_figures(
    changes: dict[str, Any], asked: dict[str, Any], expected: list[tuple[str, Any, Any]]
) -> None:
    assert ask(record(**changes), envelope(**asked)) == expected


def test_every_code_of_the_contract_is_reached() -> None:
    assert {code for *_, expected in CASES for code, _, _ in expected} == set(RULE_OF)


def test_every_failure_is_told_in_the_order_of_the_rules() -> None:
    view = record(
        health=Health.OFFLINE, is_connected=False, blocked="no", max_walltime_s=60, architecture="ppc64le"
    )

    found = failures(
        Asked(envelope(architecture=("x86_64",), gpus=bounds(99)), view, node_kinds(view.nodes), NOW)
    )

    assert [each.code for each in found] == [
        "endpoint_offline",
        "not_authorized",
        "partition_blocked",
        "architecture_mismatch",
        "gpus",
        "wall_time_over_limit",
    ]
    assert [list(CODES).index(each.rule) for each in found] == sorted(
        list(CODES).index(each.rule) for each in found
    )


def test_a_system_left_out_this_time_is_excluded_by_policy() -> None:
    view = record()

    found = failures(
        Asked(envelope(), view, node_kinds(view.nodes), NOW, exclude_systems=frozenset({"delta"}))
    )

    assert [(each.code, each.required) for each in found] == [
        ("excluded_by_policy", "policy.exclude_systems")
    ]
