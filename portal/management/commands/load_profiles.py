"""`manage.py load_profiles PATH`: put site profiles in force, all of them or none."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction
from django.utils import timezone

from federation.services import store_profile
from portal.profiles import read_all
from providers.errors import ProfileInvalid


class Command(BaseCommand):
    """A profile that did not change makes no new revision."""

    help = "Validate and load site-profile YAML files (a file or a folder)."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take the path and a note."""
        parser.add_argument("path")
        parser.add_argument("--note", default="loaded from a file")

    def handle(self, *args: Any, **options: Any) -> None:  # Django's signature
        """Load every file in one transaction."""
        found = read_all(options["path"])
        faults = [outcome for _, outcome in found if isinstance(outcome, ProfileInvalid)]
        if faults:
            raise CommandError("nothing was loaded:\n" + "\n".join(fault.message for fault in faults))
        now = timezone.now()
        with transaction.atomic():
            for _, outcome in found:
                if isinstance(outcome, ProfileInvalid):
                    continue
                document, text = outcome
                profile = store_profile(document, text, now=now, note=options["note"], actor="command line")
                self.stdout.write(f"{document.system}: revision {profile.revision}")
