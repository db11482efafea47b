"""Django's view of this layer."""

from django.apps import AppConfig


class FederationConfig(AppConfig):
    """Register the layer's tables."""

    name = "federation"
    default_auto_field = "django.db.models.BigAutoField"
