"""Whole jobs through the Globus link on an emulated cluster: as their owner, through every loss of access."""

import io
import logging
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import structlog
from django.contrib.auth.models import User
from django.db import connection as database
from django.test import Client
from django.utils import timezone

from federation import collector
from federation.models import Connection, Event, Snapshot, System
from orchestrator.lifecycle import AttemptState, TaskState
from orchestrator.models import Attempt, Task
from orchestrator.services import tasks
from portal.globus import tokens
from portal.globus.connections import GlobusSettings, resume
from portal.globus.endpoints import connect_endpoint
from portal.globus.links import open_globus_link
from portal.logging import logging_config
from portal.models import GlobusToken
from providers.sandbox.globus.server import StandIn
from providers.sandbox.globus.spec import Endpoint, EndpointState, Fault
from tests.globus.conftest import ALICE, BOB, CLIENT_SECRET, DELTA, consent
from tests.globus.test_tokens import grant
from tests.state.conftest import Sites
from tests.stepping import step

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def delta(set_up: StandIn, sites: Sites, alice: User) -> System:
    """The emulated cluster, reached by alice through her endpoint alone."""
    system = sites.add("delta", alice, account="bbka-delta-gpu", granted=Decimal(100))
    home = {"HOME": str(sites.root / "home"), "USER": "alice"}
    Path(home["HOME"]).mkdir(exist_ok=True)
    set_up.state.know(
        endpoints=[Endpoint(id=DELTA, name="delta", env=sites.env["delta"], users={ALICE: home})]
    )
    grant(set_up, alice)
    connect_endpoint(alice, system, GlobusSettings(endpoint=DELTA), now=timezone.now(), remote_user="alice")
    return system


def _submit(user: User, seconds: int = 1) -> Task:
    given = {
        "name": "hello",
        "command": ["bash", "-c", f"echo hello from $SLURM_JOB_ID; sleep {seconds}"],
        "envelope": {"gpus": 1, "cpus": 4, "walltime_s": 600},
    }
    return tasks.submit_task(user, given, actor="user:alice", now=timezone.now()).task


def test_a_refresh_is_one_task_whatever_the_number_of_jobs(set_up: StandIn, delta: System) -> None:
    collector.refresh(delta.pk, now=timezone.now(), force_full=True)
    before = set_up.state.requests("POST /v3/endpoints/")

    snapshot = collector.refresh(delta.pk, now=timezone.now())

    assert snapshot is not None
    assert snapshot.availability == "available", snapshot.error
    assert snapshot.counts["gpus"] > 0
    assert set_up.state.requests("POST /v3/endpoints/") == before + 1


def test_a_task_runs_to_success_through_globus(
    set_up: StandIn,
    sites: Sites,
    delta: System,
    alice: User,
    until: Callable[..., Task],
) -> None:
    task = until(_submit(alice))

    assert task.state == TaskState.SUCCEEDED, task.reason
    body = task.manifest.body
    assert body["exit_code"] == 0
    assert {entry["path"] for entry in body["files"]} == {"stdout.log", "stderr.log"}
    assert len(sites.jobs("delta")) == 1
    owners = {row["owner"] for row in set_up.state.run("SELECT owner FROM task")}
    assert owners == {ALICE}


def _wait_for_job(sites: Sites) -> None:
    deadline = time.monotonic() + 20
    while not sites.jobs("delta"):
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_access_lost_while_a_job_runs_loses_no_job_and_tells_once(
    set_up: StandIn,
    sites: Sites,
    delta: System,
    alice: User,
    until: Callable[..., Task],
    monkeypatch: Any,
) -> None:
    monkeypatch.setattr("orchestrator.observation.UNSEEN_AFTER", timedelta(seconds=0))
    task = until(_submit(alice, seconds=4), TaskState.RUNNING)
    set_up.state.expire()
    set_up.state.expire(kind="refresh")

    attempt = Attempt.objects.get()
    deadline = time.monotonic() + 15
    while attempt.state != AttemptState.UNKNOWN and time.monotonic() < deadline:
        Attempt.objects.update(due_at=timezone.now())
        step()
        attempt.refresh_from_db()
    assert attempt.state == AttemptState.UNKNOWN
    assert "Sign in with Globus again" in attempt.reason_explained
    task.refresh_from_db()
    assert task.state == TaskState.RUNNING
    assert Event.objects.filter(type="connection.needs_sign_in").count() == 1

    grant(set_up, alice)
    assert resume(alice, now=timezone.now()) == ["delta"]
    until(task)

    assert task.state == TaskState.SUCCEEDED, task.reason
    assert len(sites.jobs("delta")) == 1
    assert Attempt.objects.count() == 1


def test_access_lost_at_the_moment_of_dispatch_submits_once_after_the_sign_in(
    set_up: StandIn,
    sites: Sites,
    delta: System,
    alice: User,
    until: Callable[..., Task],
    monkeypatch: Any,
) -> None:
    monkeypatch.setattr("orchestrator.dispatch._MARGIN", timedelta(seconds=-60))
    task = _submit(alice)
    GlobusToken.objects.all().delete()

    step()
    attempt = Attempt.objects.get()
    assert attempt.state == AttemptState.DISPATCHING
    assert sites.jobs("delta") == []

    grant(set_up, alice)
    resume(alice, now=timezone.now())
    until(task, timeout=60)

    assert task.state == TaskState.SUCCEEDED, task.reason
    assert len(sites.jobs("delta")) == 1
    assert Attempt.objects.count() == 1


def test_an_answer_lost_after_the_site_took_the_job_submits_nothing_twice(
    set_up: StandIn,
    sites: Sites,
    delta: System,
    alice: User,
    until: Callable[..., Task],
    monkeypatch: Any,
) -> None:
    monkeypatch.setattr("orchestrator.dispatch._MARGIN", timedelta(seconds=-60))
    task = _submit(alice, seconds=2)
    set_up.state.arm(Fault(path=f"/v3/endpoints/{DELTA}/submit", status=502, after=True))

    step()
    _wait_for_job(sites)
    until(task)

    assert task.state == TaskState.SUCCEEDED, task.reason
    assert len(sites.jobs("delta")) == 1


def test_a_script_too_large_to_carry_is_rejected_and_its_companion_runs(
    set_up: StandIn,
    sites: Sites,
    delta: System,
    alice: User,
    until: Callable[..., Task],
    monkeypatch: Any,
) -> None:
    monkeypatch.setattr("providers.links.globus_wire.LIMIT_BYTES", 60_000)
    given = {"name": "large", "envelope": {"gpus": 1, "walltime_s": 600}, "retry": {"max_attempts": 1}}
    script = {"script": "#!/bin/bash\n" + "# padding\n" * 8000 + "true\n"}
    large = tasks.submit_task(alice, given | script, actor="user:alice", now=timezone.now()).task
    small = _submit(alice)

    until(small)
    large.refresh_from_db()

    assert small.state == TaskState.SUCCEEDED, small.reason
    attempt = large.attempts.get()
    assert (attempt.state, attempt.cause) == ("failed", "dispatch_rejected")
    assert "larger than" in attempt.reason_explained
    assert len(sites.jobs("delta")) == 1


def test_an_endpoint_offline_in_between_costs_only_time(
    set_up: StandIn,
    sites: Sites,
    delta: System,
    alice: User,
    until: Callable[..., Task],
) -> None:
    task = until(_submit(alice, seconds=3), TaskState.RUNNING)
    set_up.state.set_endpoint(DELTA, EndpointState.OFFLINE)
    Attempt.objects.update(due_at=timezone.now())
    step()
    task.refresh_from_db()
    assert task.state == TaskState.RUNNING
    set_up.state.set_endpoint(DELTA, EndpointState.ONLINE)

    until(task)

    assert task.state == TaskState.SUCCEEDED, task.reason


def test_a_user_without_sign_in_does_not_take_the_system_down_for_others(
    set_up: StandIn,
    sites: Sites,
    delta: System,
    alice: User,
) -> None:
    bob = User.objects.create_user("bob")
    state = set_up.state.endpoint(DELTA)
    assert state is not None
    set_up.state.know(
        endpoints=[state.model_copy(update={"users": {**state.users, BOB: state.users[ALICE]}})]
    )
    grant(set_up, bob, BOB)
    connect_endpoint(bob, delta, GlobusSettings(endpoint=DELTA), now=timezone.now(), remote_user="alice")
    collector.refresh(delta.pk, now=timezone.now())
    used = Snapshot.objects.first()
    assert used is not None
    assert used.connection is not None
    GlobusToken.objects.filter(user=used.connection.user).delete()

    snapshot = collector.refresh(delta.pk, now=timezone.now())

    assert snapshot is not None
    assert snapshot.availability == "available", snapshot.error
    delta.refresh_from_db()
    assert (delta.health, delta.consecutive_failures) == ("online", 0)


@pytest.fixture
def everything_logged() -> Iterator[io.StringIO]:
    """Every record of every logger, at every level, as it would be written."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    quiet = {name: logging.getLogger(name).level for name in ("globus_sdk", "urllib3", "portal")}
    for name in quiet:
        logging.getLogger(name).setLevel(logging.DEBUG)
    yield stream
    root.removeHandler(handler)
    root.setLevel(level)
    for name, was in quiet.items():
        logging.getLogger(name).setLevel(was)


def _whole_database() -> str:
    """Return every row of every table as text."""
    said = []
    with database.cursor() as cursor:
        cursor.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        for (table,) in cursor.fetchall():
            cursor.execute(f'SELECT t::text FROM "{table}" t')
            said += [f"{table}: {row}" for (row,) in cursor.fetchall()]
    return "\n".join(said)


def test_no_secret_is_ever_written_shown_or_logged(
    set_up: StandIn,
    sites: Sites,
    delta: System,
    alice: User,
    until: Callable[..., Task],
    everything_logged: io.StringIO,
    capfd: Any,
) -> None:
    planted = {CLIENT_SECRET}
    honest = set_up.state.mint

    def mint(kind: str, **what: Any) -> str:
        secret = honest(kind, **what)
        planted.add(secret)
        return secret

    set_up.state.mint = mint  # type: ignore[method-assign]  # to learn every secret that is made
    browser = Client()
    browser.force_login(alice)
    GlobusToken.objects.all().delete()
    pages = []
    query = consent(browser.get("/connections/globus/connect/")["Location"], ALICE)
    planted.add(query["code"])
    pages += [
        browser.get("/connections/globus/callback/", query),
        browser.get("/connections/globus/callback/", query),
    ]
    set_up.state.expire()
    until(_submit(alice))
    set_up.state.arm(Fault(path="/v2/batch_status", status=503, times=2))
    set_up.state.arm(Fault(path="/v2/oauth2/token", status=500))
    GlobusToken.objects.update(expires_at=timezone.now())
    collector.refresh(delta.pk, now=timezone.now())
    set_up.state.expire()
    set_up.state.expire(kind="refresh")
    GlobusToken.objects.update(expires_at=timezone.now())
    collector.refresh(delta.pk, now=timezone.now())
    link = open_globus_link(Connection.objects.get())
    for path in ("/", "/connections/", "/events/", "/tasks/", "/api/v1/events", "/api/v1/systems"):
        pages.append(browser.get(path))
    pages.append(browser.post("/connections/globus/disconnect/", follow=True))

    said = {
        "logs": everything_logged.getvalue() + "".join(capfd.readouterr()),
        "database": _whole_database(),
        "pages": "".join(page.content.decode() for page in pages),
        "reprs": repr(link) + repr(link.access) + repr(GlobusToken.objects.all()) + repr(tokens),
        "state file": (set_up.state.path.read_bytes() + b"").decode("latin-1"),
    }
    assert len(planted) >= 7
    found = {(where, secret[:6]) for where, text in said.items() for secret in planted if secret in text}
    assert found == set()

    assert len(said["logs"]) > 1000


@pytest.mark.parametrize("form", ["json", "console"])
def test_a_traceback_in_the_log_shows_no_local_values(form: Any) -> None:
    before = structlog.get_config()
    try:
        config = logging_config(level="info", form=form)
        formatter = config["formatters"]["structured"]
        written = formatter["()"](**{name: value for name, value in formatter.items() if name != "()"})
    finally:
        structlog.configure(**before)
    secret = "planted-" + "local"
    kept = [secret]
    try:
        int("x" * len(kept))
    except ValueError:
        record = logging.LogRecord("portal", logging.ERROR, __file__, 1, "broke", (), sys.exc_info())

    text = written.format(record)

    assert "ValueError" in text
    assert secret not in text
