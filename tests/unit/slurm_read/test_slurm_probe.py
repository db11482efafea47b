"""The probe: four cheap commands, and no answer believed that is none."""

from datetime import UTC, datetime

import pytest

from providers.dialects.slurm.probe import build_probe, read_ping, read_probe
from providers.dialects.slurm.queue import COLUMNS
from providers.errors import SchedulerDown, UnparsableOutput
from providers.types import BatchReply, Exec, JobState, Limits, Probe, Reply
from tests.unit.slurm_read.as_json import read_nodes_json
from tests.unit.slurm_read.recordings import answers, by_name, node_text, queue_text, recorded

NOW = datetime(2031, 2, 3, 4, 5, 6, tzinfo=UTC)
PING = "Slurmctld(primary) at head01 is UP\n"
DOWN = "Slurmctld(primary) at head01 is DOWN\n**** RESTORE SLURMCTLD DAEMON TO SERVICE ****\n"
NO_RESERVATIONS = "No reservations in the system\n"


def full_reply() -> BatchReply:
    """Return a full probe of a real Slurm 22.05.8 with accounting, by the user alice."""
    return BatchReply.model_validate_json(recorded("probe/full-22.05.8.json"))


def live(**changed: str | Reply) -> BatchReply:
    usual: dict[str, str | Reply] = {
        "ping": PING,
        "nodes": node_text(Gres="gpu:a100:4", GresUsed="gpu:a100:1(IDX:0)", CPUAlloc="8", State="MIXED"),
        "queue": queue_text({}),
        "reservations": NO_RESERVATIONS,
    }
    return answers(**(usual | changed))


def read(reply: BatchReply) -> Probe:
    return read_probe(reply, now=NOW)


# --- built ---------------------------------------------------------------------------------------


def test_the_live_probe_is_four_programs_and_begins_with_a_ping_that_stops_the_rest() -> None:
    batch = build_probe(full=False)
    operations = [op for op in batch.operations if isinstance(op, Exec)]

    assert [op.name for op in operations] == ["ping", "nodes", "queue", "reservations"]
    assert operations[0].argv == ("scontrol", "ping")
    assert operations[0].stop_on_failure
    assert operations[0].timeout_s <= 5
    assert operations[1].argv == ("scontrol", "-a", "-o", "-d", "show", "node")


def test_the_full_probe_adds_to_the_live_one() -> None:
    live_names = [op.name for op in build_probe(full=False).operations]
    names = [op.name for op in build_probe(full=True).operations]

    assert names[:4] == live_names
    assert names[4:] == ["partitions", "config", "user", "qos", "associations", "usage", "finished"]


# --- read ----------------------------------------------------------------------------------------


def test_a_full_probe_of_a_real_cluster_is_read_whole() -> None:
    probe = read(full_reply())

    assert (probe.scheduler, probe.cluster, probe.user) == ("slurm 22.05.8", "anvil", "alice")
    assert probe.taken_at == NOW
    assert (probe.accounting_up, probe.jobs_visible, probe.warnings) == (True, True, ())
    assert len(probe.nodes) == 11
    assert probe.partitions is not None
    assert [p.name for p in probe.partitions] == ["shared", "wholenode", "debug", "gpu", "gpu-debug", "ai"]
    assert len(probe.jobs) == 19
    assert {job.user for job in probe.jobs} == {"alice", "bob"}
    assert probe.qos is not None
    assert {q.name: q.per_user.max_gpus for q in probe.qos} == {
        "normal": None,
        "debug": None,
        "gpu": 12,
        "ai": 8,
    }
    assert probe.associations is not None
    assert [(a.account, a.user, a.fairshare) for a in probe.associations] == [
        ("cis220051", "alice", 1.0),
        ("cis220051-ai", "alice", 1.0),
        ("cis220051-gpu", "alice", 1.0),
    ]
    assert probe.associations[0].limits == Limits()


def test_the_queue_of_a_real_cluster_is_read_field_by_field() -> None:
    job = read(full_reply()).jobs[0]

    assert (job.job_id, job.user, job.account, job.partitions) == ("13", "alice", "cis220051-ai", ("ai",))
    assert (job.state, job.state_raw, job.reason) == (JobState.QUEUED, "PENDING", "QOSGrpGRES")
    assert not job.is_eligible
    assert (job.nodes, job.cpus, job.memory_mib, job.gpus) == (1, 64, 64_000, 4)
    assert (job.walltime_s, job.priority, job.start_at) == (86_400, 11_000, None)
    assert job.submit_at == datetime(2026, 11, 29, 20, 31, 46, tzinfo=UTC)


def test_a_live_probe_leaves_the_static_parts_unknown() -> None:
    probe = read(live())

    assert (probe.partitions, probe.qos, probe.associations, probe.user) == (None, None, None, None)
    assert probe.nodes[0].gpus[0].free == 3
    assert probe.reservations == ()
    assert probe.accounting_up


def test_an_empty_queue_is_an_empty_queue_when_everything_else_answers() -> None:
    assert read(live(queue="")).jobs == ()


def test_a_dead_accounting_database_loses_accounting_and_nothing_else() -> None:
    refused = "sacctmgr: error: Sending PersistInit msg: Connection refused"
    replies = dict(full_reply().replies)
    for name in ("qos", "associations", "usage"):
        replies[name] = Reply(name=name, rc=1, stderr=refused)

    probe = read(BatchReply(replies=replies))

    assert not probe.accounting_up
    assert (probe.qos, probe.associations) == (None, None)
    assert len(probe.warnings) == 3
    assert (len(probe.nodes), len(probe.jobs)) == (11, 19)


def test_private_data_hides_other_peoples_jobs() -> None:
    replies = dict(full_reply().replies)
    config = replies["config"]
    hidden = config.stdout.replace("PrivateData             = none", "PrivateData             = jobs,usage")
    assert hidden != config.stdout
    replies["config"] = config.model_copy(update={"stdout": hidden})

    assert not read(BatchReply(replies=replies)).jobs_visible


def test_a_user_without_a_name_gets_nobody_elses_associations() -> None:
    replies = dict(full_reply().replies)
    replies["user"] = Reply(name="user", rc=1, stderr="id: cannot find name for user ID 4711")

    probe = read(BatchReply(replies=replies))

    assert (probe.user, probe.associations) == (None, None)
    assert probe.warnings == ("no associations: 'user' failed with exit status 1",)


def test_the_memory_default_of_the_cluster_holds_where_a_partition_has_none() -> None:
    partitions = read(full_reply()).partitions

    assert partitions is not None
    assert {p.def_mem_per_cpu_mib for p in partitions} == {1000}
    assert {p.def_mem_per_node_mib for p in partitions} == {None}


def test_a_warning_beside_a_whole_answer_does_no_harm() -> None:
    said = "squeue: error: s_p_parse_file: unable to read optional.conf"
    reply = Reply(name="queue", rc=0, stdout=queue_text({}), stderr=said)

    assert len(read(live(queue=reply)).jobs) == 1


def test_a_node_state_of_a_newer_slurm_is_shown_with_a_warning_and_never_used() -> None:
    probe = read(live(nodes=node_text(State="IDLE+QUARANTINED") + node_text("wg02", State="DREAMING")))
    nodes = by_name(probe.nodes)

    assert not nodes["wg01"].usable
    assert (nodes["wg02"].state, nodes["wg02"].usable) == ("unknown", False)
    assert probe.warnings == (
        "nodes in the unknown state DREAMING are not used",
        "nodes in the unknown state QUARANTINED are not used",
    )


# --- not believed --------------------------------------------------------------------------------


def test_a_backup_controller_that_is_up_is_enough() -> None:
    read_ping("Slurmctld(primary) at head01 is DOWN\nSlurmctld(backup) at head02 is UP\n")

    with pytest.raises(SchedulerDown):
        read_ping(DOWN)


@pytest.mark.parametrize("name", ["ping", "nodes", "queue", "reservations"])
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (Reply(name="x", rc=1, stderr="Unable to contact slurm controller"), "exit status 1"),
        (Reply(name="x", rc=None, timed_out=True, stdout="NodeName=a"), "did not end in time"),
        (Reply(name="x", rc=None, skipped=True), "was not run"),
        (Reply(name="x", rc=None, missing=True), "is not installed"),
        (Reply(name="x", rc=-9), "exit status -9"),
    ],
)
def test_a_live_command_that_failed_is_no_observation(name: str, fault: Reply, said: str) -> None:
    with pytest.raises(SchedulerDown, match=said) as caught:
        read(live(**{name: fault}))

    assert caught.value.facts["command"] == name


@pytest.mark.parametrize("name", ["ping", "nodes", "queue", "reservations"])
def test_a_missing_answer_is_no_observation(name: str) -> None:
    replies = {k: v for k, v in live().replies.items() if k != name}

    with pytest.raises(SchedulerDown, match="no answer"):
        read(BatchReply(replies=replies))


@pytest.mark.parametrize("name", ["ping", "nodes", "queue", "reservations"])
def test_an_answer_that_was_cut_is_not_read(name: str) -> None:
    whole = live().replies[name]

    with pytest.raises(UnparsableOutput, match="was cut"):
        read(live(**{name: whole.model_copy(update={"truncated": True})}))


@pytest.mark.parametrize("name", ["ping", "nodes", "reservations"])
def test_an_empty_answer_with_exit_status_zero_is_not_believed(name: str) -> None:
    with pytest.raises(UnparsableOutput):
        read(live(**{name: ""}))


@pytest.mark.parametrize("name", ["ping", "nodes", "queue", "reservations"])
@pytest.mark.parametrize(
    "garbage",
    [
        "Slurm-Steuerung ist nicht erreichbar\n",
        "\x1b[2J*** Welcome to the login node ***\n",
        "bash: scontrol: command not found\n",
        "<html><body>503</body></html>\n",
        "NodeName\n",
        "\x00\x01\x02",
    ],
)
def test_garbage_is_named_with_its_command_and_line(name: str, garbage: str) -> None:
    with pytest.raises(UnparsableOutput) as caught:
        read(live(**{name: garbage}))

    assert caught.value.facts["command"]
    assert str(caught.value.facts["line"]) in garbage


def test_the_line_that_is_not_understood_is_named() -> None:
    good, bad = node_text("wg01"), node_text("wg02", CPUTot="vierundsechzig")

    with pytest.raises(UnparsableOutput, match="no count") as caught:
        read(live(nodes=good + bad))

    assert caught.value.facts["line"] == bad.strip()
    assert caught.value.facts["command"] == "scontrol -a -o -d show node"


def test_a_node_that_comes_twice_is_not_counted_twice() -> None:
    with pytest.raises(UnparsableOutput, match="twice"):
        read(live(nodes=node_text() + node_text()))


def test_nothing_an_administrator_writes_can_pass_for_a_field() -> None:
    told = "swap it State=IDLE Gres=gpu:h100:64 CPUTot=9999 [root@2031-02-03T04:05:06]"

    (node,) = read(live(nodes=node_text(State="DOWN", Reason=told, Comment="AllocMem=0"))).nodes

    assert (node.state, node.cpus_total, node.gpus) == ("down", 64, ())
    assert node.reason == "swap it State=IDLE Gres=gpu:h100:64 CPUTot=9999"


def test_a_field_that_comes_twice_counts_where_it_comes_first() -> None:
    (node,) = read(live(nodes=node_text(State="DOWN").strip() + " State=IDLE\n")).nodes

    assert node.state == "down"


def test_a_column_that_squeue_dropped_is_noticed() -> None:
    fields = queue_text({}).split("\x1f")
    short = "\x1f".join(fields[:7] + fields[8:])

    with pytest.raises(UnparsableOutput, match=f"{len(COLUMNS) - 1} fields for {len(COLUMNS)} columns"):
        read(live(queue=short))


def test_a_complaint_beside_exit_status_zero_is_noticed() -> None:
    said = "squeue: error: Invalid job format specification: tres-alloc"
    reply = Reply(name="queue", rc=0, stdout=queue_text({}), stderr=said)

    with pytest.raises(UnparsableOutput, match="complained"):
        read(live(queue=reply))


def test_json_of_a_dead_controller_with_exit_status_zero_is_not_believed() -> None:
    with pytest.raises(SchedulerDown, match="reports errors"):
        read_nodes_json('{"errors": [{"error": "Unspecified error"}], "nodes": []}')
    with pytest.raises(UnparsableOutput, match="no node"):
        read_nodes_json('{"errors": [], "nodes": []}')
    with pytest.raises(UnparsableOutput, match="broken JSON"):
        read_nodes_json('{"errors": [], "nodes": [{"name": "a"')
