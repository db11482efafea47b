"""Keeping history within its bounds: what is pruned, what is archived, by settings or as a command says."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from django.conf import settings

from federation import archives, collector
from orchestrator.services import deliveries

_FILES_AT_ONCE = 10
"""Archives that one run writes; the next goes on."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """What one run took out of the database."""

    snapshots: int = 0
    samples: int = 0
    events: int = 0
    files: tuple[str, ...] = ()


def archive_folder() -> Path:
    """Return where archives of events are kept."""
    return Path(settings.ARCHIVE_DIR)


def prune_history(
    *, now: datetime, snapshots_days: int | None = None, samples_days: int | None = None
) -> Dropped:
    """Drop snapshots and samples that are older than the settings, or these days, allow."""
    bodies = settings.KEEP_SNAPSHOTS_DAYS if snapshots_days is None else snapshots_days
    samples = settings.KEEP_SAMPLES_DAYS if samples_days is None else samples_days
    found = collector.prune(now=now, snapshots=timedelta(days=bodies), samples=timedelta(days=samples))
    return Dropped(snapshots=found[0], samples=found[1])


def archive_events(*, now: datetime, days: int | None = None, files: int = _FILES_AT_ONCE) -> Dropped:
    """Move events older than the setting, or so many days, into files; 0 days by the setting: none.

    What an active webhook or e-mail has still to be told stays, and so does the newest event.
    """
    kept = settings.KEEP_EVENTS_DAYS if days is None else days
    if days is None and not kept:
        return Dropped()
    names: list[str] = []
    count = 0
    told = deliveries.told_up_to()
    for _ in range(files):
        row = archives.archive(
            before=now - timedelta(days=kept),
            folder=archive_folder(),
            now=now,
            keep_from=None if told is None else told + 1,
        )
        if row is None:
            break
        names.append(row.file)
        count += row.events
    return Dropped(events=count, files=tuple(names))
