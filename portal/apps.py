"""Django's view of this layer."""

from django.apps import AppConfig


class PortalConfig(AppConfig):
    """Register the layer's tables."""

    name = "portal"
    default_auto_field = "django.db.models.BigAutoField"
