"""The comparison that the chaos runs rest on sees each fault it is there for."""

import pytest

from benchmarks.chaos_checks import SiteJob, contradictions, doubles

LINES = [
    "7|chaos1-a|COMPLETED|0:0",
    "8|chaos10-b|FAILED|3:0",
    "9|other|FAILED|1:0",
    "10|chaos2-c|CANCELLED by 1|0:0",
]
SUCCEEDED = {"id": "att_a", "state": "succeeded", "cause": None, "job_id": "7", "exit_code": 0}
FAILED = {"id": "att_b", "state": "failed", "cause": "exit_code", "job_id": "8", "exit_code": 3}
CANCELLED = {
    "id": "att_c",
    "state": "cancelled",
    "cause": "cancelled_by_user",
    "job_id": "10",
    "exit_code": None,
}
LOST = {"id": "att_d", "state": "failed", "cause": "lost", "job_id": "11", "exit_code": None}


def test_what_agrees_with_accounting_is_no_fault() -> None:
    rows = SiteJob.read("delta", LINES)
    assert [row.key for row in rows] == ["chaos1-a", "chaos10-b", "chaos2-c"]
    assert contradictions([SUCCEEDED, FAILED, CANCELLED, LOST], rows) == []
    assert doubles(rows) == {}


@pytest.mark.parametrize(
    ("attempt", "line"),
    [
        (SUCCEEDED, "7|chaos1-a|FAILED|1:0"),
        (SUCCEEDED, "70|chaos1-a|COMPLETED|0:0"),
        (SUCCEEDED, None),
        (FAILED, "8|chaos10-b|FAILED|4:0"),
        (FAILED, "8|chaos10-b|COMPLETED|0:0"),
        (FAILED, None),
        (CANCELLED, "10|chaos2-c|COMPLETED|0:0"),
        (LOST, "11|chaos3-d|COMPLETED|0:0"),
        (LOST, "11|chaos3-d|FAILED|3:0"),
    ],
)
def test_an_end_that_accounting_tells_otherwise_is_found(
    attempt: dict[str, object], line: str | None
) -> None:
    [fault] = contradictions([attempt], SiteJob.read("delta", [line] if line else []))
    assert str(attempt["id"]) in fault


def test_a_job_that_no_attempt_has_and_a_key_with_two_jobs_are_found() -> None:
    twice = SiteJob.read("delta", [*LINES[:2], "12|chaos1-a|COMPLETED|0:0"])
    assert doubles(twice) == {"chaos1-a": ["delta/7 COMPLETED 0", "delta/12 COMPLETED 0"]}
    assert contradictions([FAILED], twice[:2]) == ["no attempt has chaos1-a: delta/7 COMPLETED 0"]
