"""The Django application `portal`."""

from importlib import import_module

from django.apps import AppConfig


class PortalConfig(AppConfig):
    """Registers the tables of `portal` and makes its Celery application the one that chores belong to."""

    name = "portal"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Load Celery and the chores, so that in every process their bells hang and a submission is heard."""
        import_module("portal.celery")
        import_module("portal.chores")
        import_module("portal.globus.offer")
