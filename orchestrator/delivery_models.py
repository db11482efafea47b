"""Tables of who wants to hear of events, and of what was sent."""

from __future__ import annotations

from enum import StrEnum

from django.conf import settings
from django.db import models
from django.db.models import Q

from orchestrator.model_parts import choices


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
    target = models.CharField(max_length=10, choices=choices(Target))
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
        max_length=10, choices=choices(SubscriptionState), default=SubscriptionState.ACTIVE.value
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
        max_length=10, choices=choices(DeliveryState), default=DeliveryState.PENDING.value
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
