"""What the Globus link costs: requests per refresh, wall time against the site's own, shared looks.

Run: `python -m benchmarks.globus [seconds a site takes]`. Four endpoints of the stand-in, each a site whose
probe takes that long (default 0.5), refreshed side by side by threads that share one board and one pace, as
the workers of an installation do through Redis. Published references: 28.6 requests and 64.1 s for a serial
refresh of four.
"""

# ruff: noqa: ARG002  # methods of protocols

import resource
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from providers.errors import NotAuthorized
from providers.links.globus_compute import GlobusComputeLink, Rhythm
from providers.links.globus_pace import Limit, LocalPace
from providers.sandbox.globus.server import StandIn, serving
from providers.sandbox.globus.spec import COMPUTE_SCOPE, COMPUTE_SERVER, Endpoint, identity
from providers.types import Batch, Exec

ALICE = identity("alice@example.org")
ENDPOINTS = tuple(f"{n}{n}{n}{n}{n}{n}{n}{n}-1111-4111-8111-111111111111" for n in range(1, 5))
ROUNDS = 5


@dataclass
class Held:
    """Access kept in memory."""

    secret: str
    owner: str = "alice"
    functions: dict[str, str] = field(default_factory=dict)

    def token(self, *, refused: str | None = None) -> str:
        return self.secret

    def sign_in_needed(self, reason: str, parameters: Mapping[str, Any]) -> NotAuthorized:
        return NotAuthorized(reason)

    def function_id(self, digest: str) -> str | None:
        return self.functions.get(digest)

    def remember_function(self, digest: str, function_id: str | None) -> None:
        if function_id:
            self.functions[digest] = function_id


class OneBoard:
    """The board in memory, for threads."""

    def __init__(self) -> None:
        self.open: list[str] = []
        self.pinned: dict[str, Mapping[str, Any]] = {}
        self.lock = threading.Lock()
        self.asked: list[int] = []

    def watch(self, owner: str, task_id: str, *, for_s: float) -> None:
        with self.lock:
            self.open.append(task_id)

    def answer(self, task_id: str) -> Mapping[str, Any] | None:
        with self.lock:
            return self.pinned.pop(task_id, None)

    def open_tasks(self, owner: str, mine: str) -> Sequence[str]:
        with self.lock:
            wanted = [mine, *(task for task in self.open if task != mine)]
            self.asked.append(len(wanted))
            return wanted

    def pin(self, owner: str, ended: Mapping[str, Mapping[str, Any]]) -> None:
        with self.lock:
            self.pinned.update(ended)
            self.open = [task for task in self.open if task not in ended]


def refresh_all(links: Sequence[GlobusComputeLink], batch: Batch) -> tuple[float, float]:
    """Return the wall time of one refresh of all, and the slowest site's own time, in seconds."""
    began = time.monotonic()
    with ThreadPoolExecutor(len(links)) as pool:
        own = [reply.duration_s for reply in pool.map(lambda link: link.run(batch), links)]
    return time.monotonic() - began, max(own)


def measure(server: StandIn, site_s: float, rhythm: Rhythm, name: str) -> None:
    """Refresh a few times and print what it took."""
    secret = server.state.mint(
        "access", sub=ALICE, client="bench", scope=COMPUTE_SCOPE, server=COMPUTE_SERVER, ttl_s=3600
    )
    access, board, pace = Held(secret), OneBoard(), LocalPace(Limit(1000))
    links = [
        GlobusComputeLink(key, access, server.url, pace=pace, board=board, rhythm=rhythm) for key in ENDPOINTS
    ]
    batch = Batch(operations=(Exec(name="probe", argv=("sleep", str(site_s))),), deadline_s=30)
    refresh_all(links, batch)
    board.asked.clear()
    before = server.state.requests(), server.state.requests("POST /v3/endpoints")
    measured = [refresh_all(links, batch) for _ in range(ROUNDS)]
    every, submits = (now - then for now, then in zip(_counts(server), before, strict=True))
    walls = [wall for wall, _ in measured]
    ratios = [wall / own for wall, own in measured]
    print(f"{name}: tasks per refresh of four {submits / ROUNDS:.1f}, requests {every / ROUNDS:.1f}")
    print(f"  wall {statistics.mean(walls):.2f} s, ÷ slowest endpoint {statistics.mean(ratios):.2f}")
    print(f"  tasks watched per status request {statistics.mean(board.asked):.2f}")


def _counts(server: StandIn) -> tuple[int, int]:
    return server.state.requests(), server.state.requests("POST /v3/endpoints")


def main() -> None:
    """Measure with the pauses for the hosted service and with those of the demo."""
    site_s = float(sys.argv[1]) if len(sys.argv) > 1 else 0.5
    bare = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    with tempfile.TemporaryDirectory() as place, serving(Path(place) / "globus.db") as server:
        server.state.know(
            endpoints=[Endpoint(id=key, name=key[:2], users={ALICE: {}}, workers=1) for key in ENDPOINTS]
        )
        measure(server, site_s, Rhythm(first_s=0.3), "pauses for the hosted service (0.3 s, doubled)")
        measure(server, site_s, Rhythm(first_s=0.02), "pauses of the demo (0.02 s, doubled)")
    full = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"memory: {bare:.0f} MB at start, {full:.0f} MB at the peak, the stand-in's server included")


if __name__ == "__main__":
    main()
