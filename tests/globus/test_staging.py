"""A task's inputs brought before its dispatch, its outputs moved after its end; on an emulated cluster."""

import hashlib
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.utils import timezone

from federation.models import Connection, System
from federation.profile import ProfileDocument
from federation.services import store_profile
from orchestrator import data_reach
from orchestrator.lifecycle import TaskState
from orchestrator.models import Attempt, Manifest, Replica, Task, Transfer
from orchestrator.services import tasks
from orchestrator.services.outputs import note_moved
from providers.errors import InvalidInput
from providers.sandbox.globus.server import StandIn
from providers.sandbox.globus.spec import Collection
from tests.globus.test_moves import connect
from tests.globus.test_transfer import A, B
from tests.state.conftest import PROFILES, Sites
from tests.stepping import forget_what_is_cached, step

pytestmark = pytest.mark.django_db(transaction=True)
TEXT = "hello from afar\n"
DIGEST = hashlib.sha256(TEXT.encode()).hexdigest()


@pytest.fixture
def data(tmp_path: Path, settings: Any) -> Path:
    """Where alice keeps her data on this machine; the cluster's files are elsewhere."""
    settings.DATA_DIR = tmp_path / "facet"
    settings.LOCAL_ROOTS = (str(tmp_path / "data" / "{user}"), str(tmp_path / "home"))
    folder = tmp_path / "data" / "alice"
    folder.mkdir(parents=True)
    (folder / "x.txt").write_text(TEXT)
    return folder


def store(sites: Sites, *storage: tuple[str, str]) -> None:
    """Put a profile in force that names these storages."""
    named = [{"uri": uri, "path": path} for uri, path in storage]
    document = ProfileDocument.model_validate({**PROFILES["delta"], "storage": named})
    store_profile(document, str(document), now=timezone.now())
    forget_what_is_cached()


@pytest.fixture
def delta(sites: Sites, alice: User, data: Path) -> System:
    """The emulated cluster; its files are reached as places of this machine."""
    system = sites.add("delta", alice, account="bbka-delta-gpu", granted=Decimal(100))
    (sites.root / "home").mkdir(exist_ok=True)
    way = Connection.objects.get()
    way.facts = {**way.facts, "home": str(sites.root / "home")}
    way.save()
    store(sites, (f"file://{sites.root}/home/", f"{sites.root}/home"))
    return system


def submit(user: User, command: str, **more: Any) -> Task:
    given = {
        "name": "hello",
        "command": ["bash", "-c", command],
        "envelope": {"gpus": 1, "cpus": 4, "walltime_s": 600},
        "retry": {"max_attempts": 1},
        **more,
    }
    return tasks.submit_task(user, given, actor="user:alice", now=timezone.now()).task


def an_input(data: Path, **more: Any) -> dict[str, Any]:
    return {"uri": f"file://{data}/x.txt", "path": "in/x.txt", **more}


def step_to(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline, list(Transfer.objects.values_list("state", "reason"))
        Transfer.objects.exclude(due_at=None).update(due_at=timezone.now())
        step()
        time.sleep(0.05)


def test_a_file_is_brought_read_by_the_job_and_what_it_writes_is_fetched_and_registered(
    sites: Sites, delta: System, alice: User, data: Path, until: Callable[..., Task]
) -> None:
    places = [{"uri": f"file://{data}/out/{name}", "path": "y.txt"} for name in ("y.txt", "copy.txt")]
    task = submit(
        alice,
        "tr a-z A-Z < in/x.txt > y.txt",
        inputs=[an_input(data)],
        outputs=[*places, {"uri": f"file://{data}/out/never", "path": "never.txt"}],
    )
    assert (task.state, task.attempts.get().state) == (TaskState.STAGING, "planned")
    assert task.reason == "1 inputs are brought to delta"

    until(task, TaskState.SUCCEEDED)
    step_to(lambda: not Transfer.objects.exclude(due_at=None).exists())

    assert (data / "out" / "y.txt").read_text() == TEXT.upper()
    assert (data / "out" / "copy.txt").read_text() == TEXT.upper()
    kinds = list(Transfer.objects.order_by("pk").values_list("purpose", "state"))
    assert kinds == [("stage_in", "succeeded"), ("stage_out", "succeeded"), ("replicate", "succeeded")]
    outputs = Manifest.objects.get(task=task).body["outputs"]
    assert [each["state"] for each in outputs] == ["succeeded", "succeeded", "missing"]
    assert {(each["bytes"], each["sha256"]) for each in outputs[:2]} == {
        (len(TEXT), hashlib.sha256(TEXT.upper().encode()).hexdigest())
    }
    assert outputs[2]["reason"] == "the job left no file never.txt"
    copy = Replica.objects.get()
    assert (copy.sha256, copy.bytes, Path(copy.path).read_text()) == (DIGEST, len(TEXT), TEXT)


def test_an_equal_copy_is_used_again_and_one_that_is_gone_is_brought_anew(
    delta: System, alice: User, data: Path, until: Callable[..., Task]
) -> None:
    known = an_input(data, bytes=len(TEXT), sha256=DIGEST)
    until(submit(alice, "cat in/x.txt", inputs=[known]), TaskState.SUCCEEDED)

    second = submit(alice, "cat in/x.txt", inputs=[known])

    assert second.state == TaskState.PLACING, "nothing has to be brought"
    until(second, TaskState.SUCCEEDED)
    assert Transfer.objects.filter(task=second).count() == 0

    Path(Replica.objects.get().path).write_text("somebody wrote over it\n")
    third = submit(alice, "cat in/x.txt", inputs=[known])
    until(third, TaskState.SUCCEEDED)

    assert Transfer.objects.filter(task=third).count() == 1
    attempt = Attempt.objects.get(task=third)
    assert (Path(attempt.workdir) / "in" / "x.txt").read_text() == TEXT


def test_a_missing_or_different_input_fails_the_task_with_a_sentence(
    delta: System, alice: User, data: Path, until: Callable[..., Task]
) -> None:
    gone = submit(alice, "true", inputs=[{"uri": f"file://{data}/gone"}], retry={"max_attempts": 3})
    wrong = submit(alice, "true", inputs=[an_input(data, bytes=3, sha256="0" * 64)])

    until(gone, TaskState.FAILED)
    until(wrong, TaskState.FAILED)

    assert gone.reason == (f"inputs could not be brought to delta: No such file or directory: {data}/gone"), (
        "the same everywhere, so it is not tried elsewhere"
    )
    assert "is not the declared file" in wrong.reason
    assert {attempt.job_id for attempt in Attempt.objects.all()} == {""}, "no job was ever submitted"


def test_cancelling_a_task_ends_what_is_brought_for_it(delta: System, alice: User, data: Path) -> None:
    task = submit(alice, "true", inputs=[an_input(data)])

    tasks.cancel_task(alice, task.handle, actor="user:alice", now=timezone.now())

    task.refresh_from_db()
    assert task.state == TaskState.CANCELLED
    assert Transfer.objects.get().state == "cancelled"


def test_a_task_placed_anew_while_its_inputs_travel_goes_where_the_new_decision_says(
    delta: System, alice: User, data: Path
) -> None:
    task = submit(alice, "true", inputs=[an_input(data)])

    tasks.replan(alice, task.handle, actor="user:alice", now=timezone.now(), exclude_systems=["delta"])

    task.refresh_from_db()
    assert task.state == TaskState.UNSCHEDULABLE
    assert [each.state for each in task.attempts.all()] == ["superseded"]
    assert Transfer.objects.get().state == "cancelled"


def test_a_missing_consent_keeps_the_task_staging_and_a_sign_in_lets_it_go_on(
    set_up: StandIn, sites: Sites, delta: System, alice: User, data: Path, until: Callable[..., Task]
) -> None:
    set_up.state.know(
        collections=[
            Collection(id=A, name="lab", root=str(data)),
            Collection(id=B, name="delta", root=str(sites.root / "home"), needs_consent=True),
        ]
    )
    store(sites, (f"globus://{B}/", f"{sites.root}/home"))
    connect(set_up, alice)
    task = submit(
        alice,
        "cat in/x.txt | tee y.txt",
        inputs=[{"uri": f"globus://{A}/x.txt", "path": "in/x.txt"}],
        outputs=[{"uri": f"globus://{A}/back/", "path": "y.txt"}],
    )

    step_to(lambda: Transfer.objects.filter(fault="consent").exists())
    task.refresh_from_db()
    assert task.state == TaskState.STAGING
    assert task.reason.startswith("its inputs wait for you: A collection asks for your consent to its data.")

    connect(set_up, alice)
    until(task, TaskState.SUCCEEDED)
    step_to(lambda: not Transfer.objects.exclude(due_at=None).exists())

    assert (data / "back" / "y.txt").read_text() == TEXT


def test_a_system_that_cannot_be_brought_an_input_is_barred_with_the_reason(
    delta: System, alice: User, data: Path
) -> None:
    task = submit(alice, "true", inputs=[{"uri": f"globus://{A}/x.txt"}])

    assert task.state == TaskState.UNSCHEDULABLE
    body = task.decisions.get().body
    rejections = [each for candidate in body["candidates"] for each in candidate["rejections"]]
    assert any("names no storage for globus:// data" in str(each) for each in rejections)
    bare = {"cpus": 1, "walltime_s": 60, "data": {"inputs": [{"uri": "globus://my-laptop/x"}]}}
    with pytest.raises(InvalidInput) as caught:
        tasks.preview(alice, bare, now=timezone.now())
    assert caught.value.problems[0][:2] == ("/data/inputs/0/uri", "bad_collection")


def test_the_estimate_counts_bytes_over_rates_and_nothing_for_what_is_held(
    delta: System, alice: User, data: Path, until: Callable[..., Task]
) -> None:
    known = an_input(data, bytes=len(TEXT), sha256=DIGEST)
    big = {"uri": f"file://{data}/big", "bytes": 50_000 << 20}

    def transfer_s(*inputs: dict[str, Any]) -> int:
        decision, _ = tasks.preview(
            alice,
            {
                "command": "true",
                "inputs": list(inputs),
                "envelope": {"gpus": 1, "cpus": 4, "walltime_s": 600},
            },
            now=timezone.now(),
        )
        assert decision.selected is not None
        return decision.selected.estimates.transfer_s

    assert transfer_s(big) == 500, "50,000 MiB at the 100 MiB/s that are assumed before anything is known"
    assert transfer_s(known) == 1
    until(submit(alice, "true", inputs=[known]), TaskState.SUCCEEDED)
    assert data_reach.pair_rates(alice) == {}, "so little says nothing of rates"
    Transfer.objects.update(bytes_moved=10 << 20)
    moved = Transfer.objects.get()
    assert moved.started_at is not None
    Transfer.objects.update(finished_at=moved.started_at + timedelta(seconds=1))

    assert data_reach.pair_rates(alice) == {("", "delta"): (10.0,)}
    assert transfer_s(big) == 5000
    assert transfer_s(known) == 0, "it is there already"


def test_a_path_of_the_sites_own_is_linked_and_not_moved(
    sites: Sites, delta: System, alice: User, until: Callable[..., Task]
) -> None:
    (sites.root / "home" / "mine.txt").write_text(TEXT)

    task = submit(alice, "cat mine.txt", inputs=[{"uri": f"file://{sites.root}/home/mine.txt"}])

    until(task, TaskState.SUCCEEDED)
    assert not Transfer.objects.exists()
    (sites.root / "home" / "mine.txt").unlink()
    lost = until(
        submit(alice, "cat mine.txt", inputs=[{"uri": f"file://{sites.root}/home/mine.txt"}]),
        TaskState.FAILED,
    )
    assert Attempt.objects.get(task=lost).exit_code == 122


def test_writing_how_an_output_moved_never_waits_for_its_task(
    delta: System, alice: User, data: Path, until: Callable[..., Task]
) -> None:
    out = [{"uri": f"file://{data}/out/y.txt", "path": "y.txt"}]
    task = submit(alice, "echo hello > y.txt", outputs=out)
    until(task, TaskState.SUCCEEDED)
    Manifest.objects.update(body={"outputs": [{**Manifest.objects.get().body["outputs"][0], "state": "?"}]})
    state = Transfer.objects.get().state

    def note() -> None:
        try:
            with transaction.atomic():
                note_moved(Transfer.objects.select_for_update(no_key=True).get())
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool, transaction.atomic():
        Task.objects.select_for_update(no_key=True).get(pk=task.pk)
        pool.submit(note).result(timeout=20)

    assert Manifest.objects.get().body["outputs"][0]["state"] == state
