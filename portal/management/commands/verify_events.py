"""Check the event log: every hash, every position, nothing missing, nothing changed."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from federation.ledger import verify
from orchestrator.selectors import head_cursor


class Command(BaseCommand):
    """The command."""

    help = "Check that the event log is what was committed."

    def handle(self, *args: Any, **options: Any) -> None:
        """Print every break; fail when there is one."""
        breaks = list(verify())
        for found in breaks:
            self.stdout.write(f"position {found.seq} {found.event}: {found.fault}")
        if breaks:
            raise CommandError(f"The event log is broken at {len(breaks)} places.")
        self.stdout.write(f"{head_cursor()} events, unbroken.")
