"""`manage.py connect_globus USER SYSTEM ENDPOINT`: let a user reach a system through a Compute endpoint."""

from typing import Any

import yaml
from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone
from pydantic import ValidationError

from federation.models import System
from portal.globus.connections import CONNECT_PATH, GlobusSettings
from portal.globus.endpoints import check_endpoint, connect_endpoint
from providers.errors import FacetError


class Command(BaseCommand):
    """An administrator's verb; the user then connects Globus once for all endpoints."""

    help = "Give a user a way into a system through a Globus Compute endpoint."

    def add_arguments(self, parser: CommandParser) -> None:
        """Take user, system, endpoint, and values for a multi-user endpoint's template."""
        parser.add_argument("user")
        parser.add_argument("system")
        parser.add_argument("endpoint", help="id of the endpoint")
        parser.add_argument("--config", action="append", default=[], metavar="KEY=VALUE")
        parser.add_argument("--function", help="id of the function that the site allows")
        parser.add_argument("--remote-user", default="")
        parser.add_argument("--service", action="store_true", help="as the application's own account")
        parser.add_argument("--check", action="store_true", help="ask the endpoint whether the settings fit")

    def handle(self, *args: Any, **options: Any) -> None:  # Django's signature
        """Connect, and with `--check` ask the endpoint."""
        try:
            given = GlobusSettings(
                endpoint=options["endpoint"],
                user_endpoint_config=_values(options["config"]),
                function_id=options["function"],
                identity="service" if options["service"] else "user",
            )
            user = User.objects.get(username=options["user"])
            system = System.objects.get(slug=options["system"])
        except (ValidationError, User.DoesNotExist, System.DoesNotExist) as error:
            raise CommandError(str(error)) from error
        connection = connect_endpoint(
            user, system, given, now=timezone.now(), remote_user=options["remote_user"]
        )
        self.stdout.write(f"{user} reaches {system} through {given.endpoint}.")
        if options["check"]:
            try:
                said = check_endpoint(connection)
            except FacetError as error:
                raise CommandError(f"{error} {error.remediation}".strip()) from error
            self.stdout.write(f"the endpoint is called {said.get('display_name') or said.get('name')}.")
        else:
            self.stdout.write(f"{user} now signs in once at {CONNECT_PATH}.")


def _values(pairs: list[str]) -> dict[str, Any]:
    """Return `KEY=VALUE` pairs; a value is read as YAML, so that numbers are numbers."""
    return {key: yaml.safe_load(value) for key, _, value in (pair.partition("=") for pair in pairs)}
