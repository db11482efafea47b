"""Real daemons that die, freeze, forget or refuse, and a thousand jobs: nothing is lost, doubled or slow."""

import time
from collections.abc import Callable
from datetime import timedelta

from django.contrib.auth.models import User
from django.utils import timezone

from federation import collector
from federation.models import Connection, Event, System
from orchestrator.lifecycle import AttemptState, TaskState
from orchestrator.models import Attempt, Task
from orchestrator.services import tasks
from tests.slurm.federation import (
    Federation,
    health,
    last_event,
    look_now,
    only_attempt,
    send,
    side_by_side,
    snapshot,
    submit,
    told,
)
from tests.slurm.lab.cluster import Cluster
from tests.slurm.lab.namespace import until
from tests.stepping import all_step_until, step_until

ONE = {"gpus": 1, "walltime_s": 600}


def _timed(work: Callable[[], object]) -> float:
    begun = time.monotonic()
    work()
    return time.monotonic() - begun


# --- the controller -------------------------------------------------------------------------------------


def test_a_controller_that_is_killed_and_comes_back_costs_moments_and_no_job(
    federation: Federation, researcher: User, delta: Cluster
) -> None:
    system = federation.add(delta, researcher)
    running = submit(researcher, "exec sleep 600", name="running")
    ended = submit(researcher, "sleep 4; exit 4", name="ended", retry={"max_attempts": 1})
    all_step_until([running, ended], TaskState.RUNNING)
    job = only_attempt(running).job_id
    until(lambda: delta.state(only_attempt(ended).job_id) == "FAILED", "the second job to end")
    _saved(delta, job)

    delta.kill("slurmctld")
    seen = []
    spent = []
    for _ in range(6):
        spent.append(_timed(lambda: federation.look(system)))
        seen.append(health(system))
    spent.append(_timed(lambda: look_now(system)))
    tasks.cancel_task(researcher, running.handle, actor="user:alice", now=timezone.now())
    spent.append(_timed(lambda: look_now(system)))
    assert seen == ["degraded", "degraded", "stale", "stale", "stale", "offline"]
    assert max(spent) < 4
    ended.refresh_from_db()
    assert (ended.state, ended.cause) == (TaskState.FAILED, "exit_code")  # accounting confirmed it
    assert (only_attempt(ended).exit_code, only_attempt(running).state) == (4, AttemptState.RUNNING)
    assert only_attempt(running).cancel_sent_at is None
    _minutes_pass(running, minutes=2)
    look_now(system)
    assert only_attempt(running).state == AttemptState.UNKNOWN
    refused = submit(researcher, name="refused")
    assert refused.state == TaskState.UNSCHEDULABLE
    assert all("endpoint_offline" in codes for codes in _rejections(refused))

    delta.restart("slurmctld")
    federation.look(system)
    look_now(system)
    assert health(system) == "online"
    step_until(running)
    assert (running.state, running.cause) == (TaskState.CANCELLED, "cancelled_by_user")
    kept = {"attempt.unseen", "attempt.seen"}
    assert [word for word in told(running) if word in kept] == ["attempt.unseen", "attempt.seen"]
    healths = Event.objects.filter(type__startswith="system.").order_by("id").values_list("type", flat=True)
    assert [word.removeprefix("system.") for word in healths] == [
        *("online", "degraded", "stale", "offline", "online"),
    ]
    assert len(federation.accounted(only_attempt(running), only_attempt(ended))) == 2


def _saved(cluster: Cluster, job: str) -> None:
    """Wait until the controller has written its queue to disk, which it does every five seconds."""
    state = cluster.place.root / "state" / "job_state"
    mark = f"mark-{job}"
    cluster.ask("scontrol", "update", f"jobid={job}", f"admincomment={mark}")
    until(lambda: state.exists() and mark.encode() in state.read_bytes(), "the state to be saved")


def _minutes_pass(task: Task, *, minutes: int) -> None:
    """Let what is remembered of a task's attempts be older."""
    ago = timezone.now() - timedelta(minutes=minutes)
    task.attempts.update(observed_at=ago, unseen_since=ago)


def _rejections(task: Task) -> list[set[str]]:
    """Return for each candidate of the newest decision the codes it was rejected for."""
    candidates = task.decisions.order_by("-id")[0].body["candidates"]
    return [{rejection["code"] for rejection in each["rejections"]} for each in candidates]


def test_jobs_that_a_killed_controller_forgot_are_lost_and_run_once_more_also_under_a_recycled_id(
    federation: Federation, researcher: User, vista: Cluster
) -> None:
    system = federation.add(vista, researcher)
    kept = step_until(submit(researcher, "exec sleep 600", name="kept", envelope=ONE), TaskState.RUNNING)
    _saved(vista, only_attempt(kept).job_id)
    forgotten = submit(researcher, "exec sleep 600", name="forgotten", envelope=ONE)
    send(forgotten)
    first = only_attempt(forgotten)
    assert first.state == AttemptState.SUBMITTED

    vista.kill("slurmctld")
    vista.restart("slurmctld")
    other = vista.submit("bob", "sleep 600", "-A", "ASC24001", "-p", "gg", "-t", "5")
    assert vista.state(only_attempt(kept).job_id) == "RUNNING"
    assert other == first.job_id
    _denied_for_long(system, first)

    first.refresh_from_db()
    assert (first.state, first.cause) == (AttemptState.FAILED, "lost")
    second = step_until(forgotten, TaskState.RUNNING).attempts.get(number=2)
    assert (forgotten.attempts.count(), second.dispatches) == (2, 1)
    assert last_event(forgotten, "task.retrying").data["cause"] == "lost"
    assert second.job_id != first.job_id
    look_now(system)
    assert only_attempt(kept).state == AttemptState.RUNNING
    assert sorted(federation.names(vista)) == sorted(
        [only_attempt(kept).submit_key, second.submit_key, "wrap"]
    )


def _denied_for_long(system: System, attempt: Attempt) -> None:
    """Look until the attempt is given up, each look as if half a minute had passed."""
    for _ in range(40):
        look_now(system)
        attempt.refresh_from_db()
        if attempt.state == AttemptState.FAILED:
            return
        assert attempt.unseen_since is not None
        earlier = attempt.unseen_since - timedelta(seconds=30)
        Attempt.objects.filter(pk=attempt.pk).update(unseen_since=earlier, observed_at=earlier)


def test_a_frozen_controller_costs_seconds_and_only_its_own_system(
    federation: Federation, researcher: User, delta: Cluster, deltaai: Cluster, vista: Cluster
) -> None:
    frozen, *others = [federation.add(cluster, researcher) for cluster in (delta, deltaai, vista)]
    envelope = ONE | {"cpus": 1, "policy": {"allow_systems": ["delta"]}}
    task = step_until(submit(researcher, "exec sleep 600", envelope=envelope), TaskState.RUNNING)
    delta.freeze("slurmctld")
    spent: dict[str, float] = {}

    def refresh(system: System) -> None:
        spent[system.slug] = _timed(lambda: collector.refresh(system.pk, now=timezone.now()))

    side_by_side(*(lambda each=each: refresh(each) for each in (frozen, *others)))
    cycle_s = _timed(lambda: look_now(frozen))

    assert 4 < spent["delta"] < 9
    assert max(spent["deltaai"], spent["vista"]) < 4
    assert cycle_s < 8
    assert [health(each) for each in (frozen, *others)] == ["degraded", "online", "online"]
    assert only_attempt(task).state == AttemptState.RUNNING
    delta.thaw("slurmctld")
    federation.look(frozen)
    look_now(frozen)
    assert (health(frozen), only_attempt(task).state) == ("online", AttemptState.RUNNING)
    assert delta.state(only_attempt(task).job_id) == "RUNNING"


# --- accounting -----------------------------------------------------------------------------------------


def test_while_accounting_is_down_final_states_wait_and_then_come_true(
    federation: Federation, researcher: User, vista: Cluster
) -> None:
    system = federation.add(vista, researcher)
    task = step_until(submit(researcher, "sleep 2; exit 5", envelope=ONE), TaskState.RUNNING)
    vista.kill("slurmdbd")
    federation.look(system, full=True)
    assert health(system) == "degraded"
    until(lambda: vista.state(only_attempt(task).job_id) == "FAILED", "the job to end")

    for _ in range(3):
        look_now(system)
    assert only_attempt(task).state == AttemptState.RUNNING
    assert only_attempt(task).reason_explained == "The job has ended; its accounting record is awaited."
    wanted = submit(researcher, envelope=ONE, name="wanted")
    assert wanted.state == TaskState.PLACING  # degraded still takes work
    vista.restart("slurmdbd")

    all_step_until([task, wanted], timeout=60)
    federation.look(system, full=True)
    [row] = federation.accounted(only_attempt(task))
    assert (task.state, task.cause, only_attempt(task).exit_code) == (TaskState.FAILED, "exit_code", 5)
    assert (row.state, row.end_at) == ("FAILED", only_attempt(task).ended_at)
    assert wanted.state == TaskState.SUCCEEDED
    assert health(system) == "online"


def test_an_account_that_the_site_refuses_is_explained_and_the_work_goes_elsewhere(
    federation: Federation, researcher: User, vista: Cluster, deltaai: Cluster
) -> None:
    federation.add(vista, researcher, "ASC99999")
    federation.add(deltaai, researcher)
    known_nothing = {"associations": None}  # as after a probe while accounting was down
    row = Connection.objects.get(system__slug="vista")
    Connection.objects.filter(pk=row.pk).update(facts=row.facts | known_nothing)
    envelope = ONE | {"cpus": 1, "policy": {"prefer": ["vista"]}}

    goes_on = submit(researcher, envelope=envelope, name="goes on")
    nowhere = submit(researcher, envelope=ONE | {"policy": {"allow_systems": ["vista"]}}, name="nowhere")
    all_step_until([goes_on], timeout=60)

    first, second = goes_on.attempts.order_by("number")
    assert (first.system.slug, first.state, first.cause) == ("vista", "failed", "dispatch_rejected")
    assert "Invalid account or account/partition combination" in first.reason_raw
    assert first.reason_explained.startswith("This account")
    assert (second.system.slug, goes_on.state) == ("deltaai", TaskState.SUCCEEDED)
    assert federation.accounted(second)[0].state == "COMPLETED"
    nowhere.refresh_from_db()
    assert nowhere.state == TaskState.UNSCHEDULABLE
    assert told(nowhere)[-1] == "task.unschedulable"
    assert vista.queue() == []


# --- a thousand jobs ------------------------------------------------------------------------------------


def test_a_thousand_waiting_jobs_are_seen_planned_behind_and_watched_in_seconds(
    federation: Federation, researcher: User, deltaai: Cluster
) -> None:
    full = ("--gpus-per-node=4", "-c", "4")
    for job in deltaai.fill("ghx4", user="bob", account="bbka-dtai-gh", jobs=12, options=full):
        deltaai.wait_state(job, "RUNNING")
    words = ("-A", "bbka-dtai-gh", "-p", "ghx4", "-t", "60", *full, "--wrap", "true")
    array = deltaai.ask("sbatch", "--parsable", "-o", "/dev/null", "--array=0-999", *words, user="bob")
    deltaai.ask("scontrol", "update", f"jobid={array}_[0-998]", "name=apart")  # a record for each task
    deltaai.wait_state(array, "PENDING")

    added_s = _timed(lambda: federation.add(deltaai, researcher))
    system = System.objects.get(slug="deltaai")
    envelope = ONE | {"cpus": 1, "gpus": 4}
    placed_s = _timed(lambda: submit(researcher, "true", envelope=envelope))
    task = Task.objects.get()
    send(task)
    cycle_s = _timed(lambda: look_now(system))

    assert snapshot(system).counts["pending"] == 1000
    basis = task.decisions.get().body["selected"]["estimates"]
    assert basis["wait"]["somebody_ahead"]
    assert basis["wait_s"]["p50"] > 3000
    assert (added_s < 20, placed_s < 10, cycle_s < 5) == (True, True, True)
    assert only_attempt(task).state == AttemptState.PENDING
