"""The frame of every page: places, the palette's answers, messages with a way back, calls for a terminal."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from django.contrib import messages
from django.contrib.auth.models import User
from django.contrib.messages.storage.base import Message
from django.test import Client, RequestFactory

from portal.skills.every import SKILLS
from portal.web import terminal
from portal.web.navigation import PLACES, places
from portal.web.told import tell, undo_of

TEMPLATES = Path(__file__).resolve().parents[2] / "templates"
URL = "https://facet.example"


def test_every_key_leads_to_one_place_and_every_place_that_exists_has_an_address() -> None:
    keys = [place.key for place in PLACES]

    assert len(set(keys)) == len(keys)
    assert {place.here for place in places()} >= {"federation", "submit", "tasks", "events", "account"}
    assert all(place.url.startswith("/") for place in places())


def test_the_place_of_a_page_is_marked_in_the_rail_and_in_the_tab_bar(
    browser: Client, federation: User
) -> None:
    html = browser.get("/").content.decode()

    assert re.findall(r'href="([^"]+)" aria-current="page"', html) == ["/", "/"]


def test_the_palette_finds_systems_tasks_and_pages_by_letters(browser: Client, federation: User) -> None:
    browser.post(
        "/tasks/new/",
        {"work": "command", "command": "true", "name": "anvil-run", "cpus_min": "1", "walltime_min": "10"},
    )

    html = browser.get("/find/?part=options&q=ANV").content.decode()

    assert re.findall(r'id="(found-[a-z]+-\d)"', html) == ["found-tasks-1", "found-systems-1"]
    assert "anvil-run" in html
    assert "Delta" not in html


def test_nobody_finds_the_tasks_of_another(browser: Client, federation: User, kofi: User) -> None:
    browser.post(
        "/tasks/new/",
        {"work": "command", "command": "true", "name": "private-run", "cpus_min": "1", "walltime_min": "10"},
    )
    browser.force_login(kofi)

    assert "private-run" not in browser.get("/find/?q=private").content.decode()


def test_finding_takes_few_queries(
    browser: Client, federation: User, django_assert_max_num_queries: Any
) -> None:
    with django_assert_max_num_queries(4):
        browser.get("/find/?part=options&q=a")


@pytest.mark.parametrize(
    ("name", "body", "cli"),
    [
        ("cancel", {"group": "grp_1"}, "facet cancel grp_1"),
        ("replan", {"task": "task_1", "exclude_systems": ["anvil"]}, "facet replan task_1 --without anvil"),
        ("read_log", {"task": "task_1", "stream": "stderr"}, "facet log task_1 --stderr"),
        (
            "draft_envelope",
            {"text": "two GPUs, it's small"},
            "facet draft --text 'two GPUs, it'\"'\"'s small'",
        ),
        ("wait_for_events", {"after": 7}, "facet skills wait_for_events --input '{\"after\": 7}'"),
    ],
)
def test_an_action_is_shown_as_the_command_that_does_it(name: str, body: dict[str, Any], cli: str) -> None:
    assert terminal.skill_call(name, body, base_url=URL).cli == cli


def test_a_curl_call_carries_the_body_whole_and_never_a_token() -> None:
    body = {"name": "it's", "command": ["echo", "$HOME"]}

    call = terminal.skill_call("submit_task", body, base_url=URL)

    words = shlex.split(call.curl.replace("\\\n", " "))
    assert json.loads(words[words.index("-d") + 1]) == body
    assert words[-1] == f"{URL}/api/v1/skills/submit_task"
    assert "Authorization: Bearer $FACET_TOKEN" in words
    assert "Idempotency-Key: $(uuidgen)" in words


def test_what_templates_show_for_a_terminal_is_a_skill_with_such_fields() -> None:
    used = [
        (name, re.findall(r"(\w+)=", rest))
        for path in TEMPLATES.rglob("*.html")
        for name, rest in re.findall(r'{% show_as "(\w+)"([^%]*)%}', path.read_text())
    ]

    assert used
    for name, fields in used:
        assert set(fields) <= set(SKILLS[name].schema_in().get("properties", {}))


def test_only_a_path_of_this_site_is_a_way_back() -> None:
    request = RequestFactory().get("/")
    request._messages = kept = _Kept()  # type: ignore[attr-defined]  # what the middleware sets

    tell(request, "Deleted.", undo="/templates/tpl_1/restore/")

    assert [(m, undo_of(m)) for m in kept.added] == [(kept.added[0], "/templates/tpl_1/restore/")]
    assert undo_of(Message(messages.INFO, "x", extra_tags="undo:https://elsewhere.example")) == ""
    assert undo_of(Message(messages.INFO, "x")) == ""


class _Kept:
    def __init__(self) -> None:
        self.added: list[Message] = []

    def add(self, level: int, message: str, extra_tags: str = "") -> None:
        self.added.append(Message(level, message, extra_tags=extra_tags))


@pytest.mark.parametrize(
    ("address", "status"),
    [
        ("/tasks/%00/", 404),
        ("/events/a%00b/", 404),
        ("/api/v1/tasks/%00", 404),
        ("/find/?q=%00", 400),
        ("/tasks/new/?from=%00", 400),
        ("/admin/orchestrator/task/?state=%00", 400),
        ("/api/v1/tasks?name=%00", 422),
        ("/api/v1/events?subject=a%00b", 422),
    ],
)
def test_an_address_with_a_nul_is_refused_before_the_database_is_asked(
    browser: Client, federation: User, address: str, status: int
) -> None:
    assert browser.get(address).status_code == status
