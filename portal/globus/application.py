"""Facet as Globus knows it: the registered application, what it asks for, and where the services are."""

from django.conf import settings
from globus_sdk import ConfidentialAppAuthClient
from globus_sdk.transport import RequestsTransport, RetryConfig

from providers.errors import Conflict

OPENID = ("openid", "profile", "email")
COMPUTE_SCOPE = "https://auth.globus.org/scopes/facd7ccc-c5f4-42aa-916b-a0e270e2c2a9/all"
COMPUTE_SERVER = "funcx_service"
"""The resource server of COMPUTE_SCOPE, as token answers spell it."""
TRANSFER_SCOPE = "urn:globus:auth:scope:transfer.api.globus.org:all"
TRANSFER_SERVER = "transfer.api.globus.org"
CONNECT = (*OPENID, COMPUTE_SCOPE, TRANSFER_SCOPE)
"""What a connection is asked for, all of it or nothing."""
_ANSWER_S = 10.0


class NotSetUp(Conflict):
    """This installation has no Globus application."""

    code = "globus_not_set_up"


def is_set_up() -> bool:
    """Say whether an operator has given this installation its Globus application."""
    return bool(settings.GLOBUS_CLIENT_ID and settings.GLOBUS_CLIENT_SECRET)


def auth_client() -> ConfidentialAppAuthClient:
    """Return a client of Globus Auth that speaks for Facet, with a bounded wait and no retries of its own.

    Raises:
        NotSetUp: no application is registered.
    """
    secret = settings.GLOBUS_CLIENT_SECRET
    if not settings.GLOBUS_CLIENT_ID or secret is None:
        raise NotSetUp(
            "Globus is not set up in this installation.",
            remediation="The operator registers an application and sets FACET_GLOBUS_CLIENT_ID and _SECRET.",
        )
    return ConfidentialAppAuthClient(
        settings.GLOBUS_CLIENT_ID,
        secret.get_secret_value(),
        base_url=settings.GLOBUS_AUTH_URL or None,
        transport=RequestsTransport(http_timeout=_ANSWER_S),
        retry_config=RetryConfig(max_retries=0),
    )


def redirect_uri() -> str:
    """Return where Globus sends people back to; it must be registered with the application."""
    return f"{settings.PUBLIC_URL}/connections/globus/callback/"


def transfer_url() -> str | None:
    """Return where Globus Transfer is; None = the hosted service."""
    return settings.GLOBUS_TRANSFER_URL or None


def compute_url() -> str | None:
    """Return where Globus Compute is; None = the hosted service."""
    return settings.GLOBUS_COMPUTE_URL or None
