"""`GET /metrics` for whoever holds the token, and the counts of this process's own answers."""

import hmac
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseNotFound
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.exposition import choose_encoder

from portal.telemetry.collect import Figures

REGISTRY = CollectorRegistry()
"""Our own: the library's default one is filled by other libraries too."""
REGISTRY.register(Figures())
ANSWERS = Histogram(
    "facet_http_request_seconds",
    "From request to the start of the answer, in this web process.",
    ("method", "route", "status"),
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
    registry=REGISTRY,
)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


def count(request: HttpRequest, status: int, seconds: float) -> None:
    """Count one answer, by its route and never by its path: paths are without end."""
    match: Any = request.resolver_match
    method = request.method if request.method in _METHODS else "other"
    ANSWERS.labels(method, f"/{match.route}" if match else "none", str(status)).observe(seconds)


@require_safe
@never_cache
def metrics(request: HttpRequest) -> HttpResponse:
    """Answer a scrape; without a token set there is no such page, so nothing is open by default."""
    wanted = settings.METRICS_TOKEN
    if not wanted:
        return HttpResponseNotFound(
            "Not served: FACET_METRICS_TOKEN is not set.\n", content_type="text/plain"
        )
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), wanted.encode()):
        refused = HttpResponse("Send `Authorization: Bearer` and the token.\n", "text/plain", status=401)
        refused["WWW-Authenticate"] = 'Bearer realm="facet metrics"'
        return refused
    encode, content_type = choose_encoder(request.headers.get("Accept", ""))
    return HttpResponse(encode(REGISTRY), content_type=content_type)
