"""Making the demo federation: emulated clusters, this machine, two researchers, an admin, credits."""

import secrets
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path

from django.contrib.auth.models import User

from federation import collector
from federation.models import Connection, System
from federation.profile_yaml import read_profile
from federation.services import allocate, connect, store_profile
from portal.demo import globus as by_globus
from portal.demo import storage, this_machine
from portal.demo_file import DemoUser
from portal.skills.registry import Scope
from portal.tokens import issue_token
from providers.sandbox.globus.server import StandIn
from providers.sandbox.slurm.setup import ANVIL, DELTA, DELTAAI, VISTA, ClusterSpec, create, env

PROFILES = Path(__file__).parent / "profiles"
CLUSTERS: dict[str, tuple[ClusterSpec, int]] = {
    "delta": (DELTA, 11),
    "deltaai": (DELTAAI, 12),
    "anvil": (ANVIL, 13),
    "vista": (VISTA, 14),
}
"""Specification and seed of each emulated cluster, by system."""


@dataclass(frozen=True, slots=True)
class Person:
    """One person of the demo and what they may spend: account, unit and amount by system."""

    username: str
    scopes: tuple[str, ...]
    credits: dict[str, tuple[tuple[str, str, int], ...]]
    is_admin: bool = False


PEOPLE = (
    Person(
        "alice",
        ("read", "draft", "submit", "manage"),
        {
            "delta": (("bbka-delta-gpu", "SU", 2000), ("bbka-delta-cpu", "SU", 50000)),
            "deltaai": (("bbka-dtai-gh", "SU", 1500),),
            "anvil": (
                ("cis220051", "SU", 100000),
                ("cis220051-gpu", "GPU SU", 1200),
                ("cis220051-ai", "AI SU", 400),
            ),
            "vista": (("ASC24001", "SU", 800),),
        },
    ),
    Person(
        "bob",
        ("read", "draft", "submit", "manage"),
        {
            "delta": (("bbka-delta-gpu", "SU", 500),),
            "deltaai": (("bbka-dtai-gh", "SU", 300),),
            "vista": (("ASC24001", "SU", 200),),
        },
    ),
    Person("admin", ("read", "draft", "submit", "manage", "admin"), {}, is_admin=True),
)


def directory_of(data_dir: Path, slug: str) -> Path:
    """Return where an emulated cluster lives."""
    return data_dir / "sandbox" / slug


def make_systems(data_dir: Path, *, now: datetime) -> None:
    """Make the emulated clusters that are not there yet; put their profiles and this machine's in force."""
    for slug, (spec, seed) in CLUSTERS.items():
        create(directory_of(data_dir, slug), spec, seed=seed)
        lines = storage.profile_lines(
            directory_of(data_dir, slug), slug, with_collection=by_globus.is_used(data_dir)
        )
        _put_in_force(slug, f"{(PROFILES / f'{slug}.yaml').read_text()}{lines}", now=now)
    own = this_machine.profile_text()
    if own is not None:
        _put_in_force(this_machine.SLUG, own, now=now)


def _put_in_force(slug: str, text: str, *, now: datetime) -> None:
    if System.objects.filter(slug=slug, profile__isnull=False).exists():
        return  # an administrator may have edited it since
    store_profile(read_profile(text, source=f"{slug}.yaml"), text, now=now, note="demo")


def make_person(
    person: Person,
    data_dir: Path,
    *,
    known: DemoUser | None,
    now: datetime,
    globus: StandIn | None = None,
) -> DemoUser:
    """Make a person with connections and credits; an earlier run's password and token stay valid.

    With a stand-in of Globus some systems are reached through it, as the person's own identity.
    """
    user, fresh = User.objects.get_or_create(
        username=person.username,
        defaults={"is_staff": person.is_admin, "is_superuser": person.is_admin},
    )
    if fresh or known is None:
        password = secrets.token_urlsafe(12)
        user.set_password(password)
        user.save()
        scopes = [Scope(word) for word in person.scopes]
        _, token = issue_token(user, name="demo", scopes=scopes, now=now)
        known = DemoUser(username=person.username, password=password, token=token)
    for slug, accounts in person.credits.items():
        system = System.objects.get(slug=slug)
        place = directory_of(data_dir, slug)
        home = place / "home" / person.username
        home.mkdir(parents=True, exist_ok=True)
        variables = env(place, user=person.username) | {"USER": person.username, "HOME": str(home)}
        if globus is not None and slug in by_globus.ENDPOINTS:
            by_globus.let_in(globus, user, system, variables, now=now)
            by_globus.open_collection(globus, user, system, home)
        else:
            settings = {"env": variables}
            connect(user, system, kind="local", settings=settings, now=now, remote_user=person.username)
        for account, unit, granted in accounts:
            allocate(user, system, account, unit=unit, granted=Decimal(granted), now=now)
    if person.credits:
        storage.make_folder(data_dir, person.username)
        _let_in_here(user, data_dir, now=now)
    return known


def _let_in_here(user: User, data_dir: Path, *, now: datetime) -> None:
    """Give a researcher this machine; nothing is charged for it."""
    system = System.objects.filter(slug=this_machine.SLUG).first()
    if system is not None:
        settings = this_machine.way_in(data_dir, user.username)
        connect(user, system, kind="local", settings=settings, now=now, remote_user=user.username)


def first_look(*, now: datetime) -> None:
    """Probe every system once and learn what each person may use, so that the first page shows it all."""
    for system in System.objects.filter(is_enabled=True, profile__isnull=False):
        collector.refresh(system.pk, now=now, force_full=system.last_full_probe_at is None)
    for connection in Connection.objects.filter(state="active", facts_at__isnull=True):
        collector.refresh_access(connection.pk, now=now)
