"""Templates: kept from the form, seen by whom their owner says, put away with a way back."""

import re
from decimal import Decimal
from html import unescape

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from federation.models import System
from federation.services import allocate
from portal.models import TaskTemplate
from portal.task_templates import find_template, restore_template, save_template, templates
from providers.errors import InvalidInput, NotFound

pytestmark = pytest.mark.django_db

FORM = {"work": "command", "command": "python train.py", "gpus_min": "2", "walltime_min": "1:00:00"}
BODY = {"command": ["python", "train.py"], "envelope": {"gpus": 2, "walltime_s": 3600}}


def _save(user: User, name: str = "train", **more: str) -> TaskTemplate:
    return save_template(user, name, BODY, now=timezone.now(), **more)


def test_what_the_form_says_becomes_a_template_that_fills_it_again(federation: User, browser: Client) -> None:
    answer = browser.post("/tasks/new/", FORM | {"action": "save", "saved_as": "train"}, follow=True)

    assert "Saved as the template “train”." in unescape(answer.text)
    assert re.search(r'name="command" value="python train.py"', answer.text)
    assert re.search(r'name="gpus_min" value="2"', answer.text)
    assert TaskTemplate.objects.get().sharing == "private"


def test_the_same_name_is_replaced_not_doubled(federation: User) -> None:
    first = _save(federation)
    second = save_template(federation, "train", BODY | {"workdir": "/x"}, now=timezone.now())

    assert (second.pk, second.body["workdir"]) == (first.pk, "/x")


@pytest.mark.parametrize(
    ("sharing", "account", "sees"),
    [("private", "science", 0), ("everyone", "", 1), ("project", "science", 1), ("project", "other", 0)],
)
def test_others_see_what_is_shared_with_them_and_only_that(
    federation: User, kofi: User, sharing: str, account: str, sees: int
) -> None:
    _save(federation, sharing=sharing, project="science" if sharing == "project" else "")
    if account:
        system = System.objects.get(slug="anvil")
        allocate(kofi, system, account, unit="SU", granted=Decimal(10), now=timezone.now())

    assert len(templates(kofi)) == sees


def test_nobody_shares_with_a_project_that_is_not_theirs(federation: User) -> None:
    with pytest.raises(InvalidInput) as refused:
        _save(federation, sharing="project", project="other")

    assert refused.value.problems[0][:2] == ("/project", "unknown_project")


def test_a_body_that_is_no_task_is_refused_with_its_pointer(federation: User) -> None:
    with pytest.raises(InvalidInput) as refused:
        save_template(federation, "x", {"command": ["true"], "colour": "red"}, now=timezone.now())

    assert refused.value.problems[0][0] == "/body/colour"


def test_deleting_offers_the_way_back_and_the_way_back_works(federation: User, browser: Client) -> None:
    row = _save(federation)

    page = browser.post(f"/templates/{row.handle}/delete/", follow=True).text
    (undo,) = re.findall(r'action="(/templates/[^"]+/restore/)"', page)
    assert "No template yet" in page
    again = browser.post(undo, follow=True).text

    assert f"/tasks/new/?template={row.handle}" in again
    assert find_template(federation, row.handle).pk == row.pk


def test_only_the_owner_deletes_or_restores(federation: User, kofi: User, client: Client) -> None:
    row = _save(federation, sharing="everyone")
    client.force_login(kofi)

    assert client.post(f"/templates/{row.handle}/delete/").status_code == 404
    with pytest.raises(NotFound):
        restore_template(kofi, row.handle, now=timezone.now())
    assert len(templates(federation)) == 1


def test_plain_words_fill_the_form_and_what_was_typed_stands(federation: User, browser: Client) -> None:
    page = browser.post(
        "/tasks/new/",
        {"action": "words", "words": "4 a100 gpus for 2 hours", "work": "command", "gpus_min": "8"},
    ).text

    assert "Read from your words" in page
    assert re.search(r'name="gpus_min" value="8"', page)
    assert re.search(r'name="walltime_min" value="2:00:00"', page)
    assert re.search(r'name="accelerator_types" value="a100"', page)


def test_a_form_that_comes_filled_comes_with_its_preview(federation: User, browser: Client) -> None:
    page = browser.get("/tasks/new/?gpus_min=1&walltime_min=1:00:00&command=true").text

    assert "would be chosen" in page
    assert "facet submit --task-file submit.json" in unescape(page)
    assert "Nothing asked yet" in browser.get("/tasks/new/?gpus_min=1").text


def test_the_address_fills_any_field(federation: User, browser: Client) -> None:
    page = browser.get("/tasks/new/?gpus_min=3&work=script&script=%23%21%2Fbin%2Fsh&words=x").text

    assert re.search(r'name="gpus_min" value="3"', page)
    assert re.search(r'value="script" checked', page)
    assert "#!/bin/sh" in page
