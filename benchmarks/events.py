"""How soon a committed event reaches readers of the stream and of the long poll.

    .venv/bin/python -m benchmarks.events [--readers 1 10 100 1000] [--events 30]

Starts the web process on a real PostgreSQL, connects readers, commits events one by one, and prints p50 and
p99 of commit-to-delivery. Readers, server and database share this machine's cores.
"""

import argparse
import asyncio
import json
import os
import re
import threading
import time
from collections.abc import Awaitable, Callable

os.environ |= {"FACET_RATE_PER_MINUTE": "0", "FACET_LOG_LEVEL": "warning"}  # a thousand readers of one user

from benchmarks import _services  # noqa: F401  # starts the servers before Django reads its settings

# isort: split
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import transaction
from django.utils import timezone

from federation.ledger import Happening, record
from portal.skills.events import LONGEST_WAIT_S
from portal.skills.registry import Scope
from portal.tokens import issue_token
from tests.api.test_stream import serving

NAMED = re.compile(rb'"summary":\s?"(bench-\d+)"')
PAUSE_S = 0.15
"""Between two events, at least; a reader of the stream costs a millisecond, a poll is a whole request."""
COST_S = {"stream": 0.001, "long poll": 0.03}
WAIT_S = 60

Work = Callable[["Readers"], Awaitable[None]]


class Readers:
    """Any number of readers in one thread: notes when each event reached each of them."""

    def __init__(self, port: int, token: str, count: int, work: Work) -> None:
        self.port, self.token, self.count, self._work = port, token, count, work
        self.arrived: dict[str, list[float]] = {}
        self.ready = threading.Semaphore(0)
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        for _ in range(count):
            if not self.ready.acquire(timeout=120):
                raise SystemExit(f"not all of {count} readers connected")

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_until_complete(self._all())

    async def _all(self) -> None:
        self._tasks = []
        for number in range(self.count):
            self._tasks.append(asyncio.ensure_future(self._work(self)))
            if number == 0 or number % 20 == 19:  # the first one warms the server, the others come by and by
                await asyncio.sleep(1)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def note(self, raw: bytes) -> None:
        """Note every event named in what arrived."""
        at = time.time()
        for name in NAMED.findall(raw):
            self.arrived.setdefault(name.decode(), []).append(at)

    async def open(self, request: str, body: str = "") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Send a request."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=2**20)
        head = f"{request} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {self.token}\r\n"
        if body:
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        writer.write(f"{head}\r\n{body}".encode())
        return reader, writer

    def end(self) -> None:
        """Let all go."""
        self.loop.call_soon_threadsafe(lambda: [task.cancel() for task in self._tasks])
        self._thread.join(30)


async def stream(readers: Readers) -> None:
    """Read the stream for ever."""
    reader, writer = await readers.open("GET /api/v1/events/stream")
    try:
        await reader.readuntil(b": from")
        readers.ready.release()
        while line := await reader.readline():
            if line.startswith(b"data:"):
                readers.note(line)
    finally:
        writer.close()


async def whole(reader: asyncio.StreamReader, head: bytes) -> bytes:
    """Return a body, whether its length was said before or comes with its chunks."""
    length = re.search(rb"(?i)content-length: (\d+)", head)
    if length:
        return await reader.readexactly(int(length[1]))
    raw = b""
    while size := int(await reader.readline(), 16):
        raw += (await reader.readexactly(size + 2))[:-2]
    return raw


async def poll(readers: Readers) -> None:
    """Ask again and again, each time from where the last answer ended."""
    after, first = None, True
    while True:
        given = json.dumps({"timeout_s": LONGEST_WAIT_S, **({} if after is None else {"after": after})})
        if first:
            given = json.dumps({"timeout_s": 0})
        reader, writer = await readers.open("POST /api/v1/skills/wait_for_events", given)
        head = await reader.readuntil(b"\r\n\r\n")
        raw = await whole(reader, head)
        writer.close()
        readers.note(raw)
        after = json.loads(raw)["next"]
        if first:
            readers.ready.release()
            first = False


def quantiles(values: list[float]) -> str:
    ordered = sorted(values)
    p50, p99 = ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)]
    return f"p50 {p50 * 1000:6.1f} ms   p99 {p99 * 1000:7.1f} ms"


def commit(user: User, name: str) -> float:
    happening = Happening(type="milestone.reached", subject="bench", summary=name, user_id=user.pk)
    with transaction.atomic():
        record([happening], now=timezone.now())
    return time.time()


def measured(name: str, work: Work, count: int, events: int, user: User, token: str) -> str:
    """Return a line of what so many readers saw of so many events."""
    with serving(pool=16) as server:  # as `run.py` starts it
        readers = Readers(server.port, token, count, work)
        time.sleep(2)
        committed = {}
        for number in range(events):
            word = f"bench-{number}"
            committed[word] = commit(user, word)
            time.sleep(max(PAUSE_S, count * COST_S[name]))
        until = time.monotonic() + WAIT_S
        while sum(map(len, readers.arrived.values())) < count * events and time.monotonic() < until:
            time.sleep(0.1)
        late = [at - committed[word] for word, found in readers.arrived.items() for at in found]
        readers.end()
    return f"{name:10} {count:5} readers: {len(late):6} of {count * events:6} delivered   {quantiles(late)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--readers", type=int, nargs="+", default=[1, 10, 100, 1000])
    parser.add_argument("--events", type=int, default=30)
    parser.add_argument("--only-poll", action="store_true", help="leave the stream out")
    given = parser.parse_args()
    call_command("migrate", verbosity=0)
    user = User.objects.create_user("bench")
    _, token = issue_token(user, name="bench", scopes=[Scope.READ], now=timezone.now())
    ways = {"stream": stream, "long poll": poll}
    for name, work in list(ways.items())[given.only_poll :]:
        for count in given.readers:
            events = given.events if count < 500 else min(given.events, 10)
            print(measured(name, work, count, events, user, token), flush=True)


if __name__ == "__main__":
    main()
