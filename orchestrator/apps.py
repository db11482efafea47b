"""The Django application `orchestrator`."""

from django.apps import AppConfig


class OrchestratorConfig(AppConfig):
    """Registers the tables of `orchestrator`."""

    name = "orchestrator"
    default_auto_field = "django.db.models.BigAutoField"
