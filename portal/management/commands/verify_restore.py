"""`manage.py verify_restore`: is what was restored whole, and does the secret key belong to it?"""

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from portal.restored import answers, open_attempts


class Command(BaseCommand):
    """Reads only; safe at any time."""

    help = (
        "Check a restored installation: migrations, event log, sealed secrets, ledger, views; and tell which "
        "systems have attempts that were open when the backup was taken."
    )

    def handle(self, *args: Any, **options: Any) -> None:  # Django's signature
        """Print one line for each question; fail when one is answered badly."""
        found = list(answers())
        for answer in found:
            self.stdout.write(f"{'ok   ' if answer.well else 'WRONG'} {answer.question}: {answer.said}")
        for system, count in open_attempts():
            self.stdout.write(f"note  {system}: {count} attempts were open; workers will look at them.")
        wrong = [answer.question for answer in found if not answer.well]
        if wrong:
            raise CommandError(f"Not whole: {', '.join(wrong)}.")
