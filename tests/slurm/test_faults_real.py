"""Real daemons that die, freeze or forget, and a product that is killed: nothing is lost or doubled."""

import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from django.contrib.auth.models import User
from django.db import close_old_connections, connection
from django.utils import timezone

import orchestrator.control
import orchestrator.dispatch
import orchestrator.services.attempts
from federation import collector
from federation.models import Connection, Event, System
from orchestrator import control
from orchestrator.lifecycle import AttemptState, TaskState
from orchestrator.models import Attempt, Task
from orchestrator.services import tasks
from providers.links.local import LocalLink
from providers.types import Batch, BatchReply
from tests.slurm.federation import Federation, last_event, send, side_by_side, snapshot, submit, told
from tests.slurm.lab.cluster import Cluster
from tests.slurm.lab.namespace import until
from tests.stepping import all_step_until, step_until

ONE = {"gpus": 1, "walltime_s": 600}


def _timed(work: Callable[[], object]) -> float:
    begun = time.monotonic()
    work()
    return time.monotonic() - begun


def _look_now(system: System) -> None:
    Attempt.objects.update(due_at=timezone.now())
    control.control_system(system.pk, now=timezone.now())


def _health(system: System) -> str:
    return System.objects.get(pk=system.pk).health


def _attempt(task: Task) -> Attempt:
    return task.attempts.get()


# --- the controller -------------------------------------------------------------------------------------


def test_a_controller_that_is_killed_and_comes_back_costs_moments_and_no_job(
    federation: Federation, researcher: User, delta: Cluster
) -> None:
    system = federation.add(delta, researcher)
    running = submit(researcher, "exec sleep 600", name="running")
    ended = submit(researcher, "sleep 4; exit 4", name="ended", retry={"max_attempts": 1})
    all_step_until([running, ended], TaskState.RUNNING)
    job = _attempt(running).job_id
    until(lambda: delta.state(_attempt(ended).job_id) == "FAILED", "the second job to end")
    _saved(delta, job)

    delta.kill("slurmctld")
    seen = []
    spent = []
    for _ in range(6):
        spent.append(_timed(lambda: federation.look(system)))
        seen.append(_health(system))
    spent.append(_timed(lambda: _look_now(system)))
    tasks.cancel_task(researcher, running.handle, actor="user:alice", now=timezone.now())
    spent.append(_timed(lambda: _look_now(system)))
    assert seen == ["degraded", "degraded", "stale", "stale", "stale", "offline"]
    assert max(spent) < 4
    ended.refresh_from_db()
    assert (ended.state, ended.cause) == (TaskState.FAILED, "exit_code")  # accounting confirmed it
    assert (_attempt(ended).exit_code, _attempt(running).state) == (4, AttemptState.RUNNING)
    assert _attempt(running).cancel_sent_at is None
    _minutes_pass(running, minutes=2)
    _look_now(system)
    assert _attempt(running).state == AttemptState.UNKNOWN
    refused = submit(researcher, name="refused")
    assert refused.state == TaskState.UNSCHEDULABLE
    assert all("endpoint_offline" in codes for codes in _rejections(refused))

    delta.restart("slurmctld")
    federation.look(system)
    _look_now(system)
    assert _health(system) == "online"
    step_until(running)
    assert (running.state, running.cause) == (TaskState.CANCELLED, "cancelled_by_user")
    kept = {"attempt.unseen", "attempt.seen"}
    assert [word for word in told(running) if word in kept] == ["attempt.unseen", "attempt.seen"]
    healths = Event.objects.filter(type__startswith="system.").order_by("id").values_list("type", flat=True)
    assert [word.removeprefix("system.") for word in healths] == [
        *("online", "degraded", "stale", "offline", "online"),
    ]
    assert len(federation.accounted(_attempt(running), _attempt(ended))) == 2


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
    _saved(vista, _attempt(kept).job_id)
    forgotten = submit(researcher, "exec sleep 600", name="forgotten", envelope=ONE)
    send(forgotten)
    first = _attempt(forgotten)
    assert first.state == AttemptState.SUBMITTED

    vista.kill("slurmctld")
    vista.restart("slurmctld")
    other = vista.submit("bob", "sleep 600", "-A", "ASC24001", "-p", "gg", "-t", "5")
    assert vista.state(_attempt(kept).job_id) == "RUNNING"
    assert other == first.job_id
    _denied_for_long(system, first)

    first.refresh_from_db()
    assert (first.state, first.cause) == (AttemptState.FAILED, "lost")
    second = step_until(forgotten, TaskState.RUNNING).attempts.get(number=2)
    assert (forgotten.attempts.count(), second.dispatches) == (2, 1)
    assert last_event(forgotten, "task.retrying").data["cause"] == "lost"
    assert second.job_id != first.job_id
    _look_now(system)
    assert _attempt(kept).state == AttemptState.RUNNING
    assert sorted(federation.names(vista)) == sorted([_attempt(kept).submit_key, second.submit_key, "wrap"])


def _denied_for_long(system: System, attempt: Attempt) -> None:
    """Look until the attempt is given up, each look as if half a minute had passed."""
    for _ in range(40):
        _look_now(system)
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
    cycle_s = _timed(lambda: _look_now(frozen))

    assert 4 < spent["delta"] < 9
    assert max(spent["deltaai"], spent["vista"]) < 4
    assert cycle_s < 8
    assert [_health(each) for each in (frozen, *others)] == ["degraded", "online", "online"]
    assert _attempt(task).state == AttemptState.RUNNING
    delta.thaw("slurmctld")
    federation.look(frozen)
    _look_now(frozen)
    assert (_health(frozen), _attempt(task).state) == ("online", AttemptState.RUNNING)
    assert delta.state(_attempt(task).job_id) == "RUNNING"


# --- accounting -----------------------------------------------------------------------------------------


def test_while_accounting_is_down_final_states_wait_and_then_come_true(
    federation: Federation, researcher: User, vista: Cluster
) -> None:
    system = federation.add(vista, researcher)
    task = step_until(submit(researcher, "sleep 2; exit 5", envelope=ONE), TaskState.RUNNING)
    vista.kill("slurmdbd")
    federation.look(system, full=True)
    assert _health(system) == "degraded"
    until(lambda: vista.state(_attempt(task).job_id) == "FAILED", "the job to end")

    for _ in range(3):
        _look_now(system)
    assert _attempt(task).state == AttemptState.RUNNING
    assert _attempt(task).reason_explained == "The job has ended; its accounting record is awaited."
    wanted = submit(researcher, envelope=ONE, name="wanted")
    assert wanted.state == TaskState.PLACING  # degraded still takes work
    vista.restart("slurmdbd")

    all_step_until([task, wanted], timeout=60)
    federation.look(system, full=True)
    [row] = federation.accounted(_attempt(task))
    assert (task.state, task.cause, _attempt(task).exit_code) == (TaskState.FAILED, "exit_code", 5)
    assert (row.state, row.end_at) == ("FAILED", _attempt(task).ended_at)
    assert wanted.state == TaskState.SUCCEEDED
    assert _health(system) == "online"


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


# --- our own processes ----------------------------------------------------------------------------------


def _killed(*_args: object, **_words: object) -> None:
    raise KeyboardInterrupt


def _ran_and_killed(self: LocalLink, batch: Batch) -> BatchReply:
    _run(self, batch)
    raise KeyboardInterrupt


_run = LocalLink.run
SEAMS: dict[str, tuple[object, str, object]] = {
    "before the intent": (orchestrator.dispatch, "_job", _killed),
    "before the call": (orchestrator.dispatch, "_ask", _killed),
    "before the answer": (LocalLink, "run", _ran_and_killed),
    "before the answer is kept": (orchestrator.dispatch, "_apply", _killed),
    "while the answer is kept": (orchestrator.services.attempts, "record", _killed),
}
CYCLE_SEAMS: dict[str, tuple[object, str, object]] = {
    "before the site is asked": (orchestrator.control, "_ask", _killed),
    "before files are listed": (orchestrator.control, "_list_files", _killed),
    "before anything is kept": (orchestrator.control, "_apply_all", _killed),
    "while an end is kept": (orchestrator.services.attempts, "keep_manifest", _killed),
    "before an end's event": (orchestrator.services.attempts, "_final_summary", _killed),
}


def test_a_worker_killed_between_any_two_steps_makes_one_job_and_one_end(
    federation: Federation, researcher: User, vista: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = federation.add(vista, researcher)
    done = {seam: submit(researcher, "exit 0", name=seam, envelope=ONE) for seam in SEAMS}
    for seam, (owner, name, broken) in SEAMS.items():
        with monkeypatch.context() as killed:
            killed.setattr(owner, name, broken)
            with pytest.raises(KeyboardInterrupt):
                send(done[seam])
    states = {seam: _attempt(task).state for seam, task in done.items()}
    assert states == {seam: "planned" if seam == "before the intent" else "dispatching" for seam in SEAMS}

    past = timezone.now() - timedelta(seconds=1)
    Attempt.objects.filter(state="dispatching").update(dispatch_deadline_at=past)
    _look_three_times(system)  # two that deny the job never made, one that hands it out again
    until(lambda: _keys(done) <= _ended_names(vista), "jobs to end")
    for owner, name, broken in CYCLE_SEAMS.values():
        with monkeypatch.context() as killed:
            killed.setattr(owner, name, broken)
            with pytest.raises(KeyboardInterrupt):
                _look_three_times(system)
    all_step_until(list(done.values()))

    for seam, task in done.items():
        again = seam == "before the call"
        assert (task.state, task.attempts.count()) == (TaskState.SUCCEEDED, 1)
        assert _attempt(task).dispatches == (2 if again else 1)
        assert told(task).count("task.succeeded") == 1
        assert told(task).count("attempt.dispatched") == told(task).count("task.submitted") == 1
    rows = federation.accounted(*(_attempt(task) for task in done.values()))
    assert sorted(row.job_id for row in rows) == sorted(_attempt(task).job_id for task in done.values())
    assert {row.state for row in rows} == {"COMPLETED"}


def _look_three_times(system: System) -> None:
    for _ in range(3):
        _look_now(system)


def _keys(done: dict[str, Task]) -> set[str]:
    return {_attempt(task).submit_key for task in done.values()}


def _ended_names(cluster: Cluster) -> set[str]:
    return set(cluster.ask("squeue", "-ah", "-t", "completed", "-o", "%j").splitlines())


def test_a_lost_answer_of_sbatch_and_two_dispatchers_make_one_job_each(
    federation: Federation, researcher: User, vista: Cluster, tmp_path: Path
) -> None:
    system = federation.add(vista, researcher)
    row = Connection.objects.get(system=system)
    shim = vista.jobs_dir / "shim"
    shim.mkdir(exist_ok=True)
    (shim / "sbatch").write_text('#!/bin/sh\n/usr/bin/sbatch "$@" >/dev/null\nkill -9 $$\n')
    (shim / "sbatch").chmod(0o755)
    env = row.settings["env"]
    deaf = row.settings | {"env": env | {"PATH": f"{shim}:/usr/bin:/bin"}}
    twice = submit(researcher, name="twice", envelope=ONE)
    results = side_by_side(*[lambda: send(twice)] * 2)
    Connection.objects.filter(pk=row.pk).update(settings=deaf)
    unheard = submit(researcher, name="unheard", envelope=ONE)
    send(unheard)
    assert _attempt(unheard).state == AttemptState.DISPATCHING
    assert _attempt(unheard).reason_explained.startswith("Submitted, but the answer is in doubt")
    Connection.objects.filter(pk=row.pk).update(settings=row.settings)

    all_step_until([twice, unheard])

    assert sorted(result is None for result in results) == [False, True]
    assert (twice.state, unheard.state) == (TaskState.SUCCEEDED, TaskState.SUCCEEDED)
    assert len(federation.accounted(_attempt(twice), _attempt(unheard))) == 2
    assert _attempt(unheard).dispatches == 1
    assert told(unheard)[2:5] == ["attempt.unseen", "attempt.dispatched", "task.submitted"]


def test_a_database_cut_off_in_mid_cycle_delays_and_doubles_nothing(
    federation: Federation, researcher: User, vista: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = federation.add(vista, researcher)
    work = [submit(researcher, "exit 0", name=f"work {n}", envelope=ONE) for n in range(2)]
    for task in work:
        send(task)
    until(lambda: _keys({task.name: task for task in work}) <= _ended_names(vista), "jobs to end")
    look = control._look

    def cut(*args: object, **words: object) -> control.Looked:
        looked = look(*args, **words)  # type: ignore[arg-type]  # passed on as they came
        _terminate_every_session()
        return looked

    with monkeypatch.context() as broken:
        broken.setattr(orchestrator.control, "_look", cut)
        with pytest.raises(psycopg.OperationalError):
            _look_now(system)
    close_old_connections()  # as the worker does after each chore
    assert sorted(_attempt(task).state for task in work) == ["submitted", "succeeded"]

    all_step_until(work)

    assert [task.state for task in work] == [TaskState.SUCCEEDED] * 2
    assert [told(task).count("task.succeeded") for task in work] == [1, 1]
    assert len(federation.accounted(*map(_attempt, work))) == 2
    federation.look(system)
    assert _health(system) == "online"


def _terminate_every_session() -> None:
    given = connection.get_connection_params()
    known = {key: given[key] for key in ("dbname", "user", "password", "host", "port") if given.get(key)}
    with psycopg.connect(**known, autocommit=True) as session:
        session.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


# --- a thousand jobs ------------------------------------------------------------------------------------


def test_a_thousand_waiting_jobs_are_seen_planned_behind_and_watched_in_seconds(
    federation: Federation, researcher: User, deltaai: Cluster
) -> None:
    full = ("--gpus-per-node=4", "-c", "4")
    deltaai.fill("ghx4", user="bob", account="bbka-dtai-gh", jobs=12, options=full)
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
    cycle_s = _timed(lambda: _look_now(system))

    assert snapshot(system).counts["pending"] == 1000
    basis = task.decisions.get().body["selected"]["estimates"]
    assert basis["wait"]["somebody_ahead"]
    assert basis["wait_s"]["p50"] > 3000
    assert (added_s < 20, placed_s < 10, cycle_s < 5) == (True, True, True)
    assert _attempt(task).state == AttemptState.PENDING
