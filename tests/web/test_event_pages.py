"""The log on pages: filters, one event in full, and the check of its chain."""

import re
from datetime import datetime, timedelta
from html import unescape
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client

from federation.archives import archive
from federation.chain import verify_stretch
from federation.models import Event
from tests.web.test_task_pages import submit

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("query", "types"),
    [
        ("type=task.accepted", {"task.accepted"}),
        ("type=task.*&about=one", {"task.accepted", "task.placed"}),
        ("wake=exception", set()),
        ("actor=user:mira", {"task.accepted", "task.placed"}),
        ("actor=nobody", set()),
    ],
)
def test_the_log_is_filtered(
    federation: User, browser: Client, now: datetime, query: str, types: set[str]
) -> None:
    submit(federation, "one", now)
    submit(federation, "two", now)

    page = browser.get(f"/events/?{query}").text

    found = set(re.findall(r"</svg>(\w+\.\w+)</span></li>", page))
    assert found == types


def test_events_are_found_by_a_handle(federation: User, browser: Client, now: datetime) -> None:
    one, _two = submit(federation, "one", now), submit(federation, "two", now)

    page = browser.get(f"/events/?about={one.handle}").text

    assert "one accepted" in page
    assert "two accepted" not in page


def test_one_event_says_who_did_it_for_whom_and_where_it_stands(
    federation: User, browser: Client, now: datetime
) -> None:
    task = submit(federation, "one", now)
    event = Event.objects.get(type="task.accepted")

    page = browser.get(f"/events/{event.handle}/").text

    assert "one accepted" in page
    assert "user:mira" in page
    assert f'href="/tasks/{task.handle}/"' in page
    assert bytes(event.position.hash).hex() in page


def test_another_users_event_is_not_found(
    federation: User, browser: Client, kofi: User, now: datetime
) -> None:
    submit(federation, "one", now)
    browser.force_login(kofi)

    assert browser.get(f"/events/{Event.objects.get(type='task.accepted').handle}/").status_code == 404


def test_the_chain_is_checked_in_stretches_to_its_end(
    federation: User, browser: Client, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two", "three"):
        submit(federation, name, now)
    every = Event.objects.count()
    monkeypatch.setattr("federation.chain.STRETCH", 2)
    monkeypatch.setattr("portal.web.events.verify_stretch", lambda after: verify_stretch(after, size=2))

    page, asked = browser.get("/events/verify/").text, 1
    while onward := re.search(r'hx-get="([^"]+)"', page.partition('class="stretches"')[2] or page):
        page, asked = browser.get(unescape(onward[1])).text, asked + 1

    assert asked == every // 2 + 1
    assert f"All {every} events are what was committed" in page


def test_a_changed_event_breaks_the_chain_where_it_stands(
    federation: User, browser: Client, now: datetime
) -> None:
    submit(federation, "one", now)
    event = Event.objects.get(type="task.accepted")
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE federation_event DISABLE TRIGGER USER")
        cursor.execute("UPDATE federation_event SET summary = 'forged' WHERE id = %s", [event.pk])
        cursor.execute("ALTER TABLE federation_event ENABLE TRIGGER USER")

    page = browser.get("/events/verify/").text

    assert "The chain is broken at 1 place" in page
    assert f"#{event.position.seq}: the event was changed" in page


def test_a_forged_progress_begins_anew(federation: User, browser: Client, now: datetime) -> None:
    submit(federation, "one", now)

    page = browser.get("/events/verify/?go=forged:1:x").text

    assert f"All {Event.objects.count()} events are what was committed" in page


def test_a_stretch_that_begins_in_the_middle_knows_the_hash_before_it(
    federation: User, now: datetime
) -> None:
    submit(federation, "one", now)
    every = Event.objects.count()

    found = verify_stretch(2)

    assert (found.breaks, found.checked, found.upto, found.is_last) == ((), every - 2, every, True)


def test_a_log_whose_beginning_is_archived_is_checked_from_there(
    federation: User, browser: Client, now: datetime, tmp_path: Path
) -> None:
    submit(federation, "one", now)
    every = Event.objects.count()
    row = archive(before=now + timedelta(days=1), folder=tmp_path, now=now, at_once=2)
    assert row is not None

    page = browser.get("/events/verify/").text

    assert f"{every - row.events} events are what was committed" in page or "The one event is what" in page
    assert "break" not in page.partition('class="stretches"')[2].partition("</ol>")[0].replace("unbroken", "")
