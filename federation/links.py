"""From a connection to a link that is ready to run; each kind of link has one opener."""

from collections.abc import Callable

from federation.models import Connection, LinkKind
from providers.contracts import Link
from providers.errors import InvalidInput
from providers.links.local import Become, LocalLink

Opener = Callable[[Connection], Link]


def open_link(connection: Connection) -> Link:
    """Return the link of this connection; nothing is asked of the site yet.

    A local connection's settings: `run_as` (a user of this host) or `become` ({name, uid, gid, groups,
    home}), and `env` (variables for the site's commands). Administrators alone can set them.

    Raises:
        NotAuthorized: this host cannot act as that user.
        InvalidInput: no such kind of link in this installation, or its settings are not right.
    """
    opener = _openers.get(connection.kind)
    if opener is None:
        raise InvalidInput(
            f"This installation has no link of kind {connection.kind!r}.", kind=connection.kind
        )
    return opener(connection)


def offer_link(kind: LinkKind, opener: Opener) -> None:
    """Install how a kind of link is opened: what holds delegated access lives in a layer above."""
    _openers[kind.value] = opener


def _open_local(connection: Connection) -> Link:
    settings = connection.settings
    become = None
    if settings.get("become"):
        become = Become.model_validate(settings["become"])
    elif settings.get("run_as"):
        become = Become.named(settings["run_as"])
    return LocalLink(become=become, env=settings.get("env"))


_openers: dict[str, Opener] = {LinkKind.LOCAL.value: _open_local}
