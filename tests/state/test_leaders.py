"""Before a submit the leading systems are looked at again, if nobody did lately; nobody waits for long."""

import time
from datetime import datetime, timedelta

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from federation.locks import only_one
from federation.models import Snapshot, System
from orchestrator import leaders
from orchestrator.leaders import Refreshed, refresh_leaders
from orchestrator.models import Decision
from orchestrator.services import deciding, tasks
from orchestrator.services.envelopes import understand
from portal.skills.every import SKILLS
from portal.skills.placing import SubmittedTask
from portal.skills.registry import Caller, Options, Scope
from providers.errors import InvalidInput
from tests.state.conftest import Sites

pytestmark = pytest.mark.django_db(transaction=True)

WORK = {"command": "true", "envelope": {"gpus": 1, "cpus": 1, "walltime_s": 600}}


@pytest.fixture(autouse=True)
def _any_link_is_quick_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """How quick the machine under test is today decides nothing here."""
    monkeypatch.setattr(leaders, "SLOW_S", 60)


@pytest.fixture
def two(sites: Sites, alice: User) -> Sites:
    """Delta and Vista, both idle; Vista's accelerators are the quicker ones, so it leads."""
    sites.add("delta", alice, account="bbka-delta-gpu")
    sites.add("vista", alice, account="TG-ABC")
    return sites


def _probes(slug: str) -> int:
    return Snapshot.objects.filter(system__slug=slug).count()


def _drain(sites: Sites, slug: str) -> None:
    """Take every node of a site out of service behind our back."""
    nodes = sites.run(slug, "sinfo", "-h", "-N", "-o", "%N").split()
    for node in sorted(set(nodes)):
        sites.happen(slug, "node-fail", node)


def _later(seconds: int) -> datetime:
    return timezone.now() + timedelta(seconds=seconds)


def test_the_work_goes_where_the_fresh_figures_say(two: Sites, alice: User) -> None:
    later = _later(40)
    before = tasks.preview(alice, WORK, now=later)[0].selected
    assert before is not None
    assert before.system == "vista"
    _drain(two, "vista")

    refreshed = refresh_leaders(alice, WORK, now=later)
    task = tasks.submit_task(alice, WORK, actor="user", now=refreshed.now, notes=refreshed.notes).task

    attempt = task.attempts.get()
    assert attempt.system.slug == "delta"
    assert attempt.planned_at > later
    assert "The figures of Vista were refreshed right before this decision." in refreshed.notes
    warnings = Decision.objects.get().body["warnings"]
    assert [note for note in refreshed.notes if note in warnings] == list(refreshed.notes)


def test_figures_of_the_last_half_minute_are_not_asked_for_again(two: Sites, alice: User) -> None:
    now = _later(20)

    assert refresh_leaders(alice, WORK, now=now) == Refreshed(now)
    assert (_probes("delta"), _probes("vista")) == (1, 1)


def test_a_dead_leader_costs_three_seconds_and_is_degraded(two: Sites, alice: User) -> None:
    two.fault("vista", "controller_dead", seconds=29)
    later = _later(40)

    began = time.monotonic()
    refreshed = refresh_leaders(alice, WORK, now=later)
    took_s = time.monotonic() - began

    assert took_s < leaders.DEADLINE_S + 1.5
    note = "Vista gave no new figures within 3 s: this decision rests on older ones."
    assert note in refreshed.notes
    _until_health("vista", "degraded")


def _until_health(slug: str, word: str) -> None:
    """Wait for the probe that outlasted the deadline to store what it found."""
    until = time.monotonic() + 10
    while System.objects.get(slug=slug).health != word:
        assert time.monotonic() < until, System.objects.get(slug=slug).health
        time.sleep(0.1)


def test_a_system_that_is_being_probed_is_left_alone(two: Sites, alice: User) -> None:
    vista = System.objects.get(slug="vista")
    with only_one(f"probe:{vista.pk}") as mine:
        assert mine
        refreshed = refresh_leaders(alice, WORK, now=_later(40))

    assert "Vista gave no new figures within 3 s: this decision rests on older ones." in refreshed.notes
    assert _probes("vista") == 1


def test_a_slow_link_is_not_asked(two: Sites, alice: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaders, "SLOW_S", 0)
    later = _later(40)

    assert refresh_leaders(alice, WORK, now=later) == Refreshed(later)


def test_no_site_is_asked_inside_a_transaction(two: Sites, alice: User) -> None:
    later = _later(40)
    with transaction.atomic():
        assert refresh_leaders(alice, WORK, now=later) == Refreshed(later)


def test_a_preview_asks_no_site(two: Sites, alice: User) -> None:
    decision, _ = tasks.preview(alice, WORK, now=_later(40))

    assert decision.selected is not None
    assert (_probes("delta"), _probes("vista")) == (1, 1)


def test_at_most_two_systems_lead_and_one_may_hold_both_places(two: Sites, alice: User) -> None:
    wanted = understand(tasks.read_task(WORK), user_id=alice.pk).envelope
    value = deciding.decide(alice, wanted, now=_later(1))

    both = leaders.leading_systems(value)
    alone = leaders.leading_systems(
        value.model_copy(update={"candidates": tuple(c for c in value.candidates if c.system == "delta")})
    )

    assert both[0] == "vista"
    assert len(both) <= 2
    assert alone == ("delta",)


def test_the_skill_looks_again_by_itself(two: Sites, alice: User) -> None:
    caller = Caller(alice, "token:t", frozenset({Scope.SUBMIT, Scope.READ}))

    answer = SKILLS["submit_task"].call(WORK, caller, now=_later(40), options=Options(wait_s=0))

    assert isinstance(answer.value, SubmittedTask)
    assert "The figures of Vista were refreshed right before this decision." in answer.value.decision.warnings
    assert _probes("vista") == 2


def test_a_group_is_placed_on_fresh_figures_too(two: Sites, alice: User) -> None:
    caller = Caller(alice, "token:t", frozenset({Scope.SUBMIT, Scope.READ}))
    group = {"objective": "two", "children": [{"key": key, **WORK} for key in ("a", "b")]}

    SKILLS["submit_group"].call(group, caller, now=_later(40), options=Options(wait_s=0))

    assert _probes("vista") == 2
    with pytest.raises(InvalidInput):
        SKILLS["submit_group"].call({"objective": "none", "children": []}, caller, now=_later(80))
