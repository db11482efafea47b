"""The stand-in's HTTP server: one loopback port for all services, and the faults it was told to have."""

import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from providers.sandbox.globus.answer import Answer, Request
from providers.sandbox.globus.auth import Auth
from providers.sandbox.globus.compute import Compute
from providers.sandbox.globus.spec import Fault
from providers.sandbox.globus.state import State
from providers.sandbox.globus.transfer import Transfer

_AUTH = ("/v2/oauth2/", "/.well-known/", "/jwk.json")


class StandIn(ThreadingHTTPServer):
    """Auth, Compute and Transfer over one state file."""

    daemon_threads = True
    request_queue_size = 64
    disable_nagle_algorithm = True

    def __init__(self, state_path: Path, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.state = State(state_path)
        self.auth = Auth(self.state, self.url)
        self.compute = Compute(self.state)
        self.transfer = Transfer(self.state)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def answer(self, request: Request) -> Answer | None:
        """Answer one request; None = cut the connection."""
        fault = self.state.fault_for(request.path)
        if fault is None:
            return self._route(request)
        time.sleep(fault.delay_s)
        done = self._route(request) if fault.after or _changes_nothing(fault) else None
        if fault.is_cut:
            return None
        if fault.status is None:
            return done
        body = fault.body or {"code": "FAULT", "message": "armed fault", "reason": "armed fault"}
        return Answer(fault.status, json.dumps(body).encode(), headers=fault.headers)

    def _route(self, request: Request) -> Answer:
        if request.path.startswith("/v0.10/"):
            return self.transfer.answer(request)
        return (self.auth if request.path.startswith(_AUTH) else self.compute).answer(request)

    def stop(self) -> None:
        """Stop answering and end the workers."""
        self.shutdown()
        self.end()

    def end(self) -> None:
        """End what is at work once nobody is answered any more."""
        self.server_close()
        self.transfer.stop()
        self.compute.sites.stop()
        self.state.close()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is no news; anything else is."""
        if not isinstance(sys.exception() if hasattr(sys, "exception") else sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]  # typeshed names the socket


def _changes_nothing(fault: Fault) -> bool:
    return fault.status is None and not fault.is_cut


class _Handler(BaseHTTPRequestHandler):
    """HTTP/1.1 with kept connections."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = 60
    server: StandIn

    def log_message(self, *_: object) -> None:
        """Say nothing: URLs carry codes."""

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else b""
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        headers = {name.title(): value for name, value in self.headers.items()}
        request = Request(self.command, unquote(parts.path), query, headers, body)
        answer = self.server.answer(request)
        if answer is None:
            self.close_connection = True
            return
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.kind)
        self.send_header("Content-Length", str(len(answer.content)))
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer.content)

    do_GET = do_POST = do_PUT = do_DELETE = _answer  # noqa: N815  # http.server's names


@contextmanager
def serving(state_path: Path, port: int = 0) -> Iterator[StandIn]:
    """Run a stand-in in a thread of this process; port 0 = any free one."""
    server = StandIn(state_path, port)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join(5)
