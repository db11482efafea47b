"""Waiting outlives the server, goes round what holds streams back, and hears everything once."""

import json
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import psutil
import pytest

from tests.cli import installed
from tests.cli.agents import Agent, ended, rule, rules, status
from tests.cli.conftest import Facet, World, until

pytestmark = pytest.mark.services


def test_a_wait_outlives_the_server_it_waits_on(facet: Facet, world: World, still: None) -> None:
    (task,) = world.ask("tasks", count=1)["tasks"]
    waiting = facet.start("wait", task, "--json")
    time.sleep(2)

    world.server.stop(signal.SIGKILL)
    world.ask("state", task=task, state="unschedulable")
    world.server.start()

    ran = facet.ended(waiting)
    assert ran.code == 6
    assert ran.json["results"][0]["state"] == "unschedulable"


class _Reading:
    """`facet events -f` into a file: killed at any line, it goes on after the last whole one."""

    def __init__(self, facet: Facet, after: int) -> None:
        self.facet, self.after, self.path = facet, after, facet.home / "heard.jsonl"
        self.path.touch()
        self.process = self._start()

    def _start(self) -> "subprocess.Popen[str]":
        cursor = self.heard[-1]["cursor"] if self.heard else self.after
        words = [installed.python(), "-m", "facet_cli", "events", "-f", "--after", str(cursor), "--json"]
        with self.path.open("ab") as out:
            made = subprocess.Popen(
                words, env=self.facet.environment, cwd=self.facet.home, stdout=out, text=True
            )
        self.facet.started.append(made)
        return made

    @property
    def heard(self) -> list[dict[str, Any]]:
        lines = self.path.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    @property
    def count(self) -> int:
        return self.path.read_bytes().count(b"\n")

    def restart(self) -> None:
        self.process.kill()
        self.process.wait()
        whole = self.path.read_bytes()
        self.path.write_bytes(whole[: whole.rfind(b"\n") + 1])
        self.process = self._start()


def test_ten_thousand_events_over_reconnects_and_restarts_leave_no_gap_and_wake_nobody_twice(
    facet: Facet, world: World
) -> None:
    claude = Agent(facet, "claude")
    rules(facet, rule(max_wakes_per_hour=10_000), max_wakes_per_hour=10_000)
    assert facet("bridge", "once").code == 0
    bridge = facet.start("bridge", "run")
    reading = _Reading(facet, status(facet)["cursor"])
    made: list[str] = []
    waking: list[str] = []

    for batch in range(20):
        routine = [{"type": "attempt.moved", "subject": f"att_{batch}x{n}"} for n in range(499)]
        made += world.happen(*routine, ended(f"task_{batch}"), at_once=True)
        waking.append(made[-1])
        if batch in {3, 9, 15}:
            reading.restart()
        if batch in {5, 12}:
            bridge.kill()
            bridge.communicate()
            bridge = facet.start("bridge", "run")
        if batch in {7, 14}:
            world.server.stop(signal.SIGKILL if batch == 7 else signal.SIGTERM)
            world.server.start()
    until(lambda: reading.count >= len(made) and len(claude.told) >= len(waking), within_s=90)

    assert len(made) == 10_000
    assert [each["id"] for each in reading.heard] == made
    assert sorted(claude.told) == sorted(waking)
    assert (status(facet)["gaps"], status(facet)["dead_letters"]) == (0, 0)


class _Holding(BaseHTTPRequestHandler):
    """A proxy that lets everything through but streams."""

    upstream = ""
    asked: "list[str]" = []

    def _pass(self) -> None:
        self.asked.append(self.path)
        if "events/stream" in self.path:
            self.send_error(501, "no streams here")
            return
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else None
        request = urllib.request.Request(self.upstream + self.path, data=body, method=self.command)
        for name in ("Authorization", "Content-Type", "Idempotency-Key"):
            if name in self.headers:
                request.add_header(name, self.headers[name])
        try:
            response = urllib.request.urlopen(request, timeout=70)
        except urllib.error.HTTPError as error:
            response = error
        with response:
            content = response.read()
            self.send_response(response.status)
            self.send_header("Content-Type", response.headers["Content-Type"])
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    do_GET = do_POST = _pass  # noqa: N815  # names of the standard library

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def holding(world: World) -> Iterator[type[_Holding]]:
    handler = type("Handler", (_Holding,), {"upstream": world.server.url, "asked": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        handler.url = f"http://127.0.0.1:{server.server_port}"  # type: ignore[attr-defined]  # for the test
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield handler
        server.shutdown()


def test_where_streams_are_held_back_the_long_poll_takes_over(
    facet: Facet, world: World, holding: type[_Holding], still: None
) -> None:
    (task,) = world.ask("tasks", count=1)["tasks"]
    behind = Facet(facet.home, holding.url, facet.token)  # type: ignore[attr-defined]  # set by the fixture
    waiting = behind.start("wait", task, "--json")
    time.sleep(3)
    world.ask("state", task=task, state="attention")

    assert behind.ended(waiting).code == 8
    assert sum("events/stream" in path for path in holding.asked) == 1
    assert sum("wait_for_events" in path for path in holding.asked) <= 3


def test_the_token_shows_neither_in_the_process_list_nor_in_what_is_printed(
    facet: Facet, world: World, still: None
) -> None:
    (task,) = world.ask("tasks", count=1)["tasks"]
    secret = facet.token
    nobody = facet.at("")
    assert nobody("login", facet.url, given=f"{secret}\n").code == 0
    waiting = nobody.start("wait", task, "--timeout", "4")
    time.sleep(1)

    command = psutil.Process(waiting.pid).cmdline()

    assert "wait" in command
    assert secret not in " ".join(command)
    ran = nobody.ended(waiting)
    assert secret not in ran.out + ran.err


def test_logging_in_keeps_the_token_for_its_owner_only(facet: Facet, world: World) -> None:
    nobody, config = facet.at(""), facet.home / "config" / "facet" / "config.json"
    (facet.home / "token").write_text(world.tokens["reader"] + "\n")

    first = nobody("login", facet.url, given=facet.token)
    second = nobody(
        "login", facet.url, "--token-file", str(facet.home / "token"), "--at", "reading", "--json"
    )

    assert (first.code, second.code) == (0, 0)
    assert facet.token not in first.out + first.err
    assert config.stat().st_mode & 0o777 == 0o600
    assert config.parent.stat().st_mode & 0o777 == 0o700
    assert nobody("whoami", "--json").json["profile"] == "reading"
    assert nobody("whoami", "--json").json["token"]["scopes"] == ["read"]
    mine = nobody("whoami", "--at", "default", "--json").json
    assert mine["token"]["scopes"] == ["read", "draft", "submit", "manage"]
    assert nobody("logout", "--at", "reading").code == 0
    assert sorted(json.loads(config.read_text())["profiles"]) == ["default"]
    config.chmod(0o644)
    opened = nobody("whoami")
    assert "could be read by others" in opened.err
    assert config.stat().st_mode & 0o777 == 0o600
    assert nobody("logout", "--revoke").code == 0
    assert facet("whoami").code == 3


@pytest.mark.parametrize(
    ("url", "code"),
    [("http://example.org", 2), ("ftp://example.org", 2), ("example.org", 2), ("http://127.0.0.1:9", 10)],
)
def test_a_token_is_never_sent_in_the_clear(facet: Facet, url: str, code: int) -> None:
    assert facet.at("")("login", url, given="facet_abc\n").code == code


def test_a_redirect_is_not_followed_with_the_token(facet: Facet, world: World) -> None:
    heard: list[str | None] = []

    class Elsewhere(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # a name of the standard library
            heard.append(self.headers.get("Authorization"))
            self.send_response(302)
            self.send_header("Location", "/other")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        ran = Facet(facet.home, f"http://127.0.0.1:{server.server_port}", facet.token)("whoami")
        server.shutdown()

    assert ran.code == 2
    assert "sends us to" in ran.err
    assert len(heard) == 1
