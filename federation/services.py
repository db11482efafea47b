"""Verbs on systems, connections and allocations; each one transaction, its event included."""

from datetime import datetime
from decimal import Decimal
from typing import Any, Literal

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.db.models import Max

from federation.collector import health_event
from federation.handles import new_handle
from federation.ledger import Happening, record
from federation.models import Allocation, Connection, SiteProfile, System
from federation.profile import ProfileDocument
from federation.types import Health


@transaction.atomic
def store_profile(
    document: ProfileDocument,
    text: str,
    *,
    now: datetime,
    user: AbstractBaseUser | None = None,
    note: str = "",
    actor: str = "facet",
) -> SiteProfile:
    """Put a profile in force as a new revision; an unchanged one stays as it is."""
    system, _ = System.objects.select_for_update(no_key=True).get_or_create(
        slug=document.system, defaults={"name": document.name, "dialect": document.dialect}
    )
    body = document.model_dump(mode="json")
    if system.profile is not None and system.profile.text == text and system.profile.document == body:
        return system.profile
    last = system.revisions.aggregate(last=Max("revision"))["last"] or 0
    profile = SiteProfile.objects.create(
        system=system,
        revision=last + 1,
        text=text,
        document=body,
        note=note[:200],
        created_by_id=user.pk if user else None,
    )
    put_in_force(system, profile, document, now=now, actor=actor)
    return profile


def put_in_force(
    system: System, profile: SiteProfile, document: ProfileDocument, *, now: datetime, actor: str
) -> None:
    """Make a revision the one that counts, and have the system probed in full."""
    was = system.profile.revision if system.profile else None
    System.objects.filter(pk=system.pk).update(
        profile=profile,
        name=document.name,
        centre=document.centre,
        dialect=document.dialect,
        next_probe_at=now,
        last_full_probe_at=None,
    )
    system.refresh_from_db()
    event = Happening(
        type="profile.changed",
        subject=system.slug,
        system=system.slug,
        actor=actor,
        summary=f"{system.name}: profile revision {profile.revision} is in force",
        data={"revision": profile.revision, "was": was, "note": profile.note},
    )
    record([event], now=now)


@transaction.atomic
def roll_back(system: System, revision: int, *, now: datetime, actor: str) -> SiteProfile:
    """Put an earlier revision in force again; revisions themselves never change."""
    profile = system.revisions.get(revision=revision)
    put_in_force(system, profile, ProfileDocument.model_validate(profile.document), now=now, actor=actor)
    return profile


@transaction.atomic
def set_enabled(system: System, *, enabled: bool, reason: str, now: datetime, actor: str) -> None:
    """Enable or disable a system; running work is watched either way."""
    locked = System.objects.select_for_update(no_key=True, of=("self",)).get(pk=system.pk)
    if locked.is_enabled == enabled:
        return
    was = locked.health
    locked.is_enabled, locked.disabled_reason = enabled, "" if enabled else reason[:200]
    locked.health = Health.OFFLINE.value if enabled else Health.DISABLED.value
    locked.health_reason, locked.health_since = reason[:300], now
    locked.next_probe_at = now if enabled else None
    locked.save()
    event = health_event(locked, was)
    record([Happening(**{**_fields(event), "actor": actor})], now=now)


def _fields(event: Happening) -> dict[str, Any]:
    return {name: getattr(event, name) for name in event.__slots__}


def connect(
    user: AbstractBaseUser,
    system: System,
    *,
    kind: str,
    settings: dict[str, Any],
    now: datetime,
    remote_user: str = "",
) -> Connection:
    """Give a user a way into a system, or change it."""
    connection, _ = Connection.objects.update_or_create(
        user_id=user.pk,
        system=system,
        defaults={"kind": kind, "settings": settings, "remote_user": remote_user, "state": "active"},
        create_defaults={
            "handle": new_handle("con", now),
            "kind": kind,
            "settings": settings,
            "remote_user": remote_user,
        },
    )
    return connection


def set_connection_state(
    connection: Connection, state: Literal["active", "disabled"], *, reason: str
) -> None:
    """Take a connection out of use, or use it again; running work is watched either way."""
    Connection.objects.filter(pk=connection.pk).update(state=state, state_reason=reason[:300])


def allocate(
    user: AbstractBaseUser,
    system: System,
    account: str,
    *,
    unit: str,
    granted: Decimal | None,
    now: datetime,
) -> Allocation:
    """Say what a user may spend on one account of one system."""
    allocation, _ = Allocation.objects.update_or_create(
        user_id=user.pk,
        system=system,
        account=account,
        defaults={"unit": unit, "granted": granted},
        create_defaults={"handle": new_handle("alc", now), "unit": unit, "granted": granted},
    )
    return allocation
