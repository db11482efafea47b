"""The views for dashboards exist, answer, and hold no secret column."""

import pytest
from django.db import connection

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
