"""`facet mcp`: the server's MCP on standard input and output, judged by the SDK's own client."""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar

import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.cli import installed
from tests.cli.conftest import Facet, World, free_port

T = TypeVar("T")

REVISIONS = ("2026-07-28", "2025-11-25", "2025-06-18")


def spoken(facet: Facet, work: Callable[[Client], Awaitable[T]], *, mode: str = "auto") -> T:
    """Start `facet mcp` as a client would, do some work, leave."""

    async def run() -> T:
        program = StdioServerParameters(
            command=installed.python(), args=["-m", "facet_cli", "mcp"], env=facet.environment, cwd=facet.home
        )
        async with Client(stdio_client(program), mode=mode) as client:
            return await work(client)

    return asyncio.run(asyncio.wait_for(run(), 60))


@pytest.mark.parametrize("revision", REVISIONS)
def test_the_tools_are_the_servers_in_every_revision(
    facet: Facet, monkeypatch: pytest.MonkeyPatch, revision: str
) -> None:
    monkeypatch.setattr("mcp.client.session.LATEST_HANDSHAKE_VERSION", revision)

    async def look(client: Client) -> Any:
        tools = await client.list_tools()
        seen = await client.call_tool("inspect_federation", {})
        read = await client.read_resource("facet://systems/delta")
        return client.protocol_version, {tool.name for tool in tools.tools}, seen, read

    agreed, names, seen, read = spoken(facet, look, mode="auto" if revision == REVISIONS[0] else "legacy")

    assert agreed == revision
    assert {"submit_task", "wait_for_events", "cancel"} <= names
    assert [each["id"] for each in seen.structured_content["systems"]] == ["delta"]
    assert json.loads(read.contents[0].text)["id"] == "delta"


def test_a_call_that_waits_holds_up_no_other(facet: Facet) -> None:
    async def look(client: Client) -> tuple[bool, Any]:
        waiting = asyncio.create_task(client.call_tool("wait_for_events", {"timeout_s": 40}))
        await asyncio.sleep(0.2)
        answer = await client.call_tool("get_result", {"task": "task_none"})
        still_waiting = not waiting.done()
        waiting.cancel()
        return still_waiting, answer

    still_waiting, answer = spoken(facet, look)

    assert still_waiting
    assert answer.structured_content["code"] == "not_found"


def _ask(facet: Facet, *lines: object) -> list[dict[str, Any]]:
    given = "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines)
    ran = facet("mcp", given=given)
    assert ran.code == 0
    return ran.lines


LIST = {"jsonrpc": "2.0", "id": 7, "method": "tools/list"}


def test_a_bad_token_is_a_failure_of_the_protocol_with_its_remedy(facet: Facet) -> None:
    (answer,) = _ask(facet.at("facet_unknown"), LIST)

    assert answer["id"] == 7
    assert answer["error"]["data"]["code"] == "not_authenticated"
    assert "make a new one" in answer["error"]["message"]


def test_a_server_that_is_away_is_told_for_each_request(facet: Facet) -> None:
    facet.url = f"http://127.0.0.1:{free_port()}"

    answers = _ask(
        facet, LIST, {"jsonrpc": "2.0", "method": "notifications/initialized"}, {**LIST, "id": "b"}
    )

    assert {answer["id"] for answer in answers} == {7, "b"}
    assert all(answer["error"]["data"]["code"] == "unreachable" for answer in answers)


@pytest.mark.parametrize(("refusals", "answered", "asked"), [(2, True, 3), (99, False, 5)])
def test_a_server_without_its_database_is_asked_again_and_not_for_ever(
    facet: Facet, *, refusals: int, answered: bool, asked: int
) -> None:
    bodies: list[bytes] = []

    class Away(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            is_back = len(bodies) > refusals
            answer = (
                {"jsonrpc": "2.0", "id": 7, "result": {}}
                if is_back
                else {"code": "database_away", "detail": "It is away."}
            )
            body = json.dumps(answer).encode()
            self.send_response(200 if is_back else 503)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Retry-After", "0")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Away) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        facet.url = f"http://127.0.0.1:{server.server_port}"
        (answer,) = _ask(facet, LIST)
        server.shutdown()

    assert answer["id"] == 7
    assert ("result" in answer) is answered
    assert "It is away." in json.dumps(answer) or answered
    assert len(bodies) == asked
    assert {json.loads(body)["id"] for body in bodies} == {7}


def test_lines_that_are_no_message_are_refused_and_the_next_one_is_heard(facet: Facet) -> None:
    broken, number, answer = sorted(_ask(facet, "{", "", "3", LIST), key=lambda each: each["id"] or 0)[:3]

    assert {broken["error"]["code"], number["error"]["code"]} == {-32700, -32600}
    assert answer["id"] == 7
    assert len(answer["result"]["tools"]) > 5


def test_a_cancelled_request_is_not_answered(facet: Facet) -> None:
    waiting = {"name": "wait_for_events", "arguments": {"timeout_s": 2}}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": waiting}
    over = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}

    assert [answer["id"] for answer in _ask(facet, call, over, LIST)] == [7]


def test_without_a_login_it_ends_with_the_code_for_that(facet: Facet, world: World) -> None:
    assert facet.at("")("mcp", given="").code == 3
