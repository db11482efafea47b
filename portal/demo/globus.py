"""The demo's systems that are reached through Globus: endpoints, identities, and consents given beforehand.

See `globus_serve` for the program that serves the stand-in.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import requests
from django.conf import settings
from django.contrib.auth.models import User

from federation.models import System
from portal.demo import globus_place, storage
from portal.globus import flow
from portal.globus.application import COMPUTE_SERVER, redirect_uri
from portal.globus.connections import GlobusSettings
from portal.globus.endpoints import connect_endpoint
from portal.models import GlobusToken
from providers.sandbox.globus.server import StandIn, serving
from providers.sandbox.globus.spec import Application, Collection, Endpoint, Person, identity

ENDPOINTS = {
    "deltaai": "0d7a15c4-6a58-4f0c-9d1e-5b1f0a0c0a11",
    "vista": "3b9f1c2e-1c0d-4b5e-8a44-9e0d6f0b7c22",
}
"""The systems that the demo reaches through Globus, and their endpoints."""
_ANSWER_S = 10


@contextmanager
def standing_in(data_dir: Path) -> Iterator[StandIn | None]:
    """Serve the stand-in while the demo is being made; None where this demo does not use it."""
    if not is_used(data_dir):
        yield None
        return
    place = globus_place.read(data_dir)
    with serving(globus_place.state_file(data_dir), place.port) as server:
        server.state.know(
            applications=[
                Application(
                    id=place.client_id,
                    secret=globus_place.application_secret(data_dir),
                    name="Facet (demo)",
                    redirect_uris=(redirect_uri(),),
                )
            ]
        )
        yield server


def is_used(data_dir: Path) -> bool:
    """Say whether Facet was told to take this data directory's stand-in for Globus."""
    try:
        return bool(globus_place.read(data_dir).client_id == settings.GLOBUS_CLIENT_ID)
    except FileNotFoundError:
        return False


def let_in(server: StandIn, user: User, system: System, variables: dict[str, str], *, now: datetime) -> None:
    """Map a person at a system's endpoint and connect them through it.

    Args:
        server: the stand-in.
        user: the person; their identity is USER@facet.example.
        system: one of `ENDPOINTS`.
        variables: the environment of that person at the site.
        now: aware UTC.
    """
    person = person_of(user)
    endpoint_id = ENDPOINTS[system.slug]
    known = server.state.endpoint(endpoint_id)
    users = {**(known.users if known else {}), person.sub: variables}
    endpoint = Endpoint(id=endpoint_id, name=f"{system.slug}-login", users=users)
    server.state.know(people=[person], endpoints=[endpoint])
    given = GlobusSettings(endpoint=endpoint_id)
    connect_endpoint(user, system, given, now=now, remote_user=user.username)
    good = GlobusToken.objects.filter(user=user, resource_server=COMPUTE_SERVER, is_refused=False)
    if not good.exists():
        _consent(user, person, now=now)


def open_collection(server: StandIn, user: User, system: System, home: Path) -> None:
    """Let a person see their home folder at a system as the root of its collection."""
    key = storage.COLLECTIONS[system.slug]
    known = server.state.get("collection", key) or {"homes": {}}
    homes = {**known["homes"], person_of(user).sub: str(home)}
    name = f"{system.slug} home"
    collection = Collection(id=key, name=name, root=str(home.parent), homes=homes, identities=tuple(homes))
    server.state.know(collections=[collection])


def person_of(user: User) -> Person:
    """Return the identity that stands for a person of the demo."""
    username = f"{user.username}@facet.example"
    return Person(sub=identity(username), username=username, name=user.username.title())


def _consent(user: User, person: Person, *, now: datetime) -> None:
    """Do what the person would do in a browser: out to the consent page, allow everything, and back."""
    session: dict[str, Any] = {}
    out = flow.start(session, "connect", user=user, next_url="", now=now)
    page = requests.get(out, timeout=_ANSWER_S)
    page.raise_for_status()
    asked = [unescape(text) for text in re.findall(r'name="request" value="([^"]*)"', page.text)]
    scopes = [unescape(text) for text in re.findall(r'name="scope" value="([^"]*)"', page.text)]
    parts = urlsplit(out)
    back = requests.post(
        f"{parts.scheme}://{parts.netloc}/v2/oauth2/consent",
        data={"request": asked[0], "scope": scopes, "identity": person.sub, "decision": "allow"},
        allow_redirects=False,
        timeout=_ANSWER_S,
    )
    back.raise_for_status()
    query = dict(parse_qsl(urlsplit(back.headers["Location"]).query))
    flow.finish(session, query, user=user, now=now)
