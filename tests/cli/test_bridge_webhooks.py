"""The bridge calls webhooks signed as Standard Webhooks says, and knows when to stop."""

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from facet_cli.bridge.runner import signature

from tests.cli.agents import ended, rule, rules, status
from tests.cli.conftest import Facet, World

pytestmark = pytest.mark.services


class Receiver(BaseHTTPRequestHandler):
    """A webhook that answers as it is told, and keeps what it was sent."""

    answers: "list[int]" = []
    got: "list[tuple[dict[str, str], bytes]]" = []

    def do_POST(self) -> None:  # a name of the standard library
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.got.append(({name.lower(): value for name, value in self.headers.items()}, body))
        self.send_response(self.answers.pop(0) if self.answers else 204)
        self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def hook(facet: Facet) -> Iterator[type[Receiver]]:
    """A webhook, and the one rule that calls it."""
    handler = type("Hook", (Receiver,), {"answers": [], "got": []})
    secret = facet.home / "secret"
    secret.write_text("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n")
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/hook"
        rules(facet, rule(wake={"kind": "webhook", "url": url, "secret_file": str(secret)}))
        facet("bridge", "once")
        yield handler
        server.shutdown()


def test_a_webhook_is_called_signed_and_again_under_the_same_id(
    facet: Facet, world: World, hook: type[Receiver]
) -> None:
    hook.answers += [500, 302]
    (made,) = world.happen(ended("task_hook"))

    for _ in range(4):
        facet("bridge", "once")

    assert len(hook.got) == 3
    assert {headers["webhook-id"] for headers, _ in hook.got} == {hook.got[0][0]["webhook-id"]}
    for headers, body in hook.got:
        wake, at = headers["webhook-id"], int(headers["webhook-timestamp"])
        assert headers["webhook-signature"] == signature(
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", wake, at, body
        )
        assert abs(at - time.time()) < 60
        assert [event["id"] for event in json.loads(body)["events"]] == [made]
        assert facet.token not in str(headers)
    assert status(facet)["rules"]["all"]["delivered"] == 1


def test_a_webhook_that_is_gone_is_not_tried_again(facet: Facet, world: World, hook: type[Receiver]) -> None:
    hook.answers += [410]
    world.happen(ended("task_gone"))

    for _ in range(3):
        facet("bridge", "once")

    assert len(hook.got) == 1
    assert facet("bridge", "dead-letters", "--json").json["results"][0]["why"] == "HTTP 410"
