"""Delegated tokens: kept sealed, opened by `access_token` alone, refreshed by one process at a time."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import structlog
from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone
from globus_sdk import AuthAPIError, OAuthTokenResponse
from globus_sdk.exc import GlobusAPIError, GlobusError

from federation.locks import only_one
from federation.models import Connection
from portal.globus.application import COMPUTE_SCOPE, COMPUTE_SERVER, TRANSFER_SERVER, auth_client
from portal.globus.connections import asked_to_sign_in, is_service, needs_sign_in
from portal.globus.vault import seal, unseal
from portal.models import GlobusToken
from portal.sealing import Unreadable
from providers.errors import NotAuthorized, SiteUnreachable

log = structlog.get_logger(__name__)

_EARLY = timedelta(seconds=60)
"""A token is refreshed that long before it expires, so that it does not do so on its way."""
_WAIT_S = 12.0
"""How long to wait for another process that refreshes the same token."""


@dataclass(frozen=True, slots=True)
class Secrets:
    """The secrets of one grant; never shown."""

    access: str = field(repr=False)
    refresh: str = field(repr=False)
    """"" when there is none."""


SignIn = Callable[[str], NotAuthorized]
"""Marks what depends on an access and returns the error that says why."""


def access_token(connection: Connection, *, refused: str | None = None) -> str:
    """Return a good access token to Compute for a connection's user; the only way to one.

    Args:
        connection: whose access is used.
        refused: the token that the service has just refused; another one is got.

    Raises:
        NotAuthorized: a sign-in is needed; the user's connections are marked so, once.
        SiteUnreachable: Globus Auth gives no answer now.
    """
    if connection.state == "needs_sign_in":  # asking again before the user acted would only be refused again
        raise needs_sign_in(connection, connection.state_reason)
    if is_service(connection):
        return _of_the_application(refused=refused)
    return _of_a_user(connection.user_id, COMPUTE_SERVER, partial(needs_sign_in, connection), refused=refused)


def transfer_token(user_id: int, *, refused: str | None = None) -> str:
    """Return a good access token to Transfer for a user; the only way to one.

    Raises:
        NotAuthorized: a sign-in is needed.
        SiteUnreachable: Globus Auth gives no answer now.
    """
    return _of_a_user(user_id, TRANSFER_SERVER, asked_to_sign_in, refused=refused)


def _of_a_user(user_id: int, server: str, ask: SignIn, *, refused: str | None) -> str:
    row = GlobusToken.objects.filter(user_id=user_id, resource_server=server).first()
    if row is None:
        raise ask("Globus is not connected.")
    if row.is_refused:
        raise ask("Globus did not renew the access.")
    secrets = _secrets(row, ask)
    return secrets.access if _is_good(row, secrets, refused=refused) else _renewed(row, ask, refused=refused)


def _of_the_application(*, refused: str | None) -> str:
    row = GlobusToken.objects.filter(user__isnull=True, resource_server=COMPUTE_SERVER).first()
    if row is None:
        return service_token()
    try:
        secrets = _opened(row)
    except Unreadable:
        return service_token()
    return secrets.access if _is_good(row, secrets, refused=refused) else service_token()


def _opened(row: GlobusToken) -> Secrets:
    kept = json.loads(unseal(row.sealed))
    return Secrets(access=kept["access"], refresh=kept["refresh"])


def _secrets(row: GlobusToken, ask: SignIn) -> Secrets:
    try:
        return _opened(row)
    except Unreadable as error:
        log.warning("a stored access cannot be opened", user=row.user_id, reason=error.message)
        raise ask("The stored access cannot be opened any more.") from error


def _is_good(row: GlobusToken, secrets: Secrets, *, refused: str | None) -> bool:
    return secrets.access != refused and row.expires_at - _EARLY > timezone.now()


def _renewed(row: GlobusToken, ask: SignIn, *, refused: str | None) -> str:
    """Return a fresh token: made here, or by the process that is at it already."""
    give_up_at = time.monotonic() + _WAIT_S
    while True:
        with only_one(f"globus-token:{row.pk}") as mine:
            row.refresh_from_db()
            secrets = _secrets(row, ask)
            if _is_good(row, secrets, refused=refused):
                return secrets.access
            if mine:
                return _refresh(row, secrets, ask)
        if time.monotonic() > give_up_at:
            raise SiteUnreachable("Globus Auth did not renew the access in time.")
        time.sleep(0.1)


def _refresh(row: GlobusToken, secrets: Secrets, ask: SignIn) -> str:
    try:
        answer = auth_client().oauth2_refresh_token(secrets.refresh)
    except AuthAPIError as error:
        raise _why_not(error, row, ask) from None  # the cause's text could quote the request
    except GlobusError as error:
        raise SiteUnreachable("Globus Auth could not be reached.", kind=type(error).__name__) from None
    made = answer.by_resource_server[row.resource_server]
    keep(row.user_id, made, now=timezone.now(), earlier_refresh=secrets.refresh)
    return str(made["access_token"])


def _why_not(error: GlobusAPIError, row: GlobusToken, ask: SignIn) -> NotAuthorized | SiteUnreachable:
    is_ours = "client" in (error.code or "").lower()  # invalid_client, unauthorized_client
    if error.http_status in (400, 401, 403) and not is_ours:
        GlobusToken.objects.filter(pk=row.pk).update(is_refused=True)
        return ask("Globus did not renew the access: it was revoked or has expired.")
    if is_ours:
        log.error("Globus does not accept this installation's application; check FACET_GLOBUS_CLIENT_SECRET")
        return SiteUnreachable(
            "Globus does not accept Facet's own registration.",
            remediation="The operator checks FACET_GLOBUS_CLIENT_ID and FACET_GLOBUS_CLIENT_SECRET.",
        )
    return SiteUnreachable(f"Globus Auth answered {error.http_status}.", status=error.http_status)


def service_token() -> str:
    """Return a new token of the application itself, for endpoints that a lab gave to it.

    Raises:
        SiteUnreachable: Globus Auth gives none.
    """
    try:
        answer = auth_client().oauth2_client_credentials_tokens(requested_scopes=COMPUTE_SCOPE)
    except GlobusError as error:
        raise SiteUnreachable(
            "Globus Auth gives Facet's own application no access.", kind=type(error).__name__
        ) from None
    made = answer.by_resource_server[COMPUTE_SERVER]
    keep(None, made, now=timezone.now())
    return str(made["access_token"])


@transaction.atomic
def keep(
    user_id: int | None, made: dict[str, Any], *, now: datetime, earlier_refresh: str = ""
) -> GlobusToken:
    """Store one token set of one resource server, sealed."""
    secrets = {
        "access": made["access_token"],
        "refresh": made.get("refresh_token") or earlier_refresh,
    }
    owner = None if user_id is None else User.objects.get(pk=user_id)
    row, _ = GlobusToken.objects.update_or_create(
        user=owner,
        resource_server=made["resource_server"],
        defaults={
            "scope": made["scope"],
            "sealed": seal(json.dumps(secrets)),
            "expires_at": datetime.fromtimestamp(made["expires_at_seconds"], UTC),
            "is_refused": False,
            "updated_at": now,
        },
    )
    return row


def keep_grant(user_id: int, answer: OAuthTokenResponse, *, now: datetime) -> None:
    """Store every token set of a grant that can be renewed."""
    for made in answer.by_resource_server.values():
        if made.get("refresh_token"):
            keep(user_id, made, now=now)


def discard(answer: OAuthTokenResponse) -> None:
    """Revoke a grant that is not going to be kept; a failure leaves it to its expiry."""
    secrets = [
        str(made[kind])
        for made in answer.by_resource_server.values()
        for kind in ("refresh_token", "access_token")
        if made.get(kind)
    ]
    _revoke_all(secrets)


def revoke(user_id: int) -> bool:
    """Revoke and forget everything that a user delegated; return whether Globus took every revocation."""
    rows = list(GlobusToken.objects.filter(user_id=user_id))
    secrets: list[str] = []
    for row in rows:
        try:
            kept = _opened(row)
        except Unreadable:
            continue
        secrets += [kept.refresh, kept.access]
    GlobusToken.objects.filter(pk__in=[row.pk for row in rows]).delete()
    return _revoke_all([secret for secret in secrets if secret])


def _revoke_all(secrets: list[str]) -> bool:
    client, taken = auth_client(), True
    for secret in secrets:
        try:
            client.oauth2_revoke_token(secret)
        except GlobusError as error:
            log.warning("a token could not be revoked", kind=type(error).__name__)
            taken = False
    return taken
