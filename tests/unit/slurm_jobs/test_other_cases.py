"""Hard cases that lie between the dialect's halves; their table is tests/data/cases/slurm_rest.jsonl."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from orchestrator.triage import Failure, triage
from providers.dialects.slurm.nodes import read_nodes
from providers.dialects.slurm.observe import build_observe
from providers.dialects.slurm.script import render_script
from providers.dialects.slurm.submit import SUBMIT, read_submit
from providers.links.local import LocalLink
from providers.types import Batch, BatchReply, Exec, JobRef, JobRequest, Reply

CASES = {
    row["id"]: row
    for row in map(json.loads, Path("tests/data/cases/slurm_rest.jsonl").read_text().splitlines())
}
PLACES = {"workdir": "/w", "stdout_path": "/w/out", "stderr_path": "/w/err"}


def case(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    return CASES[name]["input"], CASES[name]["expected"]


def job(**given: Any) -> JobRequest:
    return JobRequest(
        **{"submit_key": "k1", "name": "n", "walltime_s": 60, "argv": ("true",), **PLACES, **given}
    )


def test_dialect_differences_06_gpus_are_asked_for_once_and_a_steps_own_request_is_no_lack_of_gpus() -> None:
    given, _ = case("dialect-differences-06")

    script = render_script(job(gpus=8, gpu_type="h100", cpus=8))
    found = triage(Failure(task="task_1", system="s", exit_code=1, stderr=given["stderr"]))

    assert "#SBATCH --gres=gpu:h100:8" in script
    assert "srun" not in script
    assert found["cause"] == "step_request"


def test_dialect_differences_10_presets_of_an_outer_job_never_reach_the_sites_commands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given, _ = case("dialect-differences-10")
    for name, value in given["env_of_agent_inside_a_job"].items():
        monkeypatch.setenv(name, value)

    reply = LocalLink().run(Batch(operations=(Exec(name="env", argv=("env",)),))).replies["env"]

    assert reply.rc == 0
    assert not [line for line in reply.stdout.splitlines() if line.startswith(("SLURM_", "SBATCH_"))]


def test_dialect_differences_11_a_rule_of_the_site_is_lasting_and_its_spelling_can_be_rendered() -> None:
    given, _ = case("dialect-differences-11")
    answer = Reply(name=SUBMIT, rc=given["rc"], stderr=given["stderr"])

    result = read_submit(BatchReply(replies={SUBMIT: answer}))

    assert (result.outcome, result.retryable) == ("rejected", False)
    assert "memory by node is not supported" in result.said
    assert "rule of the site" in result.explained
    script = render_script(job(cpus=4, memory_mib=4001, memory_spelling="mem-per-cpu"))
    assert "#SBATCH --mem-per-cpu=1001M" in script
    assert "--mem=" not in script


def test_reason_01_a_nodes_reason_ends_where_the_next_key_begins() -> None:
    given, expected = case("reason-01")
    figures = "CPUAlloc=0 CPUTot=8 AllocMem=0 Gres=(null) GresUsed=gpu:0 Partitions=gpu"

    (node,) = read_nodes(given["output"].replace(" OS=", f" {figures} OS="))

    assert node.reason.startswith(expected["Reason"])
    assert "Comment" not in node.reason
    assert (node.memory_total_mib, node.state, "DRAIN" in node.flags) == (
        expected["RealMemory"],
        "mixed",
        True,
    )


def test_mem_unit_04_nothing_is_said_of_memory_used_so_nothing_wrong_is_advised() -> None:
    words = [
        word
        for operation in build_observe(
            [JobRef(submit_key="k1", job_id="140077")], since=datetime.now(UTC), now=datetime.now(UTC)
        ).operations
        if isinstance(operation, Exec)
        for word in operation.argv
    ]

    assert words
    assert not [word for word in words if "MaxRSS" in word or "AveRSS" in word]


def test_multi_cluster_02_each_cluster_is_asked_for_its_own_jobs_only() -> None:
    given, expected = case("multi-cluster-02")
    asked = {}
    for cluster in expected["poll"]:
        own = [
            JobRef(submit_key=f"k{j['id']}", job_id=str(j["id"]))
            for j in given["jobs"]
            if j["cluster"] == cluster
        ]
        batch = build_observe(own, since=datetime.now(UTC), now=datetime.now(UTC))
        asked[cluster] = " ".join(word for op in batch.operations if isinstance(op, Exec) for word in op.argv)

    assert asked["alpha"].split()[-2:] == ["-j", "5"]
    assert asked["beta"].split()[-2:] == ["-j", "6"]
    assert "-M" not in asked["beta"].split()
