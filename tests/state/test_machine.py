"""This machine as a system, as the demo sets it up: submit → place → run → result, on its real processes."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from federation import collector
from federation.ledger import verify
from federation.links import open_link
from federation.models import Connection, System
from federation.profile_yaml import read_profile
from federation.services import connect, store_profile
from orchestrator.lifecycle import Cause, TaskState
from orchestrator.models import Attempt, Task
from orchestrator.services import tasks
from portal.demo import this_machine
from providers.dialects.machine.dialect import MachineDialect
from providers.types import JobRef

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def machine(alice: User, tmp_path: Path) -> Iterator[System]:
    text = this_machine.profile_text()
    assert text is not None
    now = timezone.now()
    store_profile(read_profile(text, source="machine.yaml"), text, now=now)
    system = System.objects.get(slug=this_machine.SLUG)
    connect(
        alice,
        system,
        kind="local",
        settings=this_machine.way_in(tmp_path, "alice"),
        now=now,
        remote_user="alice",
    )
    collector.refresh(system.pk, now=now, force_full=True)
    system.refresh_from_db()
    yield system
    _end_what_runs(system)


def _end_what_runs(system: System) -> None:
    """Let no process outlive its test."""
    speaks, link = MachineDialect(), open_link(Connection.objects.get(system=system))
    refs = [JobRef(submit_key=attempt.submit_key) for attempt in Attempt.objects.all()]
    link.run(speaks.cancel(refs))
    deadline = time.monotonic() + 10
    while speaks.read_probe(link.run(speaks.probe(full=False)), now=timezone.now()).jobs:
        assert time.monotonic() < deadline
        time.sleep(0.2)


def _submit(user: User, **given: object) -> Task:
    return tasks.submit_task(user, given, actor="user:alice", now=timezone.now()).task


def test_the_first_look_finds_a_healthy_system_of_one_node(machine: System, tmp_path: Path) -> None:
    assert (machine.dialect, machine.health) == ("machine", "online")
    assert machine.snapshot is not None
    assert machine.snapshot.counts["nodes"] == machine.snapshot.counts["nodes_usable"] == 1
    assert 1 <= machine.snapshot.counts["cpus"] <= (os.cpu_count() or 1)
    assert Connection.objects.get().facts["home"] == str(tmp_path / "machine" / "alice")


def test_a_task_runs_here_to_success_and_leaves_a_manifest(
    machine: System, alice: User, tmp_path: Path, until: Callable[..., Task]
) -> None:
    task = _submit(
        alice,
        name="hello",
        command=["bash", "-c", "echo hello from job $FACET_JOB_ID of $FACET_TASK; echo done > result.txt"],
        envelope={"cpus": 1, "memory_mib": 64, "walltime_s": 60},
    )
    assert task.state == TaskState.PLACING, task.reason
    until(task)

    assert task.state == TaskState.SUCCEEDED, task.reason
    attempt = task.attempts.get()
    assert (attempt.system.slug, attempt.partition, attempt.account) == ("this-machine", "local", "")
    assert attempt.node_names == [os.uname().nodename]
    assert attempt.started_at is not None
    assert attempt.ended_at is not None
    folder = tmp_path / "machine" / "alice" / "facet" / task.handle / "1"
    assert (folder / "stdout.log").read_text() == f"hello from job 1 of {task.handle}\n"
    body = task.manifest.body
    assert (body["exit_code"], body["job_id"]) == (0, "1")
    assert {entry["path"] for entry in body["files"]} == {"stdout.log", "stderr.log", "result.txt"}
    assert list(verify()) == []
    assert Attempt.objects.count() == 1


def test_a_failing_task_fails_with_its_exit_code(
    machine: System, alice: User, until: Callable[..., Task]
) -> None:
    task = _submit(
        alice, name="bad", command=["bash", "-c", "exit 3"], envelope={"cpus": 1, "walltime_s": 60}
    )
    until(task, TaskState.FAILED)

    attempt = task.attempts.get()
    assert (attempt.cause, attempt.exit_code) == (Cause.EXIT_CODE, 3)


def test_a_running_task_is_cancelled(machine: System, alice: User, until: Callable[..., Task]) -> None:
    task = _submit(alice, name="long", command=["sleep", "300"], envelope={"cpus": 1, "walltime_s": 600})
    until(task, TaskState.RUNNING)

    tasks.cancel_task(alice, task.handle, actor="user:alice", now=timezone.now())
    until(task, TaskState.CANCELLED)

    assert task.attempts.get().cause == Cause.CANCELLED_BY_USER
