"""The views for dashboards exist, answer, and hold no secret column."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection

from federation.models import System
from federation.services import connect
from orchestrator.budget_input import BudgetInput
from orchestrator.models import Attempt, Decision, Envelope, Task
from orchestrator.services.budgets import set_budget

pytestmark = pytest.mark.django_db

VIEWS = (
    "systems",
    "probes",
    "partition_samples",
    "tasks",
    "attempts",
    "events",
    "allocations",
    "calibration",
    "task_states",
    "attempt_states",
    "due",
    "attempt_timings",
    "decisions",
    "regret",
    "subscriptions",
    "deliveries",
    "circuits",
    "free_capacity",
    "connections",
    "recent_outcomes",
    "budgets",
    "approvals",
    "spending",
    "event_archives",
    "predictions",
    "run_calibration",
)

SECRET = {"password", "digest", "settings", "facts", "spec", "body", "url", "sealed_secret"}


@pytest.mark.parametrize("view", VIEWS)
def test_each_view_answers(view: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM metrics.{view} LIMIT 1")
        columns = [column.name for column in cursor.description]

    assert columns
    assert not SECRET & set(columns)


def test_the_schema_holds_these_views_and_nothing_else() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT table_name FROM information_schema.tables WHERE table_schema = 'metrics'")
        found = {name for (name,) in cursor.fetchall()}

    assert found == set(VIEWS)


def _rows(sql: str) -> list[dict[str, Any]]:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        names = [column.name for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def _ended(alice: User, now: datetime, *, runner_up_s: int | None, took_s: int) -> Attempt:
    """Return an attempt that ended well `took_s` after it was planned; 100 s were promised."""
    system = System.objects.create(slug="delta", name="Delta")
    connected = connect(alice, system, kind="local", settings={}, now=now)
    envelope = Envelope.objects.create(
        handle="env_1", user=alice, source="user", body={}, created_at=now
    )  # fmt: skip
    task = Task.objects.create(
        handle="task_1", user=alice, actor="x", name="t", state="succeeded", spec={}, envelope=envelope,
        created_at=now, updated_at=now, finished_at=now,
    )  # fmt: skip
    body: dict[str, Any] = {"result": "placed", "selected": {"estimates": {"completion_s": 100}}}
    if runner_up_s is not None:
        body["runner_up"] = {"system": "vista", "estimates": {"completion_s": runner_up_s}}
    decision = Decision.objects.create(
        handle="dec_1", user=alice, task=task, purpose="submit", input_hash="x", body=body, created_at=now
    )
    begun = now - timedelta(seconds=took_s)
    return Attempt.objects.create(
        handle="att_1", task=task, number=1, decision=decision, connection=connected, system=system,
        partition="gpu", shape={}, submit_key="k", state="succeeded", planned_at=begun,
        submitted_at=begun + timedelta(seconds=4), ended_at=now, finished_at=now + timedelta(seconds=7),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("runner_up_s", "took_s", "late_by_s", "regret_s"),
    [(150, 90, -10, 0), (150, 140, 40, 0), (150, 210, 110, 60), (None, 210, 110, None)],
)
def test_regret_is_what_the_runner_up_was_expected_to_save(
    alice: User, now: datetime, runner_up_s: int | None, took_s: int, late_by_s: int, regret_s: int | None
) -> None:
    _ended(alice, now, runner_up_s=runner_up_s, took_s=took_s)

    (row,) = _rows("SELECT predicted_s, actual_s, late_by_s, regret_s, runner_up FROM metrics.regret")

    assert (row["predicted_s"], row["actual_s"], row["late_by_s"]) == (100, took_s, late_by_s)
    assert (row["regret_s"], row["runner_up"]) == (regret_s, "vista" if runner_up_s else None)


def test_how_soon_a_job_is_handed_over_and_its_end_noticed(alice: User, now: datetime) -> None:
    _ended(alice, now, runner_up_s=None, took_s=60)

    (row,) = _rows("SELECT dispatch_s, noticed_after_s FROM metrics.attempt_timings")

    assert row == {"dispatch_s": 4, "noticed_after_s": 7}
    (outcome,) = _rows("SELECT state, tasks FROM metrics.recent_outcomes")
    assert outcome == {"state": "succeeded", "tasks": 1}
    assert _rows("SELECT * FROM metrics.task_states") == []


def test_open_tasks_are_counted_from_the_index_of_open_tasks() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute("EXPLAIN SELECT * FROM metrics.task_states")
        plan = " ".join(line for (line,) in cursor.fetchall())

    assert "task_active" in plan


def test_a_budgets_share_counts_what_is_held_and_what_was_used(alice: User, now: datetime) -> None:
    given = BudgetInput(max_attempts=20)
    budget = set_budget(alice.pk, ("project", "fusion"), given, actor="user:alice", now=now)
    budget.meters.filter(measure="attempts").update(reserved=3, used=2)

    (row,) = _rows('SELECT scope, subject, measure, "limit", share FROM metrics.budgets')

    assert (row["scope"], row["subject"], row["measure"]) == ("project", "fusion", "attempts")
    assert (row["limit"], row["share"]) == (20, 0.25)
    assert _rows("SELECT * FROM metrics.approvals") == []
