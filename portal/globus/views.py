"""The pages of delegated access: my connections, out to Globus and back, disconnect."""

from django.contrib import messages
from django.contrib.auth import login
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_GET, require_POST

from federation.models import Connection, LinkKind
from portal.globus import flow
from portal.globus.application import is_set_up
from portal.models import GlobusIdentity, GlobusToken
from portal.web.guard import SignedInRequest, signed_in
from portal.web.rendering import page
from providers.errors import FacetError

_NO_REFERRER = "no-referrer"
"""The address of the way back carries a code; no page it leads to may learn of it."""


@require_GET
@signed_in
def connection_list(request: SignedInRequest) -> HttpResponse:
    """Show how each system is reached, and as whom."""
    user = request.user
    rows = list(Connection.objects.filter(user=user).select_related("system").order_by("system__slug"))
    identity = GlobusIdentity.objects.filter(user=user).first()
    grants = list(GlobusToken.objects.filter(user=user).only("resource_server", "scope", "updated_at"))
    context = {
        "here": "connections",
        "connections": rows,
        "identity": identity,
        "grants": grants,
        "is_set_up": is_set_up(),
        "needs_sign_in": any(row.state == "needs_sign_in" for row in rows),
        "uses_globus": any(row.kind == LinkKind.GLOBUS_COMPUTE for row in rows),
    }
    return page(request, "globus/connections.html", context)


@require_GET
@signed_in
def connect_start(request: SignedInRequest) -> HttpResponse:
    """Send the browser to Globus to delegate access."""
    return _out(request, "connect", user=request.user)


@require_GET
def sign_in_start(request: HttpRequest) -> HttpResponse:
    """Send the browser to Globus to sign in."""
    return _out(request, "sign_in", user=None)


def _out(request: HttpRequest, purpose: flow.Purpose, *, user: User | None) -> HttpResponse:
    wanted = request.GET.get("next", "")
    if not url_has_allowed_host_and_scheme(wanted, {request.get_host()}, require_https=request.is_secure()):
        wanted = ""
    try:
        url = flow.start(request.session, purpose, user=user, next_url=wanted, now=timezone.now())
    except FacetError as error:
        return _failed(request, error)
    return redirect(url)


@require_GET
def callback(request: HttpRequest) -> HttpResponse:
    """Take what Globus sent back; the code never reaches a page, a log line or another site."""
    user = request.user if isinstance(request.user, User) else None
    try:
        outcome = flow.finish(request.session, request.GET.dict(), user=user, now=timezone.now())
    except FacetError as error:
        return _failed(request, error)
    if outcome.purpose == "sign_in":
        login(request, outcome.user, backend="django.contrib.auth.backends.ModelBackend")
        answer = redirect(outcome.next or "/")
    else:
        again = f" Reachable again: {', '.join(outcome.resumed)}." if outcome.resumed else ""
        messages.success(request, f"Globus is connected.{again}")
        answer = redirect(outcome.next or reverse("globus:connection-list"))
    answer["Referrer-Policy"] = _NO_REFERRER
    return answer


@require_POST
@signed_in
def disconnect(request: SignedInRequest) -> HttpResponse:
    """Revoke what was delegated."""
    try:
        taken = flow.disconnect(request.user)
    except FacetError as error:
        return _failed(request, error)
    if taken:
        messages.success(request, "Globus is disconnected; the access was revoked.")
    else:
        messages.warning(
            request,
            "Facet forgot the access, but Globus did not confirm every revocation: "
            "see app.globus.org, Settings, Manage Consents.",
        )
    return redirect("globus:connection-list")


def _failed(request: HttpRequest, error: FacetError) -> HttpResponse:
    context = {"error": error, "still": True}
    answer = page(request, "globus/failed.html", context, status=error.http_status)
    answer["Referrer-Policy"] = _NO_REFERRER
    return answer
