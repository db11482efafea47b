"""Check the event log: every hash, every position, nothing missing, nothing changed."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from federation.archives import verify_archives
from federation.ledger import verify
from orchestrator.selectors import head_cursor, oldest_cursor
from portal.retention import archive_folder


class Command(BaseCommand):
    """The command."""

    help = "Check that the event log, archives included, is what was committed."

    def add_arguments(self, parser: CommandParser) -> None:
        """Take whether the files are read."""
        parser.add_argument(
            "--without-files",
            action="store_true",
            help="check how archives follow one another, not the files",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Print every break; fail when there is one."""
        folder = None if options["without_files"] else archive_folder()
        breaks = [*verify_archives(folder), *verify()]
        for found in breaks:
            self.stdout.write(f"position {found.seq} {found.event}: {found.fault}")
        if breaks:
            raise CommandError(f"The event log is broken at {len(breaks)} places.")
        archived = (oldest_cursor() or 1) - 1
        told = f", {archived} of them in archives" if archived else ""
        self.stdout.write(f"{head_cursor()} events{told}, unbroken.")
