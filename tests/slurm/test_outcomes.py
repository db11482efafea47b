"""Every way a job can end or wait on real Slurm: state, cause, words, events, and what accounting counts."""

from dataclasses import dataclass
from pathlib import Path

from django.contrib.auth.models import User
from django.utils import timezone

from federation.models import Allocation
from federation.selectors import probe_of, records_for
from federation.types import ResourceRecord
from orchestrator.lifecycle import AttemptState, TaskState
from orchestrator.models import Attempt, Task
from orchestrator.services import tasks
from providers.types import JobState
from tests.slurm.federation import Federation, last_event, snapshot, submit, told
from tests.slurm.lab.cluster import Cluster
from tests.slurm.lab.namespace import until
from tests.stepping import all_step_until, step, step_until

ONCE = {"max_attempts": 1}


@dataclass(frozen=True, slots=True)
class End:
    """How one command must end: the task's state and cause, the attempt's words, and accounting's row."""

    command: str
    state: TaskState
    cause: str
    exit: tuple[int | None, int | None]
    accounted: tuple[str, str]
    explained: str


ENDS = {
    "good": End("true", TaskState.SUCCEEDED, "", (0, None), ("COMPLETED", "0:0"), ""),
    "exits": End(
        "exit 3",
        TaskState.FAILED,
        "exit_code",
        (3, None),
        ("FAILED", "3:0"),
        "The program ended with exit code 3.",
    ),
    "dies": End(
        "kill -9 $$",
        TaskState.FAILED,
        "exit_code",
        (None, 9),
        ("FAILED", "0:9"),
        "The program was ended by signal 9.",
    ),
    "absent": End(
        "exec no-such-program",
        TaskState.FAILED,
        "exit_code",
        (127, None),
        ("FAILED", "127:0"),
        "The program was not found on the compute node (exit code 127).",
    ),
    "slow": End(
        "exec sleep 600",
        TaskState.FAILED,
        "timeout",
        (None, None),
        ("TIMEOUT", "0:0"),
        "The job used up its wall time and was stopped.",
    ),
}


def test_every_end_is_told_as_accounting_has_it_and_a_requeue_is_the_same_attempt(
    federation: Federation, researcher: User, vista: Cluster, deltaai: Cluster
) -> None:
    federation.add(vista, researcher)
    federation.add(deltaai, researcher)
    minute = {"gpus": 1, "walltime_s": 60, "policy": {"allow_systems": ["vista"]}}
    ending = {
        name: submit(researcher, end.command, name=name, envelope=minute, retry=ONCE)
        for name, end in ENDS.items()
    }
    again = [_restartable(researcher, system) for system in ("vista", "deltaai")]
    avoided = submit(
        researcher,
        'if [ "$FACET_ATTEMPT" = 1 ]; then exec sleep 600; fi',
        envelope={"gpus": 1, "cpus": 2, "walltime_s": 300, "policy": {"prefer": ["deltaai"]}},
        retry={"max_attempts": 2, "on": ["node_failure"]},
    )
    saving = submit(
        researcher,
        SAVES,
        envelope=minute,
        checkpoint={"before_s": 20, "resume": ["cat", "../checkpoint/said"]},
        retry={"max_attempts": 2, "on": ["timeout"]},
    )
    all_step_until([*again, avoided], TaskState.RUNNING)

    by_hand, by_failure = [task.attempts.get() for task in again]
    vista.ask("scontrol", "requeue", by_hand.job_id, user="alice")
    for node in {_node(by_failure), _node(avoided.attempts.get())}:
        deltaai.node_down(node)
    all_step_until(again, TaskState.PENDING)
    for attempt in (by_hand, by_failure):  # else Slurm waits two minutes before it starts a requeued job
        federation.cluster(attempt).ask("scontrol", "update", f"jobid={attempt.job_id}", "starttime=now")
    all_step_until([*ending.values(), *again, avoided, saving], timeout=170)

    for name, end in ENDS.items():
        _ended(federation, ending[name], end)
    for task, first_end in zip(again, ("REQUEUED", "NODE_FAIL"), strict=True):
        _restarted_once(federation, task, first_end)
    _went_elsewhere(federation, avoided)
    _went_on(federation, saving)


SAVES = """trap 'echo saved > "$FACET_CHECKPOINT_DIR/said"' USR1
while :; do sleep 1 & wait $!; done"""


def _went_on(federation: Federation, task: Task) -> None:
    """The signal came before the limit, and the second attempt read what the first one saved."""
    first, second = task.attempts.order_by("number")

    assert task.state == TaskState.SUCCEEDED
    assert (first.cause, first.shape["walltime_s"], second.shape["walltime_s"]) == ("timeout", 60, 60)
    assert [row.state for row in federation.accounted(first, second)] == ["TIMEOUT", "COMPLETED"]
    assert Path(second.stdout_path).read_text() == "saved\n"


def _restartable(user: User, system: str) -> Task:
    """Submit work that runs until it is restarted, and then succeeds."""
    command = 'if [ "${SLURM_RESTART_COUNT:-0}" = 0 ]; then exec sleep 600; fi; echo again'
    envelope = {"gpus": 1, "cpus": 2, "walltime_s": 300, "policy": {"allow_systems": [system]}}
    return submit(user, command, name=f"restarts on {system}", envelope=envelope)


def _node(attempt: Attempt) -> str:
    [node] = attempt.node_names
    return str(node)


def _ended(federation: Federation, task: Task, end: End) -> None:
    attempt = task.attempts.get()
    [row] = federation.accounted(attempt)

    assert (task.state, task.cause) == (end.state, end.cause)
    assert (attempt.state, attempt.cause) == (end.state, end.cause)
    assert (attempt.exit_code, attempt.exit_signal) == end.exit
    assert (row.state, row.exit_code) == end.accounted
    assert attempt.state_raw == row.state
    assert attempt.reason_explained == end.explained
    assert (attempt.started_at, attempt.ended_at) == (row.start_at, row.end_at)
    assert told(task)[-1] == f"task.{end.state}"
    assert last_event(task, f"task.{end.state}").data["attempts"] == 1
    assert row.end_at is not None
    assert task.manifest.body["times"]["ended_at"] == row.end_at.isoformat()
    assert {entry["path"] for entry in task.manifest.body["files"]} == {"stdout.log", "stderr.log"}


def _restarted_once(federation: Federation, task: Task, first_end: str) -> None:
    attempt = task.attempts.get()
    rows = federation.accounted(attempt)

    assert task.state == TaskState.SUCCEEDED
    assert (attempt.restarts, attempt.dispatches, attempt.number) == (1, 1, 1)
    assert {row.job_id for row in rows} == {attempt.job_id}
    assert [row.state for row in rows] == [first_end, "COMPLETED"]
    assert attempt.started_at == rows[1].start_at
    assert task.manifest.body["restarts"] == 1
    kept = {"task.started", "task.retrying", "attempt.dispatched"}
    moves = [event for event in told(task) if event in kept]
    assert moves == ["attempt.dispatched", "task.started", "task.started"]


def _went_elsewhere(federation: Federation, task: Task) -> None:
    first, second = task.attempts.order_by("number")
    rows = federation.accounted(first, second)

    assert task.state == TaskState.SUCCEEDED
    assert (first.state, first.cause) == (AttemptState.FAILED, "node_failure")
    assert first.reason_explained == "A node of the job failed."
    assert (first.system.slug, second.system.slug) == ("deltaai", "vista")
    assert sorted(row.state for row in rows) == ["COMPLETED", "NODE_FAIL"]
    assert told(task).count("task.retrying") == 1
    assert last_event(task, "task.retrying").data["cause"] == "node_failure"


def test_jobs_end_as_cancelled_by_whom_it_was_and_none_is_left_at_the_site(
    federation: Federation, researcher: User, anvil: Cluster
) -> None:
    federation.add(anvil, researcher, "cis220051")
    debug = {"cpus": 1, "walltime_s": 600, "policy": {"exclude_partitions": ["shared"]}}
    shared = {"cpus": 1, "walltime_s": 600, "policy": {"exclude_partitions": ["debug"]}}
    unsent = submit(researcher, "true", name="unsent", envelope=shared)
    tasks.cancel_task(researcher, unsent.handle, actor="user:alice", now=timezone.now())
    running, owner, root, held = [
        submit(researcher, "exec sleep 600", name=name, envelope=shared)
        for name in ("running", "owner", "root", "held")
    ]
    first = submit(researcher, "exec sleep 600", name="first", envelope=debug)
    all_step_until([running, owner, root, first, held], TaskState.RUNNING)
    waiting = step_until(submit(researcher, "true", name="waiting", envelope=debug), TaskState.PENDING)
    _waits(
        waiting, "QOSMaxJobsPerUserLimit", "The QoS is at its limit of jobs per user; it passes as jobs end."
    )
    anvil.ask("scontrol", "hold", _job(waiting), user="alice")
    _waits(waiting, "JobHeldUser", "The job is held by its owner; release it to let it run.")

    for task in (running, waiting, first):
        tasks.cancel_task(researcher, task.handle, actor="user:alice", now=timezone.now())
    anvil.ask("scancel", _job(owner), user="alice")
    anvil.ask("scancel", _job(root))
    anvil.ask("scontrol", "requeuehold", _job(held), user="alice")
    all_step_until([unsent, running, waiting, first, owner, root])
    step_until(held, TaskState.PENDING)

    for task in (unsent, running, waiting, first):
        assert (task.state, task.cause) == (TaskState.CANCELLED, "cancelled_by_user")
        assert told(task)[-1] == "task.cancelled"
    assert federation.accounted(unsent.attempts.get()) == []
    for task, words in ((owner, "user id 20001"), (root, "the site (root)")):
        assert (task.state, task.cause) == (TaskState.CANCELLED, "cancelled_by_site")
        assert task.attempts.get().reason_explained == f"The job was cancelled by {words}."
    rows = federation.accounted(*(task.attempts.get() for task in (running, waiting, first, owner, root)))
    assert len({row.job_id for row in rows}) == 5
    assert {row.state.split(" ")[0] for row in rows} == {"CANCELLED"}
    assert anvil.queue() == [_job(held)]
    explained = held.attempts.get().reason_explained
    assert explained == "The job was requeued and is held; release it to let it run."
    tasks.cancel_task(researcher, held.handle, actor="user:alice", now=timezone.now())
    assert (step_until(held).state, anvil.queue()) == (TaskState.CANCELLED, [])
    assert Allocation.objects.get().reserved == 0


def _job(task: Task) -> str:
    return task.attempts.get().job_id


def _waits(task: Task, reason: str, explained: str) -> None:
    """Step until the scheduler names this reason, and hold it against the words a person reads."""

    def is_named() -> bool:
        step()
        return task.attempts.get().reason_raw == reason

    until(is_named, reason, timeout_s=20, step_s=0.3)
    assert task.attempts.get().reason_explained == explained


def test_arrays_and_het_jobs_of_others_are_counted_as_what_they_are(
    federation: Federation, researcher: User, delta: Cluster
) -> None:
    words = ("-A", "bbka-delta-gpu", "-p", "gpuA100x4", "-t", "30")
    running = delta.submit("bob", "sleep 600", "--array=1-3", "--gres=gpu:a100:4", "-n", "4", *words)
    for task in (1, 2, 3):
        delta.wait_state(f"{running}_{task}", "RUNNING")
    held = delta.submit("bob", "true", "--array=[6-15]%2", "-H", "--gres=gpu:a100:1", *words)
    het = delta.ask(
        *("sbatch", "--parsable", "--chdir", str(delta.jobs_dir), "-H", *words, "--gres=gpu:a100:2", "-n2"),
        *(":", *words, "-n8", "--wrap", "true"),
        user="bob",
    )
    system = federation.add(delta, researcher)

    probe = probe_of(snapshot(system).pk)

    assert probe is not None
    shown = {
        job.job_id: (job.state, job.gpus, job.cpus, job.array_pending, job.array_throttle, job.is_eligible)
        for job in probe.jobs
    }
    running_task = (JobState.RUNNING, 4, 4, 1, None, True)
    assert shown == {
        **{f"{running}_{task}": running_task for task in (1, 2, 3)},
        held: (JobState.HELD, 1, 1, 10, 2, False),
        f"{het}+0": (JobState.HELD, 2, 2, 1, None, False),
        f"{het}+1": (JobState.HELD, 0, 8, 1, None, False),
    }
    counts = snapshot(system).counts
    assert (counts["running"], counts["pending"]) == (3, 12)
    assert (counts["gpus"], counts["gpus_free"]) == (76, 64)
    record = _record(researcher, "gpuA100x4")
    assert record.queue.eligible_count == 0
    assert sum(node.gpus_free for node in record.nodes) == 20


def _record(user: User, partition: str) -> ResourceRecord:
    [found] = [record for record in records_for(user, now=timezone.now()) if record.partition == partition]
    return found
