"""Tables of data on its way, and of what is known to be where."""

from __future__ import annotations

from enum import StrEnum

import pgtrigger
from django.conf import settings
from django.db import models
from django.db.models import Q

from orchestrator.lifecycle import TRANSFER_MOVES, TransferState, terminal_states
from orchestrator.model_parts import choices, only_legal_moves


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
    task = models.ForeignKey(
        "orchestrator.Task", null=True, on_delete=models.PROTECT, related_name="transfers"
    )
    attempt = models.ForeignKey(
        "orchestrator.Attempt", null=True, on_delete=models.PROTECT, related_name="transfers"
    )
    purpose = models.CharField(
        max_length=10, choices=choices(TransferPurpose), default=TransferPurpose.MOVE.value
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
        max_length=12, choices=choices(TransferState), default=TransferState.REQUESTED.value
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
            only_legal_moves("transfer_moves", TRANSFER_MOVES),
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
