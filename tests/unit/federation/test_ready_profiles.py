"""The profiles that ship: they load, say what they charge, and agree with what the sites document."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from federation.merge import prepare
from federation.profile import PartitionProfile, ProfileDocument
from federation.profile_yaml import read_profile
from orchestrator.jobs import JobFacts, job_request

FOLDER = Path(__file__).resolve().parents[3] / "profiles"
SLUGS = ("anvil", "delta", "deltaai", "perlmutter", "vista")


def _ready(slug: str) -> ProfileDocument:
    return read_profile((FOLDER / f"{slug}.yaml").read_text(encoding="utf-8"), source=slug)


def test_the_folder_holds_these_and_no_others() -> None:
    assert sorted(file.stem for file in FOLDER.glob("*.yaml")) == list(SLUGS)


@pytest.mark.parametrize("slug", SLUGS)
def test_each_says_what_every_partition_charges_who_may_use_it_and_where_that_stands(slug: str) -> None:
    profile = _ready(slug)

    assert profile.system == slug
    assert [name for name, entry in profile.partitions.items() if entry.charge is None] == []
    assert [name for name, entry in profile.partitions.items() if entry.max_walltime_s is None] == []
    assert profile.sources != ()
    assert all(source.startswith("https://") for source in profile.sources)


@pytest.mark.parametrize("slug", SLUGS)
def test_what_could_not_be_verified_names_its_field(slug: str) -> None:
    document = _ready(slug).model_dump()

    for line in _ready(slug).unverified:
        path, colon, why = line.partition(": ")
        here: object = document
        for step in path.split("."):
            assert isinstance(here, dict)
            assert step in here
            here = here[step]
        assert (colon, bool(why)) == (": ", True)


@pytest.mark.parametrize(
    ("slug", "partition", "facts"),
    [
        ("delta", "gpuA100x4", {"max_walltime_s": 172_800, "accounts": ("*-gpu",)}),
        ("delta", "gpuA100x4-interactive", {"max_walltime_s": 3_600}),
        ("delta", "cpu", {"max_walltime_s": 172_800, "accounts": ("*-cpu",)}),
        ("anvil", "wholenode", {"max_walltime_s": 345_600, "max_nodes": 16, "max_running_jobs": 64}),
        ("anvil", "wide", {"max_walltime_s": 43_200, "max_nodes": 56, "max_submit_jobs": 10}),
        ("anvil", "highmem", {"max_walltime_s": 172_800, "max_nodes": 1, "max_submit_jobs": 4}),
        ("anvil", "gpu-debug", {"max_walltime_s": 1_800, "max_nodes": 1, "max_gpus_per_job": 2}),
        ("anvil", "gpu", {"max_walltime_s": 172_800, "max_gpus_per_user": 12}),
        ("vista", "gh", {"max_walltime_s": 172_800, "max_nodes": 64, "max_running_jobs": 20}),
        ("vista", "gh-dev", {"max_walltime_s": 7_200, "max_nodes": 8, "max_running_jobs": 1}),
        ("vista", "gg", {"max_walltime_s": 172_800, "max_nodes": 32, "max_nodes_per_user": 128}),
        ("perlmutter", "gpu-regular", {"qos": "regular", "constraint": "gpu&hbm40g", "exclusive": True}),
        ("perlmutter", "gpu-shared", {"qos": "shared", "exclusive": False, "max_gpus_per_job": 2}),
    ],
)
def test_caps_are_as_documented(slug: str, partition: str, facts: dict[str, object]) -> None:
    stated = _ready(slug).partitions[partition]

    assert {name: getattr(stated, name) for name in facts} == facts


@pytest.mark.parametrize(
    ("slug", "kind", "shape"),
    [
        ("delta", "gpua", (64, 262_144, 4, "a100", 40_960)),
        ("delta", "gpub", (64, 262_144, 4, "a40", 49_152)),
        ("delta", "gpud", (128, 2_097_152, 8, "mi100", 32_768)),
        ("deltaai", "gh", (288, 491_520, 4, "gh200", 98_304)),
        ("anvil", "g", (128, 524_288, 4, "a100", 40_960)),
        ("anvil", "h", (96, 1_048_576, 4, "h100", 81_920)),
        ("vista", "gh", (72, 118_784, 1, "gh200", 98_304)),
        ("vista", "gg", (144, 242_688, 0, None, None)),
        ("perlmutter", "gpu40", (128, 262_144, 4, "a100", 40_960)),
        ("perlmutter", "gpu80", (128, 262_144, 4, "a100", 81_920)),
    ],
)
def test_node_shapes_are_as_documented(slug: str, kind: str, shape: tuple[object, ...]) -> None:
    node = _ready(slug).node_types[kind]

    assert (node.cpus, node.memory_mib, node.gpus, node.gpu, node.gpu_memory_mib) == shape


def _rate(entry: PartitionProfile) -> tuple[Decimal, Decimal, Decimal]:
    """Return what an hour costs of one node, one GPU and one CPU."""
    assert entry.charge is not None
    rule = entry.charge
    return (rule.factor * rule.per_node, rule.factor * rule.per_gpu, rule.factor * rule.per_cpu)


def test_interactive_costs_double_and_preemptible_half_on_delta() -> None:
    delta = _ready("delta").partitions

    assert _rate(delta["gpuA100x4"]) == (Decimal(0), Decimal(1), Decimal("0.0625"))
    assert _rate(delta["gpuA100x4-interactive"]) == (Decimal(0), Decimal(2), Decimal("0.125"))
    assert _rate(delta["gpuA100x4-preempt"])[1] == Decimal("0.5")
    assert _rate(delta["gpuA40x4"])[1] == Decimal("0.5")
    assert _rate(delta["gpuA100x8"])[1] == Decimal("1.5")
    assert _rate(delta["cpu-interactive"])[2] == 2


def test_anvil_keeps_cpu_gpu_and_ai_credits_apart() -> None:
    anvil = _ready("anvil").partitions

    units = {name: entry.charge.unit for name, entry in anvil.items() if entry.charge}
    assert units == {
        "shared": "SU", "wholenode": "SU", "wide": "SU", "highmem": "SU", "debug": "SU",
        "gpu": "GPU SU", "gpu-debug": "GPU SU", "ai": "AI SU",
    }  # fmt: skip
    assert _rate(anvil["highmem"])[2] == 4


def test_vista_charges_nodes_and_is_asked_for_neither_memory_nor_gpus() -> None:
    vista = _ready("vista")

    assert _rate(vista.partitions["gg"])[0] == Decimal("0.33")
    assert (vista.scheduler.gpu_spelling, vista.scheduler.memory_spelling) == ("none", "none")
    assert all(entry.exclusive for entry in vista.partitions.values())


def test_perlmutter_is_asked_for_qos_and_constraint_and_no_partition() -> None:
    perlmutter = _ready("perlmutter")
    environment: dict[str, Any] = {"modules": [], "conda": None, "variables": {}, "setup": []}
    spec: dict[str, Any] = {
        "environment": environment,
        "command": ["true"],
        "script": None,
        "workdir": None,
        "retry": {"on": []},
    }
    facts = JobFacts(
        task="task_1", attempt_number=1, submit_key="facet-1", partition="gpu-regular-80g", account="m1_g",
        qos="regular", shape={"nodes": 1, "cpus": 128, "gpus": 4, "memory_mib": None, "walltime_s": 60},
        gpu_spelling="a100", container_runtime=None, container_image=None, remote_user="u", home="/home/u",
    )  # fmt: skip

    job = job_request(spec, perlmutter, facts, "name")

    assert (job.partition, job.qos, job.constraint) == (None, "regular", "gpu&hbm80g")
    assert (job.gpu_spelling, job.gpu_type) == ("gpus-per-node", None)


@pytest.mark.parametrize(
    ("slug", "partition", "nodes", "gpus"),
    [("delta", "gpuA100x4", 100, 400), ("anvil", "ai", 21, 84), ("vista", "gh", 600, 600),
     ("perlmutter", "gpu-regular-80g", 256, 1_024), ("deltaai", "ghx4", 114, 456)],
)  # fmt: skip
def test_before_the_first_probe_the_declared_nodes_stand_in(
    slug: str, partition: str, nodes: int, gpus: int
) -> None:
    prepared = {entry.name: entry for entry in prepare(_ready(slug), None, None).partitions}[partition]

    assert (len(prepared.nodes), sum(node.gpus for node in prepared.nodes)) == (nodes, gpus)
    assert {node.gpus_free for node in prepared.nodes} == {0}
