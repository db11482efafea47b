"""From a user and a kind of place to a mover that acts as that user; each kind has one opener."""

import re
from collections.abc import Callable
from pathlib import Path

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser

from federation.models import Connection, LinkKind
from providers.errors import Conflict, InvalidInput, NotAuthorized
from providers.links.local import Become
from providers.movers.local_copy import LocalMover
from providers.movers.places import FILE
from providers.movers.types import Mover

Opener = Callable[[AbstractBaseUser], Mover]
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@+-]*")


def open_mover(scheme: str, user: AbstractBaseUser) -> Mover:
    """Return the mover between two places of this scheme, as this user; nothing is asked of anybody yet.

    Raises:
        InvalidInput: this installation has no mover of that kind.
        NotAuthorized: no folder of this machine is open to the user.
    """
    opener = _openers.get(scheme)
    if opener is None:
        raise InvalidInput(f"This installation cannot move data between {scheme}:// places.", scheme=scheme)
    return opener(user)


def offer_mover(scheme: str, opener: Opener) -> None:
    """Install how a mover is opened: what holds delegated access lives in a layer above."""
    _openers[scheme] = opener


def moves_folder() -> Path:
    """Return where the local mover keeps its moves."""
    return Path(settings.DATA_DIR) / "moves"


def local_roots(username: str) -> tuple[Path, ...]:
    """Return the folders of this machine that a user may move files in; empty = none."""
    if not _NAME.fullmatch(username):  # a name with a slash must not lead out of a folder per user
        return ()
    return tuple(Path(root.replace("{user}", username)) for root in settings.LOCAL_ROOTS)


def _open_local(user: AbstractBaseUser) -> Mover:
    roots = local_roots(user.get_username())
    if not roots:
        raise NotAuthorized(
            "No folder of this machine is open to you for moving files.",
            remediation="The operator names folders in FACET_LOCAL_ROOTS; {user} stands for your name.",
        )
    return LocalMover(roots=roots, folder=moves_folder(), become=_acts_as(user))


def _acts_as(user: AbstractBaseUser) -> Become | None:
    """Return the user of this host that a person's own ways in act as; None = as Facet itself.

    Raises:
        Conflict: their ways in act as different users, so nobody knows whose files are meant.
    """
    rows = Connection.objects.filter(user_id=user.pk, kind=LinkKind.LOCAL, state="active")
    found: dict[int, Become] = {}
    for row in rows:
        if row.settings.get("become"):
            become = Become.model_validate(row.settings["become"])
        elif row.settings.get("run_as"):
            become = Become.named(row.settings["run_as"])
        else:
            continue
        found[become.uid] = become
    if len(found) > 1:
        names = ", ".join(sorted(become.name for become in found.values()))
        raise Conflict(f"Your connections act as different users of this machine ({names}).")
    return next(iter(found.values()), None)


_openers: dict[str, Opener] = {FILE: _open_local}
