"""A host of its own for every test: this machine, with its queue and work in a temporary folder."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from providers.dialects.machine.dialect import MachineDialect
from providers.links.local import LocalLink
from providers.types import JobRef, JobRequest, Observation, Probe, SubmitResult

ENDED = {
    "COMPLETED",
    "FAILED",
    "TIMEOUT",
    "CANCELLED",
    "OOM",
    "LAUNCH_FAILED",
    "REBOOTED",
    "STOPPED",
    "UNWATCHED",
}


class Host:
    """This machine through the real local link."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.speaks = MachineDialect()
        self.env = {"HOME": str(root), "USER": "ada", "FACET_MACHINE_DIR": str(root / "queue")}
        self.link = LocalLink(env=self.env)

    @property
    def queue(self) -> Path:
        return self.root / "queue" / os.uname().nodename

    def job(self, key: str, command: str = "true", **given: Any) -> JobRequest:
        work = self.root / "work" / key
        places = {"workdir": f"{work}", "stdout_path": f"{work}/out", "stderr_path": f"{work}/err"}
        kinds = {} if {"argv", "script"} & set(given) else {"shell_command": command}
        asked = {"submit_key": key, "name": f"job {key}", "walltime_s": 60, **places, **kinds, **given}
        return JobRequest(**asked)

    def submit(self, key: str, command: str = "true", **given: Any) -> SubmitResult:
        return self.speaks.read_submit(self.link.run(self.speaks.submit(self.job(key, command, **given))))

    def look(self, *keys: str) -> dict[str, Observation | None]:
        refs = [JobRef(submit_key=key) for key in keys]
        reply = self.link.run(self.speaks.observe(refs, since=datetime.now(UTC), now=datetime.now(UTC)))
        return dict(self.speaks.read_observe(reply, refs, now=datetime.now(UTC)))

    def see(self, key: str) -> Observation:
        found = self.look(key)[key]
        assert found is not None
        return found

    def cancel(self, *keys: str) -> dict[str, str]:
        refs = [JobRef(submit_key=key) for key in keys]
        return dict(self.speaks.read_cancel(self.link.run(self.speaks.cancel(refs)), refs))

    def probe(self) -> Probe:
        return self.speaks.read_probe(self.link.run(self.speaks.probe(full=True)), now=datetime.now(UTC))

    def until(self, key: str, *words: str, timeout: float = 20) -> Observation:
        """Look until the job's state is one of the words (or any end)."""
        wanted = set(words) or ENDED
        found = self.wait(lambda: seen if (seen := self.see(key)).state_raw in wanted else None, timeout)
        assert isinstance(found, Observation)
        return found

    def wait(self, ask: Callable[[], object], timeout: float = 20) -> object:
        deadline = time.monotonic() + timeout
        while not (found := ask()):
            assert time.monotonic() < deadline, "waited too long"
            time.sleep(0.1)
        return found

    @property
    def gate(self) -> str:
        """Return the shell line that waits until `open_gate`."""
        return f"while [ ! -e '{self.root}/gate' ]; do sleep 0.05; done"

    def open_gate(self) -> None:
        (self.root / "gate").touch()

    def text(self, key: str, name: str = "out") -> str:
        path = self.root / "work" / key / name
        return path.read_text() if path.exists() else ""

    def process(self, key: str) -> dict[str, int]:
        found: dict[str, int] = json.loads((self.queue / "jobs" / key / "process.json").read_text())
        return found


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path)
    yield made
    _end_all(made)


def _end_all(made: Host) -> None:
    """End what a test left running, so that no process outlives it."""
    if not (made.queue / "jobs").exists():
        return
    made.cancel(*(place.name for place in (made.queue / "jobs").iterdir()))
    try:
        made.wait(lambda: not list((made.queue / "open").iterdir()), timeout=8)
    finally:
        for place in (made.queue / "jobs").glob("*/process.json"):
            pid = made.process(place.parent.name)["pid"]
            if is_alive(pid):
                os.killpg(pid, signal.SIGKILL)
