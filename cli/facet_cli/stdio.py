"""Carrying MCP between standard input and output and the server's streamable HTTP, message by message.

The server judges every message; what is added here is what HTTP wants besides: the token, and the headers
that repeat the revision, the method and the name. Requests run side by side: one that waits holds up none.
"""

from __future__ import annotations

import base64
import http.client
import json
import random
import re
import threading
import time
from typing import IO, Any

from facet_cli.client import LONGEST_ASKED_S, TRIES, Client
from facet_cli.errors import CliError
from facet_cli.sse import Reader

_NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_REVISION = "io.modelcontextprotocol/protocolVersion"
_PLAIN = re.compile(r"(?!=\?base64\?)[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_TIMEOUT_S = 120.0
_LAST_WORDS_S = 10.0
"""How long answers may still come after standard input has ended."""
PARSE_ERROR, INVALID_REQUEST, SERVER_ERROR = -32700, -32600, -32000

Json = dict[str, Any]


class Carrier:
    """Takes lines from a client, and writes the server's answers as lines."""

    def __init__(self, client: Client, out: IO[bytes]) -> None:
        self._client = client
        self._out = out
        self._writing = threading.Lock()
        self._revision = ""
        self._running: list[threading.Thread] = []
        self._forgotten: set[str] = set()

    def take(self, line: bytes) -> None:
        """Send what a line says on its way; the answer is written when it comes."""
        if not line.strip():
            return
        try:
            message = json.loads(line)
        except ValueError:
            self._write(_failure(None, PARSE_ERROR, "The line is not JSON."))
            return
        if not isinstance(message, dict):
            self._write(_failure(None, INVALID_REQUEST, "Send one JSON object a line."))
            return
        if message.get("method") == "notifications/cancelled":
            self._forgotten.add(json.dumps((message.get("params") or {}).get("requestId")))
            return  # every request is its own at the server: there is nobody else to tell
        if message.get("method") == "initialize":
            self._carry(message)  # what comes after depends on the revision agreed
            return
        self._running = [thread for thread in self._running if thread.is_alive()]
        thread = threading.Thread(target=self._carry, args=(message,), daemon=True)
        self._running.append(thread)
        thread.start()

    def finish(self) -> None:
        """Let answers that are on their way arrive, for a while."""
        until = time.monotonic() + _LAST_WORDS_S
        for thread in self._running:
            thread.join(max(0.0, until - time.monotonic()))

    def _carry(self, message: Json) -> None:
        number = message.get("id")
        try:
            answers = self._answers(message)
        except CliError as error:
            told = {"code": error.code, "remediation": error.hint}
            answers = [_failure(number, SERVER_ERROR, error.message, told)]
        except (OSError, http.client.HTTPException, ValueError) as error:
            answers = [_failure(number, SERVER_ERROR, f"The answer broke off: {error}")]
        if "id" not in message or json.dumps(number) in self._forgotten:
            return
        for answer in answers:
            if message.get("method") == "initialize":
                self._revision = str((answer.get("result") or {}).get("protocolVersion") or self._revision)
            self._write(answer)

    def _answers(self, message: Json) -> list[Json]:
        """Send a message and return what came back: messages of the protocol.

        Raises:
            CliError: nothing did.
            OSError, HTTPException, ValueError: it broke off.
        """
        status, kind, text = self._sent(message)
        if "event-stream" in kind:
            reader = Reader()
            found = [reader.feed(line) for line in [*text.splitlines(), ""]]
            return [json.loads(each.data) for each in found if each is not None]
        if not text.strip():
            return []
        answer = json.loads(text) if "json" in kind else None
        if isinstance(answer, dict) and "jsonrpc" in answer:
            return [answer]
        return [_refusal(message, status, answer)]

    def _sent(self, message: Json) -> tuple[int, str, str]:
        """Send a message and return status, content type and text of the answer.

        A server without its database refuses before it has done anything: such a message is sent again.
        """
        content, turn = json.dumps(message).encode(), 0
        while True:
            headers = self._headers(message)
            with self._client.call("/mcp", content, headers=headers, timeout_s=_TIMEOUT_S) as response:
                kind, text = response.headers.get("Content-Type", ""), response.read().decode()
                asked = response.headers.get("Retry-After", "")
            if response.status != 503 or not asked.isdigit() or turn + 1 >= TRIES:
                return response.status, kind, text
            time.sleep(min(float(asked), LONGEST_ASKED_S) + random.uniform(0, 0.5))
            turn += 1

    def _headers(self, message: Json) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        revision = _revision_of(message)
        if revision:
            headers["Mcp-Method"] = str(message.get("method"))
            name = (message.get("params") or {}).get(_NAMED.get(str(message.get("method")), ""))
            if isinstance(name, str):
                headers["Mcp-Name"] = _header(name)
        if revision or self._revision:
            headers["MCP-Protocol-Version"] = revision or self._revision
        return headers

    def _write(self, message: Any) -> None:
        with self._writing:
            self._out.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")
            self._out.flush()


def _revision_of(message: Json) -> str:
    """Return the revision that a message names for itself; earlier ones are agreed on once."""
    params = message.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    return str(meta.get(_REVISION) or "") if isinstance(meta, dict) else ""


def _header(value: str) -> str:
    """Return a value as a header may carry it (SEP-2243): plain where it can be, else base64."""
    if _PLAIN.fullmatch(value):
        return value
    return f"=?base64?{base64.b64encode(value.encode()).decode()}?="


def _refusal(message: Json, status: int, answer: Any) -> Json:
    """Return a problem document as a failure of the protocol, with its remedy where a model reads it."""
    number = message.get("id")
    if not isinstance(answer, dict) or "code" not in answer:
        return _failure(number, SERVER_ERROR, f"The server answered {status} and nothing that can be read.")
    text = f"{answer.get('detail') or answer.get('title')} {answer.get('remediation') or ''}".strip()
    return _failure(number, SERVER_ERROR, text, answer)


def _failure(number: Any, code: int, text: str, data: Any = None) -> Json:
    error: Json = {"code": code, "message": text, **({} if data is None else {"data": data})}
    return {"jsonrpc": "2.0", "id": number, "error": error}
