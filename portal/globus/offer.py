"""Imported once at start: from then on a connection of kind `globus_compute` can be opened.

The SDK is loaded at the first such connection, not before: a process that meets none does not pay for it.
"""

from importlib import import_module

from federation.links import offer_link
from federation.models import Connection, LinkKind
from providers.contracts import Link


def _open(connection: Connection) -> Link:
    link: Link = import_module("portal.globus.links").open_globus_link(connection)
    return link


offer_link(LinkKind.GLOBUS_COMPUTE, _open)
