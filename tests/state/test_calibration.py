"""Predicted waits against those that came: told to their owner, and learned from by the next decision."""

from dataclasses import replace
from datetime import datetime, timedelta
from math import log

import pytest
from django.contrib.auth.models import User

from orchestrator import experience, selectors
from orchestrator.envelope.types import Envelope, Range
from orchestrator.models import Attempt
from orchestrator.placement.calibration import Reliability
from orchestrator.placement.trace import decision_bytes
from orchestrator.placement.types import WaitClass
from orchestrator.services import placing, tasks
from tests.web.world import make_system

pytestmark = pytest.mark.django_db(transaction=True)

GPU = {"gpus": 1, "cpus": 1, "walltime_s": 600}
ONE_GPU = Envelope(gpus=Range.exactly(1), cpus=Range.exactly(1), walltime_s=Range.exactly(600))


@pytest.fixture(autouse=True)
def _nothing_learned() -> None:
    experience._waits.cache_clear()


def _started(user: User, *, after_s: int, now: datetime) -> Attempt:
    """Return an attempt of this user that started so many seconds after its submission."""
    task = tasks.submit_task(user, {"command": "true", "envelope": GPU}, actor="user", now=now).task
    attempt = task.attempts.get()
    Attempt.objects.filter(pk=attempt.pk).update(
        submitted_at=now, started_at=now + timedelta(seconds=after_s)
    )
    return attempt


def test_waits_are_told_by_system_and_partition(alice: User, now: datetime) -> None:
    make_system(alice, "anvil", "Anvil", "a100", "40G", free=3, now=now)
    first = _started(alice, after_s=2, now=now)
    predicted = first.predicted["wait_s"]
    assert (predicted["p50"], first.predicted["wait"]["class"]) == (40, "risky")
    _started(alice, after_s=70, now=now)
    _started(alice, after_s=4000, now=now)

    (found,) = selectors.calibration(alice)

    assert found.mean_abs_log_error == pytest.approx((log(40 / 2) + log(70 / 40) + log(4000 / 40)) / 3)
    assert replace(found, mean_abs_log_error=0) == Reliability(
        system="anvil",
        partition="gpu",
        n=3,
        within_minute_frac=2 / 3,
        within_twice_frac=1 / 3,
        mean_abs_log_error=0,
        p90_coverage_frac=2 / 3,
    )


def test_waits_of_others_requeued_jobs_and_jobs_that_wait_still_are_not_told(
    alice: User, bob: User, now: datetime
) -> None:
    make_system(alice, "anvil", "Anvil", "a100", "40G", free=3, now=now)
    requeued = _started(alice, after_s=9, now=now)
    Attempt.objects.filter(pk=requeued.pk).update(restarts=1)
    waiting = _started(alice, after_s=9, now=now)
    Attempt.objects.filter(pk=waiting.pk).update(started_at=None)

    assert selectors.calibration(alice) == []

    _started(alice, after_s=9, now=now)

    assert [found.n for found in selectors.calibration(alice)] == [1]
    assert selectors.calibration(bob) == []


def test_the_model_widens_p90_where_waits_were_longer_than_predicted(alice: User, now: datetime) -> None:
    make_system(alice, "anvil", "Anvil", "a100", "40G", free=3, now=now)
    key = ("anvil", "gpu", WaitClass.RISKY)
    before = experience.placement_model(alice, kind="", now=now)
    _started(alice, after_s=4000, now=now)

    after = experience.placement_model(alice, kind="", now=now + timedelta(seconds=31))

    assert before.p90_factor(*key) == 45.0
    assert after.p90_factor(*key) == pytest.approx(100 ** (1 / 11) * 45 ** (10 / 11))
    assert after.version.startswith("own-1@")


def test_a_start_before_the_submission_is_no_wait(alice: User, now: datetime) -> None:
    make_system(alice, "anvil", "Anvil", "a100", "40G", free=3, now=now)
    _started(alice, after_s=-30, now=now)

    assert [each.actual_s for each in experience.wait_outcomes(Attempt.objects.all())] == [0]


def test_kept_plans_decide_as_fresh_ones_while_work_is_in_flight(alice: User, now: datetime) -> None:
    make_system(alice, "anvil", "Anvil", "a100", "40G", free=1, now=now)
    later = now + timedelta(seconds=5)
    idle = placing.decide(alice, ONE_GPU, now=later)
    for _ in range(2):
        tasks.submit_task(alice, {"command": "true", "envelope": GPU}, actor="user", now=later)
    kept = placing.decide(alice, ONE_GPU, now=later)

    placing.PLANS.forget()
    fresh = placing.decide(alice, ONE_GPU, now=later)

    assert decision_bytes(kept) == decision_bytes(fresh)
    assert idle.selected is not None
    assert fresh.selected is not None
    assert fresh.selected.estimates.wait_s.p50 > 600 > idle.selected.estimates.wait_s.p50


def test_a_second_decision_on_the_same_snapshots_makes_no_plan(alice: User, now: datetime) -> None:
    make_system(alice, "anvil", "Anvil", "a100", "40G", free=1, now=now)
    placing.decide(alice, ONE_GPU, now=now)
    made = placing.PLANS.built

    placing.decide(alice, ONE_GPU, now=now + timedelta(seconds=40))

    assert placing.PLANS.built == made > 0
