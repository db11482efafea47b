"""Signing in and out with local accounts, and what a person may set about themselves."""

from datetime import timedelta
from typing import Any
from zoneinfo import available_timezones

from django import forms
from django.conf import settings
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.forms import PasswordChangeForm
from django.contrib.auth.views import LoginView, LogoutView
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_POST, require_safe

from portal.web.guard import SignedInRequest, signed_in
from portal.web.rendering import POLICY, page
from portal.web.told import tell

ZONE_COOKIE = "facet_zone"
"""The time zone a person chose; scripts read it. No cookie: the browser's own."""
_KEPT = timedelta(days=400)
ZONES = (
    "UTC",
    *sorted(name for name in available_timezones() if "/" in name and not name.startswith("Etc/")),
)


class SignIn(LoginView):
    """Ask for user name and password; who is signed in goes straight on."""

    template_name = "account/sign_in.html"
    redirect_authenticated_user = True

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Add the way round by Globus, where this installation has one."""
        globus_url = reverse("globus:sign-in") if settings.GLOBUS_CLIENT_ID else ""
        return super().get_context_data(**kwargs) | {"globus_url": globus_url}

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Answer under the pages' policy."""
        response = super().dispatch(request, *args, **kwargs)
        assert isinstance(response, HttpResponse)  # noqa: S101  # LoginView never streams
        response["Content-Security-Policy"] = POLICY
        return response


class SignOut(LogoutView):
    """End the session; POST only."""

    next_page = "/sign-in/"


class PasswordForm(PasswordChangeForm):
    """Django's own form, drawn as ours are."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Give each field the look of the pages."""
        super().__init__(*args, **kwargs)
        for field in self.fields.values():
            field.widget.attrs |= {"class": "input"}
            field.widget.attrs.pop("autofocus", None)
        rules = self.fields["new_password1"].help_text
        self.rules, self.fields["new_password1"].help_text = rules, ""


@require_safe
@signed_in
def account_show(request: SignedInRequest) -> HttpResponse:
    """Who is signed in, the way into the systems, the time zone and the password."""
    return _show(request, _password_form(request))


def _password_form(request: SignedInRequest, data: Any = None) -> PasswordForm | None:
    """Return the form; None for people who sign in by Globus alone and have no password."""
    return PasswordForm(request.user, data) if request.user.has_usable_password() else None


def _show(request: SignedInRequest, form: forms.Form | None, *, status: int = 200) -> HttpResponse:
    zone = request.COOKIES.get(ZONE_COOKIE, "")
    context = {
        "here": "account",
        "form": form,
        "zone": zone if zone in ZONES else "",
        "zones": ZONES,
        "identity": getattr(request.user, "globus_identity", None),
    }
    return page(request, "account/show.html", context, status=status)


@sensitive_post_parameters()
@require_POST
@signed_in
def password_change(request: SignedInRequest) -> HttpResponse:
    """Change the password; this session stays, every other one ends."""
    form = _password_form(request, request.POST)
    if form is None or not form.is_valid():
        return _show(request, form, status=422)
    update_session_auth_hash(request, form.save())
    tell(request, _("Your password is changed. Every other session has ended."))
    return redirect("web:account-show")


@require_POST
@signed_in
def zone_change(request: SignedInRequest) -> HttpResponse:
    """Keep the time zone in which this browser tells times; none = its own."""
    zone = request.POST.get("zone", "")
    response = redirect("web:account-show")
    if zone in ZONES:
        response.set_cookie(ZONE_COOKIE, zone, max_age=_KEPT, samesite="Lax", secure=request.is_secure())
        tell(request, _("Times are told in %(zone)s.") % {"zone": zone})
    else:
        response.delete_cookie(ZONE_COOKIE, samesite="Lax")
        tell(request, _("Times are told in the zone of your browser."))
    return response
