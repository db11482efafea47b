"""Tables of what was asked, decided, tried and seen. The lifecycles guard `state` here as in Python."""

from __future__ import annotations

import pgtrigger
from django.conf import settings
from django.contrib.postgres.indexes import GinIndex, OpClass
from django.db import models
from django.db.models import Q
from django.db.models.functions import Upper

from orchestrator.budget_models import Approval, Budget, BudgetLine, Meter
from orchestrator.delivery_models import Delivery, DeliveryState, Subscription, SubscriptionState, Target
from orchestrator.environment_models import EnvironmentUse
from orchestrator.lifecycle import (
    ATTEMPT_MOVES,
    GROUP_MOVES,
    TASK_MOVES,
    AttemptState,
    Cause,
    GroupState,
    TaskState,
    terminal_states,
)
from orchestrator.model_parts import choices, only_legal_moves
from orchestrator.transfer_models import Replica, Transfer, TransferPurpose

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
    "EnvironmentUse",
    "Group",
    "Manifest",
    "Meter",
    "Replica",
    "Subscription",
    "SubscriptionState",
    "Target",
    "Task",
    "Transfer",
    "TransferPurpose",
]


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
    state = models.CharField(max_length=24, choices=choices(GroupState), default=GroupState.RUNNING.value)
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
        triggers = [only_legal_moves("group_moves", GROUP_MOVES)]
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
    state = models.CharField(max_length=16, choices=choices(TaskState), default=TaskState.ACCEPTED.value)
    cause = models.CharField(max_length=24, blank=True, choices=choices(Cause))
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
        triggers = [only_legal_moves("task_moves", TASK_MOVES)]
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
            # Lists by change and by name: without, each page sorts all of a user's tasks.
            models.Index(name="task_by_change", fields=["user", "-updated_at", "-id"]),
            models.Index(name="task_by_name", fields=["user", "name", "id"]),
            models.Index(
                name="task_active",
                fields=["user", "state"],
                condition=~Q(state__in=[s.value for s in terminal_states(TASK_MOVES)]),
            ),
            models.Index(
                name="task_finished", fields=["finished_at"], condition=Q(finished_at__isnull=False)
            ),
            # Search for part of a name: `icontains` compares UPPER(), which three-letter pieces index.
            GinIndex(OpClass(Upper("name"), name="gin_trgm_ops"), name="task_words_of_name"),
            GinIndex(OpClass(Upper("objective"), name="gin_trgm_ops"), name="task_words_of_objective"),
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
    state = models.CharField(max_length=12, choices=choices(AttemptState), default=AttemptState.PLANNED.value)
    cause = models.CharField(max_length=24, blank=True, choices=choices(Cause))
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
    dispatch_ticks = models.JSONField(default=dict)
    """Readings of steady clocks by machine (orchestrator.steady), each at or after the submission's begin."""
    claims = models.PositiveSmallIntegerField(default=0)
    """Claims that were made at the site and came to nothing; the next submission has a new one."""
    claim_is_made = models.BooleanField(default=False)
    """The site showed that a submission with the present claim was begun: no other will be."""
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
            only_legal_moves("attempt_moves", ATTEMPT_MOVES),
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
            ),
            # What the snapshots do not show: a handful, whatever has ended or waits at its site.
            models.Index(
                name="attempt_in_flight",
                fields=["dispatch_started_at"],
                condition=~Q(state__in=[s.value for s in terminal_states(ATTEMPT_MOVES)]),
            ),
            models.Index(name="attempt_by_job", fields=["job_id"]),
        ]

    def __str__(self) -> str:
        return self.handle


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
