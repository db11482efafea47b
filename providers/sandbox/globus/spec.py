"""Who and what the stand-in knows: applications, people, endpoints; and the faults it can be told to have."""

import uuid
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from pydantic import Field

from providers.types import Frozen

COMPUTE_SCOPE = "https://auth.globus.org/scopes/facd7ccc-c5f4-42aa-916b-a0e270e2c2a9/all"
COMPUTE_SERVER = "funcx_service"
TRANSFER_SCOPE = "urn:globus:auth:scope:transfer.api.globus.org:all"
TRANSFER_SERVER = "transfer.api.globus.org"
AUTH_SERVER = "auth.globus.org"


class Application(Frozen):
    """A registered confidential application."""

    id: str
    secret: str
    name: str
    redirect_uris: tuple[str, ...]


class Person(Frozen):
    """One Globus identity."""

    sub: str
    username: str
    name: str
    email: str = ""


class EndpointState(StrEnum):
    """How an endpoint is."""

    ONLINE = "online"
    OFFLINE = "offline"
    ASLEEP = "asleep"
    """It takes tasks and runs them only when it wakes."""


class Endpoint(Frozen):
    """One Compute endpoint, and whom it maps to whom."""

    id: str
    name: str
    env: Mapping[str, str] = Field(default_factory=dict)
    """Variables of every worker there."""
    users: Mapping[str, Mapping[str, str]] = Field(default_factory=dict)
    """Identity → further variables of that user's workers; who is not listed is not let in."""
    ids: Mapping[str, tuple[int, int]] = Field(default_factory=dict)
    """Identity → (uid, gid) of the local user; who is not listed runs as the stand-in itself."""
    state: EndpointState = EndpointState.ONLINE
    allowed_functions: tuple[str, ...] = ()
    """Empty = any."""
    user_config_schema: Mapping[str, Any] | None = None
    workers: int = 2
    """Processes per user and configuration."""


class Collection(Frozen):
    """One Transfer collection: a directory of this machine."""

    id: str
    name: str
    root: str
    needs_consent: bool = False
    """Whether it asks for a `data_access` consent of its own."""
    identities: tuple[str, ...] = ()
    """Who may use it; empty = everybody."""
    homes: Mapping[str, str] = Field(default_factory=dict)
    """Identity → the directory that this person sees instead, as where each is another local user."""

    def root_for(self, sub: str) -> str:
        """Return the directory that a person sees as the collection's root."""
        return self.homes.get(sub, self.root)


class MoveFault(StrEnum):
    """What may happen to the next file that is moved."""

    CORRUPT = "corrupt"
    DENIED = "denied"
    QUOTA = "quota"


class Fault(Frozen):
    """Something that goes wrong for the next `times` requests whose path begins with `path`."""

    path: str
    times: int = 1
    status: int | None = None
    """Answer with this instead; None = only the delay or the cut."""
    body: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = Field(default_factory=dict)
    delay_s: float = 0.0
    is_cut: bool = False
    """Close the connection without an answer."""
    after: bool = False
    """The request takes effect first: the caller is left in doubt."""


class ResultFault(StrEnum):
    """What may happen to the next result."""

    LOST = "lost"
    """The task never ends."""
    PICKLE = "pickle"
    """It comes back as a pickle that would run a program where it is opened."""
    KILLED = "killed"
    """The worker dies while it runs the task."""
    TOO_LARGE = "too_large"


def identity(username: str) -> str:
    """Return the stable identity of a user name in this stand-in."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"globus-stand-in/{username}"))
