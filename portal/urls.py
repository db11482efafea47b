"""Every URL of Facet; each edge brings its own list."""

from django.contrib import admin
from django.urls import include, path

from portal.api.problems import not_found, server_error, strange_request
from portal.health import healthz, readyz
from portal.telemetry.web import metrics

urlpatterns = [
    path("healthz", healthz, name="healthz"),
    path("readyz", readyz, name="readyz"),
    path("metrics", metrics, name="metrics"),
    path("admin/", admin.site.urls),
    path("", include("portal.api.urls")),
    path("", include("portal.globus.urls")),
    path("", include("portal.web.urls")),
]
handler400, handler404, handler500 = strange_request, not_found, server_error
