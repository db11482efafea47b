"""The Django application `federation`."""

from django.apps import AppConfig


class FederationConfig(AppConfig):
    """Registers the tables of `federation`."""

    name = "federation"
    default_auto_field = "django.db.models.BigAutoField"
