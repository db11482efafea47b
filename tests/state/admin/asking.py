"""How the tests of the admin ask for pages, and read them."""

from html import unescape
from typing import Any

from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from federation.admin.profile_forms import fingerprint
from federation.models import Event, SiteProfile, System

TEXT = "# by hand\nsystem: delta\nname: Delta\narchitecture: x86_64\npartitions:\n  gpu: {max_nodes: 4}\n"
CHANGED = TEXT.replace("max_nodes: 4", "max_nodes: 8")


def staff(*permissions: str) -> Client:
    """Return a signed-in member of staff with these permissions and no others."""
    user = User.objects.create_user("staff", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client()
    client.force_login(user)
    return client


def place_of(system: System, name: str = "change", *more: object) -> str:
    """Return the address of one of a system's pages."""
    return reverse(f"admin:federation_system_{name}", args=(system.pk, *more))


def in_force(system: System) -> SiteProfile:
    """Return the revision in force now."""
    system.refresh_from_db()
    assert system.profile is not None
    return system.profile


def last_event() -> Event:
    event = Event.objects.order_by("id").last()
    assert event is not None
    return event


def text_of(response: Any) -> str:
    return unescape(response.content.decode())


def review(client: Client, system: System, text: str, **fields: str) -> Any:
    return client.post(place_of(system), {"text": text, "_review": "1", **fields})


def store(client: Client, system: System, text: str, **fields: object) -> Any:
    given = {"text": text, "_store": "1", "base": 1, "reviewed": fingerprint(text), **fields}
    return client.post(place_of(system), given)
