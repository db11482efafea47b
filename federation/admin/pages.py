"""What the pages of one system show, as values for their templates."""

from dataclasses import dataclass
from datetime import datetime

from federation.drift import Difference, differences
from federation.models import SiteProfile, Snapshot, System
from federation.profile import MaintenanceWindow, ProfileDocument
from federation.profile_edit import DiffLine, counts, diff
from federation.selectors import probe_of
from providers.types import Partition

_COUNTED = {
    "nodes": "nodes",
    "nodes_usable": "usable",
    "gpus": "GPUs",
    "gpus_free": "free",
    "cpus": "CPUs",
    "cpus_free": "free",
    "running": "jobs running",
    "pending": "waiting",
}


@dataclass(frozen=True, slots=True)
class Revision:
    """One line of a system's history."""

    number: int
    at: datetime
    by: str
    note: str
    in_force: bool
    added: int
    removed: int


@dataclass(frozen=True, slots=True)
class ProbeShown:
    """What one probe brought, and where the profile says otherwise."""

    handle: str
    taken_at: datetime
    seconds: float
    availability: str
    is_full: bool
    scheduler: str
    error: str
    warnings: tuple[str, ...]
    counts: tuple[tuple[str, int], ...]
    differences: tuple[Difference, ...]


def profile_of(system: System) -> ProfileDocument | None:
    """Return the profile in force."""
    return ProfileDocument.model_validate(system.profile.document) if system.profile else None


def changed(system: System, text: str) -> tuple[DiffLine, ...]:
    """Return how a text differs from the revision in force."""
    if system.profile is None:
        return diff("", text, before_name="nothing", after_name="your text")
    name = f"revision {system.profile.revision} (in force)"
    return diff(system.profile.text, text, before_name=name, after_name="your text")


def between(before: SiteProfile | None, after: SiteProfile) -> tuple[DiffLine, ...]:
    """Return how one revision differs from another."""
    name = f"revision {before.revision}" if before else "nothing"
    return diff(
        before.text if before else "", after.text, before_name=name, after_name=f"revision {after.revision}"
    )


def history(system: System) -> list[Revision]:
    """Return the revisions, newest first, each with what it changed against the one before it."""
    rows = list(system.revisions.select_related("created_by").order_by("revision"))
    found = []
    for number, row in enumerate(rows):
        added, removed = counts(between(rows[number - 1] if number else None, row))
        found.append(
            Revision(
                number=row.revision,
                at=row.created_at,
                by=row.created_by.get_username() if row.created_by else "–",
                note=row.note,
                in_force=row.pk == system.profile_id,
                added=added,
                removed=removed,
            )
        )
    return found[::-1]


def probe_shown(system: System, snapshot: Snapshot) -> ProbeShown:
    """Return what a snapshot holds, held against the profile in force."""
    profile, probe = profile_of(system), probe_of(snapshot.pk)
    table = [Partition.model_validate(row) for row in system.partitions] or None
    return ProbeShown(
        handle=snapshot.handle,
        taken_at=snapshot.taken_at,
        seconds=snapshot.duration_s,
        availability=snapshot.availability.replace("_", " "),
        is_full=snapshot.is_full,
        scheduler=snapshot.scheduler,
        error=snapshot.error,
        warnings=probe.warnings if probe else (),
        counts=tuple((_COUNTED[name], snapshot.counts[name]) for name in _COUNTED if name in snapshot.counts),
        differences=differences(profile, probe, table) if profile and probe else (),
    )


def windows(system: System, *, now: datetime) -> tuple[tuple[int, MaintenanceWindow, bool], ...]:
    """Return the announced windows with their place in the profile, and whether each is over."""
    profile = profile_of(system)
    found = profile.maintenance if profile else ()
    return tuple((place, window, window.end_at <= now) for place, window in enumerate(found))
