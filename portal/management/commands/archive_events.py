"""`manage.py archive_events`: move old events into files now."""

import argparse
from typing import Any

from django.core.management.base import BaseCommand
from django.utils import timezone

from portal.management.commands.prune_history import days_of
from portal.retention import archive_events, archive_folder


class Command(BaseCommand):
    """The command."""

    help = "Move events older than so many days into files; the chain stays verifiable."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Take the bound."""
        parser.add_argument("--days", type=days_of, help="instead of FACET_KEEP_EVENTS_DAYS")

    def handle(self, *args: Any, **options: Any) -> None:
        """Move, and say what."""
        found = archive_events(now=timezone.now(), days=options["days"], files=100_000)
        for name in found.files:
            self.stdout.write(name)
        self.stdout.write(f"{found.events} events moved into {len(found.files)} files in {archive_folder()}.")
