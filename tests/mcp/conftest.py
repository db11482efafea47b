"""A real server over the test's own database, and the SDK's own client to talk to it."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import httpx2
import pytest
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

from tests.api.conftest import (
    _by_hand,
    _fresh_rates,
    _no_listener_left,
    alice,
    api,
    bob,
    caller,
    delta,
    now,
    sites,
    until,
)
from tests.api.test_stream import serving

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

T = TypeVar("T")
Work = Callable[[Client], Awaitable[T]]


class Agent:
    """Talks MCP over the wire."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/mcp"

    def do(self, token: str, work: Work[T], *, mode: str = "auto", **options: Any) -> T:
        """Connect, do some work, leave; options are the SDK client's own."""

        async def run() -> T:
            headers = {"Authorization": f"Bearer {token}"}
            async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
                transport = streamable_http_client(self.url, http_client=http)
                async with Client(transport, mode=mode, **options) as client:
                    return await work(client)

        return asyncio.run(asyncio.wait_for(run(), 90))

    def call(
        self, token: str, name: str, arguments: dict[str, Any], *, mode: str = "auto", **options: Any
    ) -> Any:
        """Call one tool."""
        return self.do(token, lambda client: client.call_tool(name, arguments), mode=mode, **options)


@pytest.fixture(scope="package")
def port(django_db_setup: None) -> Iterator[int]:
    """One server for all tests of MCP: starting one takes longer than any of them."""
    with serving() as server:
        yield server.port


@pytest.fixture
def agent(port: int) -> Agent:
    return Agent(port)
