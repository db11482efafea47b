"""A PostgreSQL that is stopped or asked for too much: 503 and when to come again, then all is as before."""

import contextlib
import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from portal.embedded.engine import Engine, running
from tests.cli import installed
from tests.cli.conftest import ROOT, Server, until

pytestmark = [pytest.mark.services, pytest.mark.timeout(300)]

POOL = 3
HAPPEN = """
import sys, django
django.setup()
from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone
from federation.ledger import Happening, record
alice = User.objects.get(username="alice")
with transaction.atomic():
    happening = Happening("milestone.reached", sys.argv[1], "step", user_id=alice.pk)
    print(record([happening], now=timezone.now())[0].handle)
"""
MCP = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {"name": "inspect_federation", "arguments": {}},
}
WAYS = (
    ("GET", "/api/v1/tasks", None),
    ("GET", "/api/v1/events/stream", None),
    ("POST", "/api/v1/skills/wait_for_events", {"timeout_s": 0}),
    ("POST", "/api/v1/skills/submit_task", {"command": "true"}),
    ("POST", "/api/v1/milestones", {"text": "epoch 3"}),
    ("POST", "/mcp", MCP),
)
MCP_HEADERS = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-06-18"}


class Place:
    """An installation's web process over a PostgreSQL of its own, which can be stopped."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        self.engine = engine
        address = engine.address
        self.environment = {
            **os.environ,
            "DATABASE_URL": address.database_url,
            "REDIS_URL": address.redis_url,
            "DATA_DIR": str(folder / "data"),
            "FACET_TESTING": "1",
            "FACET_DATABASE_POOL": str(POOL),
            "DJANGO_SETTINGS_MODULE": "portal.settings",
        }
        self._run("manage.py", "migrate", "--verbosity", "0")
        make = "import django; django.setup(); from django.contrib.auth.models import User; "
        self._run("-c", make + "User.objects.create_user('alice', password='a-long-password')")
        scopes = ("--scopes", "read,submit")
        self.token = self._run("manage.py", "facet_token", "alice", *scopes).split()[-1]
        self.server = Server(self.environment, folder / "server.log")
        self.server.start()

    def _run(self, *words: str) -> str:
        return subprocess.run(
            [sys.executable, *words],
            cwd=ROOT,
            env=self.environment,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=120,
        ).stdout

    def happen(self, subject: str) -> str:
        """Write an event of alice's and return its handle."""
        return self._run("-c", HAPPEN, subject).strip()

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> Any:
        """Return (status, headers, text) of a request."""
        link = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=40)
        told = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json", **headers}
        link.request(method, path, None if body is None else json.dumps(body), headers=told)
        with contextlib.closing(link), link.getresponse() as answer:
            return answer.status, answer.headers, answer.read().decode()

    def stop_database(self) -> None:
        assert self.engine.postgres is not None
        self.engine.postgres.stop()

    def start_database(self) -> None:
        self.engine.restart_missing()

    def works(self) -> bool:
        return bool(self.ask("GET", "/api/v1/tasks")[0] == 200)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("away")
    with running(Engine(folder / "servers", durable=False)) as engine:
        found = Place(engine, folder)
        try:
            yield found
        finally:
            found.server.stop()
    assert "Traceback" not in found.server.log.read_text()


def _problem(answer: Any, code: str) -> None:
    status, headers, text = answer
    told = json.loads(text)
    assert (status, headers["Content-Type"]) == (503, "application/problem+json")
    assert (told["code"], told["status"], told["retry_safe"]) == (code, 503, True)
    assert headers["Retry-After"] == str(told["retry_after_s"])
    assert told["type"] == f"/api/v1/docs/errors#{code}"
    assert "psycopg" not in text
    assert "Idempotency-Key" in told["remediation"]


def _refuses_at_once(place: Place) -> None:
    """Every way in answers 503 and says when to come again."""
    for method, path, body in WAYS:
        headers = MCP_HEADERS if path == "/mcp" else {}
        started = time.monotonic()
        _problem(place.ask(method, path, body, **headers), "database_unavailable")
        assert time.monotonic() - started < 5, path  # not as long as the pool would wait


def _is_kind_to_people(place: Place) -> None:
    """A page says what is the matter and asks again by itself; what needs no database is served."""
    status, headers, text = place.ask("GET", "/tasks/", Cookie=f"facet_session_{place.server.port}=x")
    assert (status, headers["Retry-After"]) == (503, "5")
    assert headers["Content-Security-Policy"].startswith("default-src 'self'")
    assert "Back in a moment" in text
    assert '<meta http-equiv="refresh" content="5">' in text
    assert "http-equiv" not in place.ask("POST", "/sign-in/", {})[2]

    for path in ("/healthz", "/llms.txt", "/api/v1/schema", "/.well-known/oauth-protected-resource"):
        assert place.ask("GET", path)[0] == 200, path
    status, _, text = place.ask("GET", "/readyz")
    assert (status, json.loads(text)["parts"]["database"]["ok"]) == (503, False)


def _next_event(stream: http.client.HTTPResponse) -> tuple[list[str], str]:
    """Return the lines up to the next event, and its handle."""
    lines: list[str] = []
    while not lines or not lines[-1].startswith("data:"):
        lines.append(stream.readline().decode())
    return lines, json.loads(lines[-1].removeprefix("data: "))["id"]


def test_a_stopped_database_is_told_to_all_and_nobody_misses_a_thing(place: Place, tmp_path: Path) -> None:
    until(place.works)
    # The first use of MCP loads it.
    assert place.ask("POST", "/mcp", MCP, **MCP_HEADERS)[0] == 200
    link = http.client.HTTPConnection("127.0.0.1", place.server.port, timeout=60)
    link.request("GET", "/api/v1/events/stream", headers={"Authorization": f"Bearer {place.token}"})
    told = link.getresponse()
    assert told.readline() == b"retry: 2000\n"
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "FACET_URL": place.server.url,
        "FACET_TOKEN": place.token,
    }

    def facet(*words: str) -> "subprocess.Popen[str]":
        argv, pipe = [installed.python(), "-m", "facet_cli", *words], subprocess.PIPE
        return subprocess.Popen(argv, env=environment, stdout=pipe, stderr=pipe, text=True)

    with facet("events", "--follow", "--json") as followed, contextlib.closing(link):
        assert followed.stdout is not None
        first = place.happen("task_before")
        assert _next_event(told)[1] == first
        assert json.loads(followed.stdout.readline())["id"] == first

        place.stop_database()
        until(lambda: place.ask("GET", "/readyz")[0] == 503)
        time.sleep(1)
        stopped_at = time.monotonic()
        _refuses_at_once(place)
        _is_kind_to_people(place)
        with facet("systems", "--json") as asked:
            time.sleep(max(0.0, stopped_at + 13 - time.monotonic()))  # longer than a sign of life takes
            place.start_database()
            began = time.monotonic()
            until(place.works)
            assert time.monotonic() - began < 6
            out, err = asked.communicate(timeout=60)
        assert (asked.returncode, err) == (0, "")
        assert json.loads(out)["systems"] == []

        later = place.happen("task_after")
        lines, handle = _next_event(told)
        assert handle == later
        assert ": still here\n" in lines
        assert json.loads(followed.stdout.readline())["id"] == later
        followed.terminate()


def test_too_many_for_the_pool_are_told_so(place: Place) -> None:
    until(place.works)
    url = place.environment["DATABASE_URL"]
    with psycopg.connect(url) as lock, contextlib.ExitStack() as stack:
        lock.execute("LOCK TABLE portal_apitoken IN ACCESS EXCLUSIVE MODE")
        for _ in range(POOL):
            link = http.client.HTTPConnection("127.0.0.1", place.server.port, timeout=60)
            stack.callback(link.close)
            link.request("GET", "/api/v1/tasks", headers={"Authorization": f"Bearer {place.token}"})
        time.sleep(0.5)
        _problem(place.ask("GET", "/api/v1/tasks"), "database_busy")
    until(place.works)
