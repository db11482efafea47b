"""Transfers on pages: started, followed, cancelled, and the consent they may wait for."""

import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from orchestrator.models import Transfer
from tests.web.world import positions

pytestmark = pytest.mark.django_db


@pytest.fixture
def home(tmp_path: Path, settings: Any, mira: User) -> Path:
    """A folder of this machine that is open to mira."""
    settings.LOCAL_ROOTS = (str(tmp_path / "home" / "{user}"),)
    folder = tmp_path / "home" / "mira"
    folder.mkdir(parents=True)
    (folder / "x").write_text("hello\n")
    return folder


@pytest.fixture
def move(browser: Client, home: Path) -> Transfer:
    """A move of hers that was just accepted."""
    given = {"source": f"file://{home}/x", "destination": f"file://{home}/y", "label": "copy"}
    assert browser.post("/transfers/new/", given).status_code == 302
    positions()
    return Transfer.objects.get()


def test_the_page_says_how_to_begin(browser: Client) -> None:
    page = browser.get("/transfers/").text

    assert "Nothing was moved yet" in page
    assert '<details class="add" open>' in page


def test_a_move_is_started_and_leads_to_its_page(browser: Client, move: Transfer, home: Path) -> None:
    page = browser.get(f"/transfers/{move.handle}/").text

    assert (move.state, move.actor, move.source) == ("requested", "user:mira", f"file://{home}/x")
    assert "Requested" in page
    assert "transfer.requested" in page
    assert "Looked at before" in page
    assert 'hx-trigger="facet:changed from:body, every 10s"' in page
    assert move.source in unescape(browser.get("/transfers/").text)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"source": "", "destination": "file:///y"}, "This field is required."),
        ({"source": "http://x/y", "destination": "file:///y"}, "globus://"),
        ({"source": "file:///home/x", "destination": "file:///home/x"}, "is the source itself"),
        ({"source": "file:///etc/passwd", "destination": "file:///tmp/y"}, "/etc/passwd"),
    ],
)
def test_a_move_that_cannot_be_says_why_and_keeps_what_was_typed(
    browser: Client, home: Path, given: dict[str, str], sentence: str
) -> None:
    answer = browser.post("/transfers/new/", given)

    assert answer.status_code == 422
    assert sentence in unescape(answer.text)
    assert f'value="{given["destination"]}"' in answer.text
    assert not Transfer.objects.exists()


def test_a_move_is_cancelled_after_a_question(browser: Client, move: Transfer) -> None:
    assert "Stop this move?" in browser.get(f"/transfers/{move.handle}/").text

    page = browser.post(f"/transfers/{move.handle}/cancel/", follow=True).text

    move.refresh_from_db()
    assert move.cancel_requested_at is not None
    assert "Stop this move?" not in page


def test_a_move_that_waits_for_a_consent_says_where_to_give_it(browser: Client, move: Transfer) -> None:
    where = "/connections/connect/?next=1"
    Transfer.objects.update(fault="consent", detail={"sign_in": {"url": where}}, reason="consent is missing")

    for address in ("/transfers/", f"/transfers/{move.handle}/"):
        assert re.search(
            rf'href="{re.escape(where)}">.*?consent|Give it', browser.get(address).text, re.DOTALL
        )
    assert "waits for your consent" in browser.get("/transfers/").text


@pytest.mark.parametrize(
    ("query", "found"),
    [("", True), ("q=home/mira/x", True), ("q=zzz", False), ("state=failed", False), ("state=active", True)],
)
def test_the_list_is_filtered(browser: Client, move: Transfer, query: str, *, found: bool) -> None:
    page = browser.get(f"/transfers/?{query}").text

    assert (f"row-{move.handle}" in page, "No transfer fits" in page) == (found, not found)


def test_another_users_transfer_is_not_found(browser: Client, move: Transfer, kofi: User) -> None:
    browser.force_login(kofi)

    assert browser.get(f"/transfers/{move.handle}/").status_code == 404
    assert browser.post(f"/transfers/{move.handle}/cancel/").status_code == 404
    assert move.source not in unescape(browser.get("/transfers/").text)


def test_data_pages_ask_a_bounded_number_of_questions(
    browser: Client, move: Transfer, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    for address, most in (("/transfers/", 6), (f"/transfers/{move.handle}/", 6)):
        with django_assert_max_num_queries(most):
            browser.get(address)
