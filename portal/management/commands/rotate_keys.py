"""`manage.py rotate_keys`: seal every stored secret with the newest secret key."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from portal.globus.rotation import rotate


class Command(BaseCommand):
    """Safe to repeat, and to run while everything is running."""

    help = (
        "Re-encrypt delegated tokens and webhook secrets with FACET_SECRET_KEY; the earlier key must be "
        "among FACET_SECRET_KEY_FALLBACKS meanwhile, and can be dropped afterwards."
    )

    def handle(self, *args: Any, **options: Any) -> None:  # Django's signature
        """Say how many were sealed anew."""
        outcome = rotate()
        self.stdout.write(f"{outcome.sealed_anew} sealed anew, {outcome.newest_already} were already.")
        if outcome.lost:
            raise CommandError(
                f"{outcome.lost} cannot be opened with any known key: have the users connect again, or "
                "rotate the webhooks' secrets."
            )
