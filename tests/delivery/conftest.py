"""A receiver of webhooks on the loopback, and a user whose events are written straight into the log."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone
from pytest_django import Settings

from federation.ledger import Happening, record
from tests.api.conftest import Api, _fresh_rates, _no_listener_left, api, caller, delta
from tests.state.conftest import (
    _by_hand,
    alice,
    bob,
    now,
    sites,
    until,
)

__all__ = [
    "_by_hand",
    "_fresh_rates",
    "_no_listener_left",
    "alice",
    "api",
    "bob",
    "caller",
    "delta",
    "now",
    "sites",
    "until",
]


@dataclass
class Got:
    """One request as it arrived."""

    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Receiver:
    """An HTTP server that keeps what it gets and answers as it is told."""

    port: int
    got: list[Got] = field(default_factory=list)
    answer: Callable[["Receiver", BaseHTTPRequestHandler], tuple[int, dict[str, str]] | None] = (
        lambda _receiver, _request: (204, {})
    )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    def answers(self, status: int, **headers: str) -> None:
        """Answer every request so from now on."""
        told = {name.replace("_", "-"): value for name, value in headers.items()}
        self.answer = lambda _receiver, _request: (status, told)

    def wait(self, count: int, *, within_s: float = 10) -> None:
        """Wait until so many requests have arrived."""
        deadline = time.monotonic() + within_s
        while len(self.got) < count:
            assert time.monotonic() < deadline, f"{len(self.got)} of {count} requests came"
            time.sleep(0.02)


@pytest.fixture
def receiver(settings: Settings) -> Iterator[Receiver]:
    """A receiver that the installation is allowed to reach."""
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            with lock:
                here.got.append(
                    Got(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
                )
            told = here.answer(here, self)
            if told is None:
                self.close_connection = True
                return
            status, headers = told
            self.send_response(status)
            for name, value in {"Content-Length": "0", **headers}.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base's word
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    here = Receiver(server.server_address[1])
    settings.WEBHOOK_ALLOW = (f"127.0.0.1:{here.port}",)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    yield here
    server.shutdown()
    server.server_close()
    thread.join(5)


def happen(user: User | None, *, count: int = 1, type_: str = "task.succeeded", **columns: Any) -> list[str]:
    """Commit events of a user; return their handles."""
    with transaction.atomic():
        rows = record(
            [
                Happening(
                    type=type_,
                    subject=columns.get("task", f"thing-{number}"),
                    summary=f"number {number}",
                    user_id=user.pk if user else None,
                    **columns,
                )
                for number in range(count)
            ],
            now=timezone.now(),
        )
    return [row.handle for row in rows]


def subscribe(caller_: Api, **body: Any) -> dict[str, Any]:
    """Make a subscription by REST and return the answer."""
    answer = caller_.post("subscriptions", body)
    assert answer.status_code == 201, answer.content
    made: dict[str, Any] = answer.json()
    return made
