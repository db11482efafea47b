"""What every command gets: its options, a way to the server and a place to print."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from functools import cached_property

from facet_cli import config
from facet_cli.client import Client
from facet_cli.output import Output


@dataclass
class Context:
    """One run of a command."""

    args: argparse.Namespace
    output: Output

    @cached_property
    def client(self) -> Client:
        """The server of the account chosen."""
        return Client(config.account(self.args.at))
