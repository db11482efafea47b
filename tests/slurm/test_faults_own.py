"""Workers killed at every seam, answers lost, the database cut off: one job, one end, every time."""

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
from federation.models import Connection, System
from orchestrator import control
from orchestrator.lifecycle import AttemptState, TaskState
from orchestrator.models import Attempt, Task
from providers.links.local import LocalLink
from providers.types import Batch, BatchReply
from tests.slurm.federation import (
    Federation,
    health,
    look_now,
    only_attempt,
    send,
    side_by_side,
    submit,
    told,
)
from tests.slurm.lab.cluster import Cluster
from tests.slurm.lab.namespace import until
from tests.stepping import all_step_until

ONE = {"gpus": 1, "walltime_s": 600}


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
    states = {seam: only_attempt(task).state for seam, task in done.items()}
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
        assert only_attempt(task).dispatches == (2 if again else 1)
        assert told(task).count("task.succeeded") == 1
        assert told(task).count("attempt.dispatched") == told(task).count("task.submitted") == 1
    rows = federation.accounted(*(only_attempt(task) for task in done.values()))
    assert sorted(row.job_id for row in rows) == sorted(only_attempt(task).job_id for task in done.values())
    assert {row.state for row in rows} == {"COMPLETED"}


def _look_three_times(system: System) -> None:
    for _ in range(3):
        look_now(system)


def _keys(done: dict[str, Task]) -> set[str]:
    return {only_attempt(task).submit_key for task in done.values()}


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
    assert only_attempt(unheard).state == AttemptState.DISPATCHING
    assert only_attempt(unheard).reason_explained.startswith("Submitted, but the answer is in doubt")
    Connection.objects.filter(pk=row.pk).update(settings=row.settings)

    all_step_until([twice, unheard])

    assert sorted(result is None for result in results) == [False, True]
    assert (twice.state, unheard.state) == (TaskState.SUCCEEDED, TaskState.SUCCEEDED)
    assert len(federation.accounted(only_attempt(twice), only_attempt(unheard))) == 2
    assert only_attempt(unheard).dispatches == 1
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
            look_now(system)
    close_old_connections()  # as the worker does after each chore
    assert sorted(only_attempt(task).state for task in work) == ["submitted", "succeeded"]

    all_step_until(work)

    assert [task.state for task in work] == [TaskState.SUCCEEDED] * 2
    assert [told(task).count("task.succeeded") for task in work] == [1, 1]
    assert len(federation.accounted(*map(only_attempt, work))) == 2
    federation.look(system)
    assert health(system) == "online"


def _terminate_every_session() -> None:
    given = connection.get_connection_params()
    known = {key: given[key] for key in ("dbname", "user", "password", "host", "port") if given.get(key)}
    with psycopg.connect(**known, autocommit=True) as session:
        session.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
