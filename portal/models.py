"""Tables of the edges: API tokens, idempotency records, and access delegated through Globus."""

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
    systems = models.JSONField(default=list)
    """Slugs of the systems it may use and see; none named: all of its user's."""
    attended = models.BooleanField(default=False)
    """Its owner sits at the client that holds it: approvals answered there are theirs."""
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name = "API token"
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"


class TaskTemplate(models.Model):
    """A task input kept under a name, to begin with; shared with nobody, a project or everyone."""

    PRIVATE, PROJECT, EVERYONE = "private", "project", "everyone"
    SHARING = ((PRIVATE, "nobody else"), (PROJECT, "a project"), (EVERYONE, "everyone here"))

    handle = models.CharField(max_length=40, unique=True)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    name = models.CharField(max_length=80)
    body = models.JSONField()
    """The task input as it was given, without what belongs to one submission."""
    sharing = models.CharField(max_length=10, choices=SHARING, default=PRIVATE)
    project = models.CharField(max_length=80, blank=True)
    """The account whose holders see it, where it is shared with a project."""
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()
    deleted_at = models.DateTimeField(null=True)
    """Set when its owner deleted it; it can be restored."""

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(
                name="one_template_per_name",
                fields=["user", "name"],
                condition=models.Q(deleted_at__isnull=True),
            ),
            models.CheckConstraint(
                name="a_project_is_named",
                condition=models.Q(sharing="project") ^ models.Q(project=""),
            ),
        ]

    def __str__(self) -> str:
        return self.name


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


class GlobusIdentity(models.Model):
    """The Globus identity of a user: signs them in, and is the only one whose access they may connect."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="globus_identity"
    )
    sub = models.CharField(max_length=64, unique=True)
    username = models.CharField(max_length=150)
    wanted = models.JSONField(default=dict)
    """What the next sign-in has to satisfy: the session parameters a service asked for."""
    linked_at = models.DateTimeField()

    class Meta:
        verbose_name = "Globus identity"
        verbose_name_plural = "Globus identities"

    def __str__(self) -> str:
        return self.username


class GlobusToken(models.Model):
    """What a user delegated for one resource server; the secrets are sealed and opened by one function."""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.CASCADE, related_name="+"
    )
    """None = of the application's own account."""
    resource_server = models.CharField(max_length=100)
    scope = models.TextField()
    sealed = models.TextField()
    """Fernet over JSON {access, refresh}; see portal.globus.vault."""
    expires_at = models.DateTimeField()
    """When the access token ends."""
    is_refused = models.BooleanField(default=False)
    """Globus did not renew it: only a sign-in helps, so it is not asked again."""
    updated_at = models.DateTimeField()

    class Meta:
        verbose_name = "Globus delegation"
        constraints = [
            models.UniqueConstraint(
                name="one_globus_token_per_server", fields=["user", "resource_server"], nulls_distinct=False
            )
        ]

    def __str__(self) -> str:
        return self.resource_server


class GlobusFunction(models.Model):
    """Under which id one owner's copy of our function is registered at Globus Compute."""

    owner = models.CharField(max_length=60)
    """user:ID, or service."""
    digest = models.CharField(max_length=64)
    """SHA-256 of the source."""
    function_id = models.CharField(max_length=36)

    class Meta:
        constraints = [
            models.UniqueConstraint(name="one_globus_function_per_owner", fields=["owner", "digest"])
        ]

    def __str__(self) -> str:
        return self.function_id
