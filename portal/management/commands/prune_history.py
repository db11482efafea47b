"""`manage.py prune_history`: drop old snapshots and samples now."""

import argparse
from typing import Any

from django.core.management.base import BaseCommand
from django.utils import timezone

from portal.retention import prune_history


class Command(BaseCommand):
    """The command."""

    help = "Drop snapshots and samples that are older than the settings allow."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Take other bounds than the settings'."""
        parser.add_argument("--snapshots-days", type=days_of, help="instead of FACET_KEEP_SNAPSHOTS_DAYS")
        parser.add_argument("--samples-days", type=days_of, help="instead of FACET_KEEP_SAMPLES_DAYS")

    def handle(self, *args: Any, **options: Any) -> None:
        """Drop, and say how much."""
        found = prune_history(
            now=timezone.now(),
            snapshots_days=options["snapshots_days"],
            samples_days=options["samples_days"],
        )
        self.stdout.write(f"{found.snapshots} snapshots and {found.samples} samples dropped.")


def days_of(text: str) -> int:
    """Return whole days of an argument.

    Raises:
        ArgumentTypeError: it is no such number.
    """
    if not text.isdecimal() or int(text) > 36_500:
        raise argparse.ArgumentTypeError("give whole days, 0 or more")
    return int(text)
