"""Write the API's description into the repository, or check that the copy there is the present one."""

import difflib
import json
from argparse import ArgumentParser
from pathlib import Path

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from portal.api.openapi.document import document

_SHOWN_LINES = 60


def kept_at() -> Path:
    """Return where the copy is kept."""
    return Path(settings.ROOT) / "docs" / "reference" / "openapi.json"


class Command(BaseCommand):
    """The command."""

    help = "Write docs/reference/openapi.json; with --check compare it and write nothing."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take --check."""
        parser.add_argument("--check", action="store_true", help="fail when the copy is not the present one")

    def handle(self, *args: object, **options: object) -> None:
        """Write or compare."""
        path = kept_at()
        wanted = json.dumps(document(), indent=1, ensure_ascii=False) + "\n"
        if not options["check"]:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(wanted)
            self.stdout.write(f"{path} written")
            return
        kept = path.read_text() if path.exists() else ""
        if kept == wanted:
            return
        lines = difflib.unified_diff(
            kept.splitlines(), wanted.splitlines(), "kept", "present", lineterm="", n=1
        )
        for line, _ in zip(lines, range(_SHOWN_LINES), strict=False):
            self.stdout.write(line)
        raise CommandError("docs/reference/openapi.json is not the present API: run manage.py facet_openapi.")
