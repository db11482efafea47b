"""Site managers: members of staff who look after some systems in the admin, and see no others there.

Both are needed: membership of the group narrows what a member of staff may see, and appointments say to what.
So somebody whose last appointment ends sees nothing, and not everything.
"""

from dataclasses import dataclass
from datetime import datetime

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, Group, User
from django.db import transaction

from federation.ledger import Happening, record
from federation.models import SiteManager, System

GROUP = "Site managers"


@dataclass(frozen=True, slots=True)
class Managed:
    """The systems that one site manager looks after."""

    ids: frozenset[int]
    slugs: frozenset[str]


def is_site_manager(user: AbstractBaseUser | AnonymousUser) -> bool:
    """Say whether this person is narrowed to appointed systems; a superuser never is."""
    if not isinstance(user, User) or user.is_superuser:
        return False
    return user.groups.filter(name=GROUP).exists()


def is_administrator(user: AbstractBaseUser | AnonymousUser) -> bool:
    """Say whether this person may decide for everybody: staff, and not narrowed to some systems."""
    return bool(getattr(user, "is_staff", False)) and not is_site_manager(user)


def managed_by(user: AbstractBaseUser | AnonymousUser) -> Managed | None:
    """Return the systems a site manager looks after; None for everybody else."""
    if not isinstance(user, User) or not is_site_manager(user):
        return None
    rows = SiteManager.objects.filter(user=user).values_list("system_id", "system__slug")
    found = dict(rows)
    return Managed(ids=frozenset(found), slugs=frozenset(found.values()))


@transaction.atomic
def appoint(system: System, user: User, *, now: datetime, actor: str) -> bool:
    """Make somebody a manager of a system, and a member of staff; return whether they were none before."""
    _, is_new = SiteManager.objects.get_or_create(
        system=system, user=user, defaults={"appointed_by": actor, "since": now}
    )
    if not is_new:
        return False
    group, _ = Group.objects.get_or_create(name=GROUP)
    user.groups.add(group)
    User.objects.filter(pk=user.pk, is_staff=False).update(is_staff=True)
    record([_happening("manager.appointed", system, user, actor=actor)], now=now)
    return True


@transaction.atomic
def dismiss(system: System, user: User, *, now: datetime, actor: str) -> bool:
    """End an appointment; return whether there was one. They stay in the group, so nothing widens."""
    gone, _ = SiteManager.objects.filter(system=system, user=user).delete()
    if not gone:
        return False
    record([_happening("manager.dismissed", system, user, actor=actor)], now=now)
    return True


def _happening(type_: str, system: System, user: User, *, actor: str) -> Happening:
    who = user.get_username()
    said = "looks after" if type_ == "manager.appointed" else "no longer looks after"
    return Happening(
        type=type_,
        subject=system.slug,
        system=system.slug,
        actor=actor,
        summary=f"{who} {said} {system.name}",
        data={"manager": who},
    )
