"""Django's view of this layer."""

from django.apps import AppConfig


class OrchestratorConfig(AppConfig):
    """Register the layer's tables."""

    name = "orchestrator"
    default_auto_field = "django.db.models.BigAutoField"
