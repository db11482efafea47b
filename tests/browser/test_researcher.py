"""The researcher's path in a real browser: sign in, look, submit a script, follow it to its result."""

import re
from pathlib import Path

import pytest
from django.contrib.auth.models import User

from orchestrator.models import Task
from tests.browser.conftest import Watched
from tests.browser.site import hand_out, make_site, work_until

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

SCRIPT = """#!/bin/bash
#SBATCH --gpus=1
#SBATCH --time=00:05:00
#SBATCH --job-name=hello
echo "hello from $SLURM_JOB_PARTITION"
sleep 6
echo done > result.txt
"""


@pytest.fixture
def mira() -> User:
    return User.objects.create_user("mira", password="a-long-password")


def test_from_sign_in_to_a_result(watched: Watched, mira: User, tmp_path: Path) -> None:
    page = watched.page
    make_site(mira, tmp_path / "anvil")

    watched.sign_in("mira", "a-long-password")
    page.get_by_role("heading", name="Federation").wait_for()
    assert page.locator(".squares[aria-label^='A100 40 GB']").get_attribute("aria-label") == (
        "A100 40 GB: 32 free, 0 yours, 0 busy, 0 down"
    )

    page.get_by_role("link", name="Anvil").click()
    page.get_by_role("heading", name="Nodes").wait_for()

    page.get_by_role("link", name="Submit here").click()
    page.get_by_label("Name").first.fill("hello")
    page.get_by_text("Batch script").first.click()
    page.get_by_label("Batch script").last.fill(SCRIPT)
    page.get_by_text("would be chosen").wait_for()
    assert page.get_by_text("Read from the script").is_visible()

    page.get_by_role("button", name="Submit", exact=True).click()
    page.get_by_role("heading", name="hello").wait_for()
    task = Task.objects.get()
    assert page.url.endswith(f"/tasks/{task.handle}/")

    hand_out()
    work_until(task, "running")
    watched.changed()
    page.locator(".state-line .tag", has_text="Running").wait_for()
    watched.shoot("task-running")

    work_until(task, "succeeded")
    watched.changed()
    page.locator(".state-line .tag", has_text="Succeeded").wait_for()
    page.get_by_role("cell", name="result.txt").wait_for()
    page.get_by_role("link", name="stdout").click()
    page.get_by_text("hello from gpu").wait_for()
    assert page.locator("#task").get_attribute("hx-get") is None
    watched.shoot("task-succeeded")

    page.get_by_role("link", name="Tasks").first.click()
    page.get_by_role("link", name="hello").wait_for()
    page.get_by_role("link", name="Events").click()
    page.get_by_text("task.succeeded").last.wait_for()


def test_a_dropped_file_becomes_the_script_and_a_binary_one_is_refused(
    watched: Watched, mira: User, tmp_path: Path
) -> None:
    make_site(mira, tmp_path / "anvil")
    (tmp_path / "job.sbatch").write_text(SCRIPT.replace("\n", "\r\n"))
    (tmp_path / "core").write_bytes(b"\x7fELF\0\0")
    watched.sign_in("mira", "a-long-password")
    watched.goto("/tasks/new/")

    watched.page.get_by_text("Batch script").first.click()
    chooser = watched.page.locator("input[type=file]")
    chooser.set_input_files(tmp_path / "core")
    watched.page.get_by_text("That file is not text.").wait_for()
    chooser.set_input_files(tmp_path / "job.sbatch")

    watched.page.get_by_text("would be chosen").wait_for()
    assert watched.page.get_by_label("Batch script").last.input_value() == SCRIPT
    assert watched.page.get_by_label("Name").first.input_value() == "job"


def test_a_chosen_theme_stays_over_pages(watched: Watched, mira: User) -> None:
    watched.sign_in("mira", "a-long-password")

    watched.page.get_by_role("button", name="Switch between light and dark").click()
    watched.goto("/events/")

    assert watched.page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert (
        watched.page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        == "rgb(11, 12, 17)"
    )


def test_times_are_told_in_the_viewers_zone(watched: Watched, mira: User, tmp_path: Path) -> None:
    make_site(mira, tmp_path / "anvil")
    watched.sign_in("mira", "a-long-password")

    seen = watched.page.locator("time[data-moment=ago]", has_text=re.compile("ago|now")).first
    seen.wait_for()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", seen.get_attribute("title") or "")


def test_everything_works_without_scripts(plain: Watched, mira: User, tmp_path: Path) -> None:
    page = plain.page
    make_site(mira, tmp_path / "anvil")
    plain.sign_in("mira", "a-long-password")
    plain.goto("/tasks/new/")

    page.locator("label", has_text="Command").first.click()
    page.locator("[name=command]").last.fill("echo plain")
    page.get_by_label("CPUs, at least").fill("1")
    page.get_by_role("button", name="Preview").click()
    page.get_by_text("would be chosen").wait_for()
    page.get_by_role("button", name="Submit", exact=True).click()
    page.get_by_role("heading", name="echo").wait_for()
    page.locator(".confirm summary", has_text="Cancel").click()
    page.get_by_role("button", name="Yes, cancel it").click()

    page.locator(".state-line .tag", has_text="Cancelled").wait_for()
    assert Task.objects.get().state == "cancelled"
