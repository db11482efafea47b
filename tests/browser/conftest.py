"""A real Chromium against the live server; tests are skipped, with the reason, where there is none."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page, Request

ARTIFACTS = Path(__file__).resolve().parents[2] / "test-artifacts"
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
VIEWS = {
    "phone": (390, 844, "light"),
    "tablet": (820, 1100, "light"),
    "light": (1440, 900, "light"),
    "dark": (1440, 900, "dark"),
}
"""What a picture is taken of: width, height, colour scheme."""
AXE_TAGS = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa")


@dataclass
class Watched:
    """A page, and all that went wrong in it or went elsewhere."""

    page: "Page"
    base: str
    stream: bool = False
    """Whether the server under test serves the event stream; Django's test server cannot."""
    faults: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        self.page.on("request", self._asked)
        if not self.stream:
            self.page.route("**/api/v1/events/stream", lambda route: route.fulfill(status=204))

    def _heard(self, message: "ConsoleMessage") -> None:
        if message.type in {"error", "warning"}:
            self.faults.append(f"{message.type}: {message.text}")

    def _asked(self, request: "Request") -> None:
        if not request.url.startswith((self.base, "data:", "blob:")):
            self.faults.append(f"request to {request.url}")

    def goto(self, path: str) -> None:
        """Open a path of the server under test."""
        self.page.goto(f"{self.base}{path}")

    def sign_in(self, name: str, password: str) -> None:
        """Sign in by the form, as a person does."""
        self.goto("/sign-in/")
        self.page.get_by_label("User name").fill(name)
        self.page.get_by_label("Password").fill(password)
        self.page.get_by_role("button", name="Sign in", exact=True).click()

    def ready(self) -> None:
        """Wait until the page's scripts listen to the keyboard."""
        self.page.locator("html[data-keys=on]").wait_for(state="attached")

    def changed(self) -> None:
        """Say what the event stream says: something happened."""
        self.page.evaluate("document.body.dispatchEvent(new CustomEvent('facet:changed'))")

    def overflow(self) -> int:
        """Return by how many pixels the page is wider than its window."""
        wider = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        return int(self.page.evaluate(wider))

    def cut(self) -> dict[int, list[str]]:
        """Return, by width of the window, the tables of which a part is out of sight; axes of time may be."""
        tables = "[...document.querySelectorAll('.scroll')].filter(each => each.querySelector('table'))"
        cut = f"{tables}.filter(each => each.scrollWidth > each.clientWidth + 1).map(each => each.ariaLabel)"
        found = {}
        for width in (390, 700, 768, 900, 1024, 1200, 1440):
            self.page.set_viewport_size({"width": width, "height": 900})
            found[width] = self.page.evaluate(cut)
        return {width: names for width, names in found.items() if names}

    def shoot(self, name: str) -> None:
        """Keep a picture of the page on a phone, a tablet and a desk, there light and dark."""
        for kind, (width, height, scheme) in VIEWS.items():
            self.page.set_viewport_size({"width": width, "height": height})
            self.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]  # one of its literals
            self.page.screenshot(path=str(self.artifact(f"{name}-{kind}.png")), full_page=True)
        self.page.emulate_media(color_scheme="light")
        self.page.set_viewport_size({"width": 1440, "height": 900})

    def artifact(self, name: str) -> Path:
        """Return where a file is kept after the tests."""
        ARTIFACTS.mkdir(exist_ok=True)
        return ARTIFACTS / name

    def violations(self) -> dict[str, list[str]]:
        """Return what axe finds against WCAG 2.1 A and AA: elements by rule."""
        axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed")
        options = {"runOnly": {"type": "tag", "values": list(AXE_TAGS)}, "resultTypes": ["violations"]}
        found = axe.Axe().run(self.page, options=options).response["violations"]
        return {each["id"]: [str(node["target"]) for node in each["nodes"]] for each in found}


@pytest.fixture(scope="module")
def chromium() -> "Iterator[Browser]":
    """Debian's Chromium, headless, with a profile of its own."""
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("no chromium on the PATH: install Debian's `chromium` to run the browser tests")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    # Playwright's synchronous interface keeps a loop in this thread, where Django would refuse the database.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
    with playwright.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=program, args=list(FLAGS))
        yield browser
        browser.close()
    del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


@pytest.fixture
def watched(chromium: "Browser", live_server: Any) -> Iterator[Watched]:
    """A page on the live server; the test fails for any console error or request elsewhere."""
    context = chromium.new_context(viewport={"width": 1440, "height": 900}, color_scheme="light")
    context.set_default_timeout(15_000)
    seen = Watched(context.new_page(), live_server.url)
    yield seen
    context.close()
    assert seen.faults == []


@pytest.fixture
def plain(chromium: "Browser", live_server: Any) -> Iterator[Watched]:
    """The same without scripts."""
    context = chromium.new_context(java_script_enabled=False)
    context.set_default_timeout(15_000)
    seen = Watched(context.new_page(), live_server.url)
    yield seen
    context.close()
    assert seen.faults == []
