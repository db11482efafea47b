"""Hard cases that people met with Slurm, one test each; their table is tests/data/cases/slurm_jobs.jsonl.

The cases name states, attempts and units in their own words: `attempt` is restarts + 1 here, `oom` and the
other states are JobState's values, `limit_s` is walltime_s.
"""

import json
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from providers.dialects.slurm.cancel import read_cancel
from providers.dialects.slurm.hostlist import read_job_id, read_tasks, split_federated_id
from providers.dialects.slurm.observe import QUEUE, SETTLE_S, build_observe, read_observe
from providers.dialects.slurm.reasons import ReasonKind, explain_reason
from providers.dialects.slurm.submit import SUBMIT, find_job_id, read_submit
from providers.dialects.slurm.units import UNLIMITED, read_duration_s, read_limit_s, read_requested_walltime_s
from providers.dialects.slurm.words import cancelled_by, read_state
from providers.errors import InvalidInput, SchedulerDown
from providers.types import BatchReply, Exec, JobRef, JobState, Observation, Reply
from tests.unit.slurm_jobs.answers import NOW, accounting_record, answer, at, both, queue_record
from tests.unit.slurm_read.as_json import json_instant, json_minutes_s, json_number

TABLE = Path(__file__).resolve().parents[2] / "data" / "cases" / "slurm_jobs.jsonl"
CASES: dict[str, dict[str, Any]] = {
    case["id"]: case for line in TABLE.read_text().splitlines() for case in [json.loads(line)]
}


def case(name: str) -> tuple[Any, Any]:
    """Return (input, expected) of a case."""
    return CASES[name]["input"], CASES[name]["expected"]


def job(job_id: str | None, key: str = "k", submitted: str = "2026-11-29T17:00:00") -> JobRef:
    return JobRef(submit_key=key, job_id=job_id, submitted_at=at(submitted))


def look(
    ref: JobRef, *, queue: str | Reply = "", accounting: str | Reply = "", after_s: int = 0
) -> Mapping[str, Observation | None]:
    reply = both([ref], queue=queue, accounting=accounting)
    return read_observe(reply, [ref], now=NOW + timedelta(seconds=after_s))


def look_at(ref: JobRef, **given: Any) -> Observation:
    got = look(ref, **given)[ref.submit_key]
    assert got is not None
    return got


def sacct(text: str, *columns: str) -> str:
    """Return pipe-separated lines of a case in our columns, all of them ours."""
    rows = []
    for line in text.splitlines():
        given = dict(zip(columns, line.split("|"), strict=True))
        rows.append(accounting_record(**{"JobName": "k", "Reason": "None", **given}))
    return "".join(rows)


# --- states and ends ------------------------------------------------------------------------------


def test_job_state_map_01() -> None:
    given, expected = case("job-state-map-01")

    assert read_state(given["state"]) == expected["canonical"]
    assert cancelled_by(given["state"]) == expected["by_uid"]


def test_job_state_map_02() -> None:
    given, expected = case("job-state-map-02")

    assert [read_state(word) for word in given["output"].split("\n")] == expected["canonical"]
    commands = [
        each.argv
        for each in build_observe([job("7")], since=NOW, now=NOW).operations
        if isinstance(each, Exec)
    ]
    assert all("-P" in argv for argv in commands if argv[0] == "sacct")


def test_job_state_map_03() -> None:
    given, expected = case("job-state-map-03")
    rows = sacct(
        "\n".join(line.rpartition("|")[0] for line in given["sacct"].split("\n")),
        "JobID",
        "State",
        "ExitCode",
    )

    got = look_at(job("400"), accounting=rows)

    assert (got.state, got.exit_code) == (expected["canonical"], None)
    assert "the output may be incomplete" in got.reason_explained


def test_job_state_map_05() -> None:
    given, _ = case("job-state-map-05")

    # EXPEDITING alone says neither queued nor running: with its base state (JSON) it is what the base says.
    assert {word: read_state(word).value for word in given["states"]} == {
        "BOOT_FAIL": "node_fail",
        "DEADLINE": "timeout",
        "REVOKED": "unknown",
        "SPECIAL_EXIT": "held",
        "REQUEUE_HOLD": "held",
        "REQUEUE_FED": "queued",
        "OUT_OF_MEMORY": "oom",
        "TIMEOUT": "timeout",
        "LAUNCH_FAILED": "node_fail",
        "RECONFIG_FAIL": "node_fail",
        "EXPEDITING": "unknown",
    }
    assert read_state(["PENDING", "EXPEDITING"]) is JobState.QUEUED
    assert read_state(["RUNNING", "EXPEDITING"]) is JobState.RUNNING
    assert [read_state(short) for short in given["compact"]] == [
        read_state(long) for long in given["states"][:8]
    ]
    moved = look_at(job("7"), accounting=sacct("7|REVOKED", "JobID", "State"))
    assert moved.reason_explained == "A sibling of the job runs on another cluster of the federation."


def test_job_state_map_07() -> None:
    given, expected = case("job-state-map-07")
    rows = sacct(given["sacct"], "JobID", "State", "ExitCode").replace("\x1fk\x1f", "\x1frenamed\x1f")

    got = {job_id: look_at(job(job_id), accounting=rows) for job_id in expected}

    assert {
        job_id: {"state": seen.state.value, "code": seen.exit_code, "signal": seen.exit_signal}
        for job_id, seen in got.items()
    } == {
        "21": {"state": "failed", "code": 3, "signal": None},
        "22": {"state": "failed", "code": None, "signal": 9},
        "24": {"state": "timeout", "code": None, "signal": None},
        "25": {"state": "cancelled", "code": None, "signal": None},
    }


def test_timeouts_01() -> None:
    given, expected = case("timeouts-01")
    batch_step = given["batch_step"] + "|00:01:00"

    got = look_at(
        job("24"),
        accounting=sacct(f"{given['sacct']}\n{batch_step}", "JobID", "State", "ExitCode", "Elapsed_"),
    )

    assert (got.state, got.exit_code) == (expected["state"], None)


# --- reasons --------------------------------------------------------------------------------------


def test_reason_03() -> None:
    given, _ = case("reason-03")
    job_id, _, sentence = given["squeue"].split("|")

    got = look_at(job(job_id), queue=queue_record(id=job_id, name="k", state="PENDING", reason=sentence))

    assert (got.state, got.reason_raw) == (JobState.QUEUED, sentence)
    assert explain_reason(sentence).kind is ReasonKind.RESOURCES


def test_reason_05() -> None:
    case("reason-05")

    explained = explain_reason("BeginTime")

    assert explained.kind is ReasonKind.BEGIN_TIME
    assert "Slurm's pause after a requeue" in explained.sentence


def test_reason_06() -> None:
    given, _ = case("reason-06")
    rows = [line.split("|") for line in given["rows"]]

    got = [
        look_at(
            job(row[0]),
            queue=queue_record(
                id=row[0], name="k", state=row[1], reason=row[2], node_list="" if "(" in row[3] else row[3]
            ),
        )
        for row in rows
    ]

    assert [(seen.node_names, seen.reason_raw) for seen in got] == [
        (("wg01",), ""),
        ((), "Priority"),
        ((), ""),
    ]


# --- accounting: lag, steps, windows --------------------------------------------------------------


def test_sacct_lag_steps_02() -> None:
    given, _ = case("sacct-lag-steps-02")
    calls = {call["cmd"]: call for call in given["calls"]}
    unknown = calls["squeue -j 9999"]

    # no id is ever named to squeue; should it fail all the same, accounting alone proves no absence
    queue = next(
        each.argv
        for each in build_observe([job("9999")], since=NOW, now=NOW).operations
        if isinstance(each, Exec)
    )
    assert "9999" not in queue
    refused = answer(QUEUE, rc=unknown["rc"], stderr=unknown["stderr"])
    assert look(job("9999"), queue=refused) == {}
    assert look(job("9999")) == {"k": None}
    silent = BatchReply(replies={"cancel-ids-0": answer("cancel-ids-0", rc=calls["scancel 9999"]["rc"])})
    assert read_cancel(silent, [job("9999")]) == {"k": ""}


def test_sacct_lag_steps_04() -> None:
    given, expected = case("sacct-lag-steps-04")
    columns = ("JobID", "State", "ExitCode")

    assert look_at(job("810"), accounting=sacct(given["t0_sacct"], *columns)).left_queue
    assert look_at(job("810"), accounting=sacct(given["t1_sacct"], *columns)).state == expected["t1"]


def test_sacct_lag_steps_05() -> None:
    given, _ = case("sacct-lag-steps-05")
    disabled = answer("x", rc=given["rc"], stderr=given["stderr"])
    done = queue_record(
        id="37", name="k", state="COMPLETED", start="2026-11-29T17:01:00", end="2026-11-29T17:59:59"
    )

    assert look_at(job("37"), queue=done, accounting=disabled).state is JobState.COMPLETED
    assert look(job("38", "z"), queue=done, accounting=disabled) == {}


def test_sacct_lag_steps_06() -> None:
    given, expected = case("sacct-lag-steps-06")
    rows = sacct(given["output"], "JobID", "JobIDRaw", "State")

    got = look_at(job("1051277"), accounting=rows)

    assert (got.job_id, got.state) == ("1051277", expected["1051277"]["state"])
    shown = read_job_id("1051180_91")
    assert (shown.job, shown.task) == (expected["1051277"]["array_job"], expected["1051277"]["task"])


def test_sacct_lag_steps_07() -> None:
    case("sacct-lag-steps-07")

    commands = [
        each.argv
        for each in build_observe([job("102")], since=NOW, now=NOW).operations
        if isinstance(each, Exec)
    ]

    assert [("-S" in argv, "-j" in argv) for argv in commands if argv[0] == "sacct"] == [(False, True)]
    waiting = queue_record(id="102", name="k", state="PENDING", reason="BeginTime")
    assert look_at(job(None), queue=waiting).state is JobState.QUEUED


def test_sacct_lag_steps_08() -> None:
    case("sacct-lag-steps-08")

    commands = [
        each.argv
        for each in build_observe([job("1"), job(None, "z")], since=NOW, now=NOW).operations
        if isinstance(each, Exec)
    ]

    assert not any("-s" in argv for argv in commands if argv[0] == "sacct")


# --- requeues -------------------------------------------------------------------------------------


def attempts(text: str, *columns: str) -> str:
    """Return the rows of successive attempts; a pending one was submitted anew."""
    rows = [dict(zip(columns, line.split("|"), strict=True)) for line in text.splitlines()]
    return "".join(
        accounting_record(
            **{"JobName": "k", "Submit": f"2026-11-29T17:0{n}:00", "End": "2026-11-29T17:30:00", **row}
        )
        for n, row in enumerate(rows)
    )


def test_preempt_requeue_01() -> None:
    given, expected = case("preempt-requeue-01")
    rows = attempts(given["sacct -P -j 6 -D"], "JobID", "State", "Start", "End").replace(
        "2031-02-03", "2026-11-29"
    )
    pending = queue_record(
        id="6", name="k", state="PENDING", reason="BeginTime", submit="2026-11-29T17:01:00"
    )

    got = look_at(job("6"), queue=pending, accounting=rows)

    assert (got.state, got.restarts + 1) == (expected["canonical"], expected["attempt"])


def test_preempt_requeue_02() -> None:
    given, expected = case("preempt-requeue-02")
    preempted = accounting_record(JobID="6", JobName="k", State="PREEMPTED", End="2026-11-29T17:59:50")
    completed = accounting_record(JobID="6", JobName="k", State="COMPLETED", Submit="2026-11-29T17:59:55")
    assert [each["t"] for each in given["observations"]] == [0, 60, 120, 400, 900]

    states = [
        look(job("6"), queue=queue_record(id="6", name="k")),
        look(job("6"), accounting=preempted, after_s=60),
        look(
            job("6"), queue=queue_record(id="6", name="k", state="PENDING"), accounting=preempted, after_s=120
        ),
        look(job("6"), queue=queue_record(id="6", name="k"), accounting=preempted, after_s=400),
        look(job("6"), accounting=preempted + completed, after_s=900),
    ]

    assert [seen["k"] and seen["k"].state.value if seen else "held back" for seen in states] == [
        "running",
        "held back",
        "queued",
        "running",
        expected["final"],
    ]
    final = states[-1]["k"]
    assert final is not None
    assert final.restarts + 1 == expected["attempts"]


def test_preempt_requeue_03() -> None:
    given, expected = case("preempt-requeue-03")
    text = "\n".join("|".join(line.split("|")[:2]) for line in given["sacct -P -D -j 26"].split("\n"))
    pending = queue_record(
        id="26", name="k", state="PENDING", reason="BeginTime", submit="2026-11-29T17:02:00"
    )

    got = look_at(job("26"), queue=pending, accounting=attempts(text, "JobID", "State"))

    assert (got.state, got.restarts + 1) == (expected["canonical"], expected["attempt"])


def test_node_fail_01() -> None:
    given, expected = case("node-fail-01")
    columns = ("JobID", "State", "ExitCode")
    rows = sacct(given["sacct -P -n -S now-1hours -j 29"], *columns)
    pending = queue_record(
        id="29", name="k", state="PENDING", reason="BeginTime", submit="2026-11-29T17:30:00"
    )

    requeued = look_at(job("29"), queue=pending, accounting=rows)
    over = look_at(job("28"), accounting=sacct("28|NODE_FAIL|1:0", *columns), after_s=SETTLE_S)

    assert (requeued.state, requeued.restarts + 1) == (expected["29"]["canonical"], expected["29"]["attempt"])
    assert (over.state, over.exit_code) == (expected["28"]["canonical"], None)


def test_agents_events_05() -> None:
    given, expected = case("agents-events-05")
    late = accounting_record(JobID="6", JobName="k", State="NODE_FAIL")
    assert given["events"][-1]["late"]

    got = look_at(
        job("6"), queue=queue_record(id="6", name="k", submit="2026-11-29T17:30:00"), accounting=late
    )

    assert (got.restarts + 1, got.state) == (expected["final"]["attempt"], expected["final"]["state"])


# --- ids, arrays, heterogeneous jobs --------------------------------------------------------------


def test_federated_ids_01() -> None:
    given, _ = case("federated-ids-01")
    rows = "".join(
        accounting_record(JobID=line[0], Submit=line[1], JobName=line[2], State=line[3])
        for line in (row.split("|") for row in given["output"].split("\n"))
    )
    running = queue_record(id="51234", name="my_job", comment="", submit=given["our_submit"])

    got = look_at(job("51234", submitted=given["our_submit"]), queue=running, accounting=rows)

    assert (got.state, got.submit_at, got.restarts) == (JobState.RUNNING, at(given["our_submit"]), 0)
    old_row_only = look(job("51234", submitted=given["our_submit"]), accounting=rows.split("\n")[0] + "\n")
    assert old_row_only == {"k": None}


def test_federated_ids_02() -> None:
    given, expected = case("federated-ids-02")

    assert [split_federated_id(number) for number in given["job_ids"]] == [
        (each["origin_cluster_index"], each["local"]) for each in expected["decoded"]
    ]
    seen = look_at(job("67108914"), queue=queue_record(id="67108914", name="k"))
    assert seen.job_id == "67108914"


def test_array_01() -> None:
    given, expected = case("array-01")

    for printed, wanted in zip(given["rows"], expected["tasks"], strict=True):
        shown = read_job_id(printed)
        ids = None
        if "[" in printed:
            ranges, _ = read_tasks(printed.partition("[")[2].rstrip("]"))
            ids = [task for span in ranges for task in span]
        elif shown.task is not None:
            ids = [shown.task]
        found = {"job": shown.job, "ids": ids, "throttle": shown.throttle, "count": shown.tasks}
        assert {key: found[key] for key in wanted if key != "step"} == {
            key: value for key, value in wanted.items() if key != "step"
        }


def test_array_02() -> None:
    given, expected = case("array-02")

    assert read_job_id(given["squeue"].split()[0]).tasks == expected["pending_tasks"]


def test_array_04() -> None:
    given, _ = case("array-04")

    got = read_submit(BatchReply(replies={SUBMIT: answer(SUBMIT, rc=1, stderr=given["stderr"])}))

    assert (got.outcome, got.retryable) == ("rejected", False)
    assert "split the array" in got.explained


def test_hetjob_01() -> None:
    given, expected = case("hetjob-01")
    queue = "".join(
        queue_record(id=fields[0], name="k", state=fields[1], node_list=fields[2])
        for fields in (line.split() for line in given["squeue"].split("\n"))
    )
    rows = sacct(given["sacct"], "JobID", "JobIDRaw", "State", "AllocTRES")
    job_id = find_job_id(given["sbatch_stdout"])

    got = look_at(job(job_id), queue=queue, accounting=rows)

    assert got.job_id == str(expected["job"])
    assert {"nodes": got.nodes, "gpus": got.gpus} == expected["totals"]
    assert got.state == expected["state"]
    part = look_at(job("18"), accounting=sacct("17+1|18|COMPLETED", "JobID", "JobIDRaw", "State"))
    assert part.job_id == "18"


def test_hetjob_02() -> None:
    given, expected = case("hetjob-02")
    groups: dict[str, list[int]] = {}
    plain = []

    for each in given["json"]:
        leader = json_number(each["het_job_id"])
        groups.setdefault(str(leader), []).append(each["job_id"]) if leader else plain.append(each["job_id"])

    assert {"groups": groups, "plain": plain} == expected


# --- what sbatch prints ---------------------------------------------------------------------------


def test_sbatch_stdout_parse_01() -> None:
    given, expected = case("sbatch-stdout-parse-01")

    assert [find_job_id(line) for line in given["stdout"]] == [str(each["id"]) for each in expected["parsed"]]
    assert [find_job_id(line) for line in given["parsable"]] == [
        str(each["id"]) for each in expected["parsable"]
    ]


@pytest.mark.parametrize("name", ["sbatch-stdout-parse-02", "sbatch-stdout-parse-03"])
def test_sbatch_stdout_parse_02_and_03(name: str) -> None:
    given, expected = case(name)

    got = read_submit(BatchReply(replies={SUBMIT: answer(SUBMIT, given["stdout"])}))

    assert (got.outcome, got.job_id) == ("accepted", str(expected["id"]))


# --- flaky sites ----------------------------------------------------------------------------------


def test_endpoint_flakiness_01() -> None:
    given, _ = case("endpoint-flakiness-01")
    banner = given["stdout"].rpartition("{")[0]

    assert find_job_id(banner + '{"job_id": 5}') == "5"
    assert look_at(job("7"), queue=banner + queue_record(id="7", name="k")).job_id == "7"
    assert look_at(job("7"), accounting=banner + accounting_record(JobID="7", JobName="k")).job_id == "7"


def test_endpoint_flakiness_03() -> None:
    given, _ = case("endpoint-flakiness-03")
    silent = answer(QUEUE, given["stdout"], rc=given["rc"], stderr=given["stderr"])

    assert look(job("7"), queue=silent) == {}
    with pytest.raises(SchedulerDown):
        look(job("7"), queue=silent, accounting=answer("x", rc=1))


def test_endpoint_flakiness_04() -> None:
    given, _ = case("endpoint-flakiness-04")
    whole = sacct("901|COMPLETED|0:0", "JobID", "State", "ExitCode")
    cut = answer("x", whole + given["partial_stdout"].split("\n")[1], rc=None, timed_out=True)

    assert look(job("901"), accounting=cut) == {}
    assert look(job("902"), accounting=cut) == {}


def test_cli_drift_01() -> None:
    given, _ = case("cli-drift-01")
    removed = answer("x", rc=given["exit_code"], stderr=given["stderr"])

    assert look(job("7"), accounting=removed) == {}
    commands = [
        each.argv
        for each in build_observe([job("7")], since=NOW, now=NOW).operations
        if isinstance(each, Exec)
    ]
    assert not any("AllocGRES" in part for argv in commands for part in argv)


# --- billing, names, formats ----------------------------------------------------------------------


def test_exclusive_billing_01() -> None:
    given, expected = case("exclusive-billing-01")
    words = dict(word.split("=", 1) for word in given["output"].split())
    rows = accounting_record(JobID="7", JobName="k", ReqTRES=words["ReqTRES"], AllocTRES=words["AllocTRES"])

    got = look_at(job("7"), accounting=rows)

    assert {"cpus": got.cpus, "gpus": got.gpus} == {
        key: expected["allocated"][key] for key in ("cpus", "gpus")
    }
    assert got.billing == 64.0


def test_locale_encoding_02() -> None:
    given, expected = case("locale-encoding-02")
    job_id, name, state = given["output"].split("|")[0], "we|ird name", given["output"].rpartition("|")[2]
    rows = accounting_record(JobID=job_id, JobName=name, State=state, Comment="")
    queue = queue_record(id=job_id, name=name, state=state, comment="")

    got = look_at(job(job_id), queue=queue, accounting=rows)

    assert name == expected[job_id]["name"]
    assert got.state == expected[job_id]["state"]


def test_locale_encoding_03() -> None:
    _, expected = case("locale-encoding-03")
    queue = "".join(
        queue_record(id=job_id, name="a", comment=comment)
        for job_id, comment in (("801", expected["comment_801"]), ("802", ""))
    )

    got = [look_at(job(str(number)), queue=queue) for number in expected["jobs"]]

    assert [(seen.job_id, seen.state) for seen in got] == [
        ("801", JobState.RUNNING),
        ("802", JobState.RUNNING),
    ]


def test_locale_encoding_04() -> None:
    case("locale-encoding-04")

    commands = [
        each.argv
        for each in build_observe([job("7")], since=NOW, now=NOW).operations
        if isinstance(each, Exec)
    ]

    assert ["-o" in argv for argv in commands if argv[0] == "squeue"] == [True]
    assert [
        any(part.startswith("--format=") for part in argv) for argv in commands if argv[0] == "sacct"
    ] == [True]


# --- JSON -----------------------------------------------------------------------------------------


def test_json_schema_drift_02() -> None:
    given, expected = case("json-schema-drift-02")

    def task_of(record: Mapping[str, Any]) -> int | None:
        is_array = bool(json_number(record["array_job_id"]))
        number = json_number(record.get("array_task_id"))
        return number if is_array and isinstance(number, int) else None

    assert [task_of(record) for record in given["non_array_job"].values()] == [None, None]
    assert task_of(given["task_0_of_array"]["25.11"]) == expected["task_0"]["task"]


def test_json_schema_drift_07() -> None:
    given, expected = case("json-schema-drift-07")

    assert [read_state(each["current"]) for each in given["sacct_state"]] == expected["canonical"]
    assert [json_number(each) for each in given["limit"]] == expected["limit_min"]


def test_json_schema_drift_08() -> None:
    case("json-schema-drift-08")

    finished = queue_record(id="7", name="k", state="FAILED", end="2026-11-29T17:00:30")

    # -t all lists finished jobs on purpose: they are never counted as queued
    assert look_at(job("7"), queue=finished).state is JobState.FAILED


def test_json_schema_drift_09() -> None:
    given, _ = case("json-schema-drift-09")

    assert [json_minutes_s(each) for each in given["time_limit"]] == [UNLIMITED, None, 3600]


def test_json_schema_drift_11() -> None:
    given, expected = case("json-schema-drift-11")

    assert json_instant(given["job"]["start_time"]) is expected["start"]
    assert json_instant(given["job"]["end_time"]) is expected["end"]
    assert read_state(given["job"]["job_state"]) is JobState.QUEUED


# --- times ----------------------------------------------------------------------------------------


def test_time_format_01() -> None:
    given, expected = case("time-format-01")
    started, waiting = given["after_start_sacct"].split("|"), given["while_pending_sacct"].split("|")

    limits = [
        look_at(
            job("14"), queue=queue_record(id="14", name="k", state="PENDING", limit=given["while_pending"])
        ),
        look_at(job("14"), accounting=accounting_record(JobID="14", JobName="k", TimelimitRaw="525600")),
    ]

    assert [seen.walltime_s for seen in limits] == [expected["limit_s"]] * 2
    assert (read_limit_s(started[2]), read_limit_s(waiting[2])) == (UNLIMITED, None)


def test_time_format_02() -> None:
    given, expected = case("time-format-02")

    # limits have the granularity of a minute and round up; 1:30 is printed as 90 s and granted as 2 min
    assert [read_requested_walltime_s(text) for text in given["values"]] == expected["seconds"]
    assert read_duration_s("1:30") == 90


def test_time_format_03() -> None:
    given, expected = case("time-format-03")

    assert [read_requested_walltime_s(text) for text in given["values"]] == expected["limit_s"]


@pytest.mark.parametrize("text", CASES["time-format-04"]["input"]["values"])
def test_time_format_04(text: str) -> None:
    case("time-format-04")

    with pytest.raises(InvalidInput):
        read_requested_walltime_s(text)


def test_time_format_05() -> None:
    given, _ = case("time-format-05")
    raw = {line.split("|")[0]: line.split("|")[2] for line in given["output"].split("\n")}

    got = {
        job_id: look_at(
            job(job_id), accounting=accounting_record(JobID=job_id, JobName="k", TimelimitRaw=limit)
        ).walltime_s
        for job_id, limit in raw.items()
    }

    assert got == {"100": None, "101": None, "102": 259_200, "103": None}
    assert {job_id: read_limit_s(limit) for job_id, limit in raw.items() if job_id in {"100", "101"}} == {
        "100": None,
        "101": UNLIMITED,
    }


def test_time_format_08() -> None:
    given, expected = case("time-format-08")
    rows = [line.split("|") for line in given["output"].split("\n")]

    got = {
        row[0]: look_at(
            job(row[0]),
            queue=queue_record(id=row[0], name="k", state=row[1], elapsed=row[2], limit=row[3], start=row[5]),
        )
        for row in rows
    }

    assert got["300"].elapsed_s == expected["300"]["elapsed_s"]
    assert (got["300"].walltime_s or 0) - (got["300"].elapsed_s or 0) == expected["300"]["left_s"]
    assert (got["301"].walltime_s, got["301"].expected_start_at) == (None, None)
    assert got["302"].expected_start_at == at(expected["302"]["start_estimate"])
    assert (got["303"].walltime_s, got["303"].elapsed_s) == (60, 53)


def test_every_case_of_the_table_is_tested_here() -> None:
    source = Path(__file__).read_text()

    assert {name for name in CASES if f'"{name}"' not in source} == set()
