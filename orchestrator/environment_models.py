"""Where environments are, as a table: what placement asks before every decision, whatever the history."""

from django.conf import settings
from django.db import models

from orchestrator.environments import MOST_CHARS


class EnvironmentUse(models.Model):
    """One environment of one user at one system: an image, or what set-up built or loaded there."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    system = models.ForeignKey("federation.System", on_delete=models.CASCADE, related_name="+")
    environment = models.CharField(max_length=MOST_CHARS)
    """As `environments.environment_of` names it."""
    first_attempt = models.ForeignKey("orchestrator.Attempt", on_delete=models.CASCADE, related_name="+")
    """The first that ran to a good end with it there: it had to prepare it."""
    last_at = models.DateTimeField()
    """The end of the newest such run."""

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(name="one_use_per_environment", fields=["user", "environment", "system"])
        ]

    def __str__(self) -> str:
        return f"{self.system}: {self.environment}"
