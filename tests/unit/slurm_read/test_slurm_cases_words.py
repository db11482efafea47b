"""Hard cases of times, memory, JSON drift, partitions, limits, arrays, and answers that are none."""

import json

import pytest

from providers.dialects.slurm.gres import read_tres
from providers.dialects.slurm.hostlist import read_job_id, read_tasks, split_federated_id
from providers.dialects.slurm.limits import read_associations, read_qos, read_qos_usage
from providers.dialects.slurm.partitions import read_partitions
from providers.dialects.slurm.probe import ENVIRONMENT, build_probe
from providers.dialects.slurm.queue import COLUMNS, SHOW_QUEUE, read_queue
from providers.dialects.slurm.records import counted
from providers.dialects.slurm.units import (
    UNLIMITED,
    finite,
    read_duration_s,
    read_instant,
    read_limit_s,
    read_requested_memory_mib,
    read_requested_walltime_s,
)
from providers.dialects.slurm.words import read_state
from providers.errors import InvalidInput, SchedulerDown, UnparsableOutput
from providers.types import Exec, JobState, Reply
from tests.unit.slurm_read.as_json import (
    data_parser,
    json_instant,
    json_minutes_s,
    json_nodes,
    json_number,
    open_json,
    read_queue_json,
)
from tests.unit.slurm_read.recordings import answers, by_id, case, queue_text

PARTITION = "PartitionName={name} State=UP TotalNodes=1 TotalCPUs=8 Nodes=a1 MaxNodes=UNLIMITED {rest}"

# --- time-format, mem-unit -----------------------------------------------------------------------


def test_time_format_01_the_placeholder_of_a_year_is_no_limit() -> None:
    given, expected = case("time-format-01")

    for printed in (given["while_pending"], given["after_start_sacct"].split("|")[2]):
        assert read_limit_s(printed) == UNLIMITED
        assert finite(read_limit_s(printed)) == expected["limit_s"]
    assert read_limit_s(given["while_pending_sacct"].split("|")[2]) is None


def test_time_format_02_each_way_to_write_a_limit() -> None:
    given, expected = case("time-format-02")

    assert [read_requested_walltime_s(value) for value in given["values"]] == expected["seconds"]


def test_time_format_03_four_ways_to_ask_for_no_limit() -> None:
    given, expected = case("time-format-03")

    assert [read_requested_walltime_s(value) for value in given["values"]] == expected["limit_s"]


@pytest.mark.parametrize("value", case("time-format-04")[0]["values"])
def test_time_format_04_what_sbatch_refuses_is_refused(value: str) -> None:
    with pytest.raises(InvalidInput):
        read_requested_walltime_s(value)


def test_time_format_05_a_limit_that_is_not_resolved_is_not_unlimited() -> None:
    given, expected = case("time-format-05")
    limits = {line.split("|")[0]: read_limit_s(line.split("|")[1]) for line in given["output"].splitlines()}

    assert limits["102"] == expected["limit_s"]["102"]
    assert limits["101"] == UNLIMITED
    assert limits["100"] is None
    assert limits["103"] is None


def test_time_format_08_elapsed_left_and_expected_start() -> None:
    given, expected = case("time-format-08")
    rows = {line.split("|")[0]: line.split("|") for line in given["output"].splitlines()}

    assert read_duration_s(rows["300"][2]) == expected["300"]["elapsed_s"]
    assert read_duration_s(rows["300"][4]) == expected["300"]["left_s"]
    assert finite(read_limit_s(rows["301"][3])) == expected["301"]["limit_s"]
    assert read_instant(rows["301"][5]) == expected["301"]["start_estimate"]
    start = read_instant(rows["302"][5])
    assert start is not None
    assert start.isoformat() == expected["302"]["start_estimate"] + "+00:00"
    assert read_limit_s(rows["303"][3]) == expected["303"]["limit_s"]
    assert read_duration_s(rows["303"][4]) == expected["303"]["left_s"]


def test_mem_unit_02_memory_as_sbatch_takes_it() -> None:
    given, expected = case("mem-unit-02")

    for value, want in zip(given["values"], expected["mb"], strict=True):
        if want == "invalid":
            with pytest.raises(InvalidInput):
                read_requested_memory_mib(value)
        else:
            assert read_requested_memory_mib(value) == want


# --- json-schema-drift ---------------------------------------------------------------------------


def _job(**fields: object) -> str:
    usual = {"job_id": 9, "job_state": ["RUNNING"], "node_count": 1, "cpus": 1, "nodes": "wg01"}
    return json.dumps({"jobs": [usual | fields]})


def test_json_schema_drift_02_array_zero_is_no_array_and_task_zero_is_a_task() -> None:
    given, expected = case("json-schema-drift-02")

    for fields in given["non_array_job"].values():
        (job,) = read_queue_json(_job(**fields))
        assert ("_" in job.job_id) is expected["non_array_job"]["is_array"]
    (task,) = read_queue_json(_job(**given["task_0_of_array"]["25.11"]))
    assert task.job_id == "12_0"


def test_json_schema_drift_04_the_top_level_host_list_is_preferred() -> None:
    given, expected = case("json-schema-drift-04")
    old, new = given["job_resources"].values()

    assert json_nodes({"nodes": "wg01", "job_resources": new}) == expected["nodes"]
    assert json_nodes({"job_resources": old}) == expected["nodes"]
    assert json_nodes({"job_resources": new}) == expected["nodes"]


def test_json_schema_drift_07_states_and_limits_change_their_shape() -> None:
    given, expected = case("json-schema-drift-07")

    assert [read_state(state["current"]) for state in given["sacct_state"]] == expected["canonical"]
    assert [json_minutes_s(limit) for limit in given["limit"]] == [m * 60 for m in expected["limit_min"]]


def test_json_schema_drift_08_finished_jobs_in_the_document_are_not_queued() -> None:
    jobs = [
        {"job_id": number, "job_state": state, "node_count": 1, "cpus": 1}
        for number, state in enumerate(("CANCELLED", "FAILED", "PENDING", "RUNNING"), start=1)
    ]

    assert [job.job_id for job in read_queue_json(json.dumps({"jobs": jobs}))] == ["3", "4"]


def test_json_schema_drift_09_plain_numbers_with_infinity_as_a_word() -> None:
    given, expected = case("json-schema-drift-09")
    want = {"unlimited": UNLIMITED, "unset": None}

    assert [json_number(value) for value in given["time_limit"]] == [
        want.get(value, value) if isinstance(value, str) else value for value in expected["minutes"]
    ]


def test_json_schema_drift_10_no_schema_is_pinned_and_the_document_names_its_own() -> None:
    given, _ = case("json-schema-drift-10")

    assert not any("--json" in word for op in build_probe(full=True).operations for word in _argv(op))
    for versions in given["plugins_present"].values():
        for version in versions:
            assert data_parser({"meta": {"plugin": {"data_parser": f"data_parser/{version}"}}}) == version
    assert data_parser({"meta": {"plugin": {"type": "openapi/v0.0.38"}}}) == "v0.0.38"


def _argv(operation: object) -> tuple[str, ...]:
    assert isinstance(operation, Exec)
    return operation.argv


def test_json_schema_drift_11_zero_is_no_instant() -> None:
    given, expected = case("json-schema-drift-11")

    assert json_instant(given["job"]["start_time"]) == expected["start"]
    assert json_instant(given["job"]["end_time"]) == expected["end"]


# --- partition-state -----------------------------------------------------------------------------


def test_partition_state_03_infinite_is_no_limit_and_minutes_come_first() -> None:
    given, expected = case("partition-state-03")
    found = {line.split()[0]: read_limit_s(line.split()[1]) for line in given["output"].splitlines()}

    assert {name: finite(limit) for name, limit in found.items() if name != "odd"} == {
        name: seconds for name, seconds in expected.items() if name != "odd"
    }
    assert found["mpi"] == UNLIMITED
    assert found["odd"] is None


def test_partition_state_04_without_a_request_the_default_holds_else_the_maximum() -> None:
    given, expected = case("partition-state-04")
    (first,) = read_partitions(PARTITION.format(name="a", rest=given["partition_config"]))
    (second,) = read_partitions(PARTITION.format(name="b", rest="DefaultTime=NONE MaxTime=UNLIMITED"))

    assert (first.default_walltime_s, second.default_walltime_s) == (expected["first"], None)
    assert second.max_walltime_s == expected["second"]


def test_partition_state_05_a_job_over_the_limit_does_not_compete() -> None:
    _, expected = case("partition-state-05")
    job = by_id(read_queue(queue_text({"JobArrayID": "99", "Reason": "PartitionTimeLimit"})))["99"]

    assert job.state is JobState.QUEUED
    assert job.is_eligible is expected["will_start"]


def test_partition_state_06_allow_lists_and_required_reservations_keep_out() -> None:
    given, expected = case("partition-state-06")
    text = given["output"] + " TotalNodes=1 TotalCPUs=8 Nodes=a1 MaxTime=UNLIMITED"

    (partition,) = read_partitions(text)

    assert expected["usable_by"]["result"] is False
    assert "physics" not in (partition.allow_accounts or ())
    assert partition.allow_accounts is not None
    assert "bio" in partition.allow_accounts
    assert partition.requires_reservation
    assert partition.is_hidden is not expected["listed_by_plain_sinfo"]
    assert partition.max_nodes == expected["max_nodes"]
    assert partition.allow_qos == ("normal", "long")


def test_a_partition_that_gives_whole_nodes_says_so() -> None:
    rest = "MaxTime=UNLIMITED OverSubscribe={share} TRESBillingWeights=CPU=1.0,GRES/gpu=16"
    whole, shared = (
        read_partitions(PARTITION.format(name="a", rest=rest.format(share=share)))[0]
        for share in ("EXCLUSIVE", "NO")
    )

    assert whole.exclusive
    assert not shared.exclusive
    assert whole.billing_weights == {"CPU": "1.0", "GRES/gpu": "16"}


# --- qos/assoc-limits ----------------------------------------------------------------------------


def test_qos_assoc_limits_01_the_limits_of_the_account_bind_its_users() -> None:
    given, expected = case("qos-assoc-limits-01")

    (alice,) = read_associations(given["output"], user="alice")

    assert [[alice.account, alice.user]] == expected["user_rows"]
    assert alice.group.max_gpus == expected["alice_effective_group_gpu_cap"]
    assert alice.group.max_cpus == expected["account_limits"]["physics"]["cpu"]
    assert alice.limits.max_gpus is None


def test_qos_assoc_limits_02_n_is_no_limit_and_zero_is_a_hard_zero() -> None:
    given, expected = case("qos-assoc-limits-02")

    usage = read_qos_usage(given["output"])

    blocked, free = usage["gpuq"]["gres/gpu"], usage["normal"]["gres/gpu"]
    assert {"limit": blocked.limit, "used": blocked.used, "blocked": blocked.is_blocked} == (
        expected["gpuq"]["gres/gpu"]
    )
    assert {"limit": free.limit, "used": free.used} == expected["normal"]["gres/gpu"]
    assert not free.is_blocked


def test_qos_assoc_limits_03_limits_per_user_and_together() -> None:
    given, expected = case("qos-assoc-limits-03")
    qos = {q.name: q for q in read_qos(given["output"])}
    want = expected["gpuq"]

    assert qos["gpuq"].per_user.max_gpus == want["per_user"]["gres/gpu"]
    assert qos["gpuq"].per_user.max_memory_mib == want["per_user"]["mem_mb"]
    assert qos["gpuq"].group.max_gpus == want["group"]["gres/gpu"]
    assert qos["gpuq"].per_job.max_walltime_s == want["max_wall_s"]
    assert qos["gpuq"].per_job.max_gpus is None
    assert qos["normal"].per_user.max_gpus is None


def test_the_tightest_group_limit_on_the_way_up_holds() -> None:
    header = "Account|User|ParentName|GrpTRES|GrpJobs|QOS"
    rows = ["top|||gres/gpu=4|9|", "physics||top|gres/gpu=8||", "physics|alice||gres/gpu=6||normal"]

    (alice,) = read_associations("\n".join((header, *rows)), user="alice")

    assert (alice.group.max_gpus, alice.group.max_jobs) == (4, 9)


# --- array, hetjob, federated ids ----------------------------------------------------------------


def test_array_01_task_expressions() -> None:
    given, expected = case("array-01")

    for row, want in zip(given["rows"], expected["tasks"], strict=True):
        job = read_job_id(row)
        assert job.job == want["job"]
        assert job.throttle == want.get("throttle")
        if "count" in want:
            assert job.tasks == want["count"]
        elif want["ids"] is None:
            assert (job.task, job.tasks) == (None, None)
        elif job.is_array_rest:
            ranges, _ = read_tasks(row.partition("[")[2].removesuffix("]"))
            assert [task for span in ranges for task in span] == want["ids"]
        else:
            assert [job.task] == want["ids"]


def test_array_02_a_collapsed_record_stands_for_its_tasks() -> None:
    given, expected = case("array-02")

    (job,) = read_queue(queue_text({"JobArrayID": given["squeue"].split()[0]}))

    assert job.array_pending == expected["pending_tasks"]
    assert job.job_id == "12345"


def test_the_first_of_several_reasons_of_an_array_tells_that_it_is_held() -> None:
    (job,) = read_queue(queue_text({"JobArrayID": "1_[5-9]", "Reason": "JobHeldUser,Resources"}))

    assert (job.state, job.is_eligible) == (JobState.HELD, False)


@pytest.mark.parametrize(
    ("reason", "competes"),
    [
        ("Priority", True),
        ("Resources", True),
        ("None", True),
        ("Dependency", False),
        ("BeginTime", False),
        ("QOSMaxGRESPerUser", False),
        ("JobArrayTaskLimit", False),
        ("a reason of a later version", False),
    ],
)
def test_only_jobs_that_wait_for_room_compete(reason: str, competes: bool) -> None:
    (job,) = read_queue(queue_text({"Reason": reason}))

    assert job.is_eligible is competes


def test_where_gpus_are_not_tracked_the_request_tells() -> None:
    untracked = {"tres-alloc": "cpu=8,mem=8G,node=2,billing=8", "NumNodes": "2"}

    per_node, per_job, slices = read_queue(
        queue_text(
            untracked | {"tres-per-node": "gres/gpu:h100:4"},
            untracked | {"tres-per-job": "gres:gpu:3"},
            untracked | {"tres-per-node": "gres/gpu:h100_1g.10gb:4"},
        )
    )

    assert (per_node.gpus, per_node.gpu_type) == (8, "h100")
    assert (per_job.gpus, per_job.gpu_type) == (3, None)
    assert (slices.gpus, slices.gpu_type) == (0, None)


def test_a_task_list_that_squeue_cut_is_not_counted_as_one() -> None:
    with pytest.raises(UnparsableOutput, match="cut"):
        read_queue(queue_text({"JobArrayID": "7_[1,3,5,...]"}))

    assert ENVIRONMENT["SLURM_BITSTR_LEN"] == "0"


def test_hetjob_01_components_are_read_with_their_own_gpus() -> None:
    given, expected = case("hetjob-01")
    tres = {line.split("|")[0]: line.split("|")[3] for line in given["sacct"].splitlines()}
    rows = [line.split() for line in given["squeue"].splitlines()]

    jobs = read_queue(
        queue_text(
            *(
                {"JobArrayID": name, "State": "RUNNING", "NodeList": node, "tres-alloc": tres[name]}
                for name, _, node in rows
            )
        )
    )

    assert [read_job_id(job.job_id).offset for job in jobs] == [
        component["offset"] for component in expected["components"]
    ]
    assert {read_job_id(job.job_id).job for job in jobs} == {expected["job"]}
    assert sum(job.gpus for job in jobs) == expected["totals"]["gpus"]
    assert sum(job.nodes for job in jobs) == expected["totals"]["nodes"]
    assert {job.state for job in jobs} == {JobState(expected["state"])}


def test_hetjob_02_number_zero_is_no_heterogeneous_job() -> None:
    given, expected = case("hetjob-02")
    usual = {"job_state": ["RUNNING"], "node_count": 1, "cpus": 1}

    jobs = read_queue_json(json.dumps({"jobs": [row | usual for row in given["json"]]}))

    assert [job.job_id for job in jobs] == ["17+0", "17+1", str(expected["plain"][0])]


def test_federated_ids_02_ids_hold_the_cluster_in_their_upper_bits() -> None:
    given, expected = case("federated-ids-02")

    assert [split_federated_id(number) for number in given["job_ids"]] == [
        (want["origin_cluster_index"], want["local"]) for want in expected["decoded"]
    ]


# --- locale/encoding, cli-drift, endpoint-flakiness ----------------------------------------------


def test_locale_encoding_03_no_text_of_a_user_can_break_the_queue() -> None:
    given, expected = case("locale-encoding-03")

    assert {"Name", "Comment", "WorkDir", "Features"}.isdisjoint(COLUMNS)
    (job,) = read_queue_json(_job(job_id=801, comment=expected["comment_801"]))
    assert job.comment == expected["comment_801"]
    with pytest.raises(UnparsableOutput):
        read_queue(given["squeue -o"].replace("\\x1f", "\x1f"))


def test_locale_encoding_04_every_format_is_explicit_and_english() -> None:
    operations = build_probe(full=True).operations

    assert all(
        isinstance(op, Exec) and op.env["LC_ALL"] == "C" and op.env["TZ"] == "UTC" for op in operations
    )
    assert "-O" in SHOW_QUEUE
    assert "-h" in SHOW_QUEUE


def test_cli_drift_01_a_removed_field_is_an_error_not_zero_gpus() -> None:
    given, _ = case("cli-drift-01")
    reply = answers(sacct=Reply(name="sacct", rc=given["exit_code"], stderr=given["stderr"]))

    with pytest.raises(SchedulerDown) as caught:
        counted(reply, "sacct")

    assert caught.value.facts["said"] == given["stderr"]


def test_endpoint_flakiness_01_a_banner_before_json_is_passed_over() -> None:
    given, expected = case("endpoint-flakiness-01")

    assert open_json(given["stdout"], command="squeue --json")["jobs"] == expected["jobs"]
    assert read_queue_json(given["stdout"]) == ()


def test_endpoint_flakiness_03_a_failed_command_is_no_empty_queue() -> None:
    given, _ = case("endpoint-flakiness-03")
    reply = answers(queue=Reply(name="queue", rc=given["rc"], stderr=given["stderr"]))

    with pytest.raises(SchedulerDown) as caught:
        counted(reply, "queue")

    assert caught.value.facts["rc"] == 1


def test_endpoint_flakiness_04_an_answer_that_was_cut_by_time_is_ignored_whole() -> None:
    given, _ = case("endpoint-flakiness-04")
    reply = answers(sacct=Reply(name="sacct", timed_out=True, stdout=given["partial_stdout"]))

    with pytest.raises(SchedulerDown, match="did not end in time"):
        counted(reply, "sacct")


def test_dialect_memory_of_a_whole_node_is_read_from_tres() -> None:
    assert read_tres("cpu=1,mem=80G,node=1")["mem"] == 81_920
