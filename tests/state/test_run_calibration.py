"""Predicted runtimes and charges against those that came: told to their owner, and to dashboards alike."""

from dataclasses import replace
from datetime import datetime
from math import log
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection

from orchestrator import selectors
from orchestrator.lifecycle import AttemptState, Cause
from orchestrator.outcome_selectors import run_calibration
from orchestrator.outcomes import RunReliability
from tests.state.spending import ONE_GPU, end, newest, run, send, submit
from tests.web.world import make_system

pytestmark = pytest.mark.django_db

DECLARED = {**ONE_GPU, "runtime": {"estimate_s": 1000}}
"""Predicted to run for 1000 s on an A100, 1200 s at p90, of an hour that costs 1 SU."""


@pytest.fixture
def anvil(alice: User, now: datetime) -> None:
    make_system(alice, "anvil", "Anvil", "a100", "40G", free=3, now=now)


def _ran(user: User, now: datetime, *seconds: float) -> None:
    for ran_s in seconds:
        run(submit(user, now, envelope=DECLARED), now, ran_s=ran_s)


def test_runtimes_and_charges_are_told_by_place_and_basis(
    alice: User, bob: User, anvil: None, now: datetime
) -> None:
    _ran(alice, now, 1000, 1050, 1190, 3000)

    charge, runtime = run_calibration(alice)

    errors = (log(1.05) + log(1.19) + log(3)) / 4
    assert runtime.mean_abs_log_error == pytest.approx(errors)
    assert replace(runtime, mean_abs_log_error=0) == RunReliability(
        measure="runtime",
        system="anvil",
        partition="gpu",
        basis="declared",
        unit="s",
        n=4,
        within_minute_frac=0.5,
        within_twice_frac=0.75,
        mean_abs_log_error=0,
        p90_coverage_frac=0.75,
    )
    assert (charge.measure, charge.unit, charge.n, charge.within_minute_frac) == ("charge", "SU", 4, None)
    assert (charge.within_twice_frac, charge.p90_coverage_frac) == (0.75, 0.75)
    assert charge.mean_abs_log_error == pytest.approx(errors, rel=1e-3)
    assert run_calibration(bob) == []


def test_what_was_ended_before_its_time_tells_nothing(alice: User, anvil: None, now: datetime) -> None:
    task = submit(alice, now, envelope=DECLARED)
    send(newest(task), now)
    end(newest(task), now, ran_s=100, state=AttemptState.FAILED, cause=Cause.EXIT_CODE)
    running = submit(alice, now, envelope=DECLARED)
    send(newest(running), now)

    assert run_calibration(alice) == []


def test_an_attempt_tells_what_was_predicted_and_what_came(alice: User, anvil: None, now: datetime) -> None:
    task = submit(alice, now, envelope=DECLARED)

    def told() -> list[dict[str, Any]]:
        shown = selectors.show_attempt(selectors.attempts(alice).get())
        return [each.model_dump() for each in shown.outcomes]

    before = {"measure": "runtime", "unit": "s", "p50": 1000, "p90": 1200, "actual": None, "within_2x": None}
    assert told()[0] == before
    assert told()[1]["p50"] == pytest.approx(1000 / 3600, abs=1e-4)

    run(task, now, ran_s=1500)

    runtime, charge = told()
    assert runtime == {**before, "actual": 1500, "within_2x": True}
    assert charge["actual"] == pytest.approx(1500 / 3600, abs=1e-4)


def test_dashboards_read_the_same_figures(alice: User, anvil: None, now: datetime) -> None:
    _ran(alice, now, 1000, 1050, 1190, 3000)
    own = run_calibration(alice)

    with connection.cursor() as cursor:
        cursor.execute("SELECT * FROM metrics.run_calibration ORDER BY measure")
        rows = cursor.fetchall()

    assert [row[:7] for row in rows] == [
        (each.measure, each.system, each.partition, each.basis, each.unit, each.n, each.within_minute_frac)
        for each in own
    ]
    for row, each in zip(rows, own, strict=True):
        figures = (each.within_twice_frac, each.mean_abs_log_error, each.p90_coverage_frac)
        assert row[7:] == pytest.approx(figures, rel=1e-3)
