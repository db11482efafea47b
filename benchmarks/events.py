"""How soon a committed event reaches readers of the stream and of the long poll.

    .venv/bin/python -m benchmarks.events [--readers 1 10 100] [--events 100]

Starts the web process on a real PostgreSQL, connects readers, commits events one by one, and prints p50 and
p99 of commit-to-delivery. Readers and server share this machine's cores.
"""

import argparse
import http.client
import json
import threading
import time

from benchmarks import _services  # noqa: F401  # starts the servers before Django reads its settings

# isort: split
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import transaction
from django.utils import timezone

from federation.ledger import Happening, record
from portal.skills.registry import Scope
from portal.tokens import issue_token
from tests.api.test_stream import serving


class Reader(threading.Thread):
    """One reader of the stream: notes when each event arrived."""

    def __init__(self, port: int, token: str) -> None:
        super().__init__(daemon=True)
        self.link = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        self.token = token
        self.arrived: dict[str, float] = {}
        self.ready = threading.Event()

    def run(self) -> None:
        self.link.request("GET", "/api/v1/events/stream", headers={"Authorization": f"Bearer {self.token}"})
        answer = self.link.getresponse()
        self.ready.set()
        while line := answer.readline():
            if line.startswith(b"data:"):
                self.arrived[json.loads(line[5:])["summary"]] = time.perf_counter()


def quantiles(values: list[float]) -> str:
    ordered = sorted(values)
    return f"p50 {ordered[len(ordered) // 2] * 1000:6.1f} ms   p99 {ordered[int(len(ordered) * 0.99)] * 1000:6.1f} ms"


def commit(user: User, name: str) -> float:
    with transaction.atomic():
        record(
            [Happening(type="milestone.reached", subject="bench", summary=name, user_id=user.pk)],
            now=timezone.now(),
        )
    return time.perf_counter()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--readers", type=int, nargs="+", default=[1, 10, 100])
    parser.add_argument("--events", type=int, default=100)
    given = parser.parse_args()
    call_command("migrate", verbosity=0)
    user = User.objects.create_user("bench")
    _, token = issue_token(user, name="bench", scopes=[Scope.READ], now=timezone.now())
    for count in given.readers:
        with serving() as server:
            readers = [Reader(server.port, token) for _ in range(count)]
            for reader in readers:
                reader.start()
            for reader in readers:
                reader.ready.wait(30)
            time.sleep(1)
            committed = {}
            for number in range(given.events):
                committed[f"{count}-{number}"] = commit(user, f"{count}-{number}")
                time.sleep(0.02)
            time.sleep(3)
            late = [
                reader.arrived[name] - at
                for reader in readers
                for name, at in committed.items()
                if name in reader.arrived
            ]
            print(
                f"stream, {count:4} readers: {len(late)} of {count * given.events} delivered   {quantiles(late)}"
            )
            print(
                f"long poll, 1 reader:  {quantiles(long_poll(server.port, token, user, given.events // 4))}"
            )


def long_poll(port: int, token: str, user: User, count: int) -> list[float]:
    """Return how long after its commit each event was in a waiting reader's hands."""
    found = []
    for number in range(count):
        at: list[float] = []
        timer = threading.Timer(0.15, lambda n=number, at=at: at.append(commit(user, f"poll-{n}")))
        link = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        timer.start()
        link.request(
            "POST",
            "/api/v1/skills/wait_for_events",
            json.dumps({"timeout_s": 10}),
            {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        )
        link.getresponse().read()
        found.append(time.perf_counter() - at[0])
    return found


if __name__ == "__main__":
    main()
