"""Groups on pages: their list, one of them with its rounds and lanes, and cancelling it."""

import re
from datetime import datetime, timedelta
from decimal import Decimal

import pytest
from django.contrib.auth.models import User
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from federation.ledger import record
from orchestrator.lifecycle import AttemptState, GroupState, TaskState
from orchestrator.models import Attempt, Group, Task
from orchestrator.services.groups import advance_group, submit_group
from orchestrator.services.manifests import keep_manifest
from orchestrator.services.moves import group_event, move_attempt, move_task
from providers.types import FileEntry
from tests.web.world import positions

pytestmark = pytest.mark.django_db


def campaign(user: User, now: datetime, **more: object) -> Group:
    """Submit two children and a third in the next round, and place what may begin."""
    child = {"command": ["true"], "envelope": {"gpus": 1, "walltime_s": 3600}}
    given = {
        "name": "docking",
        "objective": "Screen the ligands.",
        "diversity": "soft",
        "children": [
            {"key": "a", "name": "dock-a", **child},
            {"key": "b", "name": "dock-b", **child},
            {"key": "rank", "name": "rank", "round": 2, **child},
        ],
        **more,
    }
    group = submit_group(user, given, actor="user:mira", now=now).group
    advance_group(group.pk, now=now)
    positions()
    return group


def run(task: Task, now: datetime, *, until: AttemptState) -> None:
    """Have a placed child start eight minutes ago and, where asked, end now."""
    task.refresh_from_db()
    attempt = task.attempt
    assert attempt is not None
    sent = now - timedelta(minutes=10)
    for state in (AttemptState.DISPATCHING, AttemptState.SUBMITTED):
        move_attempt(attempt, state, now=now, submitted_at=sent, job_id="7")
    move_attempt(attempt, AttemptState.RUNNING, now=now, started_at=now - timedelta(minutes=8))
    for target in (TaskState.SUBMITTED, TaskState.PENDING, TaskState.RUNNING):
        move_task(task, target, now=now)
    if until is not AttemptState.RUNNING:
        move_attempt(attempt, until, now=now, ended_at=now, exit_code=0)
        move_task(task, TaskState(until.value), now=now, finished_at=now)


def test_the_list_says_what_a_group_is_when_there_is_none(browser: Client) -> None:
    page = browser.get("/groups/").text

    assert "No group yet" in page
    assert "facet group campaign.json" in page


def test_the_list_shows_children_by_state_and_where_they_are(
    federation: User, browser: Client, now: datetime
) -> None:
    group = campaign(federation, now)
    run(group.tasks.get(group_key="a"), now, until=AttemptState.SUCCEEDED)
    run(group.tasks.get(group_key="b"), now, until=AttemptState.RUNNING)

    page = browser.get("/groups/").text

    assert 'aria-label="1 Succeeded, 1 Running, 1 Accepted"' in page
    assert "1 of 3 ended, 1 running; round 1 is open." in page
    assert "0 / 2" in page


@pytest.mark.parametrize(
    ("query", "found"), [("", True), ("q=dock", True), ("q=nothing", False), ("state=failed", False)]
)
def test_the_list_is_filtered(
    federation: User, browser: Client, now: datetime, query: str, *, found: bool
) -> None:
    campaign(federation, now)

    page = browser.get(f"/groups/?{query}").text

    assert ('<a class="name"' in page, "No group fits" in page) == (found, not found)


def test_one_group_draws_each_child_in_its_round_and_in_its_systems_colour(
    federation: User, browser: Client, now: datetime
) -> None:
    group = campaign(federation, now)
    child = group.tasks.get(group_key="a")
    run(child, now, until=AttemptState.SUCCEEDED)

    page = browser.get(f"/groups/{group.handle}/").text

    where = child.attempt.system.name if child.attempt else ""
    assert f'title="{where} gpu: Succeeded"' in page
    assert re.search(r"Round 1</h3><span class=\"tag accent\">.*?open", page, re.DOTALL)
    assert "after round 1" in page
    assert "begins with round 2" in page
    assert f'href="/tasks/?group={group.handle}"' in page
    assert "on different systems, while that pays" in page


def test_the_story_tells_of_stalling_and_of_the_constraint_that_was_relaxed(
    federation: User, browser: Client, now: datetime
) -> None:
    group = campaign(federation, now)
    told = "distinct systems no longer buy parallelism: dock-b may join its siblings' systems"
    record(
        [
            group_event(group, "group.child_stalled", "dock-b still waits on delta; its siblings have ended"),
            group_event(group, "group.constraint_relaxed", told),
        ],
        now=now,
    )
    positions()

    story = browser.get(f"/groups/{group.handle}/").text.partition("How it came about")[2]

    kinds = re.findall(r">(group\.\w+)</span>", story)
    assert kinds == ["group.submitted", "group.child_stalled", "group.constraint_relaxed"]
    assert "dock-b still waits on delta" in story


def test_cancelling_shows_what_each_site_has_confirmed(
    federation: User, browser: Client, now: datetime
) -> None:
    group = campaign(federation, now)
    for key in ("a", "b"):
        run(group.tasks.get(group_key=key), now, until=AttemptState.RUNNING)

    answer = browser.post(f"/groups/{group.handle}/cancel/", follow=True).text

    assert "the group ends when every site has confirmed" in answer
    assert "Cancelling: 2 children have not ended yet." in answer
    assert "0 of 2 confirmed" in answer
    assert "Yes, cancel the group" not in answer

    first = Attempt.objects.filter(task__group=group).order_by("id").first()
    assert first is not None
    move_attempt(first, AttemptState.CANCELLED, now=now, ended_at=now)
    assert "1 of 2 confirmed" in browser.get(f"/groups/{group.handle}/").text


def test_a_group_tells_what_its_children_left_and_cost_together(
    federation: User, browser: Client, now: datetime
) -> None:
    group = campaign(federation, now)
    for key, size in (("a", 1024), ("b", 512)):
        task = group.tasks.get(group_key=key)
        run(task, now, until=AttemptState.SUCCEEDED)
        Attempt.objects.filter(task=task).update(charge_cost=Decimal("0.25"))
        task.refresh_from_db()
        assert task.attempt is not None
        keep_manifest(task, task.attempt, (FileEntry(path="out", bytes=size),), now=now)

    page = browser.get(f"/groups/{group.handle}/").text

    words = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))
    assert "2 manifests · 2 files · 1.5 KiB" in words
    charged = sum(Decimal(each) for each in re.findall(r'data-head="Charged">([\d.]+) SU<', page))
    assert charged == Decimal("0.5")


def test_the_list_says_which_round_is_open_where_not_every_child_is_required(
    federation: User, browser: Client, now: datetime
) -> None:
    group = campaign(federation, now, require="any")
    run(group.tasks.get(group_key="a"), now, until=AttemptState.SUCCEEDED)
    advance_group(group.pk, now=now)

    assert "1 of 3 ended, 0 running; round 2 is open." in browser.get("/groups/").text


def test_another_users_group_is_not_found(
    federation: User, browser: Client, kofi: User, now: datetime
) -> None:
    group = campaign(federation, now)
    browser.force_login(kofi)

    assert browser.get(f"/groups/{group.handle}/").status_code == 404
    assert browser.post(f"/groups/{group.handle}/cancel/").status_code == 404
    assert "docking" not in browser.get("/groups/").text
    group.refresh_from_db()
    assert group.state == GroupState.RUNNING


def test_group_pages_ask_a_bounded_number_of_questions(
    federation: User, browser: Client, now: datetime, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    made = [campaign(federation, now) for _ in range(3)]

    for address, most in (("/groups/", 6), (f"/groups/{made[0].handle}/", 8)):
        with django_assert_max_num_queries(most):
            browser.get(address)
