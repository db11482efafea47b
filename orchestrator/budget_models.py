"""Tables of what work may use beyond a site's credit: budgets, their ledgers, what a person must approve."""

from __future__ import annotations

import pgtrigger
from django.conf import settings
from django.db import models
from django.db.models import Q

from federation.models import LedgerKind


class BudgetScope(models.TextChoices):
    """What a budget is set on."""

    TASK = "task", "task"
    GROUP = "group", "group"
    PROJECT = "project", "project"
    TOKEN = "token", "token"


class OnExhaustion(models.TextChoices):
    """What an exhausted budget does to work that runs."""

    HOLD = "hold", "hold"
    """Nothing new starts; what is at a site goes on."""
    CANCEL = "cancel", "cancel"
    """Everything under it is cancelled, running work too."""


class Measure(models.TextChoices):
    """What a budget counts. The deadline is an instant and kept with the budget itself."""

    CHARGE = "charge", "charge"
    NODE_HOURS = "node_hours", "node-hours"
    ACCELERATOR_HOURS = "accelerator_hours", "accelerator-hours"
    ATTEMPTS = "attempts", "attempts"
    MODEL_TOKENS = "model_tokens", "model tokens"


class Budget(models.Model):
    """What one task, group, project or token of a user may use; its meters count it."""

    handle = models.CharField(max_length=40, unique=True)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="budgets")
    scope = models.CharField(max_length=10, choices=BudgetScope.choices)
    subject = models.CharField(max_length=60)
    """Handle of the task, group or token; the word of the project."""
    name = models.CharField(max_length=120, blank=True)
    thresholds = models.JSONField(default=list)
    """Shares of a limit (0..1, ascending) that are told when they are passed."""
    on_exhaustion = models.CharField(
        max_length=10, choices=OnExhaustion.choices, default=OnExhaustion.HOLD.value
    )
    deadline_at = models.DateTimeField(null=True, blank=True)
    deadline_told = models.FloatField(default=0)
    """The largest share of the time to the deadline that was told; 1 = that it passed."""
    is_imposed = models.BooleanField(default=False)
    """An administrator set it: only an administrator changes it or approves beyond it."""
    created_by = models.CharField(max_length=120)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()
    closed_at = models.DateTimeField(null=True, blank=True)
    """A closed budget binds nothing; its ledger stays."""

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(
                name="one_open_budget_per_subject",
                fields=["user", "scope", "subject"],
                condition=Q(closed_at=None),
            ),
            models.CheckConstraint(name="budget_scope_known", condition=Q(scope__in=BudgetScope.values)),
        ]
        indexes = [
            models.Index(
                name="budget_deadline",
                fields=["deadline_at"],
                condition=Q(closed_at=None, deadline_at__isnull=False),
            )
        ]

    def __str__(self) -> str:
        return self.handle


class Meter(models.Model):
    """One measure of a budget: its limit, what is held and what was used."""

    budget = models.ForeignKey(Budget, on_delete=models.CASCADE, related_name="meters")
    measure = models.CharField(max_length=20, choices=Measure.choices)
    system = models.CharField(max_length=40, blank=True)
    """Slug, for charges alone: charges of two sites are never added."""
    unit = models.CharField(max_length=40, blank=True)
    limit = models.DecimalField(max_digits=18, decimal_places=4, null=True, blank=True)
    """None = only counted."""
    approval_above = models.DecimalField(max_digits=18, decimal_places=4, null=True, blank=True)
    """An attempt that would hold more than this waits for a person; None = none does."""
    reserved = models.DecimalField(max_digits=18, decimal_places=4, default=0)
    used = models.DecimalField(max_digits=18, decimal_places=4, default=0)
    told = models.FloatField(default=0)
    """The largest threshold that was told; taken back when the limit changes."""
    exhausted_at = models.DateTimeField(null=True, blank=True)
    """Since when nothing more fits; None = something does."""

    class Meta:
        ordering = ["budget", "measure", "system"]
        constraints = [
            models.UniqueConstraint(name="one_meter_per_measure", fields=["budget", "measure", "system"]),
            models.CheckConstraint(name="meter_measure_known", condition=Q(measure__in=Measure.values)),
            models.CheckConstraint(name="meter_reserved_not_negative", condition=Q(reserved__gte=0)),
            models.CheckConstraint(name="meter_used_not_negative", condition=Q(used__gte=0)),
            models.CheckConstraint(
                name="meter_system_with_charge",
                condition=Q(measure="charge") & ~Q(system="") | ~Q(measure="charge") & Q(system=""),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.budget} {self.measure} {self.system}".rstrip()


class BudgetLine(models.Model):
    """One line of a meter's ledger, append-only, as `federation.Charge` is of an allocation's."""

    meter = models.ForeignKey(Meter, on_delete=models.PROTECT, related_name="lines")
    subject = models.CharField(max_length=40, db_index=True)
    """Handle of the attempt; of the envelope for a model's tokens."""
    kind = models.CharField(max_length=10, choices=LedgerKind.choices)
    amount = models.DecimalField(max_digits=18, decimal_places=4)
    note = models.CharField(max_length=200, blank=True)
    at = models.DateTimeField()

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(
                name="one_budget_line_of_a_kind",
                fields=["meter", "subject", "kind"],
                condition=~Q(kind="correct"),
            ),
            models.CheckConstraint(
                name="budget_line_not_negative", condition=Q(amount__gte=0) | Q(kind="correct")
            ),
        ]
        triggers = [
            pgtrigger.Protect(name="budget_line_append_only", operation=pgtrigger.Update | pgtrigger.Delete)
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.amount}"


class TokenDescent(models.Model):
    """That an API token was made with another, directly or not: budgets of the one bind the other too."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    token = models.CharField(max_length=40)
    """Handle of the token that was made."""
    ancestor = models.CharField(max_length=40)
    """Handle of one that it goes back to."""

    class Meta:
        ordering = ["pk"]
        constraints = [models.UniqueConstraint(name="one_descent_of_a_kind", fields=["token", "ancestor"])]
        indexes = [models.Index(name="token_descendants", fields=["ancestor"])]

    def __str__(self) -> str:
        return f"{self.token} by {self.ancestor}"


class ApprovalState(models.TextChoices):
    """How a request for approval stands."""

    PENDING = "pending", "pending"
    APPROVED = "approved", "approved"
    REJECTED = "rejected", "rejected"
    EXPIRED = "expired", "expired"
    WITHDRAWN = "withdrawn", "withdrawn"
    """The task was cancelled or placed anew before anybody decided."""


class Approval(models.Model):
    """A placement that holds more than a budget lets pass without a person; decided once."""

    handle = models.CharField(max_length=40, unique=True)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="approvals")
    """Whose budget and task it is."""
    task = models.ForeignKey("orchestrator.Task", on_delete=models.PROTECT, related_name="approvals")
    decision = models.ForeignKey("orchestrator.Decision", on_delete=models.PROTECT, related_name="+")
    state = models.CharField(
        max_length=10, choices=ApprovalState.choices, default=ApprovalState.PENDING.value
    )
    asked_by = models.CharField(max_length=120)
    asked_token = models.CharField(max_length=40, blank=True)
    """Handle of the token that asked: it never decides."""
    asks = models.JSONField()
    """What would be held and from where on a person is asked, by meter (orchestrator.budgets.Ask)."""
    needs_admin = models.BooleanField(default=False)
    """One of the budgets was imposed by an administrator."""
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    decided_by = models.CharField(max_length=120, blank=True)
    decided_via = models.CharField(max_length=40, blank=True)
    """page, api, mcp: how the person was asked."""
    decided_at = models.DateTimeField(null=True, blank=True)
    note = models.CharField(max_length=500, blank=True)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(name="approval_state_known", condition=Q(state__in=ApprovalState.values)),
            models.UniqueConstraint(
                name="one_pending_approval_per_task", fields=["task"], condition=Q(state="pending")
            ),
        ]
        indexes = [
            models.Index(name="approval_expiring", fields=["expires_at"], condition=Q(state="pending"))
        ]
        triggers = [pgtrigger.Protect(name="approval_kept", operation=pgtrigger.Delete)]

    def __str__(self) -> str:
        return self.handle
