"""A real Chromium against the live server; tests are skipped, with the reason, where there is none."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ARTIFACTS = Path(__file__).resolve().parents[2] / "test-artifacts"
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip


@dataclass
class Watched:
    """A page, and all that went wrong or went elsewhere in it."""

    page: object
    base: str
    faults: list[str] = field(default_factory=list)


@pytest.fixture(scope="session")
def chromium() -> Iterator[object]:
    """Debian's Chromium, headless."""
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("no /usr/bin/chromium: install Debian's `chromium` to run the browser tests")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    # Playwright's synchronous interface keeps a loop in this thread, where Django would refuse the database.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
    with playwright.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=program, args=list(FLAGS))
        yield browser
        browser.close()
    del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]
