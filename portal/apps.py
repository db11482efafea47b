"""The Django application `portal`."""

from importlib import import_module

from django.apps import AppConfig


class PortalConfig(AppConfig):
    """Registers the tables of `portal` and makes its Celery application the one that chores belong to."""

    name = "portal"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Load the Celery application, so that `shared_task` binds to it in every process."""
        import_module("portal.celery")
