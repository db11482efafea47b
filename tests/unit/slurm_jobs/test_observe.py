import re
from datetime import UTC, datetime, timedelta

import pytest

from providers.dialects.slurm.observe import QUEUE, SETTLE_S, build_observe, read_observe
from providers.errors import SchedulerDown
from providers.types import BatchReply, Exec, JobRef, JobState, Observation, Reply
from tests.unit.slurm_jobs.answers import (
    KEY,
    NOW,
    accounting_record,
    answer,
    at,
    both,
    queue_record,
    ref,
)

OUT_OF_MEMORY_SENTENCE = (
    "A process needed more memory than the job was given and was killed; the output may be incomplete."
)
DEAD_DATABASE = answer("x", rc=1, stderr="sacct: error: Problem talking to the database: Connection refused")
DEAD_CONTROLLER = answer(
    QUEUE, rc=1, stderr="slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
)
NO_ACCOUNTING = answer("x", rc=1, stderr="Slurm accounting storage is disabled")


def seen(
    job: JobRef, *, queue: str | Reply = "", accounting: str | Reply = "", now: datetime = NOW
) -> Observation | None:
    """Return the observation of one ref; KeyError when nothing can be said."""
    return read_observe(both([job], queue=queue, accounting=accounting), [job], now=now)[job.submit_key]


def is_unsaid(job: JobRef, *, queue: str | Reply = "", accounting: str | Reply = "") -> bool:
    return read_observe(both([job], queue=queue, accounting=accounting), [job], now=NOW) == {}


# --- what is asked --------------------------------------------------------------------------------


def test_the_queue_is_asked_before_accounting_and_for_no_id() -> None:
    batch = build_observe([ref("7"), ref(None, key="lost")], since=NOW - timedelta(hours=1), now=NOW)

    ping, queue, by_id, by_name = [each for each in batch.operations if isinstance(each, Exec)]
    assert (ping.argv, ping.timeout_s) == (("scontrol", "ping"), 4.0)
    assert queue.argv[:7] == ("squeue", "--me", "-h", "-a", "-t", "all", "-o")
    assert by_id.argv[:5] == ("sacct", "-n", "-X", "-P", "-D")
    assert by_id.argv[-2:] == ("-j", "7")
    assert by_name.argv[-5:] == ("--name=lost", "-S", "now-10800seconds", "-E", "now+1days")
    assert {each.env["TZ"] for each in (queue, by_id, by_name)} == {"UTC"}
    assert not any(each.stop_on_failure for each in batch.operations if isinstance(each, Exec))
    assert [each.requires for each in (queue, by_id, by_name)] == ["ping", "", ""]


@pytest.mark.parametrize(
    ("ago", "start"), [(timedelta(days=1), "now-93600seconds"), (-NOW.resolution, "now-7200seconds")]
)
def test_accounting_is_asked_by_the_sites_own_clock_whatever_ours_was_set_to(
    ago: timedelta, start: str
) -> None:
    batch = build_observe([ref(None, key="lost")], since=NOW - ago, now=NOW)

    by_name = batch.operations[-1]
    assert isinstance(by_name, Exec)
    assert by_name.argv[-4:] == ("-S", start, "-E", "now+1days")


def test_a_thousand_jobs_cost_one_squeue_and_a_few_saccts() -> None:
    refs = [ref(str(n), key=f"k{n}") for n in range(1, 1202)] + [ref(None, key=f"n{n}") for n in range(200)]

    batch = build_observe(refs, since=NOW, now=NOW)

    assert [each.name for each in batch.operations] == [
        "ping",
        "queue",
        "accounting-ids-0",
        "accounting-ids-1",
        "accounting-ids-2",
        "accounting-ids-3",
        "accounting-names-0",
        "accounting-names-1",
    ]
    assert all(
        len(part) < 100_000 for each in batch.operations if isinstance(each, Exec) for part in each.argv
    )


def test_no_refs_still_make_a_batch_that_reads_as_nothing() -> None:
    assert [each.name for each in build_observe([], since=NOW, now=NOW).operations] == ["ping", "queue"]
    assert read_observe(both([]), [], now=NOW) == {}


# --- in the queue ---------------------------------------------------------------------------------


def test_a_running_job_is_read_whole() -> None:
    queue = queue_record(
        id="7",
        state="RUNNING",
        start="2026-11-29T17:10:00",
        end="2026-11-29T18:10:00",
        elapsed="50:00",
        nodes="2",
        cpus="64",
        node_list="gpua[001-002]",
    )
    accounting = accounting_record(
        JobID="7",
        State="RUNNING",
        AllocTRES="billing=64,cpu=64,gres/gpu:a100=8,gres/gpu=8,mem=64G,node=2",
        End="Unknown",
    )

    assert seen(ref("7"), queue=queue, accounting=accounting) == Observation(
        job_id="7",
        submit_key=KEY,
        source="queue",
        state=JobState.RUNNING,
        state_raw="RUNNING",
        submit_at=at("2026-11-29T17:00:00"),
        eligible_at=at("2026-11-29T17:00:00"),
        start_at=at("2026-11-29T17:10:00"),
        elapsed_s=3000,
        walltime_s=3600,
        node_names=("gpua001", "gpua002"),
        partition="gpu",
        account="acct",
        cpus=64,
        gpus=8,
        nodes=2,
        billing=64.0,
    )


def test_a_pending_job_has_an_expected_start_and_no_start() -> None:
    queue = queue_record(
        id="7",
        state="PENDING",
        reason="Priority",
        start="2026-11-29T19:00:00",
        limit="UNLIMITED",
        nodes="2-4",
    )

    got = seen(ref("7"), queue=queue)

    assert got is not None
    assert (got.state, got.start_at, got.expected_start_at) == (
        JobState.QUEUED,
        None,
        at("2026-11-29T19:00:00"),
    )
    assert (got.reason_raw, got.reason_explained) == ("Priority", "Jobs with higher priority are ahead.")
    assert (got.walltime_s, got.nodes, got.elapsed_s, got.exit_code) == (None, 2, 0, None)


def test_a_held_job_is_held() -> None:
    got = seen(ref("7"), queue=queue_record(id="7", state="PENDING", reason="JobHeldUser"))

    assert got is not None
    assert got.state is JobState.HELD


def test_the_queue_is_believed_while_accounting_is_down() -> None:
    refs = [ref("7", key="a"), ref("8", key="b")]
    reply = both(refs, queue=queue_record(id="7", name="a"), accounting=DEAD_DATABASE)

    got = read_observe(reply, refs, now=NOW)

    assert list(got) == ["a"]
    assert got["a"] is not None
    assert got["a"].state is JobState.RUNNING


def test_a_job_only_the_controller_calls_finished_waits_for_accounting() -> None:
    queue = queue_record(id="7", state="FAILED", reason="NonZeroExitCode", end="2026-11-29T17:59:30")
    running = accounting_record(JobID="7", State="RUNNING", End="Unknown")

    waiting = seen(ref("7"), queue=queue, accounting=running)
    later = seen(ref("7"), queue=queue, accounting=running, now=NOW + timedelta(seconds=SETTLE_S))
    alone = seen(ref("7"), queue=queue, accounting=NO_ACCOUNTING)
    down = seen(ref("7"), queue=queue, accounting=DEAD_DATABASE)
    agreed = seen(
        ref("7"), queue=queue, accounting=accounting_record(JobID="7", State="FAILED", ExitCode="3:0")
    )

    assert waiting is not None
    assert (waiting.state, waiting.state_raw) == (JobState.COMPLETING, "FAILED")
    assert later is not None
    assert (later.state, later.exit_code) == (JobState.FAILED, None)
    assert alone is not None
    assert alone.state is JobState.FAILED
    assert down is not None
    assert (down.state, down.reason_explained) == (
        JobState.COMPLETING,
        "The job has ended; its accounting record is awaited.",
    )
    assert agreed is not None
    assert (agreed.source, agreed.state, agreed.exit_code) == ("accounting", JobState.FAILED, 3)
    assert (agreed.reason_raw, agreed.reason_explained) == (
        "NonZeroExitCode",
        "The program ended with exit code 3.",
    )


def test_a_banner_and_line_ends_in_a_comment_do_not_shift_columns() -> None:
    foreign = queue_record(id="801", name="we|ird name", comment="line one\nline two, 100%")
    queue = "Could not chdir to home directory /users/xyz\n*** Welcome ***\n" + foreign + queue_record(id="7")

    got = seen(ref("7"), queue=queue)

    assert got is not None
    assert (got.job_id, got.state, got.partition) == ("7", JobState.RUNNING, "gpu")


# --- after the queue ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "pair", "expected", "code", "signal", "explained"),
    [
        ("COMPLETED", "0:0", JobState.COMPLETED, 0, None, ""),
        ("FAILED", "3:0", JobState.FAILED, 3, None, "The program ended with exit code 3."),
        ("FAILED", "0:9", JobState.FAILED, None, 9, "The program was ended by signal 9."),
        (
            "FAILED",
            "0:53",
            JobState.FAILED,
            None,
            53,
            "The job could not be launched: its output path or a file it needs is not there or not writable.",
        ),
        (
            "FAILED",
            "121:0",
            JobState.FAILED,
            121,
            None,
            "The working directory could not be entered on the compute node; the work never began.",
        ),
        (
            "FAILED",
            "127:0",
            JobState.FAILED,
            127,
            None,
            "The program was not found on the compute node (exit code 127).",
        ),
        ("TIMEOUT", "0:0", JobState.TIMEOUT, None, None, "The job used up its wall time and was stopped."),
        ("DEADLINE", "0:0", JobState.TIMEOUT, None, None, "The job could not end before its deadline."),
        (
            "CANCELLED by 20002",
            "0:0",
            JobState.CANCELLED,
            None,
            None,
            "The job was cancelled by user id 20002.",
        ),
        ("CANCELLED by 0", "0:15", JobState.CANCELLED, None, 15, "The job was cancelled by the site (root)."),
        ("CANCELLED", "0:0", JobState.CANCELLED, None, None, "The job was cancelled."),
        (
            "OUT_OF_MEMORY",
            "0:0",
            JobState.OUT_OF_MEMORY,
            0,
            None,
            OUT_OF_MEMORY_SENTENCE,
        ),
        (
            "OUT_OF_MEMORY",
            "0:125",
            JobState.OUT_OF_MEMORY,
            None,
            125,
            OUT_OF_MEMORY_SENTENCE,
        ),
        ("NODE_FAIL", "1:0", JobState.NODE_FAIL, None, None, "A node of the job failed."),
        ("BOOT_FAIL", "0:0", JobState.NODE_FAIL, None, None, "A node could not be booted for the job."),
        (
            "PREEMPTED",
            "0:0",
            JobState.PREEMPTED,
            None,
            None,
            "The job had to give way to one of higher priority.",
        ),
    ],
)
def test_accounting_tells_how_a_job_ended(
    state: str, pair: str, expected: JobState, code: int | None, signal: int | None, explained: str
) -> None:
    got = seen(ref("7"), accounting=accounting_record(JobID="7", State=state, ExitCode=pair))

    assert got is not None
    assert (got.source, got.state, got.state_raw) == ("accounting", expected, state)
    assert (got.exit_code, got.exit_signal, got.reason_explained) == (code, signal, explained)
    assert (got.start_at, got.end_at, got.elapsed_s) == (
        at("2026-11-29T17:01:00"),
        at("2026-11-29T17:02:00"),
        60,
    )


def test_a_job_refused_at_submission_never_ran() -> None:
    record = accounting_record(JobID="7", State="FAILED", ExitCode="1:0", Start="None")

    got = seen(ref("7"), accounting=record)

    assert got is not None
    assert got.reason_explained == "The job failed before it could start; nothing was run."


def test_steps_are_no_jobs() -> None:
    accounting = accounting_record(JobID="7", State="FAILED", ExitCode="3:0") + accounting_record(
        JobID="7.batch", State="CANCELLED", ExitCode="0:15"
    )

    got = seen(ref("7"), accounting=accounting)

    assert got is not None
    assert (got.state, got.exit_code) == (JobState.FAILED, 3)


def test_what_nobody_knows_is_none_only_when_both_answered() -> None:
    assert seen(ref("7")) is None
    assert is_unsaid(ref("7"), accounting=DEAD_DATABASE)
    assert is_unsaid(ref("7"), queue=DEAD_CONTROLLER)


@pytest.mark.parametrize("state", ["RUNNING", "PENDING", "COMPLETING"])
def test_a_job_that_left_the_queue_alive_is_told_so(state: str) -> None:
    got = seen(ref("7"), accounting=accounting_record(JobID="7", State=state, End="Unknown"))

    assert got is not None
    assert (got.left_queue, got.state_raw, got.source) == (True, state, "accounting")


def test_an_end_without_its_time_is_half_told_and_waited_for() -> None:
    half = accounting_record(JobID="7", State="FAILED", ExitCode="0:0", End="Unknown")
    queue = queue_record(id="7", state="FAILED", reason="NonZeroExitCode", end="2026-11-29T17:59:30")

    waiting, gone = seen(ref("7"), queue=queue, accounting=half), seen(ref("7"), accounting=half)

    assert waiting is not None
    assert (waiting.state, waiting.exit_code) == (JobState.COMPLETING, None)
    assert gone is not None
    assert gone.left_queue
    assert is_unsaid(ref("7"), queue=DEAD_CONTROLLER, accounting=half)


def test_without_the_queue_accounting_confirms_ends_only() -> None:
    job = ref("7")

    got = seen(job, queue=DEAD_CONTROLLER, accounting=accounting_record(JobID="7"))

    assert got is not None
    assert got.state is JobState.COMPLETED
    assert is_unsaid(job, queue=DEAD_CONTROLLER, accounting=accounting_record(JobID="7", State="RUNNING"))
    assert is_unsaid(job, queue=DEAD_CONTROLLER, accounting=accounting_record(JobID="7", State="PREEMPTED"))
    assert is_unsaid(job, queue=DEAD_CONTROLLER, accounting=accounting_record(JobID="7", State="NODE_FAIL"))


@pytest.mark.parametrize("state", ["PREEMPTED", "NODE_FAIL"])
def test_an_end_that_a_requeue_may_undo_must_settle(state: str) -> None:
    fresh = accounting_record(JobID="7", State=state, End="2026-11-29T17:59:00")

    assert is_unsaid(ref("7"), accounting=fresh)
    later = seen(ref("7"), accounting=fresh, now=NOW + timedelta(seconds=SETTLE_S))
    assert later is not None
    assert later.state in {JobState.PREEMPTED, JobState.NODE_FAIL}


def test_the_sites_clock_decides_what_has_settled() -> None:
    job = ref("7")
    fresh = accounting_record(JobID="7", State="PREEMPTED", End="2026-11-29T17:59:00")
    reply = both([job], accounting=fresh, site_time=at("2026-11-29T18:05:00"))

    assert list(read_observe(reply, [job], now=NOW)) == [KEY]


# --- requeues -------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["PREEMPTED", "NODE_FAIL", "REQUEUED"])
def test_a_requeued_job_waits_and_counts_its_restart(state: str) -> None:
    queue = queue_record(id="7", state="PENDING", reason="BeginTime", submit="2026-11-29T17:05:00")
    first = accounting_record(JobID="7", State=state)
    second = accounting_record(
        JobID="7", State="PENDING", Submit="2026-11-29T17:05:00", Start="Unknown", End="Unknown"
    )

    for accounting in (first + second, second + first):
        got = seen(ref("7"), queue=queue, accounting=accounting)
        assert got is not None
        assert (got.state, got.source, got.restarts) == (JobState.QUEUED, "queue", 1)
        assert "pause after a requeue" in got.reason_explained


def test_a_requeue_counts_also_where_accounting_shows_only_the_attempt_that_ended() -> None:
    queue = queue_record(id="7", state="PENDING", reason="BeginTime", submit="2026-11-29T17:05:00")

    got = seen(ref("7"), queue=queue, accounting=accounting_record(JobID="7", State="NODE_FAIL"))

    assert got is not None
    assert (got.state, got.restarts, got.billing, got.eligible_at) == (JobState.QUEUED, 1, None, None)


def test_the_newest_attempt_decides_whatever_the_order_of_rows() -> None:
    old = accounting_record(JobID="7", State="PREEMPTED")
    new = accounting_record(JobID="7", State="COMPLETED", Submit="2026-11-29T17:05:00")

    for accounting in (old + new, new + old):
        got = seen(ref("7"), accounting=accounting)
        assert got is not None
        assert (got.state, got.restarts) == (JobState.COMPLETED, 1)


@pytest.mark.parametrize(
    ("state", "end", "expected"),
    [
        ("CANCELLED by 20001", "2026-11-29T17:10:00", JobState.CANCELLED),
        ("COMPLETED", "2026-11-29T17:00:00", JobState.COMPLETED),
        ("PENDING", "Unknown", JobState.QUEUED),
    ],
)
def test_a_requeue_within_the_second_of_the_submission_is_the_newer_attempt(
    state: str, end: str, expected: JobState
) -> None:
    same_second = {"JobID": "7", "Submit": "2026-11-29T17:00:00"}
    old = accounting_record(**same_second, State="REQUEUED", End="2026-11-29T17:00:00")
    new = accounting_record(**same_second, State=state, Start="Unknown", End=end)

    for accounting in (old + new, new + old):
        got = seen(ref("7"), accounting=accounting)
        assert got is not None
        assert (got.state, got.restarts) == (expected, 1)


def test_a_resize_is_no_restart() -> None:
    rows = accounting_record(JobID="7", State="RESIZING") + accounting_record(JobID="7", State="COMPLETED")

    got = seen(ref("7"), accounting=rows)

    assert got is not None
    assert (got.state, got.restarts) == (JobState.COMPLETED, 0)


# --- whose job it is ------------------------------------------------------------------------------


def test_a_job_is_found_by_its_key_when_the_id_was_never_learnt() -> None:
    lost = ref(None)

    queued = seen(lost, queue=queue_record(id="91", state="PENDING", reason="Priority"))
    over = seen(lost, accounting=accounting_record(JobID="91", Comment=""))

    assert queued is not None
    assert (queued.job_id, queued.submit_key) == ("91", KEY)
    assert over is not None
    assert (over.job_id, over.state) == ("91", JobState.COMPLETED)


def test_a_renamed_job_is_found_by_its_comment() -> None:
    got = seen(ref(None), queue=queue_record(id="91", name="mine", comment=f"facet:{KEY}"))

    assert got is not None
    assert got.job_id == "91"


def test_another_keys_job_under_our_id_is_not_ours() -> None:
    assert seen(ref("7"), queue=queue_record(id="7", name="other", comment="facet:other")) is None


def test_a_recycled_id_of_long_ago_is_not_ours() -> None:
    old = accounting_record(JobID="7", JobName="old_job", Submit="2026-03-01T10:00:00")
    new = accounting_record(JobID="7", State="FAILED", ExitCode="2:0")

    assert seen(ref("7"), accounting=old) is None
    both_rows = seen(ref("7"), accounting=old + new)
    assert both_rows is not None
    assert (both_rows.exit_code, both_rows.restarts) == (2, 0)


def test_without_any_key_the_id_and_the_time_of_submission_decide() -> None:
    near = queue_record(id="7", name="renamed", comment="", submit="2026-11-29T17:00:20")
    later = queue_record(id="7", name="renamed", comment="", submit="2026-11-30T09:00:00")

    got = seen(ref("7"), queue=near)

    assert got is not None
    assert got.job_id == "7"
    assert is_unsaid(ref("7"), queue=later)
    assert is_unsaid(ref("7", at=None), queue=near)


def test_of_two_jobs_with_one_key_the_living_one_is_seen() -> None:
    queue = queue_record(id="8", state="FAILED", end="2026-11-29T17:30:00") + queue_record(
        id="7", state="RUNNING"
    )

    got = seen(ref(None), queue=queue)

    assert got is not None
    assert (got.job_id, got.state) == ("7", JobState.RUNNING)


# --- arrays and heterogeneous jobs ----------------------------------------------------------------


def test_an_array_is_one_job_in_the_state_of_its_liveliest_task() -> None:
    queue = (
        queue_record(id="4_[6-15%6]", raw="4", state="PENDING", reason="JobArrayTaskLimit")
        + queue_record(id="4_0", raw="5", state="RUNNING", start="2026-11-29T17:01:00", node_list="gpub001")
        + queue_record(id="4_1", raw="6", state="RUNNING", start="2026-11-29T17:03:00", node_list="gpub002")
    )

    got = seen(ref("4"), queue=queue)

    assert got is not None
    assert (got.job_id, got.state, got.start_at) == ("4", JobState.RUNNING, at("2026-11-29T17:01:00"))
    assert got.node_names == ("gpub001", "gpub002")


def test_one_task_is_seen_by_its_own_id_or_its_raw_id_or_in_the_rest() -> None:
    queue = queue_record(id="4_[6-15%6]", raw="4", state="PENDING", reason="Priority") + queue_record(
        id="4_0", raw="1051277", state="RUNNING"
    )

    states = {
        job_id: (got.state, got.job_id) if (got := seen(ref(job_id), queue=queue)) else None
        for job_id in ("4_0", "1051277", "4_7")
    }

    assert states == {
        "4_0": (JobState.RUNNING, "4_0"),
        "1051277": (JobState.RUNNING, "1051277"),
        "4_7": (JobState.QUEUED, "4_7"),
    }


def test_a_finished_array_is_as_bad_as_its_worst_task() -> None:
    rows = accounting_record(JobID="4_0") + accounting_record(JobID="4_1", State="FAILED", ExitCode="3:0")

    got = seen(ref("4"), accounting=rows)

    assert got is not None
    assert (got.job_id, got.state, got.exit_code) == ("4", JobState.FAILED, 3)


def test_the_components_of_a_heterogeneous_job_add_up() -> None:
    queue = queue_record(id="20+0", raw="20", nodes="1", cpus="2", node_list="cn003") + queue_record(
        id="20+1", raw="21", nodes="1", cpus="1", node_list="wg01"
    )
    rows = accounting_record(
        JobID="20+0", JobIDRaw="20", State="RUNNING", AllocTRES="cpu=2,mem=250G,node=1,billing=2"
    ) + accounting_record(
        JobID="20+1", JobIDRaw="21", State="RUNNING", AllocTRES="cpu=1,gres/gpu=1,mem=4000M,node=1,billing=1"
    )

    got = seen(ref("20"), queue=queue, accounting=rows)

    assert got is not None
    assert (got.job_id, got.state, got.nodes, got.cpus) == ("20", JobState.RUNNING, 2, 3)
    assert (got.gpus, got.billing, got.node_names) == (1, 3.0, ("cn003", "wg01"))


# --- answers that are none ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "broken",
    [
        {"timed_out": True, "rc": None},
        {"truncated": True},
        {"skipped": True, "rc": None},
        {"missing": True, "rc": None},
        {"rc": 1},
        {"rc": None},
    ],
)
def test_no_row_of_an_answer_that_is_not_whole_is_used(broken: dict[str, object]) -> None:
    job = ref("7")
    cut = answer("x", accounting_record(JobID="7")).model_copy(update=broken)
    cut_queue = answer(QUEUE, queue_record(id="7")).model_copy(update=broken)

    assert is_unsaid(job, accounting=cut)
    assert is_unsaid(job, queue=cut_queue)


def test_a_record_that_is_cut_makes_the_whole_answer_worthless() -> None:
    rows = accounting_record(JobID="8") + accounting_record(JobID="7")

    assert is_unsaid(ref("7"), accounting=rows[:-30])
    assert is_unsaid(ref("7"), queue=queue_record(id="7") + queue_record(id="8")[:20])


def test_an_empty_answer_with_an_error_beside_it_is_no_answer() -> None:
    assert is_unsaid(ref("7"), queue=answer(QUEUE, "", stderr="slurm_load_jobs error: Unexpected message"))


def test_other_columns_than_asked_for_are_no_answer() -> None:
    assert is_unsaid(ref("7"), queue="7|RUNNING\x1e\n")
    assert is_unsaid(ref("7"), queue=queue_record(id="7").replace("\x1e", "\x1fmore\x1e"))
    assert is_unsaid(ref("7"), accounting=accounting_record(JobID="7").replace("\n", "\x1fmore\n"))


def test_a_word_never_seen_before_is_unknown_and_says_so() -> None:
    strange_state = seen(ref("7"), queue=queue_record(id="7", state="HIBERNATING"))
    strange_time = seen(ref("7"), queue=queue_record(id="7", submit="yesterday"))

    assert strange_state is not None
    assert (strange_state.state, strange_state.state_raw) == (JobState.UNKNOWN, "HIBERNATING")
    assert strange_time is not None
    assert strange_time.state is JobState.UNKNOWN
    assert "'yesterday' is no instant" in strange_time.reason_explained


def test_a_foreign_row_that_cannot_be_read_harms_nobody() -> None:
    queue = queue_record(id="8", name="x", comment="", submit="yesterday") + queue_record(id="7")

    assert seen(ref("7"), queue=queue) is not None


def test_when_nothing_answered_the_scheduler_is_down() -> None:
    job = ref("7")

    with pytest.raises(SchedulerDown) as caught:
        read_observe(both([job], queue=DEAD_CONTROLLER, accounting=DEAD_DATABASE), [job], now=NOW)

    assert re.search(r"Unable to contact slurm controller", str(caught.value.facts["said"]))
    with pytest.raises(SchedulerDown):
        read_observe(BatchReply(replies={}), [job], now=NOW)


def test_observations_carry_aware_utc_times() -> None:
    got = seen(ref("7"), accounting=accounting_record(JobID="7"))

    assert got is not None
    assert got.end_at is not None
    assert got.end_at.tzinfo is UTC
