"""The portal as people meet it: accessible, within bounds, by keyboard and by address, without scripts."""

from pathlib import Path

import pytest
from django.contrib.auth.models import User

from orchestrator.models import Task
from tests.browser.conftest import Watched
from tests.browser.site import make_site

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

PAGES = {
    "federation": "/",
    "system": "/systems/anvil/?hours=1",
    "where": "/where/?gpus_min=2&walltime_min=1:00:00&accelerator_types=a100",
    "where-nowhere": "/where/?gpus_min=400&walltime_min=1:00:00",
    "submit": "/tasks/new/?gpus_min=1&walltime_min=10&command=true",
    "templates": "/templates/",
    "find": "/find/?q=a",
    "tasks": "/tasks/",
    "groups": "/groups/",
    "events": "/events/",
}
WEIGHT_BYTES = 900_000
"""Of the first page with nothing kept by the browser, uncompressed: two typefaces are two fifths of it."""


@pytest.fixture
def mira(tmp_path: Path) -> User:
    """A researcher with one system, one task and one template."""
    user = User.objects.create_user("mira", password="a-long-password")
    make_site(user, tmp_path / "anvil")
    return user


def _fill(watched: Watched) -> None:
    """Submit one task and keep one template, by the form."""
    page = watched.page
    watched.goto("/tasks/new/?gpus_min=1&walltime_min=10&command=true&name=first-light")
    page.get_by_text("Save as template").click()
    page.get_by_label("Name of the template").fill("light")
    page.get_by_role("button", name="Save", exact=True).click()
    page.get_by_text("Saved as the template").wait_for()
    page.get_by_role("button", name="Submit", exact=True).click()
    page.get_by_role("heading", name="first-light").wait_for()


def test_every_page_is_accessible_light_and_dark_and_fits_a_phone(watched: Watched, mira: User) -> None:
    watched.sign_in("mira", "a-long-password")
    _fill(watched)
    pages = PAGES | {"task": f"/tasks/{Task.objects.get().handle}/"}

    faults: dict[str, list[str]] = {}
    wider: dict[str, int] = {}
    cut: dict[str, list[str]] = {}
    for name, path in pages.items():
        watched.goto(path)
        watched.shoot(name)
        for scheme in ("light", "dark"):
            watched.page.emulate_media(color_scheme=scheme)
            faults |= {f"{name} {scheme} {rule}": where for rule, where in watched.violations().items()}
        watched.page.emulate_media(color_scheme="light")
        watched.page.set_viewport_size({"width": 390, "height": 844})
        wider[name] = watched.overflow()
        cut |= {f"{name} {width}": tables for width, tables in watched.cut().items()}
        watched.page.set_viewport_size({"width": 1440, "height": 900})

    assert faults == {}
    assert wider == dict.fromkeys(pages, 0)
    assert cut == {}


def test_what_opens_over_a_page_is_accessible_too(watched: Watched, mira: User) -> None:
    page = watched.page
    watched.sign_in("mira", "a-long-password")
    watched.ready()

    page.keyboard.press("?")
    page.get_by_role("heading", name="Keyboard shortcuts").wait_for()
    help_faults = watched.violations()
    page.keyboard.press("Escape")
    page.keyboard.press("Control+k")
    page.get_by_role("option", name="Anvil").wait_for()
    palette_faults = watched.violations()
    watched.page.screenshot(path=str(watched.artifact("palette.png")))
    page.keyboard.press("Escape")
    page.set_viewport_size({"width": 390, "height": 844})
    page.locator(".tab-more summary").click()
    sheet_faults = watched.violations()

    assert (help_faults, palette_faults, sheet_faults) == ({}, {}, {})


def test_the_palette_and_the_letters_lead_anywhere(watched: Watched, mira: User) -> None:
    page = watched.page
    watched.sign_in("mira", "a-long-password")
    watched.ready()

    page.keyboard.press("Control+k")
    page.keyboard.type("anv")
    page.get_by_role("option", name="Anvil", selected=True).wait_for()
    page.keyboard.press("Enter")
    page.wait_for_url("**/systems/anvil/")
    watched.ready()
    page.keyboard.press("g")
    page.keyboard.press("w")
    page.wait_for_url("**/where/")
    watched.ready()
    page.keyboard.press("?")
    page.get_by_label("Use single letters as shortcuts").uncheck()
    page.keyboard.press("Escape")
    page.keyboard.press("n")
    page.keyboard.press("g")
    page.keyboard.press("f")

    assert page.url.endswith("/where/")


def test_the_answer_follows_the_form_and_the_address_keeps_the_question(watched: Watched, mira: User) -> None:
    page = watched.page
    watched.sign_in("mira", "a-long-password")
    watched.goto("/where/")

    page.get_by_label("GPUs, at least", exact=True).fill("2")
    page.locator("#verdict-head", has_text="Anvil").wait_for()
    page.wait_for_url("**/where/?gpus_min=2")
    page.get_by_label("GPU types").fill("h100")
    page.get_by_text("Nowhere to run as asked").wait_for()
    page.get_by_role("link", name="Take any type of GPU, not only h100").click()
    page.locator("#verdict-head", has_text="Anvil").wait_for()
    page.go_back()
    page.get_by_text("Nowhere to run as asked").wait_for()

    assert page.get_by_label("GPU types").input_value() == "h100"


def test_a_deleted_template_comes_back_by_undo(watched: Watched, mira: User) -> None:
    page = watched.page
    watched.sign_in("mira", "a-long-password")
    _fill(watched)

    watched.goto("/templates/")
    page.get_by_role("button", name="Delete light").click()
    page.get_by_role("heading", name="No template yet").wait_for()
    page.get_by_role("button", name="Undo").click()

    page.get_by_role("link", name="light").wait_for()


def test_the_first_page_is_light(watched: Watched, mira: User) -> None:
    watched.sign_in("mira", "a-long-password")
    sizes: list[int] = []
    watched.page.on("response", lambda response: sizes.append(len(response.body())))

    watched.goto("/")
    watched.page.wait_for_load_state("networkidle")

    assert 20_000 < sum(sizes) < WEIGHT_BYTES


def test_where_and_words_answer_without_scripts(plain: Watched, mira: User) -> None:
    page = plain.page
    plain.sign_in("mira", "a-long-password")
    plain.goto("/where/")

    page.get_by_role("textbox", name="In words").fill("2 gpus for 2 hours")
    page.get_by_role("button", name="Ask").first.click()
    page.locator("#verdict-head", has_text="Anvil").wait_for()
    page.get_by_label("GPU types").fill("h100")
    page.get_by_role("button", name="Ask").last.click()
    page.get_by_text("Nowhere to run as asked").wait_for()

    assert "accelerator_types=h100" in page.url
    assert page.locator("details.terminal pre").first.text_content()
