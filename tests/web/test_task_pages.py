"""The task and event pages: what they show, to whom, and what their buttons do."""

import re
from datetime import datetime, timedelta
from decimal import Decimal
from html import unescape
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from federation.charges import correct, settle
from orchestrator import selectors
from orchestrator.leavings import Tails
from orchestrator.lifecycle import AttemptState, Cause, TaskState
from orchestrator.models import Attempt, Task
from orchestrator.services.manifests import keep_manifest
from orchestrator.services.moves import move_attempt, move_task
from orchestrator.services.tasks import submit_task
from portal.web.paging import page_of
from providers.types import FileEntry
from tests.web.world import positions

pytestmark = pytest.mark.django_db


def submit(user: User, name: str, now: datetime, **more: object) -> Task:
    """Submit one task that needs a GPU; events get their places, as at a commit."""
    given = {
        "name": name,
        "command": ["python", "train.py"],
        "envelope": {"gpus": 1, "walltime_s": 3600},
        **more,
    }
    task = submit_task(user, given, actor="user:mira", now=now).task
    positions()
    return task


def start(task: Task, now: datetime) -> None:
    """Have the accepted attempt run for ten minutes."""
    attempt = task.attempt
    assert attempt is not None
    for state in (AttemptState.DISPATCHING, AttemptState.SUBMITTED):
        move_attempt(attempt, state, now=now, submitted_at=now - timedelta(minutes=12), job_id="4711")
    move_attempt(attempt, AttemptState.RUNNING, now=now, started_at=now - timedelta(minutes=10))
    for target in (TaskState.SUBMITTED, TaskState.PENDING, TaskState.RUNNING):
        move_task(task, target, now=now)


def test_the_list_says_what_to_do_when_there_is_nothing(browser: Client) -> None:
    page = browser.get("/tasks/").text

    assert "No task yet" in page
    assert "Submit the first one" in page


def test_the_list_shows_state_place_and_shape(federation: User, browser: Client, now: datetime) -> None:
    start(submit(federation, "md-equil", now), now)

    page = browser.get("/tasks/").text

    assert "md-equil" in page
    assert re.search(r'class="tag accent turning">.*?Running', page, re.DOTALL)
    assert "1 node · 1 GPU · 1 CPU · 1 h" in page
    assert re.search(r"Running on Anvil gpu for 10 min; should end in about", page)


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", ["second", "first"]),
        ("q=sec", ["second"]),
        ("q=nothing", []),
        ("state=active", ["second"]),
        ("state=cancelled", ["first"]),
        ("system=anvil", ["second", "first"]),
        ("system=delta", []),
        ("state=wibble", []),
    ],
)
def test_the_list_is_filtered(
    federation: User, browser: Client, now: datetime, query: str, names: list[str]
) -> None:
    first = submit(federation, "first", now)
    submit(federation, "second", now)
    browser.post(f"/tasks/{first.handle}/cancel/")

    page = browser.get(f"/tasks/?{query}").text

    assert re.findall(r'class="name" href="[^"]+">(\w+)<', page) == names
    assert ("No task fits" in page) == (not names)


def test_words_find_names_objectives_handles_and_job_ids_of_the_caller_only(
    federation: User, browser: Client, now: datetime
) -> None:
    ran = submit(federation, "md-equil", now, objective="Weigh 100 % of the samples")
    start(ran, now)
    other = submit(federation, "other", now)
    stranger = User.objects.create_user("stranger")
    submit(stranger, "md-equil", now)

    for words in ("EQUI", "100 %", ran.handle, ran.handle[:12], "4711"):
        page = browser.get("/tasks/", {"q": words}).text
        found = re.findall(r'class="name" href="/tasks/([^"]+)/">', page)
        assert ran.handle in found
        assert set(found) <= {ran.handle, other.handle}
    for words in ("471", "_", "zz"):
        assert "No task fits" in browser.get("/tasks/", {"q": words}).text


def test_the_list_goes_on_from_a_cursor(
    federation: User, browser: Client, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("portal.web.task_list.PAGE_SIZE", 2)
    for name in ("one", "two", "three"):
        submit(federation, name, now)

    first = browser.get("/tasks/?q=o").text + browser.get("/tasks/").text
    older = re.search(r'href="\?(cursor=[^"]+)" rel="next"', first)
    assert older is not None
    second = browser.get(f"/tasks/?{older[1]}").text

    assert re.findall(r'class="name" href="[^"]+">(\w+)<', second) == ["one"]
    assert "Newest" in second


def test_a_running_task_shows_its_timeline_decision_and_events(
    federation: User, browser: Client, now: datetime
) -> None:
    task = submit(federation, "md-equil", now)
    start(task, now)

    page = browser.get(f"/tasks/{task.handle}/").text

    assert 'class="span running"' in page
    assert 'class="span planned"' in page
    assert 'class="now-line"' in page
    assert "Chosen" in page
    assert "Anvil gpu is chosen" in page
    assert "md-equil accepted" in page
    assert re.search(r">2 min<small class=\"words\">expected \d+ s, 9 of 10 within [^<]+ · (free|when)", page)
    assert "4711" in page
    assert f"/api/v1/tasks/{task.handle}" in page
    assert 'hx-trigger="facet:changed from:body, every 15s"' in page


def test_a_decision_tells_its_warnings_the_kind_of_its_waits_and_the_age_of_its_figures(
    federation: User, browser: Client, now: datetime
) -> None:
    late = {"policy": {"deadline": (now + timedelta(minutes=2)).isoformat()}}
    work = {"command": "true", "envelope": {"gpus": 1, "cpus": 1, "walltime_s": 3600, **late}}
    task = submit_task(federation, work, actor="user", now=now + timedelta(seconds=30)).task

    page = browser.get(f"/tasks/{task.handle}/").text

    assert "No candidate is sure to end by" in page
    assert re.search(r"<small class=\"words\">(free, (nobody|others) ahead|when others end)</small>", page)
    assert "on figures 30 s old" in page


def test_the_envelope_stands_as_written_beside_as_understood(
    federation: User, browser: Client, now: datetime
) -> None:
    task = submit(federation, "a", now, envelope={"gpus": 1, "walltime_s": "2:00:00", "memory_mib": "64G"})

    page = browser.get(f"/tasks/{task.handle}/").text

    rows = dict(re.findall(r'<td class="mono">(\w+)</td><td class="break">(.*?)</td>', page))
    assert (rows["walltime_s"], rows["memory_mib"], rows["cpus"]) == ("2:00:00", "64G", "–")
    assert '<span class="changed">2 h</span>' in page
    assert '<span class="changed">64 GiB</span>' in page


def test_a_finished_task_shows_what_it_left_and_moves_no_more(
    federation: User, browser: Client, now: datetime
) -> None:
    task = submit(federation, "done", now)
    start(task, now)
    attempt = task.attempt
    assert attempt is not None
    move_attempt(attempt, AttemptState.SUCCEEDED, now=now, ended_at=now, finished_at=now, exit_code=0)
    move_task(task, TaskState.SUCCEEDED, now=now, finished_at=now)
    attempt.refresh_from_db()
    keep_manifest(task, attempt, (FileEntry(path="out.dat", bytes=2048, sha256="ab" * 32),), now=now)

    page = browser.get(f"/tasks/{task.handle}/").text

    assert "Succeeded on Anvil gpu after running for 10 min." in page
    assert "exit code 0" in re.sub(r"<[^>]+>", "", page)
    assert "out.dat" in page
    assert "2 KiB" in page
    assert "ab" * 5 + "…" in page
    assert "every 15s" not in page
    assert "Yes, cancel it" not in page


def test_an_attempt_says_how_often_its_scheduler_began_it_anew(
    federation: User, browser: Client, now: datetime
) -> None:
    task = submit(federation, "requeued", now)
    Attempt.objects.filter(task=task).update(restarts=2)

    assert "Requeued 2 times by its scheduler." in browser.get(f"/tasks/{task.handle}/").text


def test_a_failed_attempt_is_outlined_with_its_cause(
    federation: User, browser: Client, now: datetime
) -> None:
    task = submit(federation, "oom", now)
    start(task, now)
    assert task.attempt is not None
    move_attempt(
        task.attempt, AttemptState.FAILED, now=now, cause=Cause.OUT_OF_MEMORY, ended_at=now, finished_at=now
    )

    page = browser.get(f"/tasks/{task.handle}/").text

    assert 'class="span failed"' in page
    assert "Failed: out of memory" in page


def test_a_task_that_fits_nowhere_says_the_smallest_change(
    federation: User, browser: Client, now: datetime
) -> None:
    task = submit(federation, "long", now, envelope={"gpus": 1, "walltime_s": 10 * 86_400})

    page = browser.get(f"/tasks/{task.handle}/").text

    assert "Nowhere to run" in page
    assert "comes closest" in page
    assert "Not tried yet" in page


def test_another_users_task_is_not_found_whatever_is_asked(
    federation: User, browser: Client, kofi: User, now: datetime
) -> None:
    task = submit(federation, "mine", now)
    browser.force_login(kofi)

    assert browser.get(f"/tasks/{task.handle}/").status_code == 404
    assert browser.get(f"/tasks/{task.handle}/?part=log&stream=stdout").status_code == 404
    assert browser.post(f"/tasks/{task.handle}/cancel/").status_code == 404
    assert browser.post(f"/tasks/{task.handle}/replan/").status_code == 404
    assert "mine" not in browser.get("/tasks/").text
    assert "mine accepted" not in browser.get("/events/").text


def test_cancelling_ends_what_was_not_sent(federation: User, browser: Client, now: datetime) -> None:
    task = submit(federation, "typo", now)

    answer = browser.post(f"/tasks/{task.handle}/cancel/", follow=True)

    task.refresh_from_db()
    assert task.state == "cancelled"
    assert "Cancelled" in answer.text


def test_actions_need_a_post(federation: User, browser: Client, now: datetime) -> None:
    task = submit(federation, "a", now)

    assert browser.get(f"/tasks/{task.handle}/cancel/").status_code == 405
    assert browser.get(f"/tasks/{task.handle}/replan/").status_code == 405


def test_a_running_task_stays_where_it_is_and_says_so(
    federation: User, browser: Client, now: datetime
) -> None:
    task = submit(federation, "busy", now)
    start(task, now)

    answer = browser.post(f"/tasks/{task.handle}/replan/", follow=True)

    assert "is running and stays where it is. Cancel it first" in answer.text


def test_placing_again_makes_a_second_attempt(federation: User, browser: Client, now: datetime) -> None:
    task = submit(federation, "again", now)

    browser.post(f"/tasks/{task.handle}/replan/")

    assert list(task.attempts.order_by("number").values_list("state", flat=True)) == ["superseded", "planned"]


def test_output_that_is_not_there_yet_is_no_fault(federation: User, browser: Client, now: datetime) -> None:
    task = submit(federation, "quiet", now)

    part = browser.get(f"/tasks/{task.handle}/?part=log&stream=stderr").text

    assert part.lstrip().startswith('<section class="card" id="log"')
    assert "Nothing was written yet." in part
    assert 'hx-trigger="every 4s"' in part


def test_events_are_listed_newest_first_and_filtered(
    federation: User, browser: Client, now: datetime
) -> None:
    submit(federation, "md-equil", now)

    everything = [int(n) for n in re.findall(r'data-seq="(\d+)"', browser.get("/events/").text)]
    accepted = browser.get("/events/?type=task.accepted").text

    assert everything == sorted(everything, reverse=True)
    assert len(everything) >= 2
    assert re.findall(r"md-equil \w+", accepted) == ["md-equil accepted"]


def test_words_of_users_cannot_become_markup(federation: User, browser: Client, now: datetime) -> None:
    task = submit(federation, "<script>alert(1)</script>", now, objective="<img src=x onerror=alert(1)>")

    for address in ("/tasks/", f"/tasks/{task.handle}/", "/events/"):
        page = browser.get(address).text
        assert "<script>alert" not in page
        assert "<img src=x" not in page


def test_pages_ask_a_bounded_number_of_questions(
    federation: User, browser: Client, now: datetime, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    made = [submit(federation, f"t{number}", now) for number in range(6)]

    for address, most in (("/tasks/", 8), (f"/tasks/{made[0].handle}/", 10), ("/events/", 6)):
        with django_assert_max_num_queries(most):
            browser.get(address)


def test_many_tasks_are_cancelled_after_one_question(
    federation: User, browser: Client, now: datetime
) -> None:
    one, two, kept = (submit(federation, name, now) for name in ("one", "two", "kept"))

    asked = browser.post("/tasks/cancel/", {"task": [one.handle, two.handle]}).text
    assert "Cancel these 2 tasks?" in asked
    assert Task.objects.filter(state="cancelled").count() == 0
    handles = re.findall(r'name="task" value="(\w+)"', asked)
    told = browser.post("/tasks/cancel/", {"task": handles, "sure": "1"}, follow=True).text

    assert "2 tasks are cancelled." in told
    assert set(Task.objects.filter(state="cancelled")) == {one, two}
    kept.refresh_from_db()
    assert kept.state != "cancelled"


def test_all_that_match_a_filter_can_be_cancelled_at_once(
    federation: User, browser: Client, now: datetime
) -> None:
    for name in ("sweep-1", "sweep-2", "other"):
        submit(federation, name, now)

    asked = browser.post("/tasks/cancel/", {"all": "1", "q": "sweep"}).text

    assert "Cancel these 2 tasks?" in asked
    assert "other" not in re.findall(r'class="name" href="[^"]+">(\w+)<', asked)
    assert 'href="/tasks/?q=sweep"' in asked


def test_nobody_cancels_another_users_tasks(
    federation: User, browser: Client, kofi: User, now: datetime
) -> None:
    task = submit(federation, "mine", now)
    browser.force_login(kofi)

    assert browser.post("/tasks/cancel/", {"task": task.handle}).status_code == 302
    told = browser.post("/tasks/cancel/", {"task": task.handle, "sure": "1"}, follow=True).text

    assert "1 had ended already." in told
    task.refresh_from_db()
    assert task.cancel_requested_at is None


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("sort=name", ["alpha", "beta", "gamma"]),
        ("sort=oldest", ["beta", "gamma", "alpha"]),
        ("sort=changed", ["alpha", "gamma", "beta"]),
        ("sort=wibble", ["alpha", "gamma", "beta"]),
    ],
)
def test_the_list_keeps_its_order_over_pages(
    federation: User,
    browser: Client,
    now: datetime,
    monkeypatch: pytest.MonkeyPatch,
    query: str,
    names: list[str],
) -> None:
    monkeypatch.setattr("portal.web.task_list.PAGE_SIZE", 2)
    for number, name in enumerate(("beta", "gamma", "alpha")):
        submit(federation, name, now + timedelta(seconds=number))

    seen, address = [], f"/tasks/?{query}"
    while address:
        page = browser.get(address).text
        seen += re.findall(r'class="name" href="[^"]+">(\w+)<', page)
        following = re.search(r'href="(\?[^"]*cursor=[^"]+)" rel="next"', page)
        address = "/tasks/" + unescape(following[1]) if following else ""

    assert seen == names


def test_what_a_failed_task_left_says_why_it_failed_and_what_it_cost(
    federation: User, browser: Client, now: datetime
) -> None:
    task = submit(federation, "oom", now)
    start(task, now)
    attempt = task.attempt
    assert attempt is not None
    move_attempt(attempt, AttemptState.FAILED, now=now, cause=Cause.EXIT_CODE, ended_at=now, exit_code=1)
    move_task(task, TaskState.FAILED, now=now, cause=Cause.EXIT_CODE, finished_at=now)
    settle(attempt=attempt.handle, amount=Decimal("0.25"), now=now)
    tails = Tails(stderr="torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n")
    keep_manifest(task, attempt, (), now=now, tails=tails)

    page = browser.get(f"/tasks/{task.handle}/").text

    assert "What went wrong" in page
    assert "CUDA out of memory" in page
    words = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page.partition("Cost, before and after")[2]))
    assert re.search(r"science 1 SU 1 SU 0\.25 SU 25 % of expected", words)

    correct(attempt=attempt.handle, cost=Decimal("0.5"), note="the site's bill", now=now)
    page = browser.get(f"/tasks/{task.handle}/").text
    words = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page.partition("Cost, before and after")[2]))
    assert re.search(r"science 1 SU 1 SU 0\.5 SU 50 % of expected", words)


def test_an_earlier_decision_can_be_read_and_a_place_left_out_of_the_next(
    federation: User, browser: Client, now: datetime
) -> None:
    task = submit(federation, "again", now)
    assert task.attempt is not None
    first, where = task.attempt.decision.handle, task.attempt.system.slug

    browser.post(f"/tasks/{task.handle}/replan/", {"without": where})

    task.refresh_from_db()
    assert task.attempt is not None
    assert task.attempt.system.slug != where
    assert task.excluded_systems == [where]
    page = browser.get(f"/tasks/{task.handle}/?decision={first}").text
    assert re.search(rf'href="\?decision={first}#decision-head" aria-current="true">submit', page)
    assert ">attempt 1</span>" in page.partition("decision-head")[2]


def test_a_system_nobody_knows_is_named_when_it_is_to_be_left_out(
    federation: User, browser: Client, now: datetime
) -> None:
    task = submit(federation, "a", now)

    answer = browser.post(f"/tasks/{task.handle}/replan/", {"without": "anvli"}, follow=True)

    assert "No system `anvli`" in answer.text
    assert task.attempts.count() == 1


def test_places_that_are_out_for_the_same_reason_stand_together(
    federation: User, browser: Client, now: datetime
) -> None:
    task = submit(federation, "a", now, envelope={"gpus": 1, "walltime_s": 10 * 86_400})

    out = browser.get(f"/tasks/{task.handle}/").text.partition('<ul class="outs">')[2]

    assert re.findall(r'class="sys t\d"><span>(\w+)', out.partition("</section>")[0]) == ["Anvil", "Delta"]
    assert "Too short a wall-time limit." in out


def test_the_result_leads_to_its_provenance(federation: User, browser: Client, now: datetime) -> None:
    task = submit(federation, "done", now)
    start(task, now)
    attempt = task.attempt
    assert attempt is not None
    move_attempt(attempt, AttemptState.SUCCEEDED, now=now, ended_at=now, exit_code=0)
    move_task(task, TaskState.SUCCEEDED, now=now, finished_at=now)
    keep_manifest(task, attempt, (), now=now)

    link = f"/api/v1/tasks/{task.handle}/ro-crate"
    assert f'href="{link}" download' in browser.get(f"/tasks/{task.handle}/").text
    assert browser.get(link).headers["Content-Type"] == "application/ld+json"


def test_output_is_read_by_byte_ranges_back_and_forth(
    federation: User, browser: Client, now: datetime, tmp_path: Path
) -> None:
    log = tmp_path / "stdout.log"
    log.write_text("".join(f"line {number:05}\n" for number in range(10_000)))  # 110 000 bytes
    task = submit(federation, "chatty", now)
    Attempt.objects.filter(task=task).update(stdout_path=str(log))

    end = browser.get(f"/tasks/{task.handle}/?part=log&stream=stdout").text
    earlier = re.search(r'href="/tasks/\w+/(\?[^"]+)#log" hx-get="[^"]+"[^>]*>Earlier', end)
    assert "line 09999" in end
    assert earlier is not None
    before = browser.get(f"/tasks/{task.handle}/{unescape(earlier[1])}").text

    assert (
        unescape(earlier[1]) == f"?stream=stdout&try=1&from={110_000 - 16_384 - 65_536}&to={110_000 - 16_384}"
    )
    assert re.findall(r"line (\d{5})", before)[-1] == "08509"
    assert ">Later</a>" in before
    assert ">To the end</a>" in before
    assert "every 4s" not in before


@pytest.mark.parametrize("order", ["-id", "id", "-updated_at", "name"])
def test_a_list_in_any_order_reads_an_index_and_sorts_nothing(federation: User, order: str) -> None:
    for name in ("a", "b", "c"):
        submit_task(federation, {"name": name, "command": "true"}, actor="user:mira", now=timezone.now())
    mine = selectors.tasks(federation)
    with CaptureQueriesContext(connection) as asked:
        found, following = page_of(mine, cursor="", size=1, order=order)
        rest, _last = page_of(mine, cursor=following or "", size=5, order=order)
    lists = [query["sql"] for query in asked if "LIMIT 2" in query["sql"] or "LIMIT 6" in query["sql"]]

    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off")
        plans = []
        for sql in lists:
            cursor.execute(f"EXPLAIN {sql}")
            plans.append("\n".join(row[0] for row in cursor.fetchall()))

    assert len(found) + len(rest) == 3
    assert len(plans) == 2
    assert [plan for plan in plans if "Sort" in plan] == []
