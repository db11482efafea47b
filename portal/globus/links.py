"""From a connection of kind `globus_compute` to a link that acts as its user."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from django.conf import settings
from redis import Redis

from federation.models import Connection
from portal.globus.application import compute_url
from portal.globus.connections import is_service, needs_sign_in, settings_of
from portal.globus.tokens import access_token
from portal.models import GlobusFunction
from providers.errors import NotAuthorized
from providers.links.globus_board import SharedBoard
from providers.links.globus_compute import GlobusComputeLink, Rhythm
from providers.links.globus_pace import Limit, SharedPace


@cache
def _redis() -> Redis:
    return Redis.from_url(settings.REDIS_URL, socket_timeout=0.5, socket_connect_timeout=0.5)


@cache
def _pace(requests_per_10s: int) -> SharedPace:
    return SharedPace(_redis, Limit(requests_per_10s))


@dataclass(frozen=True, slots=True)
class DelegatedAccess:
    """What one user delegated, as a link needs it."""

    connection: Connection
    function: str | None
    """The function that the site allows; None = our own registration."""
    owner: str = field(init=False)

    def __post_init__(self) -> None:
        name = "service" if is_service(self.connection) else f"user:{self.connection.user_id}"
        object.__setattr__(self, "owner", name)

    def token(self, *, refused: str | None = None) -> str:
        """Return a good access token."""
        return access_token(self.connection, refused=refused)

    def sign_in_needed(self, reason: str, parameters: Mapping[str, Any]) -> NotAuthorized:
        """Mark the user's connections and return the error that says so."""
        return needs_sign_in(self.connection, reason, parameters=parameters)

    def function_id(self, digest: str) -> str | None:
        """Return the id under which this source is registered for this user."""
        if self.function is not None:
            return self.function
        found = GlobusFunction.objects.filter(owner=self.owner, digest=digest)
        return found.values_list("function_id", flat=True).first()

    def remember_function(self, digest: str, function_id: str | None) -> None:
        """Keep or forget the id of a registered source."""
        if function_id is None:
            GlobusFunction.objects.filter(owner=self.owner, digest=digest).delete()
            return
        GlobusFunction.objects.update_or_create(
            owner=self.owner, digest=digest, defaults={"function_id": function_id}
        )


def open_globus_link(connection: Connection) -> GlobusComputeLink:
    """Return the link of a connection; no token is looked at before the link is used.

    Raises:
        InvalidInput: the connection's settings are not right.
    """
    given = settings_of(connection)
    return GlobusComputeLink(
        endpoint=given.endpoint,
        access=DelegatedAccess(connection, given.function_id),
        base_url=compute_url(),
        user_endpoint_config=given.user_endpoint_config or None,
        pace=_pace(settings.GLOBUS_REQUESTS_PER_10S),
        board=SharedBoard(_redis),
        rhythm=Rhythm(first_s=settings.GLOBUS_FIRST_POLL_MS / 1000),
    )
