"""Refreshing one system: load → ask the site → read → apply. No transaction is open meanwhile."""

import hashlib
import zlib
from dataclasses import dataclass
from datetime import datetime, timedelta
from time import monotonic

import pgtrigger
from django.db import transaction
from django.db.models import F

from federation import balances, health
from federation.handles import new_handle
from federation.ledger import Happening, record
from federation.limit_use import LimitUse, merged
from federation.links import open_link
from federation.locks import only_one
from federation.merge import HOLDING, prepare
from federation.models import Connection, LimitUseRow, PartitionSample, Snapshot, System
from federation.profile import BalanceRule, ProfileDocument
from federation.types import Health
from providers.errors import FacetError, NotAuthorized, SchedulerDown, SiteUnreachable
from providers.registry import dialect
from providers.types import Batch, BatchReply, Exec, Probe

_WHO = "facet.who"
_CLOCKS_AGREE_S = 60
"""A request and its answer may be on their way so long; less tells nothing of a clock."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one request to the site brought: a probe, or the error that stands for it."""

    connection: Connection
    started_at: datetime
    duration_s: float
    is_full: bool
    probe: Probe | None = None
    who: tuple[str, str] | None = None
    """(remote user, home directory), with a full probe."""
    error: FacetError | None = None
    told: BatchReply | None = None
    """The whole answer, where balances were asked for."""

    @property
    def availability(self) -> str:
        """Return the snapshot's word for what happened."""
        if self.error is None:
            return "available"
        if isinstance(self.error, SchedulerDown):
            return "scheduler_down"
        return "unreachable" if isinstance(self.error, SiteUnreachable) else "unparsable"


def refresh(
    system_id: int, *, now: datetime, force_full: bool = False, deadline_s: int | None = None
) -> Snapshot | None:
    """Probe one system and store what was seen; None when another worker is at it or nobody has a way in.

    `deadline_s` shortens the profile's own time limit for somebody who waits, and leaves a full probe that is
    due to the clock.
    """
    with only_one(f"probe:{system_id}") as mine:
        if not mine:
            return None
        system = System.objects.select_related("profile").get(pk=system_id)
        if not system.is_enabled or system.profile is None:
            return None
        profile = ProfileDocument.model_validate(system.profile.document)
        connection = _connection(system)
        if connection is None:
            _nobody(system, now=now)
            return None
        if deadline_s is not None:
            profile = _in_haste(profile, deadline_s)
        full = force_full or (deadline_s is None and _full_is_due(system, profile, now))
        since = _told_until(system) if full else None
        outcome = _ask(system, profile, connection, full=full, now=now, since=since)
        while isinstance(outcome.error, NotAuthorized):
            # One user's lost sign-in says nothing of the system: it took the connection out of turn.
            following = _connection(system)
            if following is None:
                _nobody(system, now=now)
                return None
            if following == outcome.connection:
                break
            outcome = _ask(system, profile, following, full=full, now=now, since=since)
        return _apply(system, profile, outcome, now=now)


def probe_soon(system_id: int, *, now: datetime) -> None:
    """Have a system probed at once that gave somebody no answer; while it fails, its own rhythm holds."""
    rows = System.objects.filter(pk=system_id, consecutive_failures=0, next_probe_at__gt=now)
    rows.update(next_probe_at=now)


def refresh_access(connection_id: int, *, now: datetime) -> bool:
    """Ask one connection's own site what its user may use; return whether it answered."""
    connection = Connection.objects.select_related("system__profile").get(pk=connection_id)
    system = connection.system
    if system.profile is None:
        return False
    profile = ProfileDocument.model_validate(system.profile.document)
    # Finished jobs are the same for every user: this look asks for none.
    outcome = _ask(system, profile, connection, full=True, now=now, since=now)
    if outcome.probe is None:
        return False
    _store_access(outcome, profile.balance, now=now)
    return True


def _connection(system: System) -> Connection | None:
    """Return the way to take: the one that worked last; after failures the next in turn."""
    active = list(
        Connection.objects.filter(system=system, state="active").order_by(
            F("last_success_at").desc(nulls_last=True), "id"
        )
    )
    return active[system.consecutive_failures % len(active)] if active else None


def _in_haste(profile: ProfileDocument, deadline_s: int) -> ProfileDocument:
    """Return the profile with no more time for a probe than somebody waits."""
    timeout_s = min(profile.probe.timeout_s, deadline_s)
    return profile.model_copy(update={"probe": profile.probe.model_copy(update={"timeout_s": timeout_s})})


def _full_is_due(system: System, profile: ProfileDocument, now: datetime) -> bool:
    last = system.last_full_probe_at
    return last is None or now - last >= timedelta(seconds=profile.probe.full_interval_s)


def _ask(
    system: System,
    profile: ProfileDocument,
    connection: Connection,
    *,
    full: bool,
    now: datetime,
    since: datetime | None = None,
) -> Outcome:
    started = monotonic()
    probe, who, error, told = None, None, None, None
    try:
        speaks = dialect(system.dialect)
        batch = speaks.probe(full=full, since=since)
        operations, deadline_s = batch.operations, float(profile.probe.timeout_s)
        if full:
            who_asks = Exec(name=_WHO, argv=("printenv", "USER", "HOME"), timeout_s=5)
            # Balances come last: what is slow or wrong about them keeps nothing else.
            operations = (who_asks, *operations, *balances.operations(profile.balance))
            deadline_s += profile.balance.timeout_s if profile.balance else 0
        reply = open_link(connection).run(Batch(operations=operations, deadline_s=deadline_s))
        who, told = _who(reply), reply if full and profile.balance else None
        probe = speaks.read_probe(reply, now=now)
        probe = _with_clock(probe, reply, at=now + timedelta(seconds=monotonic() - started))
        if not full and not system.jobs_visible:
            # A live probe does not ask what is hidden; without this it would pass for an empty queue.
            probe = probe.model_copy(update={"jobs_visible": False})
    except FacetError as caught:
        error = caught
    return Outcome(
        connection=connection,
        started_at=now,
        duration_s=monotonic() - started,
        is_full=full,
        probe=probe,
        who=who,
        error=error,
        told=told,
    )


def _with_clock(probe: Probe, reply: BatchReply, *, at: datetime) -> Probe:
    """Return the probe with the difference of the clocks, where it is more than a request can take."""
    ahead_s = round((reply.site_time - at).total_seconds()) if reply.site_time is not None else 0
    if abs(ahead_s) <= _CLOCKS_AGREE_S:
        return probe
    told = f"the site's clock is {abs(ahead_s)} s {'ahead of' if ahead_s > 0 else 'behind'} ours"
    return probe.model_copy(update={"clock_ahead_s": ahead_s, "warnings": (*probe.warnings, told)})


def _told_until(system: System) -> datetime | None:
    """Return the newest end of a job known of a system; None = none is."""
    return LimitUseRow.objects.filter(system=system).values_list("until", flat=True).first()


def _who(reply: BatchReply) -> tuple[str, str] | None:
    said = reply.replies.get(_WHO)
    lines = said.stdout.splitlines() if said is not None and said.rc == 0 else []
    return (lines[0], lines[1]) if len(lines) == 2 else None


def _apply(system: System, profile: ProfileDocument, outcome: Outcome, *, now: datetime) -> Snapshot:
    with transaction.atomic():
        locked = System.objects.select_for_update(no_key=True, of=("self",)).get(pk=system.pk)
        snapshot = _store(locked, outcome)
        verdict = _verdict(locked, profile, outcome)
        if outcome.probe is not None:
            _store_success(locked, profile, outcome, snapshot, now=now)
        _move_health(locked, verdict, now=now)
        locked.last_probe_at = now
        locked.next_probe_at = now + timedelta(seconds=verdict.next_probe_in_s)
        locked.save()
    return snapshot


def _verdict(system: System, profile: ProfileDocument, outcome: Outcome) -> health.Verdict:
    if outcome.probe is None:
        return health.after_failure(
            str(outcome.error),
            failures_before=system.consecutive_failures,
            never_seen=system.last_success_at is None,
        )
    busy = system.attempts.filter(due_at__isnull=False).exists()
    return health.after_success(
        warnings=outcome.probe.warnings,
        accounting_up=outcome.probe.accounting_up,
        interval_s=profile.probe.interval_s if busy else profile.probe.idle_interval_s,
    )


def _store(system: System, outcome: Outcome) -> Snapshot:
    body = outcome.probe.model_dump_json(exclude={"finished"}).encode() if outcome.probe else b""
    return Snapshot.objects.create(
        handle=new_handle("snap", outcome.started_at),
        system=system,
        connection=outcome.connection,
        taken_at=outcome.started_at,
        duration_s=outcome.duration_s,
        availability=outcome.availability,
        is_full=outcome.is_full,
        scheduler=outcome.probe.scheduler[:40] if outcome.probe else "",
        digest=hashlib.sha256(body).hexdigest() if body else "",
        body=zlib.compress(body, 1) if body else None,
        counts=_counts(outcome.probe) if outcome.probe else {},
        error=str(outcome.error)[:500] if outcome.error else "",
    )


def _counts(probe: Probe) -> dict[str, int]:
    return {
        "nodes": len(probe.nodes),
        "nodes_usable": sum(node.usable for node in probe.nodes),
        "gpus": sum(pool.total for node in probe.nodes for pool in node.gpus),
        "gpus_free": sum(pool.free for node in probe.nodes for pool in node.gpus),
        "cpus": sum(node.cpus_total for node in probe.nodes),
        "cpus_free": sum(node.cpus_free for node in probe.nodes),
        "running": sum(job.state in HOLDING for job in probe.jobs),
        "pending": sum(job.array_pending for job in probe.jobs if job.state not in HOLDING),
    }


def _store_success(
    system: System, profile: ProfileDocument, outcome: Outcome, snapshot: Snapshot, *, now: datetime
) -> None:
    assert outcome.probe is not None  # noqa: S101  # the caller asked
    probe = outcome.probe
    system.last_success_at = now
    system.snapshot = snapshot
    if probe.partitions is not None:
        system.partitions = [partition.model_dump(mode="json") for partition in probe.partitions]
        system.last_full_probe_at = now
    if outcome.is_full:
        system.jobs_visible = probe.jobs_visible
        _store_limit_use(system, probe, now=now)
    Connection.objects.filter(pk=outcome.connection.pk).update(last_success_at=now)
    if outcome.is_full:
        _store_access(outcome, profile.balance, now=now)
    prepared = prepare(profile, probe, probe.partitions)
    PartitionSample.objects.bulk_create(
        PartitionSample(
            system=system,
            partition=partition.name,
            at=now,
            gpus_total=sum(node.gpus for node in partition.nodes),
            gpus_free=sum(node.gpus_free for node in partition.nodes),
            cpus_total=sum(node.cpus for node in partition.nodes),
            cpus_free=sum(node.cpus_free for node in partition.nodes),
            nodes_total=sum(not node.is_part for node in partition.nodes),
            nodes_up=sum(node.is_up and not node.is_part for node in partition.nodes),
            nodes_idle=sum(node.is_idle and not node.is_part for node in partition.nodes),
            running=partition.queue.running_count,
            pending=partition.queue.pending_count,
            eligible=partition.queue.eligible_count,
        )
        for partition in prepared.partitions
    )


def _store_limit_use(system: System, probe: Probe, *, now: datetime) -> None:
    """Put the jobs that ended since the last look to those known; where none are told, those stay."""
    row = LimitUseRow.objects.filter(system=system).first() or LimitUseRow(system=system)
    kept = LimitUse.of_rows(
        row.shares.get("by_user", ()), row.shares.get("by_partition", ()), until=row.until
    )
    found = merged(kept, probe.finished or (), only_own=bool(probe.finished_unknown))
    row.shares = {"by_user": list(found.by_user.items()), "by_partition": list(found.by_partition.items())}
    row.until, row.unknown, row.updated_at = found.until, probe.finished_unknown[:300], now
    row.save()


def _store_access(outcome: Outcome, rule: BalanceRule | None, *, now: datetime) -> None:
    """Keep what the site says of this connection's own user: associations, QoS, balances."""
    assert outcome.probe is not None  # noqa: S101  # the caller asked
    probe, connection = outcome.probe, outcome.connection
    user = connection.remote_user or (outcome.who[0] if outcome.who else "") or (probe.user or "")
    own = [found for found in probe.associations or () if found.user == user]
    facts = {
        "user": user,
        "home": outcome.who[1] if outcome.who else "",
        "associations": [found.model_dump(mode="json") for found in own]
        if probe.associations is not None
        else None,
        "qos": [found.model_dump(mode="json") for found in probe.qos or ()],
    }
    kept = connection.facts or {}
    if facts["associations"] is None and kept.get("associations") is not None:
        facts |= {"associations": kept["associations"], "qos": kept["qos"]}  # accounting was down
    if rule is not None and outcome.told is not None:
        facts["balances_problem"] = balances.store(rule, outcome.told, connection, user=user, now=now)
    Connection.objects.filter(pk=connection.pk).update(facts=facts, facts_at=now, remote_user=user[:80])


def _move_health(system: System, verdict: health.Verdict, *, now: datetime) -> None:
    system.consecutive_failures = verdict.consecutive_failures
    system.health_reason = verdict.reason
    if system.health == verdict.health:
        return
    was, system.health, system.health_since = system.health, verdict.health.value, now
    record([health_event(system, was)], now=now)


def health_event(system: System, was: str) -> Happening:
    """Return the event of a change of health."""
    reason = f": {system.health_reason}" if system.health_reason else ""
    return Happening(
        type=f"system.{system.health}",
        subject=system.slug,
        system=system.slug,
        state=system.health,
        summary=f"{system.name} is {system.health}{reason}",
        data={"was": was, "reason": system.health_reason},
    )


def _nobody(system: System, *, now: datetime) -> None:
    """Record that no user has a working connection."""
    verdict = health.Verdict(Health.OFFLINE, "nobody has a working connection", 0, 60)
    with transaction.atomic():
        locked = System.objects.select_for_update(no_key=True, of=("self",)).get(pk=system.pk)
        _move_health(locked, verdict, now=now)
        locked.next_probe_at = now + timedelta(seconds=verdict.next_probe_in_s)
        locked.save()


KEEP_SNAPSHOTS = timedelta(days=2)
KEEP_SAMPLES = timedelta(days=30)


def prune(
    *, now: datetime, snapshots: timedelta = KEEP_SNAPSHOTS, samples: timedelta = KEEP_SAMPLES
) -> tuple[int, int]:
    """Drop snapshots and samples past their time, never the newest good one; return how many of each."""
    with pgtrigger.ignore("federation.Snapshot:snapshot_unchanged"):
        kept = System.objects.filter(snapshot__isnull=False).values("snapshot_id")
        old = Snapshot.objects.filter(taken_at__lt=now - snapshots).exclude(pk__in=kept)
        dropped, _ = old.delete()
    past, _ = PartitionSample.objects.filter(at__lt=now - samples).delete()
    return dropped, past
