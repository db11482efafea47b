"""`manage.py facet_grafana_role`: make the read-only role of dashboards, or give it another password."""

import secrets
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import psycopg
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import connection

from portal import grafana_role
from portal.embedded import address
from portal.grafana_role import RoleRefused, embedded_admin, make_role

LEAST_PASSWORD = 16
_OWN = ("host", "port", "user", "password", "sslmode", "sslrootcert", "connect_timeout")


class Command(BaseCommand):
    """Safe to repeat: the role keeps its name, gets the new password, and its rights are checked again."""

    help = "Make the read-only role of dashboards, or renew its password; a made password is printed once."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take where the password is, whom to sign in as, and the role's name."""
        parser.add_argument(
            "--password-file", type=Path, help="file that holds the password; else one is made"
        )
        parser.add_argument(
            "--admin-url-file",
            type=Path,
            help="file that holds the postgresql:// URL of somebody who may make roles",
        )
        parser.add_argument("--role", default=grafana_role.ROLE, help="name of the role")

    def handle(self, *args: Any, **options: Any) -> None:  # Django's signature
        """Make it; only a made password goes to standard output."""
        given: Path | None = options["password_file"]
        password = _word(given) if given else secrets.token_urlsafe(24)
        if len(password) < LEAST_PASSWORD:
            raise CommandError(f"The password must have at least {LEAST_PASSWORD} characters.")
        try:
            with _administrator(options["admin_url_file"]) as server:
                is_new = make_role(server, options["role"], password)
        except RoleRefused as error:
            raise CommandError(str(error)) from error
        except psycopg.errors.InsufficientPrivilege as error:
            raise CommandError(
                f"{_sentence(error)} Give --admin-url-file of somebody who may make roles."
            ) from error
        except psycopg.Error as error:
            raise CommandError(_sentence(error)) from error
        self.stderr.write(f"{options['role']} {'is made' if is_new else 'is renewed'}.")
        if given is None:
            self.stdout.write(password)


def _administrator(url_file: Path | None) -> psycopg.Connection[Any]:
    """Connect to Facet's database as who makes roles there: given, the embedded server's own, or Facet."""
    database = str(connection.settings_dict["NAME"])
    if url_file is not None:
        return psycopg.connect(_word(url_file), dbname=database, autocommit=True, connect_timeout=10)
    engine = address.read(settings.DATA_DIR)
    own = {name: each for name, each in connection.get_connection_params().items() if name in _OWN}
    own |= embedded_admin(settings.DATA_DIR, settings.DATABASE_URL, engine.database_url if engine else None)
    return psycopg.connect(**own, dbname=database, autocommit=True)


def _word(file: Path) -> str:
    try:
        return file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{file} cannot be read: {error}.") from error


def _sentence(error: psycopg.Error) -> str:
    return f"PostgreSQL: {str(error).strip().splitlines()[0]}."
