"""From a connection to a link that is ready to run."""

from federation.models import Connection, LinkKind
from providers.contracts import Link
from providers.errors import InvalidInput
from providers.links.local import Become, LocalLink


def open_link(connection: Connection) -> Link:
    """Return the link of this connection.

    A local connection's settings: `run_as` (a user of this host) or `become` ({name, uid, gid, groups,
    home}), and `env` (variables for the site's commands). Administrators alone can set them.

    Raises:
        NotAuthorized: this host cannot act as that user.
        InvalidInput: no such kind of link in this installation.
    """
    if connection.kind == LinkKind.LOCAL:
        settings = connection.settings
        become = None
        if settings.get("become"):
            become = Become.model_validate(settings["become"])
        elif settings.get("run_as"):
            become = Become.named(settings["run_as"])
        return LocalLink(become=become, env=settings.get("env"))
    raise InvalidInput(f"This installation has no link of kind {connection.kind!r}.", kind=connection.kind)
