"""A stand-in of Globus for each test, and the small things that talk to it."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import requests
from django.contrib.auth.models import User
from pydantic import SecretStr

from portal.globus import links
from providers.errors import NotAuthorized
from providers.links.globus_board import Board, OwnBoard
from providers.links.globus_compute import GlobusComputeLink, Rhythm
from providers.links.globus_pace import Limit, LocalPace
from providers.sandbox.globus.server import StandIn, serving
from providers.sandbox.globus.spec import (
    COMPUTE_SCOPE,
    COMPUTE_SERVER,
    Application,
    Endpoint,
    Person,
    identity,
)
from providers.types import Batch, Exec
from tests.state.conftest import _by_hand, sites, until  # noqa: F401  # fixtures of jobs

CLIENT = "6d0f3a3c-53f4-4a0c-9c39-0c6a4f8d3d11"
CLIENT_SECRET = "planted-application-secret"
DELTA = "11111111-1111-4111-8111-111111111111"
VISTA = "22222222-2222-4222-8222-222222222222"
ALICE, BOB = identity("alice@example.org"), identity("bob@example.org")
CALLBACK = "http://127.0.0.1:8000/connections/globus/callback/"
PEOPLE = (
    Person(sub=ALICE, username="alice@example.org", name="Alice", email="alice@example.org"),
    Person(sub=BOB, username="bob@example.org", name="Bob"),
)


@pytest.fixture
def globus(tmp_path: Path) -> Iterator[StandIn]:
    """The stand-in with one application, two people and two endpoints that both may use."""
    users: Mapping[str, Mapping[str, str]] = {ALICE: {}, BOB: {}}
    with serving(tmp_path / "globus.db") as server:
        server.state.know(
            applications=[
                Application(id=CLIENT, secret=CLIENT_SECRET, name="Facet", redirect_uris=(CALLBACK,))
            ],
            people=PEOPLE,
            endpoints=[
                Endpoint(id=key, name=name, users=users) for key, name in ((DELTA, "delta"), (VISTA, "vista"))
            ],
        )
        yield server


@pytest.fixture
def set_up(globus: StandIn, settings: Any) -> StandIn:
    """The stand-in, and this installation registered with it."""
    settings.GLOBUS_CLIENT_ID = CLIENT
    settings.GLOBUS_CLIENT_SECRET = SecretStr(CLIENT_SECRET)
    settings.GLOBUS_AUTH_URL = settings.GLOBUS_COMPUTE_URL = settings.GLOBUS_TRANSFER_URL = globus.url
    settings.GLOBUS_REQUESTS_PER_10S = 1000
    settings.GLOBUS_FIRST_POLL_MS = 20
    settings.PUBLIC_URL = "http://127.0.0.1:8000"
    links._redis().delete(*(links._redis().keys("facet:globus:*") or ["none"]))
    return globus


@pytest.fixture
def alice(db: None) -> User:
    return User.objects.create_user("alice", password="a-long-password")


@dataclass
class Access:
    """Access as a link needs it, kept in memory."""

    server: StandIn
    sub: str = ALICE
    owner: str = "alice"
    functions: dict[str, str] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    asked: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    current: str = ""

    def token(self, *, refused: str | None = None) -> str:
        if refused is not None:
            self.refused.append(refused)
        if refused is not None or not self.current:
            self.current = self.server.state.mint(
                "access", sub=self.sub, client=CLIENT, scope=COMPUTE_SCOPE, server=COMPUTE_SERVER, ttl_s=600
            )
        return self.current

    def sign_in_needed(self, reason: str, parameters: Mapping[str, Any]) -> NotAuthorized:
        self.asked.append((reason, parameters))
        return NotAuthorized(reason)

    def function_id(self, digest: str) -> str | None:
        return self.functions.get(digest)

    def remember_function(self, digest: str, function_id: str | None) -> None:
        if function_id is None:
            self.functions.pop(digest, None)
        else:
            self.functions[digest] = function_id


def link_to(
    access: Access, endpoint: str = DELTA, *, board: Board | None = None, limit: int = 1000, **more: Any
) -> GlobusComputeLink:
    """Return a quick link."""
    return GlobusComputeLink(
        endpoint=endpoint,
        access=access,
        base_url=access.server.url,
        rhythm=Rhythm(first_s=0.02, longest_s=0.2),
        pace=LocalPace(Limit(limit)),
        board=board or OwnBoard(),
        **more,
    )


def echo(*words: str, deadline_s: float = 10, **more: Any) -> Batch:
    """Return a batch that prints words."""
    return Batch(operations=(Exec(name="echo", argv=("echo", *words), **more),), deadline_s=deadline_s)


def consent(
    authorize_url: str, sub: str, *, decision: str = "allow", leave_out: tuple[str, ...] = ()
) -> dict[str, str]:
    """Do what a person does on the consent page; return the query that the browser is sent back with."""
    shown = requests.get(authorize_url, timeout=5)
    shown.raise_for_status()
    fields = dict(re.findall(r'name="(request)" value="([^"]*)"', shown.text))
    scopes = [
        scope for scope in re.findall(r'name="scope" value="([^"]*)"', shown.text) if scope not in leave_out
    ]
    unescaped = fields["request"].replace("&quot;", '"').replace("&#x27;", "'").replace("&amp;", "&")
    base = "{0.scheme}://{0.netloc}".format(urlsplit(authorize_url))
    answer = requests.post(
        f"{base}/v2/oauth2/consent",
        data={"request": unescaped, "scope": scopes, "identity": sub, "decision": decision},
        allow_redirects=False,
        timeout=5,
    )
    assert answer.status_code == 302
    location = urlsplit(answer.headers["Location"])
    assert location.geturl().startswith(CALLBACK)
    return {name: values[0] for name, values in parse_qs(location.query).items()}
