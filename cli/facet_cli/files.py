"""Files of ours: for their owner only, written whole or not at all; and locks that die with their holder."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any


def config_dir() -> Path:
    """Return where the configuration is."""
    return _base("XDG_CONFIG_HOME", ".config")


def state_dir() -> Path:
    """Return where cursors, locks and letters are."""
    return _base("XDG_STATE_HOME", ".local/state")


def _base(variable: str, otherwise: str) -> Path:
    given = os.environ.get(variable, "")
    base = Path(given) if given.startswith("/") else Path.home() / otherwise
    return base / "facet"


def make_private(folder: Path) -> Path:
    """Make a folder, its missing parents too, for its owner only; return it."""
    if not folder.is_dir():
        make_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def write_private(path: Path, text: str) -> None:
    """Replace a file at once: 0600, on the disk before its name is."""
    make_private(path.parent)
    aside = path.with_name(f".{path.name}.{os.getpid()}.new")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Bring a folder's names to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: Path, value: object) -> None:
    """Write a value as JSON, privately and at once."""
    write_private(path, json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def read_json(path: Path) -> Any:
    """Return what a JSON file holds; None when there is no such file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None


def safe_name(text: str) -> str:
    """Return a text as a file name: what is not plain becomes an underscore."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", text)[:150].lstrip(".") or "_"


def lock_path(kind: str, name: str) -> Path:
    """Return the lock file of a session (`session`) or of whatever is waited for (`subject`)."""
    return state_dir() / "locks" / f"{kind}-{safe_name(name)}.lock"


def take(path: Path, *, shared: bool = False, within_s: float = 0.0) -> IO[str] | None:
    """Lock a file and return it open; None when somebody else holds it. Closing it, or dying, lets it go."""
    make_private(path.parent)
    file = path.open("a", encoding="utf-8")
    until = time.monotonic() + within_s
    while True:
        try:
            fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except OSError:
            if time.monotonic() >= until:
                file.close()
                return None
            time.sleep(0.02)
        else:
            return file


def is_held(path: Path) -> bool:
    """Return whether a living process holds a lock."""
    if not path.exists():
        return False
    taken = take(path)
    if taken is None:
        return True
    taken.close()
    return False


@contextlib.contextmanager
def held(*paths: Path) -> Iterator[None]:
    """Hold shared locks for a while; one that cannot be had in half a second is done without."""
    with contextlib.ExitStack() as stack:
        for path in paths:
            taken = take(path, shared=True, within_s=0.5)
            if taken is not None:
                stack.enter_context(taken)
        yield
