"""What a person sets about themselves: time zone and password."""

import pytest
from django.contrib.auth.models import User
from django.test import Client

pytestmark = pytest.mark.django_db

NEW = "another-long-phrase"


def test_the_page_leads_to_connections_and_tokens(browser: Client) -> None:
    page = browser.get("/account/").text

    assert 'href="/connections/"' in page
    assert 'href="/agents/"' in page
    assert "Current" in page or "Old password" in page


def test_a_password_is_changed_and_this_session_stays(browser: Client, mira: User) -> None:
    elsewhere = Client()
    elsewhere.force_login(mira)
    given = {"old_password": "a-long-password", "new_password1": NEW, "new_password2": NEW}

    told = browser.post("/account/password/", given, follow=True)

    assert "Every other session has ended." in told.text
    mira.refresh_from_db()
    assert mira.check_password(NEW)
    assert browser.get("/account/").status_code == 200
    assert elsewhere.get("/account/").status_code == 302


def test_a_wrong_password_changes_nothing(browser: Client, mira: User) -> None:
    given = {"old_password": "wrong", "new_password1": NEW, "new_password2": NEW}

    answer = browser.post("/account/password/", given)

    assert answer.status_code == 422
    assert 'id="id_old_password_error"' in answer.text
    mira.refresh_from_db()
    assert mira.check_password("a-long-password")


def test_who_has_no_password_is_not_asked_for_one(browser: Client, mira: User) -> None:
    mira.set_unusable_password()
    mira.save()
    browser.force_login(mira)

    assert "there is no password to change here" in browser.get("/account/").text
    assert browser.post("/account/password/", {"new_password1": NEW}).status_code == 422


def test_a_time_zone_is_kept_in_the_browser_and_forgotten(browser: Client) -> None:
    browser.post("/account/zone/", {"zone": "Europe/Berlin"})
    assert browser.cookies["facet_zone"].value == "Europe/Berlin"
    assert '<option value="Europe/Berlin" selected>' in browser.get("/account/").text

    browser.post("/account/zone/", {"zone": "Nowhere/Land"})
    assert browser.cookies["facet_zone"].value == ""
