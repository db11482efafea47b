"""What each kind of link may be told, checked before it is kept."""

import re
from collections.abc import Mapping
from typing import Annotated
from uuid import UUID

from pydantic import Field, model_validator

from federation.models import LinkKind
from providers.errors import InvalidInput
from providers.reading import read
from providers.types import Frozen

_SECRET = re.compile(r"(?i)(secret|token|passw|private|credential|api_?key)")
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,79}$")]


class Identity(Frozen):
    """A user of this host by numbers, for hosts whose user database does not list them."""

    name: str = Field(min_length=1, max_length=80)
    uid: int = Field(ge=1)
    gid: int = Field(ge=1)
    groups: tuple[int, ...] = ()
    home: str = Field("/", pattern=r"^/")


class LocalSettings(Frozen):
    """This host is the site: whom to act as, and variables for the site's commands."""

    run_as: str | None = Field(None, pattern=r"^[a-z_][a-z0-9_-]{0,31}$")
    become: Identity | None = None
    env: dict[Variable, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_identity_and_no_secret(self) -> "LocalSettings":
        if self.run_as and self.become:
            raise ValueError("give run_as or become, not both")
        for name in self.env:
            if _SECRET.search(name):
                raise ValueError(f"env.{name} looks like a secret; settings are shown to administrators")
        return self


class ComputeSettings(Frozen):
    """A Globus Compute endpoint."""

    endpoint_id: UUID


_KINDS: Mapping[str, type[Frozen]] = {
    LinkKind.LOCAL.value: LocalSettings,
    LinkKind.GLOBUS_COMPUTE.value: ComputeSettings,
}


def checked(kind: str, settings: object) -> dict[str, object]:
    """Return the settings of a link of this kind as they are kept: what was given, and nothing else.

    Raises:
        InvalidInput: `problems` names every key at fault.
    """
    model = _KINDS.get(kind)
    if model is None:
        raise InvalidInput(f"No link of kind {kind!r}. Known: {', '.join(_KINDS)}.")
    return read(model, settings, what="settings").model_dump(mode="json", exclude_unset=True)
