"""Reading the federation, always for one user."""

import zlib
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from functools import lru_cache

from django.contrib.auth.models import AbstractBaseUser
from django.db import connection
from django.db.models import QuerySet, Sum

from federation import health
from federation.circuit import admits, sentence
from federation.circuits import circuit_of
from federation.limit_use import UseOfLimits
from federation.merge import PreparedSystem, prepare
from federation.models import Allocation, Charge, Connection, LimitUseRow, SiteProfile, Snapshot, System
from federation.profile import ProfileDocument
from federation.records import records
from federation.shown import (
    AllocationShown,
    BalanceShown,
    ChargeShown,
    History,
    HistoryPoint,
    SnapshotShown,
    SystemShown,
    show_system,
)
from federation.types import Access, Credit, Health, ResourceRecord, Standing
from providers.errors import InvalidInput
from providers.reading import nearest
from providers.types import Association, Partition, Probe, Qos


def systems(*, only_enabled: bool = True) -> list[System]:
    """Return the systems with the profile in force, by slug; documents and snapshots are left unread."""
    found = (
        System.objects.select_related("profile", "snapshot")
        .defer("partitions", "profile__text", "profile__document", "snapshot__body")
        .filter(profile__isnull=False)
    )
    return list(found.filter(is_enabled=True) if only_enabled else found)


_SYSTEMS = 256
"""How many systems are kept as read. Every request walks over all of them, so with less room than there are
systems each one would push out the next that is needed, and all would be read anew every time."""


@lru_cache(maxsize=_SYSTEMS)
def profile_of(profile_id: int) -> ProfileDocument:
    """Return a profile revision as a value; revisions never change, so it is kept."""
    return ProfileDocument.model_validate(SiteProfile.objects.get(pk=profile_id).document)


@lru_cache(maxsize=_SYSTEMS)
def probe_of(snapshot_id: int) -> Probe | None:
    """Return what a snapshot saw; snapshots never change, so it is kept. None for a failed probe."""
    body = Snapshot.objects.only("body").get(pk=snapshot_id).body
    return Probe.model_validate_json(zlib.decompress(bytes(body))) if body else None


def clock_ahead_s(system: System) -> int:
    """Return how far a system's clock is ahead of ours by its last good probe; 0 = not, or not known."""
    seen = None if system.snapshot_id is None else probe_of(system.snapshot_id)
    return 0 if seen is None else seen.clock_ahead_s


@lru_cache(maxsize=_SYSTEMS)
def _prepared(
    system_id: int, profile_id: int, snapshot_id: int | None, full_at: datetime | None
) -> PreparedSystem:
    """Return what all users see alike; `full_at` stands for the partition table in the key."""
    table = System.objects.values_list("partitions", flat=True).get(pk=system_id) if full_at else []
    partitions = [Partition.model_validate(row) for row in table]
    probe = probe_of(snapshot_id) if snapshot_id is not None else None
    return prepare(profile_of(profile_id), probe, partitions or None)


_NEVER_ASKED = "accounting was not asked for finished jobs yet"


def use_of_limits() -> UseOfLimits:
    """Return how much of their time limits finished jobs used, everywhere; one object until more is told."""
    rows = LimitUseRow.objects.order_by("system_id")
    return _use_of_limits(tuple(rows.values_list("system_id", "system__profile_id", "updated_at")))


@lru_cache(maxsize=2)
def _use_of_limits(_told: tuple[tuple[int, int | None, datetime], ...]) -> UseOfLimits:
    """Return the same; `_told` stands for the content of the rows in the key."""
    by_user: dict[tuple[str, str], list[float]] = {}
    by_partition: dict[tuple[str, str], list[float]] = {}
    for row in LimitUseRow.objects.select_related("system"):
        slug, profile_id = row.system.slug, row.system.profile_id
        by_user |= {(slug, user): shares for user, shares in row.shares.get("by_user", ())}
        theirs = dict(row.shares.get("by_partition", ()))
        by_partition |= {(slug, name): shares for name, shares in theirs.items()}
        profile = profile_of(profile_id) if profile_id is not None else None
        for name in profile.partitions if profile else ():
            if profile and (shares := theirs.get(profile.scheduler_name(name))) is not None:
                by_partition[slug, name] = shares
    return UseOfLimits(by_user=by_user, by_partition=by_partition)


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
    found = circuit_of(system)
    as_read = health.as_read(word, taken, max_age_s=max_age_s, now=now)
    reason = system.health_reason if system.is_enabled else system.disabled_reason
    return Standing(
        health=Health.DEGRADED if as_read is Health.ONLINE and sentence(found) else as_read,
        reason=". ".join(part.rstrip(".") for part in (reason, sentence(found)) if part),
        snapshot_id=system.snapshot.handle if system.snapshot else None,
        observed_at=taken,
        circuit=found,
        admits=admits(found, now=now),
    )


def connections(user: AbstractBaseUser) -> dict[int, Connection]:
    """Return this user's connections by system."""
    rows = Connection.objects.select_related("system").defer("system__partitions").filter(user_id=user.pk)
    return {row.system_id: row for row in rows}


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
            row.account: Credit(unit=row.unit, granted=row.granted, left=left_of(row)) for row in allocations
        },
    )


def left_of(row: Allocation) -> Decimal | None:
    """Return what may still be held on an allocation; None = neither Facet nor the site limits it.

    The site's own balance counts where it is in the allocation's unit. It knows nothing yet of what is held
    now, nor of what was settled since it was told, so both are taken off.
    """
    granted = None if row.granted is None else row.granted - row.used - row.reserved
    if row.site_left is None or row.site_at is None or row.site_unit != row.unit:
        return granted
    since = row.charges.filter(kind__in=("settle", "correct"), at__gt=row.site_at)
    later = since.aggregate(total=Sum("amount"))["total"] or Decimal(0)
    told = row.site_left - row.reserved - later
    return told if granted is None else min(granted, told)


def credit_left(user_id: int, system: str, account: str) -> Decimal | None:
    """Return what one user may still hold on one account of a system, read now; None = not limited."""
    rows = Allocation.objects.filter(user_id=user_id, system__slug=system, account=account)
    row = rows.first()
    return None if row is None else left_of(row)


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


def systems_shown(user: AbstractBaseUser, *, now: datetime) -> list[SystemShown]:
    """Return every system as this user sees it, by slug."""
    ways = connections(user)
    told = dict(LimitUseRow.objects.values_list("system_id", "unknown"))
    return [
        show_system(
            prepared(system),
            standing(system, now=now),
            names=(system.name, system.centre),
            dialect=system.dialect,
            is_connected=system.pk in ways and ways[system.pk].state == "active",
            limit_use_unknown=told.get(system.pk, _NEVER_ASKED) or None,
            now=now,
        )
        for system in systems(only_enabled=False)
    ]


def connected_slugs(user_id: int) -> frozenset[str]:
    """Return the systems a user is connected to."""
    return frozenset(Connection.objects.filter(user_id=user_id).values_list("system__slug", flat=True))


def check_slugs(words: Iterable[str], *, pointer: str) -> None:
    """Refuse slugs of systems that this installation does not know.

    Raises:
        InvalidInput: naming the nearest known system for each.
    """
    given = list(words)
    known = set(System.objects.values_list("slug", flat=True)) if given else set()
    problems = tuple(
        (f"{pointer}/{number}", "unknown_system", f"No system `{word}`." + nearest(word, known))
        for number, word in enumerate(given)
        if word not in known
    )
    if problems:
        raise InvalidInput(problems[0][2], problems=problems)


def snapshots(user: AbstractBaseUser) -> QuerySet[Snapshot]:
    """Return the snapshots of the systems this user is connected to, newest first, without their bodies."""
    rows = Snapshot.objects.filter(system__connections__user_id=user.pk)
    return rows.select_related("system").defer("body").order_by("-id")


def known_since(user: AbstractBaseUser, slug: str) -> datetime | None:
    """Return when a system was first seen, of what is still kept; None = never."""
    rows = snapshots(user).filter(system__slug=slug).order_by("id")
    return rows.values_list("taken_at", flat=True).first()


def allocations(user: AbstractBaseUser) -> QuerySet[Allocation]:
    """Return this user's allocations, newest first."""
    return Allocation.objects.filter(user_id=user.pk).select_related("system").order_by("-id")


def charges(user: AbstractBaseUser) -> QuerySet[Charge]:
    """Return the ledger lines of this user's allocations, newest first."""
    rows = Charge.objects.filter(allocation__user_id=user.pk)
    return rows.select_related("allocation__system").order_by("-id")


def show_snapshot(row: Snapshot) -> SnapshotShown:
    """Return a snapshot as the outside sees it."""
    return SnapshotShown(
        id=row.handle,
        state=row.availability,
        system=row.system.slug,
        taken_at=row.taken_at,
        duration_s=row.duration_s,
        full=row.is_full,
        scheduler=row.scheduler or None,
        digest=row.digest or None,
        counts=row.counts,
        error=row.error or None,
    )


def scheduler_at(system: System, at: datetime | None) -> str:
    """Return what a system's scheduler called itself in the last probe before then; empty: not known."""
    rows = system.snapshots.exclude(scheduler="")
    if at is not None:
        rows = rows.filter(taken_at__lte=at)
    return rows.order_by("-taken_at").values_list("scheduler", flat=True).first() or ""


def show_allocation(row: Allocation, *, now: datetime) -> AllocationShown:
    """Return an allocation as the outside sees it."""
    left = left_of(row)
    return AllocationShown(
        id=row.handle,
        state="exhausted" if left is not None and left <= 0 else "open",
        system=row.system.slug,
        account=row.account,
        unit=row.unit,
        granted=row.granted,
        reserved=row.reserved,
        used=row.used,
        left=left,
        site=_balance(row, now=now),
        created_at=row.created_at,
    )


def _balance(row: Allocation, *, now: datetime) -> BalanceShown | None:
    if row.site_at is None:
        return None
    return BalanceShown(
        unit=row.site_unit,
        granted=row.site_granted,
        used=row.site_used,
        left=row.site_left,
        at=row.site_at,
        age_s=max(0, round((now - row.site_at).total_seconds())),
        source=row.site_source,
        problem=row.site_problem or None,
        counts=row.site_left is not None and row.site_unit == row.unit,
    )


_CHARGED = {"reserve": "reserved", "settle": "settled", "release": "released", "correct": "corrected"}


def show_charge(row: Charge) -> ChargeShown:
    """Return a ledger line as the outside sees it."""
    return ChargeShown(
        id=row.handle,
        state=_CHARGED[row.kind],
        system=row.allocation.system.slug,
        account=row.allocation.account,
        allocation=row.allocation.handle,
        attempt=row.attempt_handle,
        kind=row.kind,
        amount=row.amount,
        unit=row.allocation.unit,
        note=row.note or None,
        at=row.at,
    )


_HISTORY = """
    SELECT s.slug, p.partition, date_bin(make_interval(secs => %s), p.at, 'epoch'),
           avg(p.gpus_free), avg(p.cpus_free), avg(p.running), avg(p.pending)
    FROM federation_partitionsample p JOIN federation_system s ON s.id = p.system_id
    WHERE s.slug = ANY(%s) AND p.at > %s GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
"""


def history(slugs: Sequence[str], *, hours: int, points: int, now: datetime) -> list[History]:
    """Return the means of every partition of these systems over the last hours, in equal stretches."""
    span = timedelta(hours=hours)
    found: dict[tuple[str, str], list[HistoryPoint]] = {}
    with connection.cursor() as cursor:
        cursor.execute(_HISTORY, [span.total_seconds() / points, list(slugs), now - span])
        for slug, partition, at, gpus, cpus, running, pending in cursor.fetchall():
            point = HistoryPoint(
                at=at,
                gpus_free=round(gpus, 1),
                cpus_free=round(cpus, 1),
                running=round(running, 1),
                pending=round(pending, 1),
            )
            found.setdefault((slug, partition), []).append(point)
    return [History(system=s, partition=p, points=kept) for (s, p), kept in found.items()]
