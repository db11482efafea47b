"""Upgrading: an installation of the first state, with work under way, is carried to the newest one."""

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from django.conf import settings
from django.db import connections
from django.db.migrations.executor import MigrationExecutor
from psycopg import sql

ROOT = Path(__file__).resolve().parents[2]
FIRST = [
    ("federation", "0002_event_hash"),
    ("orchestrator", "0005_metrics_calibration"),
    ("portal", "0003_globus"),
]
"""What the first installations have; never changed."""
NAME = f"facet_upgraded_{os.getpid()}"


@pytest.fixture
def old(django_db_blocker: Any) -> Iterator[str]:
    """An empty database of its own, as Django's alias `old`; yields its URL."""
    with django_db_blocker.unblock():
        yield from _old()


def _old() -> Iterator[str]:
    with psycopg.connect(settings.DATABASE_URL, autocommit=True) as server:
        server.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(NAME)))
    connections.databases["old"] = {**connections.databases["default"], "NAME": NAME}
    yield urlsplit(settings.DATABASE_URL)._replace(path=f"/{NAME}").geturl()
    connections["old"].close()
    del connections.databases["old"]
    del connections["old"]
    with psycopg.connect(settings.DATABASE_URL, autocommit=True) as server:
        server.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(NAME)))


def _migrated(targets: list[tuple[str, str]]) -> Any:
    """Migrate `old` and return the models as they then are."""
    executor = MigrationExecutor(connections["old"])
    others = [leaf for leaf in executor.loader.graph.leaf_nodes() if leaf[0] not in dict(targets)]
    state = executor.migrate([*targets, *others])
    return state.apps


def _under_way(apps: Any, now: datetime) -> None:
    """Write a running task with all that belongs to it, by the models of that time."""

    def make(model: str, **fields: Any) -> Any:
        return apps.get_model(model).objects.using("old").create(**fields)

    alice = make("auth.User", username="alice")
    system = make("federation.System", slug="delta", name="Delta")
    connection = make(
        "federation.Connection", handle="con_1", user=alice, system=system, kind="local", settings={}
    )
    allocation = make(
        "federation.Allocation", handle="alc_1", user=alice, system=system, account="x", reserved=5, granted=9
    )
    make(
        "federation.Charge", handle="chg_1", allocation=allocation, attempt_handle="att_1", kind="reserve",
        amount=5, at=now,
    )  # fmt: skip
    envelope = make(
        "orchestrator.Envelope", handle="env_1", user=alice, source="user", body={}, created_at=now
    )
    task = make(
        "orchestrator.Task", handle="task_1", user=alice, actor="user:alice", name="t", state="pending",
        spec={}, envelope=envelope, created_at=now, updated_at=now, due_at=now,
    )  # fmt: skip
    decision = make(
        "orchestrator.Decision", handle="dec_1", user=alice, task=task, purpose="submit", input_hash="x" * 64,
        body={"result": "placed"}, created_at=now,
    )  # fmt: skip
    make(
        "orchestrator.Attempt", handle="att_1", task=task, number=1, decision=decision, connection=connection,
        system=system, partition="gpu", shape={}, submit_key="fct-1", job_id="42", state="pending",
        planned_at=now, due_at=now,
    )  # fmt: skip
    make(
        "federation.Event", handle="evt_1", type="task.accepted", subject="task_1", user=alice, task="task_1",
        actor="user:alice", at=now, summary="t accepted",
    )  # fmt: skip


def test_work_under_way_survives_every_migration_since_the_first(old: str, now: datetime) -> None:
    _under_way(_migrated(FIRST), now)

    newest = _migrated(MigrationExecutor(connections["old"]).loader.graph.leaf_nodes())

    attempt = newest.get_model("orchestrator.Attempt").objects.using("old").select_related("task").get()
    assert (attempt.handle, attempt.job_id, attempt.state, attempt.due_at) == ("att_1", "42", "pending", now)
    assert (attempt.task.handle, attempt.task.state) == ("task_1", "pending")
    with psycopg.connect(old) as server:
        assert server.execute("SELECT state, tasks FROM metrics.task_states").fetchall() == [("pending", 1)]
        with pytest.raises(psycopg.errors.RaiseException, match="Cannot update or delete"):
            server.execute("DELETE FROM federation_event")
    kept = {name: each for name, each in os.environ.items() if not name.startswith("DATABASE_")}
    done = subprocess.run(
        [sys.executable, "manage.py", "verify_restore"],
        cwd=ROOT, env=kept | {"DATABASE_URL": old}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "note  delta: 1 attempts were open" in done.stdout
