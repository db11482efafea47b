"""Recorded output of real Slurm 20.11, 22.05 and 25.11, put into our columns: every field of every job."""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta

import pytest

from providers.dialects.slurm.observe import read_observe
from providers.dialects.slurm.reasons import explain_reason
from providers.dialects.slurm.rows import read_accounting, read_queue
from providers.dialects.slurm.words import TERMINAL, read_state
from providers.types import JobRef, JobState, Observation
from tests.unit.slurm_jobs.answers import (
    DATA,
    NOW,
    as_accounting,
    at,
    both,
    queue_record,
    recorded_accounting,
)

CAPTURES = [
    f"{system}_{load}" for system in ("delta", "deltaai", "anvil", "vista") for load in ("busy", "mixed")
]
VERSIONS = ["20.11", "22.05", "25.11"]
QUEUE_O = (
    *("id", "raw", "base", "task", "partition", "name", "user", "account", "compact", "state", "elapsed"),
    *("limit", "left", "nodes", "cpus", "gres", "memory", "reason", "reason_or_nodes", "qos", "priority"),
    *("submit", "start", "end", "dependency", "node_list", "features", "y"),
)
QUEUE_PIPE = (
    *("id", "raw", "base", "task", "partition", "name", "compact", "state", "reason", "reason_or_nodes"),
    *("nodes", "cpus", "memory", "gres", "limit", "left", "elapsed", "start", "submit", "node_list"),
)


def instant(text: str) -> datetime | None:
    return None if text in {"", "None", "Unknown", "N/A"} else at(text)


def tres(text: str, key: str) -> int | None:
    return next((int(part.partition("=")[2]) for part in text.split(",") if part.startswith(f"{key}=")), None)


def seconds(clock: str) -> int:
    days, _, rest = clock.rpartition("-")
    parts = [0, 0, *(int(part) for part in rest.split(":"))][-3:]
    return int(days or 0) * 86_400 + parts[0] * 3600 + parts[1] * 60 + parts[2]


def queue_rows(name: str, columns: tuple[str, ...]) -> list[dict[str, str]]:
    """Return recorded squeue records; names with pipes and newer trailing text are put together again."""
    rows = []
    for line in (DATA / name).read_text().splitlines():
        fields = line.split("|")
        spare = len(fields) - len(columns)
        fields[5 : 6 + spare] = ["|".join(fields[5 : 6 + spare])]
        rows.append(dict(zip(columns, fields, strict=True)))
    return rows


def as_queue(row: Mapping[str, str]) -> str:
    wanted = ("id", "raw", "state", "reason", "submit", "start", "end", "elapsed", "limit", "nodes", "cpus")
    given = {key: row[key] for key in (*wanted, "partition", "account", "node_list", "name") if key in row}
    return queue_record(**{"account": "", **given, "comment": ""})


# --- accounting -----------------------------------------------------------------------------------


@pytest.mark.parametrize("capture", CAPTURES)
def test_every_field_of_recorded_accounting_is_read(capture: str) -> None:
    recorded = recorded_accounting(f"{capture}_sacct_P.txt")

    rows = read_accounting("".join(map(as_accounting, recorded)))

    assert len(rows) == len(recorded) > 15
    for row, was in zip(rows, recorded, strict=True):
        got = row.observe()
        over = got.state in TERMINAL
        sizes = was["AllocTRES"] or was["ReqTRES"]
        assert (row.job_id, row.raw_id, row.name) == (was["JobID"], was["JobIDRaw"], was["JobName"])
        assert (got.job_id, got.state_raw, got.source) == (was["JobID"], was["State"], "accounting")
        assert got.state is read_state(was["State"], reason=was["Reason"]) is not JobState.UNKNOWN
        assert got.submit_at == at(was["Submit"])
        assert got.eligible_at == instant(was["Eligible"])
        assert got.start_at == instant(was["Start"])
        assert got.end_at == (instant(was["End"]) if over else None)
        assert got.elapsed_s == int(was["ElapsedRaw"]) == seconds(was["Elapsed"])
        assert got.walltime_s == int(was["TimelimitRaw"]) * 60
        assert (got.partition, got.account) == (was["Partition"], was["Account"])
        assert (got.cpus, got.nodes) == (tres(sizes, "cpu"), tres(sizes, "node"))
        assert got.gpus == (tres(sizes, "gres/gpu") or 0)
        assert got.billing == tres(was["AllocTRES"], "billing")
        assert len(got.node_names) == (int(was["AllocNodes"]) if was["NodeList"] != "None assigned" else 0)
        assert got.reason_raw == ("" if was["Reason"] == "None" else was["Reason"])
        assert (got.exit_code, got.exit_signal) == expected_exit(got.state, was["ExitCode"])
        assert got.restarts == 0


def expected_exit(state: JobState, pair: str) -> tuple[int | None, int | None]:
    code, signal = map(int, pair.split(":"))
    if state not in TERMINAL:
        return None, None
    if signal:
        return None, signal
    return (code if state in {JobState.COMPLETED, JobState.FAILED} else None), None


@pytest.mark.parametrize("version", VERSIONS)
def test_accounting_of_every_version_is_read(version: str) -> None:
    recorded = recorded_accounting(f"{version}_sacct_X.txt")

    rows = read_accounting("".join(map(as_accounting, recorded)))

    assert len(rows) == len(recorded) >= 25
    for row, was in zip(rows, recorded, strict=True):
        got = row.observe()
        sizes = was["AllocTRES"] or was["ReqTRES"]
        limit = was["Timelimit"]
        assert (row.name, got.job_id, got.state_raw) == (was["JobName"], was["JobID"], was["State"])
        assert got.state is not JobState.UNKNOWN
        assert got.submit_at == at(was["Submit"])
        assert got.start_at == instant(was["Start"])
        assert got.walltime_s == (
            None if limit in {"UNLIMITED", "Partition_Limit", "365-00:00:00"} else seconds(limit)
        )
        assert (got.cpus, got.nodes, got.gpus) == (
            tres(sizes, "cpu"),
            tres(sizes, "node"),
            tres(sizes, "gres/gpu") or 0,
        )
        assert (got.exit_code, got.exit_signal) == expected_exit(got.state, was["ExitCode"])


@pytest.mark.parametrize(
    "name", [*(f"{capture}_sacct_steps_P.txt" for capture in CAPTURES), "22.05_sacct_steps.txt"]
)
def test_steps_in_recorded_accounting_are_left_out(name: str) -> None:
    recorded = recorded_accounting(name)

    rows = read_accounting("".join(map(as_accounting, recorded)))

    jobs = [was["JobID"] for was in recorded if "." not in was["JobID"]]
    assert [row.job_id for row in rows] == jobs
    assert len(jobs) < len(recorded)


# --- how jobs end ---------------------------------------------------------------------------------

ENDS: dict[str, tuple[JobState, int | None, int | None, str]] = {
    "ok": (JobState.COMPLETED, 0, None, ""),
    "exit3": (JobState.FAILED, 3, None, "The program ended with exit code 3."),
    "kill9": (JobState.FAILED, None, 9, "The program was ended by signal 9."),
    "segv": (JobState.FAILED, None, 11, "The program was ended by signal 11."),
    "cancelrun": (JobState.CANCELLED, None, None, "The job was cancelled by user id 20002."),
    "cancelpend": (JobState.CANCELLED, None, None, "The job was cancelled by user id 20002."),
    "cancelbyroot": (JobState.CANCELLED, None, None, "The job was cancelled by the site (root)."),
    "nodefail": (JobState.NODE_FAIL, None, None, "A node of the job failed."),
    "badout": (
        JobState.FAILED,
        None,
        53,
        "The job could not be launched: its output path or a file it needs is not there or not writable.",
    ),
    "badcwd": (JobState.COMPLETED, 0, None, ""),
    "depfail_kill": (JobState.CANCELLED, None, None, "The job was cancelled."),
    "multistep": (JobState.COMPLETED, 0, None, ""),
}


@pytest.mark.parametrize(("name", "end"), ENDS.items())
def test_each_recorded_end_is_told(name: str, end: tuple[JobState, int | None, int | None, str]) -> None:
    recorded = recorded_accounting("outcomes_sacct.txt")
    was = next(row for row in recorded if row["JobName"] == name)
    rows = "".join(
        as_accounting({"Submit": "2026-11-29T16:55:50", **row})
        for row in recorded
        if row["JobID"].split(".")[0] == was["JobID"]
    )
    job = JobRef(submit_key="k", job_id=was["JobID"], submitted_at=at("2026-11-29T16:55:50"))

    got = read_observe(both([job], accounting=rows), [job], now=NOW)["k"]

    assert got is not None
    assert (got.state, got.exit_code, got.exit_signal, got.reason_explained) == end
    assert (got.submit_key, got.job_id, got.end_at) == ("k", was["JobID"], at(was["End"]))
    assert got.elapsed_s is None
    assert got.walltime_s == 60 * int(was["TimelimitRaw"])


def outcome(name: str, *, accounting: str) -> Observation | None:
    lines = (DATA / "outcomes_squeue.txt").read_text().splitlines()
    columns = lines[0].split("|")
    row = next(
        row for line in lines[1:] if (row := dict(zip(columns, line.split("|"), strict=True)))["NAME"] == name
    )
    queue = queue_record(
        id=row["JOBID"],
        name=name,
        comment="",
        state=row["STATE"],
        reason=row["REASON"],
        submit="2026-11-29T16:55:57",
        start=row["END_TIME"] if row["STATE"] == "PENDING" else "2026-11-29T16:55:50",
        end=row["END_TIME"],
    )
    job = JobRef(submit_key="k", job_id=row["JOBID"], submitted_at=at("2026-11-29T16:55:50"))
    return read_observe(both([job], queue=queue, accounting=accounting), [job], now=NOW)["k"]


def test_a_requeued_node_failure_waits_again_and_is_no_end() -> None:
    attempts = recorded_accounting("outcomes_duplicates.txt")
    submits = ("2026-11-29T16:55:50", "2026-11-29T16:55:57")
    rows = "".join(
        as_accounting({"JobName": "nodefail_rq", "Submit": submit, **row})
        for row, submit in zip(attempts, submits, strict=True)
    )

    got = outcome("nodefail_rq", accounting=rows)

    assert [row["State"] for row in attempts] == ["NODE_FAIL", "PENDING"]
    assert got is not None
    assert (got.job_id, got.state, got.reason_raw, got.restarts) == ("66", JobState.QUEUED, "BeginTime", 1)
    assert got.expected_start_at == at("2026-11-29T17:57:58")


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("deadline", JobState.HELD),
        ("depfail", JobState.QUEUED),
        ("reqnode", JobState.QUEUED),
        ("ft2", JobState.RUNNING),
        ("waits8", JobState.QUEUED),
    ],
)
def test_recorded_jobs_in_the_queue_are_told(name: str, state: JobState) -> None:
    got = outcome(name, accounting="")

    assert got is not None
    assert (got.state, got.source) == (state, "queue")
    assert bool(got.reason_explained) is (state is not JobState.RUNNING)


def test_the_controllers_memory_of_finished_jobs_agrees_with_accounting() -> None:
    lines = (DATA / "outcomes_squeue.txt").read_text().splitlines()[1:]
    queue = {fields[0]: fields[2] for fields in (line.split("|") for line in lines)}
    accounting = {row["JobID"]: row["State"] for row in recorded_accounting("outcomes_sacct.txt")}

    both_know = {job: state for job, state in queue.items() if job in accounting}

    assert len(both_know) > 15
    assert {read_state(state) for state in both_know.values()} > {JobState.FAILED, JobState.NODE_FAIL}
    for job, state in both_know.items():
        assert read_state(state) is read_state(accounting[job])


# --- the queue ------------------------------------------------------------------------------------


@pytest.mark.parametrize("capture", CAPTURES)
def test_every_field_of_the_recorded_queue_is_read(capture: str) -> None:
    recorded = queue_rows(f"{capture}_squeue_o.txt", QUEUE_O)

    rows = read_queue("".join(map(as_queue, recorded)))

    assert len(rows) == len(recorded) > 10
    for row, was in zip(rows, recorded, strict=True):
        got = row.observe()
        waits = got.state in {JobState.QUEUED, JobState.HELD}
        assert got.state is read_state(was["compact"], reason=was["reason"])
        assert (got.job_id, got.state_raw, got.source) == (was["id"], was["state"], "queue")
        assert got.reason_raw == ("" if was["reason"] == "None" else was["reason"])
        assert got.reason_explained == explain_reason(was["reason"]).sentence
        assert got.submit_at == at(was["submit"])
        assert (got.start_at, got.expected_start_at) == (
            (None, instant(was["start"])) if waits else (at(was["start"]), None)
        )
        assert got.end_at is None
        assert got.elapsed_s == seconds(was["elapsed"])
        assert got.walltime_s == seconds(was["limit"])
        assert (got.nodes, got.cpus) == (int(was["nodes"]), int(was["cpus"]))
        assert (got.partition, got.account) == (was["partition"], was["account"])
        assert len(got.node_names) == (0 if waits else int(was["nodes"]))
        assert (got.exit_code, got.exit_signal, got.gpus, got.billing) == (None, None, None, None)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_queue_of_every_version_is_read(version: str) -> None:
    recorded = queue_rows(f"{version}_squeue_pipe.txt", QUEUE_PIPE)

    rows = read_queue("".join(map(as_queue, recorded)))

    assert len(rows) == len(recorded) > 10
    for row, was in zip(rows, recorded, strict=True):
        got = row.observe()
        assert row.name == was["name"]
        assert got.state is read_state(was["compact"], reason=was["reason"]) is not JobState.UNKNOWN
        assert got.submit_at == at(was["submit"])
        assert got.expected_start_at == (instant(was["start"]) if was["state"] == "PENDING" else None)
        assert got.walltime_s == (None if was["limit"] == "UNLIMITED" else seconds(was["limit"]))
        assert got.partition == was["partition"]


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_printed_for_an_unknown_id_is_no_row(version: str) -> None:
    assert "Invalid job id" in (DATA / f"{version}_squeue_unknown.txt.err").read_text()
    assert read_accounting("") == ()
    assert read_queue("\n") == ()


@pytest.mark.parametrize("name", ["22.05", "25.11"])
def test_json_and_text_of_one_version_agree_on_states(name: str) -> None:
    told = {
        str(job["job_id"]): job["state"]["current"]
        for job in json.loads((DATA / f"{name}_sacct_states.json").read_text())
    }
    text = {row["JobIDRaw"]: row["State"] for row in recorded_accounting(f"{name}_sacct_X.txt")}

    common = told.keys() & text.keys()

    assert len(common) > 20
    assert {job: read_state(told[job]) for job in common if text[job] != "RUNNING"} == {
        job: read_state(text[job]) for job in common if text[job] != "RUNNING"
    }


def test_recorded_ends_are_final_once_they_have_settled() -> None:
    recorded = recorded_accounting("delta_mixed_sacct_P.txt")
    refs = [
        JobRef(submit_key=f"k{row['JobIDRaw']}", job_id=row["JobID"], submitted_at=at(row["Submit"]))
        for row in recorded
    ]

    got = read_observe(
        both(refs, accounting="".join(map(as_accounting, recorded))), refs, now=NOW + timedelta(days=1)
    )

    ended = {
        f"k{row['JobIDRaw']}" for row in recorded if row["State"].split()[0] not in {"RUNNING", "PENDING"}
    }
    assert {key for key, each in got.items() if each is not None and not each.left_queue} == ended
    assert len(ended) > 20
