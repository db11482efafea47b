"""Predicted waits against those that came: told to their owner, and learned from by the next decision."""

from dataclasses import replace
from datetime import datetime, timedelta
from math import log
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext

from federation.models import Connection, System
from federation.profile import ProfileDocument
from federation.selectors import records_for
from federation.services import store_profile
from orchestrator import experience, selectors
from orchestrator.envelope.types import Envelope, Range
from orchestrator.environments import environment_of
from orchestrator.models import Attempt
from orchestrator.placement.calibration import Reliability
from orchestrator.placement.estimate import Work, preparation_for
from orchestrator.placement.model import DecayedSum, RuntimeSample
from orchestrator.placement.trace import decision_bytes
from orchestrator.placement.types import WaitClass
from orchestrator.services import deciding, tasks
from orchestrator.services.environments import note_use
from tests.web.world import make_system, probe, profile, see

pytestmark = pytest.mark.django_db(transaction=True)

GPU = {"gpus": 1, "cpus": 1, "walltime_s": 600}
ONE_GPU = Envelope(gpus=Range.exactly(1), cpus=Range.exactly(1), walltime_s=Range.exactly(600))


@pytest.fixture(autouse=True)
def _nothing_learned() -> None:
    experience._common.cache_clear()


def _started(user: User, *, after_s: int, now: datetime) -> Attempt:
    """Return an attempt of this user that started so many seconds after its submission."""
    task = tasks.submit_task(user, {"command": "true", "envelope": GPU}, actor="user", now=now).task
    attempt = task.attempts.get()
    for state in ("dispatching", "submitted"):
        Attempt.objects.filter(pk=attempt.pk).update(state=state)
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
        wait_class=WaitClass.RISKY,
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


def _seen_again(user: User, *, now: datetime) -> None:
    """Let Anvil be seen idle once more."""
    system = System.objects.get(slug="anvil")
    link = Connection.objects.get(system=system, user=user)
    found = probe("a100", free=1, now=now, pending=0)
    see(system, link, profile("anvil", "Anvil", "a100", "40G", 4), found, now=now)


def test_kept_plans_decide_as_fresh_ones_while_work_is_in_flight(alice: User, now: datetime) -> None:
    make_system(alice, "anvil", "Anvil", "a100", "40G", free=1, now=now)
    later = now + timedelta(seconds=5)
    idle = deciding.decide(alice, ONE_GPU, now=later)
    for _ in range(2):
        tasks.submit_task(alice, {"command": "true", "envelope": GPU}, actor="user", now=later)
    kept = deciding.decide(alice, ONE_GPU, now=later)

    deciding.PLANS.forget()
    fresh = deciding.decide(alice, ONE_GPU, now=later)

    assert decision_bytes(kept) == decision_bytes(fresh)
    assert idle.selected is not None
    assert fresh.selected is not None
    assert fresh.selected.estimates.wait_s.p50 > 600 > idle.selected.estimates.wait_s.p50


def test_what_was_placed_and_not_yet_sent_is_planned_behind_whatever_is_seen_meanwhile(
    alice: User, now: datetime
) -> None:
    make_system(alice, "anvil", "Anvil", "a100", "40G", free=1, now=now)
    placed = tasks.submit_task(alice, {"command": "true", "envelope": GPU}, actor="user", now=now).task
    attempt = Attempt.objects.get(task=placed)
    assert (attempt.state, attempt.dispatch_started_at) == ("planned", None)

    def wait_s(later: datetime) -> int:
        chosen = deciding.decide(alice, ONE_GPU, now=later).selected
        assert chosen is not None
        return chosen.estimates.wait_s.p50

    later = now + timedelta(minutes=20)  # its inputs are on their way still
    _seen_again(alice, now=later)
    assert wait_s(later) > 400

    Attempt.objects.update(state="dispatching", dispatch_started_at=later + timedelta(seconds=1))
    Attempt.objects.update(state="submitted")
    assert wait_s(later + timedelta(seconds=5)) > 400

    again = later + timedelta(minutes=1)
    _seen_again(alice, now=again)
    assert wait_s(again) < 400, "what was sent before it is in the snapshot itself"


def test_a_second_decision_on_the_same_snapshots_makes_no_plan(alice: User, now: datetime) -> None:
    make_system(alice, "anvil", "Anvil", "a100", "40G", free=1, now=now)
    deciding.decide(alice, ONE_GPU, now=now)
    made = deciding.PLANS.built

    deciding.decide(alice, ONE_GPU, now=now + timedelta(seconds=40))

    assert deciding.PLANS.built == made > 0


def test_an_attempt_tells_its_forecast_and_what_came(alice: User, now: datetime) -> None:
    make_system(alice, "anvil", "Anvil", "a100", "40G", free=3, now=now)
    first = _started(alice, after_s=70, now=now)
    assert first.predicted["wait_s"]["p50"] == 40
    bound_s = first.predicted["wait_s"]["p90"]

    def told() -> dict[str, Any]:
        forecast = selectors.show_attempt(selectors.attempts(alice).get()).forecast
        assert forecast is not None
        return forecast.model_dump(mode="json", by_alias=True)

    assert told() == {"class": "risky", "p50_s": 40, "p90_s": bound_s, "actual_s": 70, "within_2x": True}
    Attempt.objects.update(started_at=now + timedelta(seconds=81))
    assert (told()["actual_s"], told()["within_2x"]) == (81, False)
    Attempt.objects.update(started_at=None)
    assert (told()["actual_s"], told()["within_2x"]) == (None, None)
    Attempt.objects.update(started_at=now, restarts=1)
    assert told()["actual_s"] is None


def test_dashboards_read_the_same_figures_as_their_owner(alice: User, now: datetime) -> None:
    make_system(alice, "anvil", "Anvil", "a100", "40G", free=3, now=now)
    for wait_s in (-30, 2, 70, 4000):
        _started(alice, after_s=wait_s, now=now)
    (own,) = selectors.calibration(alice)

    with connection.cursor() as cursor:
        cursor.execute("SELECT * FROM metrics.calibration")
        rows = cursor.fetchall()

    assert rows == [
        (
            "anvil",
            "gpu",
            "risky",
            4,
            own.within_minute_frac,
            own.within_twice_frac,
            pytest.approx(own.mean_abs_log_error),
            own.p90_coverage_frac,
        )
    ]


def test_runs_are_remembered_at_reference_speed(alice: User, now: datetime) -> None:
    """An H100 does in 100 s what takes the reference 190 s; a partition declared twice as fast wins."""
    make_system(alice, "delta", "Delta", "h100", "80G", free=3, now=now)
    attempt = _started(alice, after_s=0, now=now)
    for state in ("running", "succeeded"):
        Attempt.objects.filter(pk=attempt.pk).update(state=state)
    ended_at = now + timedelta(seconds=100)
    Attempt.objects.filter(pk=attempt.pk).update(ended_at=ended_at, finished_at=ended_at)
    kind = attempt.task.kind
    assert attempt.shape["gpu_type"] == "h100"

    def remembered() -> tuple[RuntimeSample, ...]:
        return experience.placement_model(alice, kind=kind, now=now).runtimes[kind]

    assert remembered() == (RuntimeSample(runtime_s=190.0, gpus=1, cpus=1),)

    document = profile("delta", "Delta", "h100", "80G", 4).model_dump(mode="json")
    document["partitions"]["gpu"]["speed"] = "2.5"
    store_profile(ProfileDocument.model_validate(document), "system: delta  # faster\n", now=now)

    assert remembered() == (RuntimeSample(runtime_s=250.0, gpus=1, cpus=1),)


def _ran(user: User, took_s: float, *, now: datetime, after_s: int = 0, **environment: object) -> Attempt:
    """Return an attempt of this user that ran so long to a good end, having started so much after now."""
    given = {"command": "true", "envelope": GPU, "environment": environment}
    attempt = tasks.submit_task(user, given, actor="user", now=now).task.attempts.get()
    for state in ("dispatching", "submitted", "running", "succeeded"):
        Attempt.objects.filter(pk=attempt.pk).update(state=state)
    started_at = now + timedelta(seconds=after_s)
    ended_at = started_at + timedelta(seconds=took_s)
    Attempt.objects.filter(pk=attempt.pk).update(
        submitted_at=now, started_at=started_at, ended_at=ended_at, finished_at=ended_at
    )
    attempt.refresh_from_db()
    note_use(attempt)
    return attempt


def test_an_image_is_present_where_it_ran_absent_where_it_never_did_and_costs_what_its_first_use_did(
    alice: User, bob: User, now: datetime
) -> None:
    make_system(alice, "anvil", "Anvil", "a100", "40G", free=3, now=now)
    document = profile("anvil", "Anvil", "a100", "40G", 4).model_dump(mode="json")
    document["containers"] = ["apptainer"]
    store_profile(ProfileDocument.model_validate(document), "system: anvil  # containers\n", now=now)
    image = "docker://pytorch"

    def prepares(user: User, *, days: int = 0) -> dict[str, int]:
        experience._common.cache_clear()
        at = now + timedelta(days=days)
        model = experience.placement_model(user, kind="", environment=image, now=at)
        work = Work(environment=image)
        return {
            record.system: preparation_for(ONE_GPU, record, model=model, work=work)
            for record in records_for(alice, now=now)
        }

    assert prepares(alice) == {"anvil": 0}
    for run, took_s in enumerate((400, 100, 100)):
        _ran(alice, took_s, now=now, container=image, after_s=1000 * run)
    make_system(alice, "delta", "Delta", "a100", "40G", free=3, now=now)

    assert prepares(alice) == {"anvil": 0, "delta": 0}
    assert prepares(bob) == {"anvil": 150, "delta": 0}
    assert prepares(alice, days=40) == {"anvil": 150, "delta": 0}


def test_what_is_built_is_absent_where_it_never_ran_and_costs_what_its_first_use_did(
    alice: User, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_system(alice, "anvil", "Anvil", "a100", "40G", free=3, now=now)
    stated: dict[str, Any] = {"conda": "train", "setup": ["pip install -e ."]}
    word = environment_of(stated, None)
    assert word is not None
    for run, took_s in enumerate((400, 100, 100)):
        _ran(alice, took_s, now=now, after_s=1000 * run, **stated)
    make_system(alice, "delta", "Delta", "a100", "40G", free=3, now=now)
    experience._common.cache_clear()

    model = experience.placement_model(alice, kind="", environment=word, now=now)
    late = experience.placement_model(alice, kind="", environment=word, now=now + timedelta(days=40))

    assert model.environments == {("anvil", word): True, ("delta", word): False}
    assert late.environments == {("delta", word): False}
    assert model.preparations["anvil", word] == (300.0,)
    assert model.preparation_s("anvil", "build:another") == 300

    monkeypatch.setattr(experience, "_WITNESSES", 2)
    experience._common.cache_clear()
    assert experience.placement_model(alice, kind="", environment=word, now=now).preparations == {}, (
        "the first use is not among the newest runs, and the oldest of those is not taken for it"
    )


def test_what_placement_learns_is_asked_in_so_many_queries_whatever_the_history(
    alice: User, now: datetime
) -> None:
    make_system(alice, "anvil", "Anvil", "a100", "40G", free=3, now=now)
    image = "docker://pytorch"

    def queries() -> int:
        experience._common.cache_clear()
        with CaptureQueriesContext(connection) as seen:
            experience.placement_model(alice, kind="k", environment=image, now=now)
        return len(seen)

    _ran(alice, 100, now=now, container=image)
    one = queries()
    for run in range(6):
        _ran(alice, 100, now=now, after_s=1000 * run, container=image)
    many = queries()
    with CaptureQueriesContext(connection) as seen:
        experience._environments(alice, image, now=now)

    assert one == many
    assert len(seen) == 2
    assert "orchestrator_environmentuse" in seen[0]["sql"]
    assert "orchestrator_task" not in seen[0]["sql"]


def test_the_same_work_at_two_systems_tells_their_speeds(alice: User, now: datetime) -> None:
    for slug, took_s in (("anvil", 100), ("delta", 200)):
        make_system(alice, slug, slug.title(), "a100", "40G", free=3, now=now)
        for _ in range(4):
            _ran(alice, took_s, now=now)
        System.objects.filter(slug=slug).update(is_enabled=False)
    experience._common.cache_clear()

    model = experience.placement_model(alice, kind="", now=now)

    faster, slower = (model.speed(slug, "a100") for slug in ("anvil", "delta"))
    assert faster > 1 > slower
    assert 1.2 < faster / slower < 2


def test_a_hidden_queue_is_learned_by_how_much_was_free(alice: User, now: datetime) -> None:
    make_system(alice, "anvil", "Anvil", "a100", "40G", free=3, now=now)
    attempt = _started(alice, after_s=800, now=now)
    assert attempt.predicted["wait"]["free_slots"] == 2
    basis = {**attempt.predicted["wait"], "class": "hidden"}
    Attempt.objects.update(predicted={**attempt.predicted, "wait": basis})

    learned = experience.placement_model(alice, kind="", now=now + timedelta(seconds=31))

    assert learned.hidden == {("anvil", "gpu", 1): DecayedSum(total_s=800, weight=1)}
    assert learned.hidden_wait_s("anvil", "gpu", 2) == (800 + 4 * 300) / 5
    assert learned.hidden_wait_s("anvil", "gpu", 3) == 40

    del basis["free_slots"]
    Attempt.objects.update(predicted={**attempt.predicted, "wait": basis})
    assert experience.placement_model(alice, kind="", now=now + timedelta(seconds=62)).hidden == {}
