"""`DATA_DIR/demo.json`: URL, users and tokens of a demo, offered by `facet_demo`, published when ready.

Published before ready it would invite too early; after, a reader who saw "ready" might miss it. So the offer
lies aside, `/readyz` waits for its publication, and the supervisor publishes once nothing else is missing.
"""

import json
import os
from pathlib import Path
from typing import TypedDict

FILE = "demo.json"
OFFERED = "demo.json.new"


class DemoUser(TypedDict):
    """One person of the demo and how to be them."""

    username: str
    password: str
    token: str


class Demo(TypedDict):
    """What a visitor needs; researchers come first."""

    url: str
    users: list[DemoUser]


def offer(data_dir: Path, *, url: str, users: list[DemoUser]) -> None:
    """Lay the file aside, readable by its owner only, until the supervisor publishes it."""
    aside = data_dir / f"{OFFERED}.part"
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(Demo(url=url, users=users), file, indent=2)
        file.write("\n")
    aside.replace(data_dir / OFFERED)


def earlier(data_dir: Path) -> Demo | None:
    """Return what an earlier run offered or published, so that its tokens stay valid; None the first time."""
    for name in (OFFERED, FILE):
        try:
            known: Demo = json.loads((data_dir / name).read_text())
        except (OSError, ValueError):
            continue
        return known
    return None


def withdraw(data_dir: Path) -> None:
    """Take a published file aside again, at the start of a run that is not ready yet."""
    if (data_dir / FILE).exists():
        (data_dir / FILE).replace(data_dir / OFFERED)


def is_waiting(data_dir: Path) -> bool:
    """Say whether an offer waits for publication."""
    return (data_dir / OFFERED).exists()


def publish(data_dir: Path) -> Demo | None:
    """Publish the offer and return it; None when nothing was offered."""
    if is_waiting(data_dir):
        (data_dir / OFFERED).replace(data_dir / FILE)
    return earlier(data_dir)
