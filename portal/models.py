"""Tables of the edges: API tokens and idempotency records."""

from __future__ import annotations

from django.conf import settings
from django.db import models


class ApiToken(models.Model):
    """A named, scoped, expiring, revocable bearer token; only its SHA-256 is kept."""

    handle = models.CharField(max_length=40, unique=True)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_tokens")
    name = models.CharField(max_length=80)
    prefix = models.CharField(max_length=12)
    """First characters, shown so that a person can tell tokens apart."""
    digest = models.CharField(max_length=64, unique=True)
    scopes = models.JSONField(default=list)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"


class IdempotencyRecord(models.Model):
    """The first answer to a request that carried an Idempotency-Key, replayed to its repetitions."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    key = models.CharField(max_length=200)
    route = models.CharField(max_length=120)
    body_digest = models.CharField(max_length=64)
    status = models.PositiveSmallIntegerField(null=True)
    """None while the first request is in flight."""
    body = models.JSONField(null=True)
    headers = models.JSONField(default=dict)
    created = models.CharField(max_length=40, blank=True)
    """Handle of what the request made, written in the transaction that made it."""
    created_at = models.DateTimeField(db_index=True)
    started_at = models.DateTimeField()
    """When the request that is to answer began; one that is silent too long is presumed dead."""

    class Meta:
        constraints = [models.UniqueConstraint(name="one_use_per_key", fields=["user", "key"])]

    def __str__(self) -> str:
        return self.key
