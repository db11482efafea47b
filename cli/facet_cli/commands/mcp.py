"""mcp: MCP over standard input and output, for clients that start a program instead of calling an address."""

from __future__ import annotations

import sys

from facet_cli.commands.context import Context
from facet_cli.exits import Exit
from facet_cli.stdio import Carrier


def mcp(context: Context) -> Exit:
    """Speak MCP on standard input and output, carried to the server with your token."""
    carrier = Carrier(context.client, sys.stdout.buffer)
    for line in sys.stdin.buffer:
        carrier.take(line)
    carrier.finish()
    return Exit.OK
