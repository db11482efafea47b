"""`manage.py facet_demo`: make the demo federation and offer its people's passwords and tokens."""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand
from django.utils import timezone

from portal import demo_file
from portal.demo import globus
from portal.demo.federation import PEOPLE, first_look, make_person, make_systems
from providers.sandbox.globus.server import StandIn


class Command(BaseCommand):
    """Safe to repeat: what exists stays as it is."""

    help = "Make the demo federation; passwords and tokens go to DATA_DIR/demo.json."

    def handle(self, *args: Any, **options: Any) -> None:  # Django's signature
        """Make systems, people and a first look, one line each."""
        now = timezone.now()
        data_dir = settings.DATA_DIR
        if settings.FACET_PROFILES is None:
            self.stdout.write("four emulated systems and this machine ...")
            make_systems(data_dir, now=now)
        with globus.standing_in(data_dir) as server:
            self._make_people(server)
            self.stdout.write("a first look at each system ...")
            first_look(now=timezone.now())

    def _make_people(self, server: StandIn | None) -> None:
        """Make researchers and the admin, with their ways into each system, and offer them."""
        data_dir, now = settings.DATA_DIR, timezone.now()
        earlier = demo_file.earlier(data_dir)
        known = {user["username"]: user for user in earlier["users"]} if earlier else {}
        people = PEOPLE if settings.FACET_PROFILES is None else [p for p in PEOPLE if p.is_admin]
        users = [
            make_person(person, data_dir, known=known.get(person.username), now=now, globus=server)
            for person in people
        ]
        demo_file.offer(data_dir, url=settings.PUBLIC_URL, users=users)
