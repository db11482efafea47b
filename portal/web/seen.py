"""What pages gather of the federation from its selectors, for one user at one instant."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.contrib.auth.models import AbstractBaseUser

from federation import selectors
from federation.types import Health, ResourceRecord
from portal.web.presenters.records import SystemFacts, refs
from portal.web.presenters.shared import SystemRef
from providers.types import QueueJob


@dataclass(frozen=True, slots=True)
class Seen:
    """The systems in order of their names, and this user's records of them."""

    systems: tuple[SystemFacts, ...]
    records: tuple[ResourceRecord, ...]

    @property
    def refs(self) -> dict[str, SystemRef]:
        """How pages name each system, by slug."""
        return refs(self.systems)


def system_refs() -> dict[str, SystemRef]:
    """Return only how pages name each system, for pages that show nothing else of them."""
    rows = selectors.systems(only_enabled=False)
    return refs(
        SystemFacts(
            slug=row.slug,
            name=row.name,
            centre=row.centre,
            scheduler="",
            health=Health(row.health),
            reason="",
            observed_at=None,
            is_connected=False,
            remote_user=None,
        )
        for row in rows
    )


def seen(user: AbstractBaseUser, *, now: datetime) -> Seen:
    """Return all that the federation pages show of this user's systems."""
    ways = selectors.connections(user)
    systems = []
    for row in selectors.systems(only_enabled=False):
        standing = selectors.standing(row, now=now)
        way = ways.get(row.pk)
        systems.append(
            SystemFacts(
                slug=row.slug,
                name=row.name,
                centre=row.centre,
                scheduler=(row.snapshot.scheduler if row.snapshot else "") or row.dialect,
                health=standing.health,
                reason=standing.reason,
                observed_at=standing.observed_at,
                is_connected=way is not None and way.state == "active",
                remote_user=(way.remote_user or None) if way else None,
                revision=row.profile.revision if row.profile else None,
            )
        )
    ordered = tuple(sorted(systems, key=lambda system: system.name.lower()))
    return Seen(ordered, selectors.records_for(user, now=now))


def queue_of(slug: str) -> Sequence[QueueJob]:
    """Return the queue of one system as its last good probe saw it; empty where there was none."""
    for row in selectors.systems(only_enabled=False):
        if row.slug == slug:
            probe = selectors.prepared(row).probe
            return probe.jobs if probe else ()
    return ()
