"""`manage.py check_profiles PATH`: validate site profiles without loading them."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from portal.profiles import read_all
from providers.errors import ProfileInvalid


class Command(BaseCommand):
    """Print one line per fault, with file, line and column; exit 1 when there is any."""

    help = "Validate site-profile YAML files (a file or a folder)."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take the path."""
        parser.add_argument("path")

    def handle(self, *args: Any, **options: Any) -> None:  # Django's signature
        """Check every file."""
        faults = 0
        for file, outcome in read_all(options["path"]):
            if not isinstance(outcome, ProfileInvalid):
                self.stdout.write(f"{file.name}: ok ({len(outcome[0].partitions)} partitions)")
                continue
            faults += 1
            for _, _, message in outcome.problems or (("", "", outcome.message),):
                self.stderr.write(f"{file.name}: {message}")
        if faults:
            raise CommandError(f"{faults} profile{'s' if faults > 1 else ''} not valid")
