"""Everything that real Slurm 20.11, 22.05 and 25.11 printed is understood, and text agrees with JSON."""

import json
from typing import Any

import pytest

from providers.dialects.slurm.hostlist import expand
from providers.dialects.slurm.limits import read_associations, read_fairshare, read_qos, read_qos_usage
from providers.dialects.slurm.nodes import read_nodes
from providers.dialects.slurm.partitions import read_partitions
from providers.dialects.slurm.queue import read_queue
from providers.dialects.slurm.reservations import partly_reserved, read_reservations
from providers.types import GpuPool, JobState, Limits, Node, QueueJob, SlicePool
from tests.unit.slurm_read.as_json import data_parser, read_nodes_json, read_partitions_json, read_queue_json
from tests.unit.slurm_read.recordings import CAPTURES, VERSIONS, by_id, by_name, queue_text, recorded

SIZES = {"delta": 22, "deltaai": 12, "anvil": 11, "vista": 16}


@pytest.mark.parametrize("capture", CAPTURES)
def test_the_node_table_reads_alike_as_text_on_one_line_text_on_many_and_json(capture: str) -> None:
    one_line = by_name(read_nodes(recorded(f"captures/{capture}/scontrol_o_nodes_d.txt")))
    many_lines = by_name(read_nodes(recorded(f"captures/{capture}/scontrol_nodes.txt")))
    from_json = by_name(read_nodes_json(recorded(f"captures/{capture}/sinfo.json")))

    assert len(one_line) == SIZES[capture.partition("/")[0]]
    assert many_lines == one_line
    assert from_json == one_line


@pytest.mark.parametrize(
    ("capture", "free"),
    [
        ("delta/idle", {"a100": 42, "a40": 34}),
        ("deltaai/idle", {"gh200": 48}),
        ("anvil/idle", {None: 16, "h100": 12}),
        ("vista/idle", {"gh200": 12}),
    ],
)
def test_an_idle_cluster_has_each_of_its_gpus_free_and_counted_once(
    capture: str, free: dict[str | None, int]
) -> None:
    nodes = read_nodes(recorded(f"captures/{capture}/scontrol_o_nodes_d.txt"))

    assert _free_gpus(nodes) == free


def _free_gpus(nodes: tuple[Node, ...]) -> dict[str | None, int]:
    free: dict[str | None, int] = {}
    for node in nodes:
        for pool in node.gpus:
            free[pool.type] = free.get(pool.type, 0) + pool.free
    return free


@pytest.mark.parametrize("capture", CAPTURES)
def test_gpus_used_on_nodes_are_those_that_running_jobs_hold(capture: str) -> None:
    nodes = read_nodes(recorded(f"captures/{capture}/scontrol_o_nodes_d.txt"))
    jobs = read_queue_json(recorded(f"captures/{capture}/squeue.json"))

    used = sum(pool.used for node in nodes for pool in node.gpus)
    held = sum(job.gpus for job in jobs if job.state is JobState.RUNNING)
    assert used == held


def test_every_field_of_a_busy_node_is_read() -> None:
    nodes = by_name(read_nodes(recorded("captures/delta/busy/scontrol_o_nodes_d.txt")))

    assert nodes["cn001"] == Node(
        name="cn001",
        partitions=("cpu", "maintq"),
        state="mixed",
        usable=True,
        cpus_total=128,
        cpus_free=88,
        memory_total_mib=256_000,
        memory_free_mib=216_000,
        features=("cpu", "x86"),
        architecture="x86_64",
    )
    assert nodes["gpux001"].gpus == (
        GpuPool(type="a100", total=2, used=0, free=2),
        GpuPool(type="a40", total=2, used=1, free=1),
    )


# --- versions ------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_the_expected_free_gpus_of_each_version_are_found(version: str) -> None:
    expected = json.loads(recorded("versions/EXPECTED.json"))[version]
    nodes = _nodes(version)

    for name, wanted in expected["nodes"].items():
        node = nodes[name]
        assert {pool.type: pool.free for pool in node.gpus} == wanted["whole"], name
        assert _slices(node, "mig") == wanted.get("mig", {}), name
        assert sum(_slices(node, "shard").values()) == wanted.get("shards_free", 0), name
    gpu = [node for node in nodes.values() if "gpu" in node.partitions]
    assert _free_gpus(tuple(gpu)) == expected["partition_gpu"]["whole"]
    assert {p: n for node in gpu for p, n in _slices(node, "mig").items() if n} == (
        expected["partition_gpu"]["mig"]
    )
    shards = sum(sum(_slices(node, "shard").values()) for node in gpu)
    assert shards == expected["partition_gpu"].get("shards", 0)


def _nodes(version: str) -> dict[str, Node]:
    reserved = partly_reserved(recorded(f"versions/{version}/scontrol_res.txt"))
    return by_name(read_nodes(recorded(f"versions/{version}/scontrol_node_d.txt"), partly_reserved=reserved))


def _slices(node: Node, kind: str) -> dict[str, int]:
    return {pool.profile: pool.free for pool in node.slices if pool.kind == kind}


@pytest.mark.parametrize(
    ("version", "name", "state", "flags"),
    [
        ("20.11", "g01", "mixed", {"DRAIN"}),
        ("20.11", "g03", "unknown", {"DRAIN", "NOT_RESPONDING"}),
        ("20.11", "m02", "idle", {"MAINTENANCE", "NOT_RESPONDING"}),
        ("20.11", "s01", "unknown", {"NOT_RESPONDING"}),
        ("22.05", "g01", "mixed", {"DRAIN"}),
        ("22.05", "g04", "down", set()),
        ("22.05", "s01", "mixed", {"RESERVED"}),
        ("25.11", "g01", "mixed", {"DRAIN", "PLANNED"}),
        ("25.11", "g04", "down", {"NOT_RESPONDING"}),
        ("25.11", "m02", "idle", {"MAINTENANCE", "RESERVED"}),
    ],
)
def test_node_states_of_each_version_are_spelled_alike(
    version: str, name: str, state: str, flags: set[str]
) -> None:
    node = _nodes(version)[name]

    assert node.state == state
    assert node.flags == flags


@pytest.mark.parametrize("version", VERSIONS)
def test_a_reason_with_an_equals_sign_stays_a_reason(version: str) -> None:
    assert _nodes(version)["g01"].reason == "GPU 2 ECC errors; see ticket #42 = pending"


def test_a_comment_and_an_extra_that_look_like_fields_are_no_fields() -> None:
    node = _nodes("25.11")["m02"]

    assert node.reason == ""
    assert node.cpus_total == 48


def test_a_node_reserved_by_four_of_its_cores_is_usable_for_the_rest() -> None:
    node = _nodes("22.05")["s01"]

    assert node.usable
    assert node.cpus_free == 32 - 2 - 4
    assert node.gpus == (GpuPool(type="a100", total=2, used=1, free=0),)
    assert node.slices == (SlicePool(kind="shard", profile="a100", total=8, used=3, free=1),)


def test_without_its_reservation_known_a_reserved_node_is_not_used() -> None:
    node = by_name(read_nodes(recorded("versions/22.05/scontrol_node_d.txt")))["s01"]

    assert not node.usable
    assert node.cpus_free == 0


@pytest.mark.parametrize("parser", ["", "_v0.0.41", "_v0.0.42", "_v0.0.43", "_v0.0.44"])
def test_nodes_read_alike_from_json_of_every_data_parser(parser: str) -> None:
    from_json = by_name(read_nodes_json(recorded(f"versions/25.11/scontrol_node{parser}.json")))

    assert _unplanned(from_json) == _unplanned(_nodes("25.11"))


def _unplanned(nodes: dict[str, Node]) -> dict[str, Node]:
    """Return the nodes without PLANNED, which comes and goes with each backfill run."""
    return {n: x.model_copy(update={"flags": x.flags - {"PLANNED"}}) for n, x in nodes.items()}


def test_nodes_of_22_05_read_alike_from_sinfo_json() -> None:
    reserved = partly_reserved(recorded("versions/22.05/scontrol_res.txt"))
    from_json = by_name(read_nodes_json(recorded("versions/22.05/sinfo.json"), partly_reserved=reserved))

    assert from_json == _nodes("22.05")


@pytest.mark.parametrize("version", VERSIONS)
def test_without_gres_used_the_same_whole_gpus_are_never_over_counted(version: str) -> None:
    plain = by_name(read_nodes(recorded(f"versions/{version}/scontrol_node_o.txt")))

    for name, node in _nodes(version).items():
        for pool, exact in zip(plain[name].gpus, node.gpus, strict=True):
            assert pool.free <= exact.free
            assert pool.total == exact.total


@pytest.mark.parametrize("moment", ["01_initial", "02_powering_up", "03_flags", "04_comp_power", "05_noresp"])
def test_every_reachable_node_state_reads_alike_as_text_and_json(moment: str) -> None:
    text = by_name(read_nodes(recorded(f"states/{moment}.nodes.txt")))
    from_json = by_name(read_nodes_json(recorded(f"states/{moment}.json")))

    assert len(text) == 24
    assert from_json == text


def test_only_the_nodes_whose_state_lets_a_job_in_are_usable() -> None:
    nodes = read_nodes(recorded("states/03_flags.nodes.txt"))

    assert {node.name for node in nodes if node.usable} == {"cl01", "n01", "n03"}
    assert by_name(nodes)["n01"].flags == {"PLANNED"}


# --- partitions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("capture", CAPTURES)
def test_every_partition_names_only_nodes_that_name_it_back(capture: str) -> None:
    nodes = read_nodes(recorded(f"captures/{capture}/scontrol_o_nodes_d.txt"))

    for partition in read_partitions(recorded(f"captures/{capture}/scontrol_partition.txt")):
        members = {node.name for node in nodes if partition.name in node.partitions}
        assert set(partition.node_names) == members
        assert partition.nodes_total == len(members)


def test_partition_limits_and_lists_are_read() -> None:
    found = {p.name: p for p in read_partitions(recorded("versions/25.11/scontrol_partition.txt"))}

    assert list(found) == ["gpu", "gpu-low", "gpu-high", "cpu", "old", "closing", "secret"]
    gpu = found["gpu"]
    assert gpu.node_names == expand("g[01-04],m[01-02],s01")
    assert (gpu.nodes_total, gpu.cpus_total) == (7, 384)
    assert (gpu.max_walltime_s, gpu.default_walltime_s) == (172_800, 3600)
    assert (gpu.def_mem_per_cpu_mib, gpu.def_mem_per_node_mib) == (4000, None)
    assert gpu.preempt_mode == "REQUEUE"
    assert found["gpu-high"].priority_tier == 10
    assert found["gpu-high"].max_walltime_s is None
    assert found["cpu"].is_default
    assert [p.state for p in found.values()] == ["up", "up", "up", "up", "inactive", "drain", "up"]
    assert found["secret"].is_hidden
    assert found["secret"].allow_accounts == ("physics",)
    assert gpu.allow_accounts is None


@pytest.mark.parametrize("document", ["scontrol_part.json", "sinfo.json"])
def test_partitions_read_alike_from_json_except_what_json_does_not_say(document: str) -> None:
    unsaid = {"is_default": False, "is_hidden": False, "preempt_mode": None}
    text = {
        p.name: p.model_copy(update=unsaid)
        for p in read_partitions(recorded("versions/25.11/scontrol_partition.txt"))
    }

    assert {p.name: p for p in read_partitions_json(recorded(f"versions/25.11/{document}"))} == text


def test_what_a_job_gets_per_gpu_is_read_from_job_defaults() -> None:
    found = read_partitions(recorded("captures/deltaai/busy/scontrol_partition.txt"))

    assert (found[0].name, found[0].def_mem_per_gpu_mib, found[0].def_cpus_per_gpu) == ("ghx4", 200_000, 72)


def test_groups_of_sinfo_json_add_up_to_the_nodes() -> None:
    groups = json.loads(recorded("versions/25.11/sinfo.json"))["sinfo"]
    nodes = _nodes("25.11")

    for group in groups:
        total = sum(nodes[name].cpus_total for name in group["nodes"]["nodes"])
        assert group["cpus"]["total"] == total


# --- queue ---------------------------------------------------------------------------------------


def _queue_of_capture(capture: str) -> str:
    """Return the recorded squeue -O as our own columns would have printed it."""
    header, *lines = recorded(f"captures/{capture}/squeue_O.txt").splitlines()
    names = header.removesuffix("|").split("|")
    rows = []
    for line in lines:
        cells = line.split("|", len(names) - 1)  # the comment comes last and may hold a "|"
        row = dict(zip(names[2:], cells[2:], strict=True))  # JOBID comes twice; the second is JobArrayID
        pending = row["STATE"] == "PENDING"
        rows.append(
            {
                "JobArrayID": cells[1],
                "PriorityLong": row["PRIORITY"],
                "SubmitTime": row["SUBMIT_TIME"],
                "StartTime": row["START_TIME"],
                "NodeList": "" if pending else row["NODELIST(REASON)"],
                "State": row["STATE"],
                "UserName": row["USER"],
                "Account": row["ACCOUNT"],
                "Partition": row["PARTITION"],
                "QOS": row["QOS"],
                "NumNodes": row["NODES"],
                "NumCPUs": row["CPUS"],
                "tres-alloc": row["TRES_ALLOC"],
                "tres-per-node": row["TRES_PER_NODE"],
                "tres-per-job": row["TRES_PER_JOB"],
                "TimeLimit": row["TIME_LIMIT"],
                "Reason": row["REASON"],
            }
        )
    return queue_text(*rows)


def _without(job: QueueJob, *fields: str) -> dict[str, Any]:
    return {name: value for name, value in job.model_dump().items() if name not in fields}


@pytest.mark.parametrize("capture", CAPTURES)
def test_the_queue_reads_alike_as_text_and_json(capture: str) -> None:
    text = by_id(read_queue(_queue_of_capture(capture)))
    from_json = by_id(read_queue_json(recorded(f"captures/{capture}/squeue.json")))
    moving = ("name", "comment", "start_at", "reason", "is_eligible", "priority")  # later, or in words

    assert text.keys() == from_json.keys()
    for job_id, job in text.items():
        assert _without(job, *moving) == _without(from_json[job_id], *moving), job_id


@pytest.mark.parametrize("parser", ["_complex", "_v0.0.41", "_v0.0.42", "_v0.0.43", "_v0.0.44"])
def test_jobs_read_alike_from_json_of_every_data_parser(parser: str) -> None:
    usual = read_queue_json(recorded("versions/25.11/squeue.json"))

    assert [_without(job, "start_at") for job in _json_jobs(f"squeue{parser}.json")] == [
        _without(job, "start_at") for job in usual
    ]


def test_scontrol_show_job_json_holds_the_same_queue_and_more_jobs_that_ended() -> None:
    queue = by_id(read_queue_json(recorded("versions/25.11/squeue.json")))

    assert by_id(_json_jobs("scontrol_job.json")).keys() == queue.keys()
    assert len(json.loads(recorded("versions/25.11/scontrol_job.json"))["jobs"]) == 38


def _json_jobs(name: str) -> tuple[QueueJob, ...]:
    return read_queue_json(recorded(f"versions/25.11/{name}"))


@pytest.mark.parametrize("version", VERSIONS)
def test_the_queue_of_each_version_is_understood(version: str) -> None:
    jobs = by_id(read_queue(_queue_of_version(version)))
    gpu_jobs = {job.name: job for job in jobs.values() if job.gpus}
    rest = next(job for job in jobs.values() if job.array_pending > 1)
    exclusive = next(job for job in jobs.values() if job.partitions == ("gpu-low",))

    assert len(jobs) == {"20.11": 17, "22.05": 18, "25.11": 18}[version]
    assert (rest.array_pending, rest.array_throttle, rest.state) == (9, 2, JobState.QUEUED)
    assert (exclusive.gpus, exclusive.gpu_type, exclusive.cpus) == (4, "a100", 64)
    assert gpu_jobs
    assert sum(job.gpus for job in jobs.values() if "m01" in job.node_names) == (
        1 if version == "25.11" else 0
    ), "three MIG slices are no GPUs"
    assert not any(job.is_eligible for job in jobs.values() if job.state is JobState.HELD)


def _queue_of_version(version: str) -> str:
    tres = dict(
        line.split(maxsplit=1) for line in recorded(f"versions/{version}/squeue_tres_alloc.txt").splitlines()
    )
    rows = []
    for line in recorded(f"versions/{version}/squeue_pipe.txt").splitlines():
        head, tail = line.split("|")[:5], line.split("|")[-14:]  # the name between them may hold a "|"
        _, state, reason, _, nodes, cpus, _, per_node, limit, _, _, start, submit, names = tail
        rows.append(
            {
                "JobArrayID": head[0],
                "Partition": head[4],
                "State": state,
                "Reason": reason,
                "NumNodes": nodes,
                "NumCPUs": cpus,
                "tres-per-node": per_node,
                "TimeLimit": limit,
                "StartTime": start,
                "SubmitTime": submit,
                "NodeList": names,
                "tres-alloc": tres[head[0]].strip(),
            }
        )
    return queue_text(*rows)


# --- the rest ------------------------------------------------------------------------------------


@pytest.mark.parametrize("capture", CAPTURES)
def test_reservations_and_limits_of_every_capture_are_understood(capture: str) -> None:
    reservations = read_reservations(recorded(f"captures/{capture}/scontrol_resv.txt"))
    names = {r.name for r in reservations}

    assert names == (
        {"workshop", "maint_gpua", "maint_cn4"} if capture in ("delta/busy", "delta/mixed") else set()
    )
    assert {r.name for r in reservations if r.is_maintenance} == names - {"workshop"}
    assert partly_reserved(recorded(f"captures/{capture}/scontrol_resv.txt")) == {}
    assert "normal" in {qos.name for qos in read_qos(recorded(f"captures/{capture}/sacctmgr_qos.txt"))}
    assert "normal" in read_qos_usage(recorded(f"captures/{capture}/scontrol_assoc_mgr.txt"))
    shares = read_fairshare(recorded(f"captures/{capture}/sshare_P.txt"))
    assert shares["root", "root"] == 1.0
    assert all(0 <= share <= 1 for share in shares.values())


def test_a_reservation_is_read_with_its_times_nodes_and_flags() -> None:
    found = {r.name: r for r in read_reservations(recorded("captures/delta/busy/scontrol_resv.txt"))}
    maintenance = found["maint_gpua"]

    assert maintenance.node_names == expand("gpua[001-008]")
    assert maintenance.start_at.isoformat() == "2026-11-29T19:28:19+00:00"
    assert maintenance.end_at is not None
    assert maintenance.end_at.isoformat() == "2026-11-30T03:28:19+00:00"
    assert maintenance.flags == {"MAINT", "IGNORE_JOBS", "SPEC_NODES"}
    assert found["workshop"].users == ("carol",)


@pytest.mark.parametrize("version", VERSIONS)
def test_accounting_tables_of_each_version_are_understood(version: str) -> None:
    qos = {q.name: q for q in read_qos(recorded(f"versions/{version}/sacctmgr_qos.txt"))}
    mine = read_associations(recorded(f"versions/{version}/sacctmgr_assoc.txt"), user="root")
    physics = next(a for a in mine if a.account == "physics")

    assert qos["normal"].group == Limits()
    assert {a.account for a in mine} == {"root", "physics"}
    assert physics.qos == ("normal",)
    if version == "22.05":
        assert qos["gpuq"].group == Limits(max_gpus=0)
        assert physics.group == Limits(max_cpus=128, max_gpus=8), "the account's limits bind its users"


def test_limits_of_a_qos_are_told_apart_per_user_per_job_and_together() -> None:
    qos = {q.name: q for q in read_qos(recorded("captures/anvil/busy/sacctmgr_qos.txt"))}

    assert qos["debug"].per_user == Limits(max_jobs=1, max_submit_jobs=2)
    assert qos["debug"].per_job == Limits(max_walltime_s=7200)
    assert qos["debug"].priority == 1000
    assert qos["gpu"].per_user == Limits(max_gpus=12)
    assert qos["ai"].group == Limits(max_gpus=10)


def test_what_is_used_of_a_qos_is_told_from_its_limit() -> None:
    usage = read_qos_usage(recorded("captures/anvil/busy/scontrol_assoc_mgr.txt"))

    assert usage["ai"]["gres/gpu"] == (10, 8)
    assert usage["gpu"]["gres/gpu"] == (None, 12)


@pytest.mark.parametrize(
    ("document", "parser"),
    [
        ("versions/22.05/sinfo.json", "v0.0.38"),
        ("versions/25.11/squeue.json", "v0.0.44"),
        ("versions/25.11/squeue_complex.json", "v0.0.44"),
        ("versions/25.11/squeue_v0.0.41.json", "v0.0.41"),
    ],
)
def test_a_document_tells_its_schema(document: str, parser: str) -> None:
    assert data_parser(json.loads(recorded(document))) == parser


def test_a_reservation_of_gpus_leaves_unknown_what_remains_of_its_nodes() -> None:
    text = recorded("versions/22.05/scontrol_res.txt")
    with_gpus = text.replace("TRES=cpu=4 ", "TRES=cpu=4,gres/gpu=1 ")

    assert partly_reserved(text) == {"s01": 4}
    assert with_gpus != text
    assert partly_reserved(with_gpus) == {}


def test_a_node_that_one_reservation_takes_in_part_and_another_whole_is_taken_whole() -> None:
    text = recorded("versions/22.05/scontrol_res.txt")

    assert partly_reserved(text.replace("Nodes=c003 ", "Nodes=c003,s01 ")) == {}


def test_a_reservation_that_is_not_active_takes_nothing_yet() -> None:
    text = recorded("versions/22.05/scontrol_res.txt")

    assert partly_reserved(text.replace("State=ACTIVE", "State=INACTIVE")) == {}
