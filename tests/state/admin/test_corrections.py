"""Correcting what an attempt cost, from its page in the admin."""

from datetime import datetime
from decimal import Decimal

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from federation.managers import appoint
from federation.models import Charge, Event, System
from orchestrator.models import Attempt
from tests.state.admin.asking import staff, text_of
from tests.state.spending import run, submit
from tests.web.world import make_system

pytestmark = pytest.mark.django_db


@pytest.fixture
def attempt(alice: User, now: datetime) -> Attempt:
    make_system(alice, "anvil", "Anvil", "a100", "40G", free=3, now=now)
    return run(submit(alice, now), now, ran_s=1800)


def _change(attempt: Attempt) -> str:
    return reverse("admin:orchestrator_attempt_change", args=(attempt.pk,))


def _page(attempt: Attempt) -> str:
    return reverse("admin:orchestrator_attempt_correct_the_cost", args=(attempt.pk,))


def test_an_administrator_corrects_a_cost_and_says_why(admin: Client, attempt: Attempt) -> None:
    assert _page(attempt) in text_of(admin.get(_change(attempt)))
    assert "settled at 0.5000" in text_of(admin.get(_page(attempt)))

    answer = admin.post(_page(attempt), {"cost": "0.25", "reason": "half was refunded"}, follow=True)

    assert f"{attempt.handle} cost 0.25." in text_of(answer)
    attempt.refresh_from_db()
    assert attempt.charge_cost == Decimal("0.25")
    line = Charge.objects.get(kind="correct")
    assert (line.amount, line.note) == (Decimal("-0.25"), "user:root: half was refunded")
    assert Event.objects.get(type="charge.corrected").actor == "user:root"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"cost": "-1", "reason": "x"}, "greater than or equal to 0"),
        ({"cost": "1"}, "This field is required."),
        ({"cost": "1", "reason": "   "}, "This field is required."),
        ({"cost": "much", "reason": "x"}, "Enter a number."),
    ],
)
def test_what_cannot_be_is_told_at_the_form_and_nothing_is_written(
    admin: Client, attempt: Attempt, given: dict[str, str], said: str
) -> None:
    page = text_of(admin.post(_page(attempt), given))

    assert said in page
    assert not Charge.objects.filter(kind="correct").exists()


def test_what_is_not_settled_is_refused_in_words(admin: Client, attempt: Attempt) -> None:
    Attempt.objects.filter(pk=attempt.pk).update(charge_cost=None)

    page = text_of(admin.post(_page(attempt), {"cost": "1", "reason": "x"}))

    assert "is not settled yet" in page


def test_who_may_only_look_may_not_and_neither_may_a_site_manager(
    alice: User, bob: User, attempt: Attempt
) -> None:
    appoint(System.objects.get(slug="anvil"), bob, now=attempt.planned_at, actor="user:root")
    manager = Client()
    manager.force_login(bob)
    looks = staff("view_attempt")

    for client in (looks, manager):
        assert _page(attempt) not in text_of(client.get(_change(attempt)))
        assert client.post(_page(attempt), {"cost": "1", "reason": "x"}).status_code == 403
    assert not Charge.objects.filter(kind="correct").exists()


def test_staff_with_the_right_to_write_the_ledger_may(attempt: Attempt) -> None:
    accountant = staff("view_attempt", "add_charge")

    assert accountant.post(_page(attempt), {"cost": "1", "reason": "x"}).status_code == 302
    assert Charge.objects.get(kind="correct").note == "user:staff: x"
