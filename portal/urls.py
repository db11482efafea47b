"""Every URL of Facet; each edge brings its own list."""

from django.contrib import admin
from django.urls import include, path

from portal.health import healthz, readyz

urlpatterns = [
    path("healthz", healthz, name="healthz"),
    path("readyz", readyz, name="readyz"),
    path("admin/", admin.site.urls),
    path("", include("portal.web.urls")),
]
