"""Signing in and out with local accounts."""

from typing import Any

from django.conf import settings
from django.contrib.auth.views import LoginView, LogoutView
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from portal.web.rendering import POLICY


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
