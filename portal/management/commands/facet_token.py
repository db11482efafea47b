"""Make an API token; its secret is printed once, alone on standard output."""

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from portal.tokens import issue_token, scopes_of
from providers.errors import FacetError


class Command(BaseCommand):
    """The command."""

    help = "Print a new API token of a user, once."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take the user, scopes, name and life."""
        parser.add_argument("user", help="user name")
        parser.add_argument(
            "--scopes", required=True, help="of read,draft,submit,manage,admin; comma-separated"
        )
        parser.add_argument("--name", default="command line", help="what to call it")
        parser.add_argument(
            "--systems", default="", help="the only systems it may use and see; comma-separated; none: all"
        )
        parser.add_argument(
            "--attended", action="store_true", help="its owner answers approvals in the client that holds it"
        )
        parser.add_argument("--expires-days", type=int, default=90, help="days until it expires; 0: never")

    def handle(self, *args: Any, **options: Any) -> None:
        """Make it and print it."""
        user = get_user_model().objects.filter(username=options["user"]).first()
        if user is None:
            raise CommandError(f"There is no user {options['user']!r}.")
        if not 0 <= options["expires_days"] <= 3650:
            raise CommandError("--expires-days must be from 0 (never) to 3650.")
        now = timezone.now()
        days = options["expires_days"]
        try:
            scopes = scopes_of(word.strip() for word in options["scopes"].split(",") if word.strip())
            if not scopes:
                raise CommandError("--scopes names none.")
            _, secret = issue_token(
                user,
                name=options["name"][:80],
                scopes=scopes,
                now=now,
                expires_at=now + timedelta(days=days) if days else None,
                attended=options["attended"],
                systems=[word.strip() for word in options["systems"].split(",") if word.strip()],
            )
        except FacetError as error:
            raise CommandError(error.message) from None
        self.stdout.write(secret)
