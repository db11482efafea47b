"""From a user to a mover that acts with what they delegated."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from portal.globus.application import TRANSFER_SERVER, NotSetUp, is_set_up, transfer_url
from portal.globus.connections import asked_to_sign_in, want
from portal.globus.tokens import transfer_token
from portal.models import GlobusToken
from providers.errors import NotAuthorized
from providers.movers.globus_transfer import GlobusTransferMover


@dataclass(frozen=True, slots=True)
class DelegatedTransfer:
    """What one user delegated, as a mover needs it."""

    user_id: int

    def token(self, *, refused: str | None = None) -> str:
        """Return a good access token."""
        return transfer_token(self.user_id, refused=refused)

    def is_there(self) -> bool:
        """Return whether there is access that nobody has refused yet."""
        kept = GlobusToken.objects.filter(user_id=self.user_id, resource_server=TRANSFER_SERVER)
        return kept.filter(is_refused=False).exists()

    def sign_in_needed(self, reason: str, parameters: Mapping[str, Any]) -> NotAuthorized:
        """Have the next sign-in ask for what is missing; a missing consent stops no connection."""
        if parameters:
            want(self.user_id, parameters)
        return asked_to_sign_in(reason, **({"required": dict(parameters)} if parameters else {}))


def open_mover(user_id: int) -> GlobusTransferMover:
    """Return the mover of a user; no token is looked at before it is used.

    Raises:
        NotSetUp: this installation has no Globus application.
    """
    if not is_set_up():
        raise NotSetUp(
            "Globus is not set up in this installation, so nothing moves between collections.",
            remediation="The operator registers an application and sets FACET_GLOBUS_CLIENT_ID and _SECRET.",
        )
    return GlobusTransferMover(DelegatedTransfer(user_id), base_url=transfer_url())
