"""Imported once at start: from then on Globus endpoints can be reached, and data moved between collections.

The SDK is loaded at the first such connection, not before: a process that meets none does not pay for it.
"""

from importlib import import_module

from django.contrib.auth.models import AbstractBaseUser

from federation.links import offer_link
from federation.models import Connection, LinkKind
from federation.movers import offer_mover
from providers.contracts import Link
from providers.movers.places import GLOBUS
from providers.movers.types import Mover


def _open(connection: Connection) -> Link:
    link: Link = import_module("portal.globus.links").open_globus_link(connection)
    return link


offer_link(LinkKind.GLOBUS_COMPUTE, _open)


def _move(user: AbstractBaseUser) -> Mover:
    mover: Mover = import_module("portal.globus.movers").open_mover(user.pk)
    return mover


offer_mover(GLOBUS, _move)
