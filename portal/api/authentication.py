"""Who is calling: a bearer token, or a browser's session with its CSRF token."""

from typing import Any

from django.contrib.auth import get_user
from django.contrib.auth.models import AbstractBaseUser
from django.contrib.sessions.backends.db import SessionStore
from django.http import HttpRequest
from django.utils import timezone
from rest_framework.authentication import BaseAuthentication, SessionAuthentication

from portal.skills.registry import Caller
from portal.tokens import Unauthenticated, caller_in_session, caller_of

SCHEME = 'Bearer realm="facet"'
_HOW = "Send `Authorization: Bearer facet_…`."


def bearer(header: str) -> str | None:
    """Return the token of an Authorization header; None when it speaks of another scheme or of nothing.

    Raises:
        Unauthenticated: it says Bearer and then no token.
    """
    scheme, _, secret = header.strip().partition(" ")
    if not scheme:
        return None
    if scheme.lower() != "bearer":
        raise Unauthenticated(f"The scheme {scheme[:20]!r} is not known here.", remediation=_HOW)
    secret = secret.strip()
    if not secret or " " in secret:
        raise Unauthenticated("The Authorization header holds no token.", remediation=_HOW)
    return secret


class ByToken(BaseAuthentication):  # type: ignore[misc]  # no types
    """Authorization: Bearer."""

    def authenticate(self, request: Any) -> tuple[AbstractBaseUser, Caller] | None:
        """Return the user and the caller, or None without an Authorization header."""
        secret = bearer(request.META.get("HTTP_AUTHORIZATION", ""))
        if secret is None:
            return None
        caller = caller_of(secret, now=timezone.now())
        return caller.user, caller

    def authenticate_header(self, _request: Any) -> str:
        """Return the challenge of a 401."""
        return SCHEME


class BySession(SessionAuthentication):  # type: ignore[misc]  # no types
    """A signed-in browser; what changes something needs the CSRF token."""

    def authenticate(self, request: Any) -> tuple[AbstractBaseUser, Caller] | None:
        """Return the user and the caller, or None without a session."""
        found = super().authenticate(request)
        return None if found is None else (found[0], caller_in_session(found[0]))

    def enforce_csrf(self, request: Any) -> None:
        """Check the plain request: the framework's own would try to parse the body for the token."""
        super().enforce_csrf(request._request)  # noqa: SLF001  # its only name


def caller_of_request(request: HttpRequest) -> Caller:
    """Return who calls a plain Django view that only reads.

    Raises:
        Unauthenticated: nobody known.
    """
    secret = bearer(request.META.get("HTTP_AUTHORIZATION", ""))
    if secret is not None:
        return caller_of(secret, now=timezone.now())
    user = request.user
    if isinstance(user, AbstractBaseUser) and user.is_active:
        return caller_in_session(user)
    raise Unauthenticated("This needs a bearer token or a signed-in session.", reason="no_token")


def session_of(request: HttpRequest) -> str | None:
    """Return the key of the browser's session, None where there is none."""
    session = getattr(request, "session", None)
    return None if session is None else session.session_key


def caller_of_session(key: str | None) -> Caller:
    """Return who is signed in with this session now.

    Raises:
        Unauthenticated: it has ended, the password was changed, or the user is not active.
    """
    asked = HttpRequest()
    asked.session = SessionStore(key)
    user = get_user(asked)
    if isinstance(user, AbstractBaseUser) and user.is_active:
        return caller_in_session(user)
    raise Unauthenticated("This session has ended; sign in again.", reason="no_token")
