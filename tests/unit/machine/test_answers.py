"""What the dialect makes of answers, whole ones and broken ones. Nothing runs here."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from providers.dialects.machine.dialect import MachineDialect
from providers.errors import InvalidInput, SchedulerDown, UnparsableOutput
from providers.registry import dialect
from providers.types import BatchReply, JobRef, JobRequest, JobState, Reply

NOW = datetime(2026, 1, 1, tzinfo=UTC)
REFS = [JobRef(submit_key="k1"), JobRef(submit_key="k2")]
JOB: dict[str, Any] = {
    "number": 7,
    "key": "k1",
    "name": "n",
    "user": "ada",
    "cpus": 2,
    "memory_mib": None,
    "gpus": 0,
    "gpu_type": None,
    "walltime_s": 60,
    "submit_at": 1767225600.0,
    "state": "oom",
    "start_at": 1767225601.0,
    "devices": [],
    "before": 0,
    "end_at": 1767225605.0,
    "exit_code": 137,
    "signal": None,
    "error": None,
    "cpu_s": 1.5,
    "max_rss_mib": 9,
}
PLACES = {"workdir": "/w", "stdout_path": "/w/out", "stderr_path": "/w/err"}


def _reply(verb: str, **said: Any) -> BatchReply:
    return BatchReply(replies={verb: Reply(name=verb, **{"rc": 0, **said})}, hostname="h")


def _job(**given: Any) -> JobRequest:
    return JobRequest(
        **{"submit_key": "k1", "name": "n", "walltime_s": 60, "argv": ("true",), **PLACES, **given}
    )


def test_the_registry_knows_the_machine() -> None:
    assert dialect("machine").name == "machine"


def test_a_job_killed_for_memory_says_so() -> None:
    answer = _reply("observe", stdout=json.dumps({"jobs": {"k1": JOB, "k2": None}}))

    found = MachineDialect().read_observe(answer, REFS, now=NOW)

    seen = found["k1"]
    assert seen is not None
    assert (seen.state, seen.state_raw, seen.exit_code) == (JobState.OUT_OF_MEMORY, "OOM", 137)
    assert (seen.elapsed_s, seen.node_names) == (4, ("h",))
    assert found["k2"] is None


def test_a_key_that_the_answer_leaves_out_is_left_out() -> None:
    answer = _reply("observe", stdout=json.dumps({"jobs": {"k2": None}}))

    assert MachineDialect().read_observe(answer, REFS, now=NOW) == {"k2": None}


@pytest.mark.parametrize(
    "said",
    [
        {"rc": None, "missing": True},
        {"rc": None, "timed_out": True},
        {"rc": None, "truncated": True},
        {"rc": None, "skipped": True},
        {"rc": 1, "stdout": '{"error": "No space left on device"}'},
        {"rc": 1, "stderr": "Traceback\nValueError: x"},
    ],
)
def test_no_answer_says_nothing_of_jobs(said: dict[str, Any]) -> None:
    with pytest.raises(SchedulerDown):
        MachineDialect().read_observe(_reply("observe", **said), REFS, now=NOW)


@pytest.mark.parametrize(
    "stdout", ["", "hello", "{}", json.dumps({"jobs": {"k1": {**JOB, "state": "dreaming"}}})]
)
def test_an_unknown_answer_is_an_error(stdout: str) -> None:
    with pytest.raises(UnparsableOutput):
        MachineDialect().read_observe(_reply("observe", stdout=stdout), REFS, now=NOW)


def test_a_submission_without_an_answer_is_in_doubt() -> None:
    for said in (
        {"rc": None, "timed_out": True},
        {"rc": 1, "stderr": "x"},
        {"stdout": "cut"},
        {"stdout": "{}"},
    ):
        assert MachineDialect().read_submit(_reply("submit", **said)).outcome == "doubtful"


def test_a_host_without_python_took_nothing() -> None:
    result = MachineDialect().read_submit(_reply("submit", rc=None, missing=True))

    assert (result.outcome, result.explained) == ("rejected", "python3 is not on the path of this host.")


def test_a_cancel_without_an_answer_was_not_taken() -> None:
    said = MachineDialect().read_cancel(_reply("cancel", rc=None, timed_out=True), REFS)

    assert said == dict.fromkeys(("k1", "k2"), "the host's queue gave no whole answer in time")


@pytest.mark.parametrize(
    "given",
    [
        {"nodes": 2},
        {"cpus": 0},
        {"gpus": -1},
        {"memory_mib": -1},
        {"walltime_s": 0},
        {"partition": "gpu"},
        {"qos": "high"},
        {"constraint": "a100"},
        {"reservation": "r"},
        {"extra_directives": ("--mem=1",)},
        {"signal": "B:USR1@soon"},
        {"submit_key": "../k"},
        {"submit_key": ""},
        {"workdir": "relative"},
    ],
)
def test_what_a_single_host_does_not_have_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        MachineDialect().submit(_job(**given))


HOST: dict[str, Any] = {
    "host": "h",
    "kernel": "Linux 6",
    "architecture": "x86_64",
    "user": "ada",
    "cpus": 4,
    "cpus_free": 3,
    "memory_mib": 8000,
    "memory_free_mib": 7000,
    "memory_available_mib": 6000,
    "load": 2.0,
    "gpus": [],
    "jobs": [],
}


@pytest.mark.parametrize(
    ("given", "warnings"),
    [
        ({}, ()),
        ({"load": 4.9}, ()),
        ({"load": 5.0}, ("load 5.00 on 4 CPUs: other work is running here",)),
        (
            {"memory_available_mib": 3000},
            ("the kernel could give 3000 MiB of memory now, our jobs have left 7000",),
        ),
        ({"gpus": None}, ("nvidia-smi gave no answer; no GPU is offered",)),
    ],
)
def test_a_host_busy_with_other_work_is_said_to_be(given: dict[str, Any], warnings: tuple[str, ...]) -> None:
    probe = MachineDialect().read_probe(_reply("probe", stdout=json.dumps({**HOST, **given})), now=NOW)

    assert probe.warnings == warnings
    assert (probe.nodes[0].state, probe.nodes[0].cpus_free) == ("mixed", 3)
