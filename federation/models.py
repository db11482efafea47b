"""Tables of what may be used and what was seen of it."""

from __future__ import annotations

import pgtrigger
from django.conf import settings
from django.db import models
from django.db.models import F, Q

from federation.types import Health


def _no_truncate(name: str, table: str) -> pgtrigger.Trigger:
    """Refuse TRUNCATE, except in a test runner's own database (Django names it `test_…`), emptied so."""
    return pgtrigger.Trigger(
        name=name,
        level=pgtrigger.Statement,
        when=pgtrigger.Before,
        operation=pgtrigger.Truncate,
        func=f"""
            IF current_database() LIKE 'test\\_%' THEN RETURN NULL; END IF;
            RAISE EXCEPTION '{table} is append-only';
        """,
    )


class LinkKind(models.TextChoices):
    """How a user's commands reach a system."""

    LOCAL = "local", "This host"
    GLOBUS_COMPUTE = "globus_compute", "Globus Compute"


class System(models.Model):
    """One cluster, run by its own site under its own rules."""

    slug = models.SlugField(unique=True, max_length=40)
    name = models.CharField(max_length=80)
    centre = models.CharField(max_length=80, blank=True)
    dialect = models.CharField(max_length=20, default="slurm")
    is_enabled = models.BooleanField(default=True)
    disabled_reason = models.CharField(max_length=200, blank=True)
    health = models.CharField(
        max_length=10, choices=[(h.value, h.value) for h in Health], default=Health.OFFLINE.value
    )
    health_reason = models.CharField(max_length=300, blank=True)
    health_since = models.DateTimeField(null=True, blank=True)
    consecutive_failures = models.PositiveIntegerField(default=0)
    last_probe_at = models.DateTimeField(null=True, blank=True)
    last_full_probe_at = models.DateTimeField(null=True, blank=True)
    last_success_at = models.DateTimeField(null=True, blank=True)
    next_probe_at = models.DateTimeField(null=True, blank=True, db_index=True)
    circuit = models.JSONField(default=dict, blank=True)
    """Its circuit breaker (federation.circuit.Circuit); empty: closed, nothing went wrong."""
    profile = models.ForeignKey(
        "SiteProfile", null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    """The revision in force."""
    partitions = models.JSONField(default=list, blank=True)
    """The scheduler's partition table of the last full probe (providers.types.Partition)."""
    jobs_visible = models.BooleanField(default=True)
    """Whether others' jobs are shown, as the last full probe found; a live probe does not ask."""
    snapshot = models.ForeignKey(
        "Snapshot", null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    """The newest good one."""
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["slug"]
        constraints = [
            models.CheckConstraint(
                name="system_health_known", condition=Q(health__in=[h.value for h in Health])
            )
        ]

    def __str__(self) -> str:
        return self.slug


class LimitUseRow(models.Model):
    """How much of their time limits the newest finished jobs of one system used (federation.limit_use)."""

    system = models.OneToOneField(System, on_delete=models.CASCADE, related_name="limit_use")
    shares = models.JSONField(default=dict)
    """{"by_user": [[name, [share, …]], …], "by_partition": [[the scheduler's name, [share, …]], …]}; lists,
    because their order tells which is the oldest."""
    until = models.DateTimeField(null=True, blank=True)
    """The newest end that was told, by the site's clock."""
    unknown = models.CharField(max_length=300, blank=True)
    """Why finished jobs are not told, or our own alone; empty = everybody's are."""
    updated_at = models.DateTimeField()

    class Meta:
        ordering = ["system"]
        verbose_name = "use of time limits"
        verbose_name_plural = "use of time limits"

    def __str__(self) -> str:
        return f"{self.system} until {self.until}"


class SiteProfile(models.Model):
    """One revision of a system's validated profile; revisions are never changed, only superseded."""

    system = models.ForeignKey(System, on_delete=models.CASCADE, related_name="revisions")
    revision = models.PositiveIntegerField()
    text = models.TextField()
    """The YAML as it was written, comments included."""
    document = models.JSONField()
    """The same, validated and normalized."""
    note = models.CharField(max_length=200, blank=True)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["system", "-revision"]
        constraints = [
            models.UniqueConstraint(name="one_profile_per_revision", fields=["system", "revision"])
        ]
        triggers = [
            pgtrigger.Protect(
                name="profile_unchanged",
                operation=pgtrigger.UpdateOf("system_id", "revision", "text", "document"),
            )
        ]

    def __str__(self) -> str:
        return f"{self.system} r{self.revision}"


class SiteManager(models.Model):
    """One member of staff who looks after one system in the admin; see `federation.managers`."""

    system = models.ForeignKey(System, on_delete=models.CASCADE, related_name="managers")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    appointed_by = models.CharField(max_length=120)
    """Who did it, in the words of the event log."""
    since = models.DateTimeField()

    class Meta:
        ordering = ["system", "user"]
        constraints = [models.UniqueConstraint(name="one_appointment_per_system", fields=["system", "user"])]

    def __str__(self) -> str:
        return f"{self.user} for {self.system}"


class Connection(models.Model):
    """One user's authorized path to one system."""

    handle = models.CharField(max_length=40, unique=True)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="connections")
    system = models.ForeignKey(System, on_delete=models.CASCADE, related_name="connections")
    kind = models.CharField(max_length=20, choices=LinkKind.choices)
    remote_user = models.CharField(max_length=80, blank=True)
    settings = models.JSONField(default=dict, blank=True)
    """What the link needs (endpoint id, environment); set by administrators, never secret."""
    state = models.CharField(
        max_length=20,
        default="active",
        choices=[("active", "active"), ("needs_sign_in", "needs sign-in"), ("disabled", "disabled")],
    )
    state_reason = models.CharField(max_length=300, blank=True)
    facts = models.JSONField(default=dict, blank=True)
    """Associations and QoS of this remote user, as the last full probe found them."""
    facts_at = models.DateTimeField(null=True, blank=True)
    last_success_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["system", "user"]
        constraints = [
            models.UniqueConstraint(name="one_connection_per_user_and_system", fields=["user", "system"])
        ]

    def __str__(self) -> str:
        return f"{self.user} → {self.system}"


class Allocation(models.Model):
    """What one user may spend through Facet on one account of one system, in the site's unit."""

    handle = models.CharField(max_length=40, unique=True)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="allocations")
    system = models.ForeignKey(System, on_delete=models.CASCADE, related_name="allocations")
    account = models.CharField(max_length=80)
    unit = models.CharField(max_length=20, default="SU")
    granted = models.DecimalField(max_digits=18, decimal_places=4, null=True, blank=True)
    """None = not limited by Facet."""
    reserved = models.DecimalField(max_digits=18, decimal_places=4, default=0)
    """Held for attempts not yet settled; kept equal to the sum of the ledger's open reservations."""
    used = models.DecimalField(max_digits=18, decimal_places=4, default=0)
    site_unit = models.CharField(max_length=40, blank=True)
    """In what the site itself told the balance; it counts for placement only where it is `unit`."""
    site_granted = models.DecimalField(max_digits=20, decimal_places=4, null=True, blank=True)
    """None = not limited there, or not told."""
    site_used = models.DecimalField(max_digits=20, decimal_places=4, null=True, blank=True)
    site_left = models.DecimalField(max_digits=20, decimal_places=4, null=True, blank=True)
    site_at = models.DateTimeField(null=True, blank=True)
    """When the site told it; None = never."""
    site_source = models.CharField(max_length=80, blank=True)
    """The command that told it."""
    site_problem = models.CharField(max_length=300, blank=True)
    """Why the last look brought nothing newer."""
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["system", "account"]
        constraints = [
            models.UniqueConstraint(
                name="one_allocation_per_user_system_account", fields=["user", "system", "account"]
            ),
            models.CheckConstraint(name="allocation_reserved_not_negative", condition=Q(reserved__gte=0)),
            models.CheckConstraint(name="allocation_used_not_negative", condition=Q(used__gte=0)),
        ]

    def __str__(self) -> str:
        return f"{self.user} {self.system}/{self.account}"


class LedgerKind(models.TextChoices):
    """What a line of a ledger does."""

    RESERVE = "reserve", "reserve"
    SETTLE = "settle", "settle"
    RELEASE = "release", "release"
    CORRECT = "correct", "correct"


class Charge(models.Model):
    """One line of an allocation's ledger, append-only: a later line settles, releases or corrects."""

    handle = models.CharField(max_length=40, unique=True)
    allocation = models.ForeignKey(Allocation, on_delete=models.PROTECT, related_name="charges")
    attempt_handle = models.CharField(max_length=40, db_index=True)
    kind = models.CharField(max_length=10, choices=LedgerKind.choices)
    amount = models.DecimalField(max_digits=18, decimal_places=4)
    """Reserve: what was held. Settle: what the attempt cost. Release: what was given back. Correct: what is
    added to a settled cost, below 0 where it is taken back."""
    note = models.CharField(max_length=200, blank=True)
    """Who corrected, and why."""
    at = models.DateTimeField()

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(
                name="one_charge_of_a_kind", fields=["attempt_handle", "kind"], condition=~Q(kind="correct")
            ),
            models.CheckConstraint(
                name="charge_not_negative", condition=Q(amount__gte=0) | Q(kind="correct")
            ),
        ]
        indexes = [models.Index(name="charge_by_allocation", fields=["allocation", "at"])]
        triggers = [
            pgtrigger.Protect(name="charge_append_only", operation=pgtrigger.Update | pgtrigger.Delete)
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.amount}"


class Snapshot(models.Model):
    """What one probe of a system saw; failed probes leave a row with the error and no body."""

    handle = models.CharField(max_length=40, unique=True)
    system = models.ForeignKey(System, on_delete=models.CASCADE, related_name="snapshots")
    connection = models.ForeignKey(Connection, null=True, on_delete=models.SET_NULL, related_name="+")
    taken_at = models.DateTimeField()
    duration_s = models.FloatField()
    availability = models.CharField(max_length=20)
    """available, scheduler_down, unreachable, unparsable."""
    is_full = models.BooleanField(default=False)
    scheduler = models.CharField(max_length=40, blank=True)
    digest = models.CharField(max_length=64, blank=True)
    """SHA-256 of the body before compression."""
    body = models.BinaryField(null=True)
    """The probe as zlib-compressed JSON (providers.types.Probe)."""
    counts = models.JSONField(default=dict)
    error = models.CharField(max_length=500, blank=True)

    class Meta:
        ordering = ["-id"]
        indexes = [models.Index(name="snapshot_newest", fields=["system", "-taken_at"])]
        triggers = [
            pgtrigger.Protect(
                name="snapshot_unchanged",
                operation=pgtrigger.UpdateOf(
                    "handle", "system_id", "taken_at", "digest", "body", "availability"
                ),
            )
        ]

    def __str__(self) -> str:
        return self.handle


class PartitionSample(models.Model):
    """One partition at one probe, kept for history and charts."""

    system = models.ForeignKey(System, on_delete=models.CASCADE, related_name="samples")
    partition = models.CharField(max_length=80)
    at = models.DateTimeField()
    gpus_total = models.PositiveIntegerField(default=0)
    gpus_free = models.PositiveIntegerField(default=0)
    cpus_total = models.PositiveIntegerField(default=0)
    cpus_free = models.PositiveIntegerField(default=0)
    nodes_total = models.PositiveIntegerField(default=0)
    nodes_up = models.PositiveIntegerField(default=0)
    nodes_idle = models.PositiveIntegerField(default=0)
    running = models.PositiveIntegerField(default=0)
    pending = models.PositiveIntegerField(default=0)
    eligible = models.PositiveIntegerField(default=0)

    class Meta:
        indexes = [models.Index(name="sample_by_partition", fields=["system", "partition", "-at"])]
        constraints = [
            models.CheckConstraint(
                name="free_gpus_within_total", condition=Q(gpus_free__lte=F("gpus_total"))
            ),
            models.CheckConstraint(
                name="free_cpus_within_total", condition=Q(cpus_free__lte=F("cpus_total"))
            ),
        ]

    def __str__(self) -> str:
        return f"{self.system}/{self.partition} {self.at:%H:%M:%S}"


class Event(models.Model):
    """One thing that happened. Append-only; its place in the order is given at COMMIT (see EventPosition).

    Handles rather than foreign keys: the log outlives what it speaks of, and the layers above write into it.
    """

    handle = models.CharField(max_length=40, unique=True)
    type = models.CharField(max_length=60)
    subject = models.CharField(max_length=60, db_index=True)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
        on_delete=models.DO_NOTHING,
        related_name="+",
        db_constraint=False,
    )
    """Whose it is; None = of a system, for everybody connected to it."""
    system = models.CharField(max_length=40, blank=True)
    task = models.CharField(max_length=40, blank=True, db_index=True)
    group = models.CharField(max_length=40, blank=True)
    attempt = models.CharField(max_length=40, blank=True)
    transfer = models.CharField(max_length=40, blank=True)
    actor = models.CharField(max_length=120)
    on_behalf_of = models.CharField(max_length=120, blank=True)
    at = models.DateTimeField()
    state = models.CharField(max_length=24, blank=True)
    summary = models.CharField(max_length=400)
    data = models.JSONField(default=dict)
    next_actions = models.JSONField(default=list)
    wake = models.CharField(max_length=10, default="routine")
    """routine, milestone or exception; only the last two wake an agent."""

    class Meta:
        ordering = ["id"]
        indexes = [models.Index(name="event_by_user", fields=["user", "-id"])]
        triggers = [
            pgtrigger.Protect(name="event_append_only", operation=pgtrigger.Update | pgtrigger.Delete),
            _no_truncate("event_no_truncate", "federation_event"),
            pgtrigger.Trigger(
                name="position_at_commit",
                level=pgtrigger.Row,
                when=pgtrigger.After,
                operation=pgtrigger.Insert,
                timing=pgtrigger.Deferred,
                declare=[("previous", "bytea"), ("n", "bigint")],
                func="""
                    PERFORM pg_advisory_xact_lock(727001);
                    SELECT seq, hash INTO n, previous FROM federation_eventposition ORDER BY seq DESC LIMIT 1;
                    INSERT INTO federation_eventposition (seq, event_id, hash)
                    VALUES (COALESCE(n, 0) + 1, NEW.id, facet_event_hash(NEW, previous));
                    PERFORM pg_notify('facet_events', '');
                    RETURN NULL;
                """,
            ),
        ]

    def __str__(self) -> str:
        return f"{self.type} {self.subject}"


class EventPosition(models.Model):
    """An event's place in commit order, and the hash chain over all events before it.

    Written only by the deferred trigger, so a reader that keeps a cursor never misses a late commit.
    """

    seq = models.BigIntegerField(primary_key=True)
    event = models.OneToOneField(Event, on_delete=models.PROTECT, related_name="position")
    hash = models.BinaryField()

    class Meta:
        ordering = ["seq"]
        triggers = [
            pgtrigger.Protect(name="position_append_only", operation=pgtrigger.Update | pgtrigger.Delete),
            _no_truncate("position_no_truncate", "federation_eventposition"),
        ]

    def __str__(self) -> str:
        return str(self.seq)


class EventArchive(models.Model):
    """A stretch of the event log that was moved into a file, and the hashes by which the chain goes on.

    `first_seq` is one after the archive before; the log that is kept begins one after the last archive.
    """

    first_seq = models.BigIntegerField(unique=True)
    last_seq = models.BigIntegerField(unique=True)
    events = models.PositiveIntegerField()
    first_at = models.DateTimeField()
    last_at = models.DateTimeField()
    previous_hash = models.BinaryField()
    """Of the event before the first one; empty for the very first."""
    last_hash = models.BinaryField()
    file = models.CharField(max_length=120)
    """Name of the file in the folder of archives."""
    sha256 = models.CharField(max_length=64)
    """Of the file as it was written."""
    bytes = models.BigIntegerField()
    created_at = models.DateTimeField()

    class Meta:
        ordering = ["first_seq"]
        triggers = [
            pgtrigger.Protect(name="archive_append_only", operation=pgtrigger.Update | pgtrigger.Delete),
            _no_truncate("archive_no_truncate", "federation_eventarchive"),
        ]
        constraints = [
            models.CheckConstraint(name="archive_in_order", condition=Q(last_seq__gte=F("first_seq")))
        ]

    def __str__(self) -> str:
        return self.file
