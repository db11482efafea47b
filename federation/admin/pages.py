"""What the pages of one system show, as values for their templates."""

from dataclasses import dataclass, replace
from datetime import datetime

from federation.drift import Difference, clock, differences
from federation.merge import PreparedPartition, prepare
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


@dataclass(frozen=True, slots=True)
class Offered:
    """What one partition offers under the profile in force, and would under another text."""

    partition: str
    now: str
    then: str

    @property
    def differs(self) -> bool:
        """Whether the text would change it."""
        return self.now != self.then


@dataclass(frozen=True, slots=True)
class DryRun:
    """A text that is not stored, held against what the site said just now."""

    probe: ProbeShown
    offered: tuple[Offered, ...]
    """Every partition of either profile; empty where the site did not answer."""
    dialect_differs: bool
    """The site was asked in the dialect in force, the text names another."""


def dry_run(system: System, document: ProfileDocument, snapshot: Snapshot) -> DryRun:
    """Return what would follow from a text, by a probe taken for it; nothing is stored."""
    probe = probe_of(snapshot.pk)
    table = [Partition.model_validate(row) for row in system.partitions] or None
    shown = probe_shown(system, snapshot)
    if probe is None:
        return DryRun(shown, (), dialect_differs=document.dialect != system.dialect)
    before, after = (
        {each.name: _offer(each) for each in prepare(profile, probe, table).partitions} if profile else {}
        for profile in (profile_of(system), document)
    )
    names = sorted({*before, *after})
    return DryRun(
        probe=replace(shown, differences=differences(document, probe, table)),
        offered=tuple(Offered(name, before.get(name, "–"), after.get(name, "–")) for name in names),
        dialect_differs=document.dialect != system.dialect,
    )


def _offer(partition: PreparedPartition) -> str:
    """Return what of a partition matters to work, in words."""
    nodes, stated = partition.nodes, partition.profile
    kinds = sorted(
        {f"{node.gpu_type or 'unknown GPU'} {_memory(node.gpu_memory_mib)}" for node in nodes if node.gpus}
    )
    free, total = sum(node.gpus_free for node in nodes), sum(node.gpus for node in nodes)
    words = [_counted(len(nodes), "node"), f"{_counted(sum(node.cpus_free for node in nodes), 'CPU')} free"]
    words += [f"{free} of {total} GPUs free ({', '.join(kinds)})"] if total else []
    words += [f"at most {_counted(stated.max_nodes, 'node')} a job"] if stated.max_nodes else []
    words += [f"at most {clock(stated.max_walltime_s)}"] if stated.max_walltime_s else []
    words += [f"accounts {', '.join(stated.accounts)}"] if stated.accounts else []
    return "; ".join(words)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _memory(mib: int | None) -> str:
    return f"{mib // 1024} GiB" if mib else "of unknown memory"


def windows(system: System, *, now: datetime) -> tuple[tuple[int, MaintenanceWindow, bool], ...]:
    """Return the announced windows with their place in the profile, and whether each is over."""
    profile = profile_of(system)
    found = profile.maintenance if profile else ()
    return tuple((place, window, window.end_at <= now) for place, window in enumerate(found))
