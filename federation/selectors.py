"""Reading the federation, always for one user."""

import zlib
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache

from django.contrib.auth.models import AbstractBaseUser

from federation import health
from federation.merge import PreparedSystem, prepare
from federation.models import Allocation, Connection, SiteProfile, Snapshot, System
from federation.profile import ProfileDocument
from federation.records import records
from federation.types import Access, Credit, Health, ResourceRecord, Standing
from providers.types import Association, Partition, Probe, Qos


def systems(*, only_enabled: bool = True) -> list[System]:
    """Return the systems with the profile in force, by slug."""
    found = System.objects.select_related("profile", "snapshot").filter(profile__isnull=False)
    return list(found.filter(is_enabled=True) if only_enabled else found)


@lru_cache(maxsize=64)
def profile_of(profile_id: int) -> ProfileDocument:
    """Return a profile revision as a value; revisions never change, so it is kept."""
    return ProfileDocument.model_validate(SiteProfile.objects.get(pk=profile_id).document)


@lru_cache(maxsize=32)
def probe_of(snapshot_id: int) -> Probe | None:
    """Return what a snapshot saw; snapshots never change, so it is kept. None for a failed probe."""
    body = Snapshot.objects.only("body").get(pk=snapshot_id).body
    return Probe.model_validate_json(zlib.decompress(bytes(body))) if body else None


@lru_cache(maxsize=32)
def _prepared(
    system_id: int, profile_id: int, snapshot_id: int | None, full_at: datetime | None
) -> PreparedSystem:
    """Return what all users see alike; `full_at` stands for the partition table in the key."""
    table = System.objects.values_list("partitions", flat=True).get(pk=system_id) if full_at else []
    partitions = [Partition.model_validate(row) for row in table]
    probe = probe_of(snapshot_id) if snapshot_id is not None else None
    return prepare(profile_of(profile_id), probe, partitions or None)


def prepared(system: System) -> PreparedSystem:
    """Return what all users see alike of one system now."""
    assert system.profile_id is not None  # noqa: S101  # `systems` filters
    return _prepared(system.pk, system.profile_id, system.snapshot_id, system.last_full_probe_at)


def standing(system: System, *, now: datetime) -> Standing:
    """Return how the system stands, by its last probe and the age of it."""
    taken = system.snapshot.taken_at if system.snapshot else None
    assert system.profile_id is not None  # noqa: S101  # `systems` filters
    word = Health(system.health) if system.is_enabled else Health.DISABLED
    max_age_s = profile_of(system.profile_id).probe.max_age_s
    return Standing(
        health=health.as_read(word, taken, max_age_s=max_age_s, now=now),
        reason=system.health_reason if system.is_enabled else system.disabled_reason,
        snapshot_id=system.snapshot.handle if system.snapshot else None,
        observed_at=taken,
    )


def connections(user: AbstractBaseUser) -> dict[int, Connection]:
    """Return this user's connections by system."""
    return {c.system_id: c for c in Connection.objects.select_related("system").filter(user_id=user.pk)}


def access(connection: Connection | None, allocations: Sequence[Allocation]) -> Access:
    """Return this user's way into a system as a value."""
    facts = (connection.facts if connection else None) or {}
    known = facts.get("associations")
    return Access(
        is_connected=connection is not None and connection.state == "active",
        remote_user=(connection.remote_user or None) if connection else None,
        associations=tuple(Association.model_validate(row) for row in known) if known is not None else None,
        qos=tuple(Qos.model_validate(row) for row in facts.get("qos") or ()),
        credits={
            row.account: Credit(
                unit=row.unit,
                granted=row.granted,
                left=None if row.granted is None else row.granted - row.used - row.reserved,
            )
            for row in allocations
        },
    )


def records_for(user: AbstractBaseUser, *, now: datetime) -> tuple[ResourceRecord, ...]:
    """Return the Global Resource View of one user, ordered by system, partition, account."""
    ways = connections(user)
    granted: dict[int, list[Allocation]] = {}
    for row in Allocation.objects.filter(user_id=user.pk):
        granted.setdefault(row.system_id, []).append(row)
    found: list[ResourceRecord] = []
    for system in systems(only_enabled=False):
        way = access(ways.get(system.pk), granted.get(system.pk, []))
        found += records(prepared(system), way, standing(system, now=now))
    return tuple(found)
