"""The federation pages: what they show, to whom, and how much they ask of the database."""

import re
from datetime import datetime, timedelta

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from pytest_django import DjangoAssertNumQueries

from federation.circuit import Circuit, CircuitState
from federation.models import System
from orchestrator.services import tasks
from portal.web.presenters.federation import Pool
from portal.web.presenters.records import Waits, federation_page
from portal.web.seen import seen
from tests.state import spending
from tests.web.world import make_system

pytestmark = pytest.mark.django_db


def test_a_stranger_is_asked_to_sign_in(client: Client) -> None:
    answer = client.get("/systems/anvil/")

    assert (answer.status_code, answer["Location"]) == (302, "/sign-in/?next=/systems/anvil/")


def test_an_empty_federation_says_what_to_do_first(browser: Client) -> None:
    answer = browser.get("/")

    assert answer.status_code == 200
    assert "No system you may use yet" in answer.text
    assert "load_profiles" in answer.text


def test_each_gpu_is_counted_once_and_ours_are_told_apart(federation: User, now: datetime) -> None:
    shown = seen(federation, now=now)
    anvil, delta = federation_page(shown.systems, shown.records, Waits(), active_tasks=0).cards

    assert anvil.pools == (Pool("A100 40 GB", free=3, ours=4, busy=5, down=4),)
    assert (anvil.free, anvil.total, anvil.unit, anvil.health) == (3, 16, "GPU", "online")
    assert delta.pools == (Pool("H100 80 GB", free=0, ours=4, busy=8, down=4),)
    assert (anvil.queue.running, anvil.queue.pending, anvil.queue.ours_running) == (1, 1, 1)


def test_the_first_page_shows_systems_waits_and_partitions(federation: User, browser: Client) -> None:
    page = browser.get("/").text

    assert "2 systems, 2 online" in page
    assert 'aria-label="A100 40 GB: 3 free, 4 yours, 5 busy, 4 down"' in page
    assert page.count('<i class="f"></i>') == 3 + 1  # three free GPUs, one in the key
    assert "expected wait" in page
    assert "science" in page


def test_another_user_sees_systems_but_nothing_of_ours(federation: User, kofi: User, now: datetime) -> None:
    shown = seen(kofi, now=now)
    page = federation_page(shown.systems, shown.records, Waits(), active_tasks=0)

    assert [card.connected for card in page.cards] == [False, False]
    assert page.cards[0].pools == (Pool("A100 40 GB", free=3, ours=0, busy=9, down=4),)


def test_a_system_page_tells_how_good_the_forecasts_there_were(
    federation: User, browser: Client, now: datetime
) -> None:
    assert "How good our forecasts were here" not in browser.get("/systems/anvil/").text
    work = {"command": "true", "envelope": {"gpus": 1, "cpus": 1, "walltime_s": 600}}
    for wait_s in (2, 70, 4000):
        task = tasks.submit_task(federation, work, actor="user", now=now).task
        started_at = now + timedelta(seconds=wait_s)
        for state in ("dispatching", "submitted"):
            task.attempts.update(state=state)
        task.attempts.update(submitted_at=now, started_at=started_at)
        assert task.attempts.get().system.slug == "anvil"

    page = " ".join(browser.get("/systems/anvil/").text.split())

    section = page[page.index("How good our forecasts were here") :]
    row = section[section.index("<tbody>") : section.index("</tbody>")]
    assert ("free, others ahead" in row, row.count("67 %"), row.count("33 %")) == (True, 2, 1)
    assert "How good our forecasts were here" not in browser.get("/systems/delta/").text


def test_a_system_page_tells_how_good_runtimes_and_charges_were(
    federation: User, browser: Client, now: datetime
) -> None:
    envelope = {"gpus": 1, "cpus": 1, "walltime_s": 3600, "runtime": {"estimate_s": 1000}}
    task = spending.submit(federation, now, envelope=envelope)
    where = spending.run(task, now, ran_s=2500).system.slug

    page = " ".join(browser.get(f"/systems/{where}/").text.split())

    section = page[page.index("How good our forecasts were here") :]
    words = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", section[: section.index("</tbody>")]))
    assert "Runtime as declared 1 0 % 0 % ×2.5 0 %" in words
    assert "Charge as declared 1 – 0 % ×2.5 0 %" in words


def test_old_figures_are_said_to_be_old(federation: User, now: datetime) -> None:
    shown = seen(federation, now=now + timedelta(hours=1))

    assert {system.health.value for system in shown.systems} == {"stale"}
    assert federation_page(shown.systems, shown.records, Waits(), active_tasks=0).gpus_free == 0


def test_a_live_page_asks_only_for_its_part(federation: User, browser: Client) -> None:
    part = browser.get("/?part=live").text

    assert part.lstrip().startswith('<div id="federation"')
    assert "<html" not in part


def test_one_system_shows_nodes_queue_and_limits(federation: User, browser: Client) -> None:
    page = browser.get("/systems/anvil/").text

    assert "4 × A100 40 GB, 64 CPUs, 256 GiB" in page
    assert 'title="g0: 3 of 4 GPUs, 32 of 64 CPUs free"' in page
    assert 'title="g3: down or set aside"' in page
    assert "Priority" in page


def test_an_unknown_system_is_not_found(browser: Client) -> None:
    assert browser.get("/systems/nowhere/").status_code == 404


def test_pages_forbid_foreign_and_inline_code(federation: User, browser: Client) -> None:
    answer = browser.get("/")

    assert "default-src 'self'" in answer["Content-Security-Policy"]
    assert "script-src" not in answer["Content-Security-Policy"]
    assert "<script>" not in answer.text
    assert "http://" not in answer.text.replace("http://testserver", "")
    assert "https://" not in answer.text


def test_the_first_page_asks_a_bounded_number_of_questions(
    federation: User, browser: Client, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    assert System.objects.count() == 2
    browser.get("/")

    with django_assert_max_num_queries(24):
        browser.get("/")


def test_a_system_shows_its_history_access_and_the_age_of_its_figures(
    federation: User, browser: Client
) -> None:
    page = browser.get("/systems/anvil/?hours=1").text

    assert 'aria-label="Free GPUs: 3 now, between 3 and 3 in this time"' in page
    table = re.search(r'id="history-values">.*?</table>', page, re.DOTALL)
    assert table is not None
    assert re.findall(r'<th scope="col"[^>]*>([^<]+)', table[0]) == ["Time", "Free GPUs", "Waiting jobs"]
    assert re.search(r'<tr><td class="num"><time[^>]*>[^<]+</time></td><td class="end num">3</td>', table[0])
    assert "1 SU/GPU" in page
    assert "1\u202f000 SU" in page
    assert "took 0.2 s" in page


def test_the_first_page_shows_the_callers_newest_work(federation: User, browser: Client) -> None:
    assert "Your work" not in browser.get("/").text
    asked = {"work": "command", "command": "true", "name": "fresh-run", "gpus_min": "1", "walltime_min": "10"}
    browser.post("/tasks/new/", asked)

    page = browser.get("/").text

    assert "Your work" in page
    assert "fresh-run" in page


def test_one_system_takes_few_queries(
    federation: User, browser: Client, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    browser.get("/systems/anvil/")

    with django_assert_max_num_queries(26):
        browser.get("/systems/anvil/")


def test_more_systems_ask_the_database_no_more(federation: User, browser: Client, now: datetime) -> None:
    def asked() -> int:
        browser.get("/")
        with CaptureQueriesContext(connection) as queries:
            browser.get("/")
        return len(queries)

    with_two = asked()
    for slug in ("expanse", "vista"):
        make_system(federation, slug, slug.title(), "a100", "40G", free=1, now=now)

    assert asked() == with_two


def test_a_system_that_gets_no_new_work_says_why_on_its_page(
    federation: User, browser: Client, now: datetime
) -> None:
    opened = Circuit(
        state=CircuitState.OPEN,
        opened_at=now,
        retry_at=now + timedelta(minutes=1),
        reason="sbatch gave no answer",
    )
    System.objects.filter(slug="anvil").update(circuit=opened.model_dump(mode="json"))

    for path in ("/", "/systems/anvil/"):
        page = browser.get(path).text
        assert "No new work is sent; a trial may go after" in page
        assert "sbatch gave no answer" in page
