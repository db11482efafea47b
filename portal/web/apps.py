"""The pages as a Django application, so that their template tags are found."""

from django.apps import AppConfig


class WebConfig(AppConfig):
    """Pages only: no models."""

    name = "portal.web"
    label = "web"
    verbose_name = "Pages"
