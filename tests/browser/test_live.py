"""Live pages over the real event stream: what is committed is on the page, and nothing else moved it."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from django.contrib.auth.models import User

from orchestrator.models import Task
from orchestrator.services.tasks import cancel_task, submit_task
from tests.api.test_stream import serving
from tests.browser.conftest import Watched
from tests.browser.site import make_site

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [pytest.mark.browser, pytest.mark.services, pytest.mark.django_db(transaction=True)]

WORK = {"name": "alive", "command": "true", "envelope": {"gpus": 1, "walltime_s": 600}}


@pytest.fixture
def mira(tmp_path: Path) -> User:
    user = User.objects.create_user("mira", password="a-long-password")
    make_site(user, tmp_path / "anvil")
    return user


@pytest.fixture
def live(chromium: "Browser", mira: User) -> Iterator[Watched]:
    """A page on the web process as it is served, where nothing polls: only the stream can move it."""
    with serving() as server:
        context = chromium.new_context(viewport={"width": 1440, "height": 900})
        context.set_default_timeout(30_000)
        context.add_init_script("window.setInterval = () => 0")
        seen = Watched(context.new_page(), f"http://127.0.0.1:{server.port}", stream=True)
        seen.sign_in("mira", "a-long-password")
        yield seen
        context.close()
    assert seen.faults == []


def _submit(user: User) -> Task:
    return submit_task(user, WORK, actor="user:mira", now=datetime.now(UTC)).task


def _connected(live: Watched, path: str) -> None:
    live.goto(path)
    live.page.locator("html[data-live=on]").wait_for(state="attached")


def test_what_is_committed_appears_in_the_list_of_tasks_and_in_the_log(live: Watched, mira: User) -> None:
    _connected(live, "/tasks/")
    assert live.page.get_by_role("link", name="alive").count() == 0

    first = _submit(mira)
    live.page.get_by_role("link", name="alive").wait_for()

    _connected(live, f"/events/?task={first.handle}")
    assert live.page.locator("[data-seq]", has_text="task.cancelled").count() == 0
    cancel_task(mira, first.handle, actor="user:mira", now=datetime.now(UTC))
    live.page.locator("[data-seq]", has_text="task.cancelled").wait_for()


def test_a_task_page_follows_its_task_and_hears_nothing_of_others(live: Watched, mira: User) -> None:
    kofi = User.objects.create_user("kofi")
    mine = _submit(mira)
    _connected(live, f"/tasks/{mine.handle}/")
    live.page.evaluate("window.heard = 0")
    live.page.evaluate("document.body.addEventListener('facet:changed', () => { window.heard += 1 })")

    _submit(kofi)
    live.page.wait_for_timeout(2_000)
    heard_of_others = live.page.evaluate("window.heard")
    cancel_task(mira, mine.handle, actor="user:mira", now=datetime.now(UTC))
    live.page.locator(".state-line .tag", has_text="Cancelled").wait_for()

    assert heard_of_others == 0
    assert live.page.evaluate("window.heard") >= 1
