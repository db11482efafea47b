"""Tables of what was asked, decided, tried and seen. The lifecycles guard `state` here as in Python."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

import pgtrigger
from django.conf import settings
from django.db import models
from django.db.models import Q

from orchestrator.budget_models import Approval, Budget, BudgetLine, Meter
from orchestrator.lifecycle import (
    ATTEMPT_MOVES,
    GROUP_MOVES,
    TASK_MOVES,
    TRANSFER_MOVES,
    AttemptState,
    Cause,
    GroupState,
    TaskState,
    TransferState,
    pairs,
    terminal_states,
)

__all__ = [
    "Approval",
    "Attempt",
    "AttemptState",
    "Budget",
    "BudgetLine",
    "Decision",
    "Delivery",
    "DeliveryState",
    "Envelope",
    "Group",
    "Manifest",
    "Meter",
    "Subscription",
    "SubscriptionState",
    "Target",
    "Task",
    "Transfer",
]


def _choices(states: type[StrEnum]) -> list[tuple[str, str]]:
    return [(state.value, state.value) for state in states]


S = TypeVar("S", bound=StrEnum)


def _only_legal_moves(name: str, moves: Mapping[S, frozenset[S]]) -> pgtrigger.FSM:
    return pgtrigger.FSM(name=name, field="state", transitions=list(pairs(moves)))


class Envelope(models.Model):
    """What a task needs, as given and as normalized; never changed."""

    handle = models.CharField(max_length=40, unique=True)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    source = models.CharField(max_length=10)
    body = models.JSONField()
    original = models.JSONField(null=True)
    confidence = models.FloatField(null=True)
    rationale = models.JSONField(default=dict)
    drafting = models.JSONField(null=True)
    """What a model's help cost (calls, tokens, ms); None where none was asked."""
    created_at = models.DateTimeField()

    class Meta:
        ordering = ["-id"]
        triggers = [
            pgtrigger.Protect(name="envelope_unchanged", operation=pgtrigger.Update | pgtrigger.Delete)
        ]

    def __str__(self) -> str:
        return self.handle


class Group(models.Model):
    """Tasks with a shared objective, answered for as one."""

    handle = models.CharField(max_length=40, unique=True)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    name = models.CharField(max_length=120, blank=True)
    objective = models.TextField(blank=True)
    state = models.CharField(max_length=24, choices=_choices(GroupState), default=GroupState.RUNNING.value)
    spec = models.JSONField(default=dict)
    """Diversity, and what a round requires."""
    completed_rounds = models.JSONField(default=list)
    cancel_requested_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True)
    due_at = models.DateTimeField(null=True, db_index=True)
    """When the group must be looked at again; None once it has ended."""

    class Meta:
        ordering = ["-id"]
        triggers = [_only_legal_moves("group_moves", GROUP_MOVES)]
        constraints = [
            models.CheckConstraint(
                name="group_state_known", condition=Q(state__in=[s.value for s in GroupState])
            )
        ]

    def __str__(self) -> str:
        return self.handle


class Task(models.Model):
    """The user's unit of work, whatever number of attempts it takes."""

    handle = models.CharField(max_length=40, unique=True)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="tasks")
    actor = models.CharField(max_length=120)
    """Who submitted it: `user:NAME` or `token:NAME`."""
    token = models.CharField(max_length=40, blank=True, db_index=True)
    """Handle of the API token it was submitted with; empty: a person did, signed in."""
    project = models.CharField(max_length=60, blank=True)
    """The user's own word for what it belongs to; budgets may be set on it."""
    name = models.CharField(max_length=120)
    objective = models.TextField(blank=True)
    state = models.CharField(max_length=16, choices=_choices(TaskState), default=TaskState.ACCEPTED.value)
    cause = models.CharField(max_length=24, blank=True, choices=_choices(Cause))
    reason = models.TextField(blank=True)
    """Why it stands where it stands, in one sentence."""
    spec = models.JSONField()
    """The task input as normalized (command or script, environment, retry, replacement …)."""
    envelope = models.ForeignKey(Envelope, on_delete=models.PROTECT, related_name="tasks")
    group = models.ForeignKey(Group, null=True, on_delete=models.PROTECT, related_name="tasks")
    group_key = models.CharField(max_length=40, blank=True)
    """Its name among the siblings."""
    group_round = models.PositiveSmallIntegerField(default=1)
    group_after = models.JSONField(default=list)
    """Keys of siblings that must have succeeded first."""
    attempt = models.OneToOneField(
        "Attempt", null=True, on_delete=models.PROTECT, related_name="accepted_for"
    )
    """The accepted attempt."""
    client_ref = models.CharField(max_length=120, blank=True)
    request_id = models.CharField(max_length=64, blank=True)
    """Of the request that submitted it: what workers log about the task carries it too."""
    kind = models.CharField(max_length=64, blank=True)
    """Fingerprint of the kind of work, for runtime history."""
    replacements = models.PositiveSmallIntegerField(default=0)
    excluded_systems = models.JSONField(default=list)
    plan = models.JSONField(default=dict)
    """What the next attempt must heed: places to avoid (now, or for good), wall time, purpose."""
    not_before = models.DateTimeField(null=True)
    """Earliest instant for the next attempt (back-off)."""
    cancel_requested_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True)
    due_at = models.DateTimeField(null=True, db_index=True)
    """When the control cycle must look at the task itself (placing, retry, deadline)."""

    class Meta:
        ordering = ["-id"]
        triggers = [_only_legal_moves("task_moves", TASK_MOVES)]
        constraints = [
            models.CheckConstraint(
                name="task_state_known", condition=Q(state__in=[s.value for s in TaskState])
            ),
            models.UniqueConstraint(
                name="one_task_per_client_ref",
                fields=["user", "client_ref"],
                condition=~Q(client_ref=""),
            ),
        ]
        indexes = [
            models.Index(name="task_by_user", fields=["user", "-id"]),
            # Lists by state: the running ones may all be older than a hundred thousand that have ended.
            models.Index(name="task_by_state", fields=["user", "state", "-id"]),
            models.Index(
                name="task_active",
                fields=["user", "state"],
                condition=~Q(state__in=[s.value for s in terminal_states(TASK_MOVES)]),
            ),
            models.Index(
                name="task_finished", fields=["finished_at"], condition=Q(finished_at__isnull=False)
            ),
        ]

    def __str__(self) -> str:
        return self.handle


class Decision(models.Model):
    """One placement decision with its whole trace; never changed."""

    handle = models.CharField(max_length=40, unique=True)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    task = models.ForeignKey(Task, null=True, on_delete=models.PROTECT, related_name="decisions")
    """None for previews that were kept."""
    purpose = models.CharField(max_length=20)
    """submit, retry, replan, replace, hedge."""
    input_hash = models.CharField(max_length=64)
    system = models.CharField(max_length=40, blank=True)
    partition = models.CharField(max_length=80, blank=True)
    body = models.JSONField()
    created_at = models.DateTimeField()

    class Meta:
        ordering = ["-id"]
        triggers = [
            pgtrigger.Protect(name="decision_unchanged", operation=pgtrigger.Update | pgtrigger.Delete)
        ]

    def __str__(self) -> str:
        return self.handle


class Attempt(models.Model):
    """One try at one placement; never reused, edited into another, or deleted."""

    handle = models.CharField(max_length=40, unique=True)
    task = models.ForeignKey(Task, on_delete=models.PROTECT, related_name="attempts")
    number = models.PositiveSmallIntegerField()
    decision = models.ForeignKey(Decision, on_delete=models.PROTECT, related_name="attempts")
    connection = models.ForeignKey("federation.Connection", on_delete=models.PROTECT, related_name="attempts")
    system = models.ForeignKey("federation.System", on_delete=models.PROTECT, related_name="attempts")
    partition = models.CharField(max_length=80)
    account = models.CharField(max_length=80, blank=True)
    qos = models.CharField(max_length=80, blank=True)
    shape = models.JSONField()
    predicted = models.JSONField(default=dict)
    """Estimates at the decision: wait p50 and p90, runtime, charge, class."""
    submit_key = models.CharField(max_length=40, unique=True)
    job_id = models.CharField(max_length=60, blank=True)
    """The scheduler's own, a string always."""
    state = models.CharField(
        max_length=12, choices=_choices(AttemptState), default=AttemptState.PLANNED.value
    )
    cause = models.CharField(max_length=24, blank=True, choices=_choices(Cause))
    state_raw = models.CharField(max_length=80, blank=True)
    reason_raw = models.CharField(max_length=300, blank=True)
    reason_explained = models.TextField(blank=True)
    observed_at = models.DateTimeField(null=True)
    """When the scheduler last told us something of this job."""
    unseen_since = models.DateTimeField(null=True)
    looks_without_trace = models.PositiveSmallIntegerField(default=0)
    """How often in a row the scheduler answered and knew no such job."""
    workdir = models.CharField(max_length=500, blank=True)
    stdout_path = models.CharField(max_length=500, blank=True)
    stderr_path = models.CharField(max_length=500, blank=True)
    planned_at = models.DateTimeField()
    dispatch_started_at = models.DateTimeField(null=True)
    dispatch_deadline_at = models.DateTimeField(null=True)
    """After this instant no submit command of ours can still be running at the site."""
    dispatches = models.PositiveSmallIntegerField(default=0)
    submitted_at = models.DateTimeField(null=True)
    eligible_at = models.DateTimeField(null=True)
    expected_start_at = models.DateTimeField(null=True)
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    exit_code = models.IntegerField(null=True)
    exit_signal = models.IntegerField(null=True)
    restarts = models.PositiveSmallIntegerField(default=0)
    node_names = models.JSONField(default=list)
    inputs = models.JSONField(default=list)
    """Where each input is at the site, and where the job expects it (orchestrator.staging.Link)."""
    cancel_requested_at = models.DateTimeField(null=True)
    cancel_sent_at = models.DateTimeField(null=True)
    cancel_reason = models.CharField(max_length=40, blank=True)
    """user, superseded, deadline."""
    rivalry = models.CharField(max_length=10, blank=True)
    """Why another open attempt of the task may stand beside it (orchestrator.rivals.Rivalry)."""
    finished_at = models.DateTimeField(null=True)
    due_at = models.DateTimeField(null=True, db_index=True)
    """When the control cycle must look again; None once terminal."""
    charge_held = models.DecimalField(max_digits=18, decimal_places=4, default=0)
    """Held for it now, in the unit of `predicted.charge`; 0 once settled or released."""
    charge_cost = models.DecimalField(max_digits=18, decimal_places=4, null=True)
    """What it cost by accounting; None = not known yet."""

    class Meta:
        ordering = ["-id"]
        triggers = [
            _only_legal_moves("attempt_moves", ATTEMPT_MOVES),
            pgtrigger.Protect(name="attempt_kept", operation=pgtrigger.Delete),
            pgtrigger.Protect(
                name="attempt_placement_fixed",
                operation=pgtrigger.UpdateOf(
                    "task_id",
                    "number",
                    "decision_id",
                    "connection_id",
                    "system_id",
                    "partition",
                    "submit_key",
                ),
            ),
        ]
        constraints = [
            models.UniqueConstraint(name="one_attempt_per_number", fields=["task", "number"]),
            models.CheckConstraint(
                name="attempt_state_known", condition=Q(state__in=[s.value for s in AttemptState])
            ),
        ]
        indexes = [
            models.Index(
                name="attempt_active",
                fields=["system", "due_at"],
                condition=~Q(state__in=[s.value for s in terminal_states(ATTEMPT_MOVES)]),
            )
        ]

    def __str__(self) -> str:
        return self.handle


class TransferPurpose(StrEnum):
    """Why data moves."""

    MOVE = "move"
    """Somebody asked for it."""
    STAGE_IN = "stage_in"
    STAGE_OUT = "stage_out"
    REPLICATE = "replicate"
    """A further copy of an output."""


class Transfer(models.Model):
    """One movement of data between two places, storage to storage."""

    handle = models.CharField(max_length=40, unique=True)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    actor = models.CharField(max_length=120, default="facet")
    """Who asked for it: `user:NAME`, `token:NAME`, or `facet` for a task's own data."""
    task = models.ForeignKey(Task, null=True, on_delete=models.PROTECT, related_name="transfers")
    attempt = models.ForeignKey(Attempt, null=True, on_delete=models.PROTECT, related_name="transfers")
    purpose = models.CharField(
        max_length=10, choices=_choices(TransferPurpose), default=TransferPurpose.MOVE.value
    )
    mover = models.CharField(max_length=10, default="globus")
    """The scheme of both ends: `globus` or `file`."""
    source = models.CharField(max_length=1000)
    """A URI; of several files the folder above them all, as is the next."""
    destination = models.CharField(max_length=1000)
    items = models.JSONField(default=list)
    """Each file or folder: source, destination (URIs), bytes, sha256 (None = not known), path (job's)."""
    options = models.JSONField(default=dict)
    policy = models.JSONField(default=list)
    """What was looked at before it was accepted: rule, outcome, detail."""
    state = models.CharField(
        max_length=12, choices=_choices(TransferState), default=TransferState.REQUESTED.value
    )
    submission_id = models.CharField(max_length=60, blank=True)
    """Kept before the submission, never changed: under one id a move is made at most once."""
    remote_id = models.CharField(max_length=60, blank=True)
    detail = models.JSONField(default=dict)
    """What was seen last: files with size and checksum, the consents it waits for."""
    reason = models.TextField(blank=True)
    """Why it stands where it stands, in the collection's own words where it has some."""
    fault = models.CharField(max_length=24, blank=True)
    """What kind of thing stands in its way now, or ended it."""
    fault_since = models.DateTimeField(null=True)
    faults = models.PositiveIntegerField(default=0)
    bytes_expected = models.BigIntegerField(null=True)
    bytes_moved = models.BigIntegerField(default=0)
    files = models.PositiveIntegerField(null=True)
    files_moved = models.PositiveIntegerField(default=0)
    files_skipped = models.PositiveIntegerField(default=0)
    tries = models.PositiveSmallIntegerField(default=0)
    """Requests in a row that brought no answer, or no trace of it."""
    created_at = models.DateTimeField()
    deadline_at = models.DateTimeField(null=True)
    cancel_requested_at = models.DateTimeField(null=True)
    cancel_sent_at = models.DateTimeField(null=True)
    started_at = models.DateTimeField(null=True)
    observed_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    due_at = models.DateTimeField(null=True, db_index=True)
    """When its mover must be asked again; None once it has ended."""

    class Meta:
        ordering = ["-id"]
        triggers = [
            _only_legal_moves("transfer_moves", TRANSFER_MOVES),
            pgtrigger.Protect(name="transfer_kept", operation=pgtrigger.Delete),
            pgtrigger.Protect(
                name="transfer_ends_fixed",
                operation=pgtrigger.UpdateOf(
                    "user_id", "task_id", "attempt_id", "mover", "source", "destination", "items"
                ),
            ),
            pgtrigger.Protect(
                name="transfer_submitted_once",
                operation=pgtrigger.UpdateOf("submission_id"),
                condition=~pgtrigger.Q(old__submission_id=""),
            ),
        ]
        constraints = [
            models.CheckConstraint(
                name="transfer_state_known", condition=Q(state__in=[s.value for s in TransferState])
            ),
            models.CheckConstraint(
                name="transfer_purpose_known", condition=Q(purpose__in=[p.value for p in TransferPurpose])
            ),
            models.UniqueConstraint(
                name="one_transfer_per_submission", fields=["submission_id"], condition=~Q(submission_id="")
            ),
        ]
        indexes = [
            models.Index(name="transfer_by_user", fields=["user", "-id"]),
            models.Index(
                name="transfer_active",
                fields=["user", "due_at"],
                condition=~Q(state__in=[s.value for s in terminal_states(TRANSFER_MOVES)]),
            ),
        ]

    def __str__(self) -> str:
        return self.handle


class Replica(models.Model):
    """One file of known size and checksum that is at a system: an input already there need not be moved."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    system = models.ForeignKey("federation.System", on_delete=models.CASCADE, related_name="+")
    uri = models.CharField(max_length=1000)
    """What it is a copy of."""
    path = models.CharField(max_length=1000)
    """Absolute, at the system."""
    bytes = models.BigIntegerField()
    sha256 = models.CharField(max_length=64)
    transfer = models.ForeignKey(Transfer, null=True, on_delete=models.PROTECT, related_name="+")
    seen_at = models.DateTimeField()
    """When it was last known to be there."""

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(name="one_replica_per_path", fields=["user", "system", "path"])
        ]
        indexes = [models.Index(name="replica_by_content", fields=["user", "system", "sha256"])]

    def __str__(self) -> str:
        return f"{self.system}:{self.path}"


class Manifest(models.Model):
    """What a finished task left behind: files with sizes and checksums, exit, times from accounting."""

    handle = models.CharField(max_length=40, unique=True)
    task = models.OneToOneField(Task, on_delete=models.PROTECT, related_name="manifest")
    attempt = models.ForeignKey(Attempt, on_delete=models.PROTECT, related_name="+")
    body = models.JSONField()
    created_at = models.DateTimeField()

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return self.handle


class SubscriptionState(StrEnum):
    """Whether a subscription is served."""

    ACTIVE = "active"
    PAUSED = "paused"
    DISABLED = "disabled"
    """By us: the receiver said that it is gone, or did not answer for days."""


class Target(StrEnum):
    """How a subscription is told."""

    WEBHOOK = "webhook"
    EMAIL = "email"
    CURSOR = "cursor"
    """Not told: a reader fetches, and says how far it is."""


class Subscription(models.Model):
    """Which events somebody wants to hear, how, and how far they have got."""

    handle = models.CharField(max_length=40, unique=True)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    name = models.CharField(max_length=80)
    target = models.CharField(max_length=10, choices=_choices(Target))
    url = models.CharField(max_length=1000, blank=True)
    types = models.JSONField(default=list)
    """Event types; `task.*` means all of tasks. Empty: those that wake (milestones and exceptions)."""
    subject = models.CharField(max_length=60, blank=True)
    only_named = models.BooleanField(default=False)
    """Hears only of tasks whose `continuation.subscriptions` name it."""
    digest_s = models.PositiveIntegerField(null=True)
    """Between two e-mails, s."""
    sealed_secret = models.TextField(blank=True)
    sealed_previous = models.TextField(blank=True)
    previous_until = models.DateTimeField(null=True)
    """Until when the secret before signs beside the present one."""
    state = models.CharField(
        max_length=10, choices=_choices(SubscriptionState), default=SubscriptionState.ACTIVE.value
    )
    reason = models.CharField(max_length=300, blank=True)
    cursor_seq = models.BigIntegerField()
    """Up to where the log has been turned into deliveries (or e-mails)."""
    acked_seq = models.BigIntegerField()
    """Up to where a reader says it has got; kept only for the target `cursor`."""
    failures = models.PositiveIntegerField(default=0)
    """Tries that failed since the last that succeeded."""
    due_at = models.DateTimeField(null=True, db_index=True)
    """Webhook: not before; e-mail: when the next is sent."""
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(
                name="subscription_state_known", condition=Q(state__in=[s.value for s in SubscriptionState])
            ),
            models.CheckConstraint(
                name="subscription_target_known", condition=Q(target__in=[t.value for t in Target])
            ),
        ]

    def __str__(self) -> str:
        return self.handle


class DeliveryState(StrEnum):
    """How one delivery stands."""

    PENDING = "pending"
    DELIVERED = "delivered"
    DEAD = "dead"
    """Given up after the last try; it can be replayed."""


class Delivery(models.Model):
    """One event on its way to one webhook. Written before it is sent; sent at least once."""

    handle = models.CharField(max_length=40, unique=True)
    subscription = models.ForeignKey(Subscription, on_delete=models.CASCADE, related_name="deliveries")
    seq = models.BigIntegerField()
    event = models.CharField(max_length=40)
    """Its handle, the `webhook-id` of every try."""
    event_type = models.CharField(max_length=60)
    body = models.TextField()
    """What is sent, the same bytes on every try."""
    state = models.CharField(
        max_length=10, choices=_choices(DeliveryState), default=DeliveryState.PENDING.value
    )
    attempts = models.PositiveSmallIntegerField(default=0)
    next_at = models.DateTimeField(null=True)
    """When it is (next) sent; while it is being sent, when it is taken for lost."""
    tries = models.JSONField(default=list)
    """The log: instant, status, error, milliseconds of each try."""
    created_at = models.DateTimeField()
    delivered_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name_plural = "deliveries"
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(name="one_delivery_per_event", fields=["subscription", "seq"]),
            models.CheckConstraint(
                name="delivery_state_known", condition=Q(state__in=[s.value for s in DeliveryState])
            ),
        ]
        indexes = [
            models.Index(name="delivery_due", fields=["next_at"], condition=Q(state="pending")),
        ]

    def __str__(self) -> str:
        return self.handle
