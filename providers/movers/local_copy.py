"""The local mover: files of the machine that runs Facet, within allowed roots; each move is its own process.

A move's folder holds what was asked and how far it is, so any process can look, and a restart goes on.
"""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from providers.errors import InvalidInput, NotAuthorized, NotFound
from providers.links.local import Become
from providers.movers.types import Finding, Move, MoveItem, MoveState, Progress

_COPIER = Path(__file__).parent / "local_copier.py"
_KEPT = ("PATH", "LANG", "LC_ALL", "TMPDIR", "FACET_ENGINE")
"""What the copying process is told of our environment; the last marks it as this installation's."""
_START_WITHIN_S = 20


@dataclass(frozen=True, slots=True)
class LocalMover:
    """Copy files as one user of this host.

    Args:
        roots: folders below which this user may read and write; absolute.
        folder: where moves are kept.
        become: the user of this host who copies; None = ourselves.
    """

    roots: tuple[Path, ...]
    folder: Path
    become: Become | None = None

    def new_submission_id(self) -> str:
        """Return a fresh id."""
        return str(uuid.uuid4())

    def submit(self, move: Move, submission_id: str) -> str:
        """Start a move once; the submission id is the move's id."""
        here = self._place(submission_id)
        if not (here / "request.json").exists():
            request = self._request(move, submission_id)
            here.mkdir(parents=True, exist_ok=True, mode=0o700)
            draft = here / f"request.{os.getpid()}"
            draft.write_text(json.dumps(request), encoding="utf-8")
            draft.replace(here / "request.json")
        self._start(here)
        return submission_id

    def observe(self, move_ids: Sequence[str]) -> Mapping[str, Progress]:
        """Return how the moves are; one that a dead process left is taken up again."""
        found: dict[str, Progress] = {}
        for move_id in move_ids:
            here = self._place(move_id)
            if not (here / "request.json").exists():
                continue
            seen = _read(here)
            if (seen is None or seen.state is MoveState.ACTIVE) and not _is_at_work(here):
                seen = _read(here)  # it may have ended between the two looks
                if seen is None or seen.state is MoveState.ACTIVE:
                    self._start(here)
            found[move_id] = seen or Progress(state=MoveState.ACTIVE)
        return found

    def cancel(self, move_id: str) -> None:
        """Have the move end at its next block."""
        here = self._place(move_id)
        if not (here / "request.json").exists():
            raise NotFound("This machine knows no such move.")
        (here / "cancel").touch(mode=0o600)
        if not _is_at_work(here):
            self._start(here)
            return
        with suppress(ProcessLookupError, PermissionError, OSError, ValueError, KeyError):
            os.kill(json.loads((here / "state.json").read_text())["pid"], signal.SIGTERM)

    def check(self, move: Move) -> tuple[Finding, ...]:
        """Return below which allowed folders the move stays; a path that leaves them is refused."""
        items = self._request(move, "")["items"]
        roots = sorted({item[end] for item in items for end in ("source_root", "destination_root")})
        return (Finding(rule="allowed_roots", outcome="allowed", detail=f"within {', '.join(roots)}"),)

    def _request(self, move: Move, submission_id: str) -> dict[str, Any]:
        if not move.items:
            raise InvalidInput("A move needs at least one file or folder.")
        return {
            "id": submission_id,
            "label": move.label,
            "deadline": move.deadline.timestamp() if move.deadline else None,
            "become": self.become.model_dump() if self.become else None,
            "items": [self._item(item) for item in move.items],
        }

    def _item(self, item: MoveItem) -> dict[str, Any]:
        roots = {"source_root": self._root(item.source), "destination_root": self._root(item.destination)}
        same = item.source.rstrip("/") == item.destination.rstrip("/")
        if same or (
            item.is_folder and f"{item.destination.rstrip('/')}/".startswith(f"{item.source.rstrip('/')}/")
        ):
            raise InvalidInput(f"{item.destination} lies within what is to be moved.")
        return item.model_dump() | roots

    def _root(self, path: str) -> str:
        """Return the allowed root that a path lies below; the deepest where there are several."""
        if ".." in path.split("/"):
            raise NotAuthorized(f"The path {path} holds `..`, which is not followed.")
        for root in sorted(self.roots, key=lambda root: -len(str(root))):
            if path.rstrip("/") == str(root) or path.startswith(f"{root}/"):
                return str(root)
        allowed = ", ".join(map(str, self.roots)) or "nothing"
        raise NotAuthorized(
            f"{path} lies outside the folders that you may move files in: {allowed}.",
            remediation="The operator names such folders in FACET_LOCAL_ROOTS.",
        )

    def _place(self, move_id: str) -> Path:
        try:
            return self.folder / str(uuid.UUID(move_id))
        except ValueError:
            raise NotFound("This machine knows no such move.") from None

    def _start(self, here: Path) -> None:
        """Start the copying process; it leaves us at once, and a second one sees the first one's lock."""
        environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
        subprocess.run(
            [sys.executable, "-I", "-S", str(_COPIER), str(here)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
            timeout=_START_WITHIN_S,
            check=True,
        )


def forget_old(folder: Path, *, keep_s: float) -> int:
    """Remove the folders of moves that nothing has been written to for that long; return how many."""
    forgotten = 0
    for here in folder.iterdir() if folder.is_dir() else ():
        newest = max((file.stat().st_mtime for file in here.iterdir()), default=0.0)
        if time.time() - newest > keep_s and not _is_at_work(here):
            shutil.rmtree(here, ignore_errors=True)
            forgotten += 1
    return forgotten


def _is_at_work(here: Path) -> bool:
    """Return whether a process holds the move's lock."""
    with suppress(FileNotFoundError), (here / "lock").open("r+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _read(here: Path) -> Progress | None:
    """Return what the process last wrote; None = nothing yet, or just being written."""
    try:
        doc = json.loads((here / "state.json").read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    doc.pop("pid")
    at = doc.pop("finished_at")
    return Progress.model_validate(doc | {"finished_at": datetime.fromtimestamp(at, UTC) if at else None})
