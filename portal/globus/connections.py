"""A user's connections through Globus: what their settings mean, and when they need a sign-in."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.utils import timezone
from pydantic import Field, ValidationError

from federation.ledger import Happening, record
from federation.models import Connection, LinkKind, System
from orchestrator import control, moving
from portal.models import GlobusIdentity
from providers.errors import InvalidInput, NotAuthorized
from providers.types import Frozen

_UUID = r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"
CONNECT_PATH = "/connections/globus/connect/"


class GlobusSettings(Frozen):
    """The settings of a connection of kind `globus_compute`."""

    endpoint: str = Field(pattern=_UUID, description="Id of the Compute endpoint.")
    user_endpoint_config: Mapping[str, Any] = Field(
        default_factory=dict, description="Values for a multi-user endpoint's template."
    )
    function_id: str | None = Field(
        None, pattern=_UUID, description="A function the site allows; None: registered as needed."
    )
    identity: Literal["user", "service"] = Field(
        "user", description="`service`: the application's own account, for endpoints a lab owns."
    )


def settings_of(connection: Connection) -> GlobusSettings:
    """Return a connection's settings.

    Raises:
        InvalidInput: they are not complete or hold something unknown.
    """
    try:
        return GlobusSettings.model_validate(connection.settings)
    except ValidationError as error:
        problems = tuple(
            ("/" + "/".join(str(part) for part in line["loc"]), line["type"], line["msg"])
            for line in error.errors(include_input=False, include_url=False)
        )
        raise InvalidInput(
            f"Connection {connection.handle} has settings that are not right: "
            f"{problems[0][0]} {problems[0][2]}.",
            problems=problems,
        ) from error


def is_service(connection: Connection) -> bool:
    """Say whether a connection uses the application's own account."""
    return bool(connection.settings.get("identity") == "service")


def needs_sign_in(
    connection: Connection, reason: str, *, parameters: Mapping[str, Any] | None = None
) -> NotAuthorized:
    """Mark what depends on this access and return the error that says so; the event comes once."""
    _mark(connection, reason, parameters or {}, now=timezone.now())
    return asked_to_sign_in(reason, connection=connection.handle)


@transaction.atomic
def _mark(connection: Connection, reason: str, parameters: Mapping[str, Any], *, now: datetime) -> None:
    active = Connection.objects.filter(
        user_id=connection.user_id, kind=LinkKind.GLOBUS_COMPUTE, state="active"
    )
    locked = active.select_related("system").select_for_update(of=("self",), no_key=True).order_by("pk")
    alone = is_service(connection)  # the application's access is another's on each endpoint
    rows = [row for row in locked if row.pk == connection.pk or not (alone or is_service(row))]
    if parameters:
        want(connection.user_id, parameters)
    if not rows:
        return
    Connection.objects.filter(pk__in=[row.pk for row in rows]).update(
        state="needs_sign_in", state_reason=reason[:300]
    )
    record([_event(rows, reason)], now=now)


@transaction.atomic
def want(user_id: int, parameters: Mapping[str, Any]) -> None:
    """Remember what the next sign-in has to bring; consents add up."""
    kept = GlobusIdentity.objects.select_for_update().filter(user_id=user_id).first()
    if kept is None:
        return
    consents = {*kept.wanted.get("required_scopes", []), *parameters.get("required_scopes", [])}
    kept.wanted = {**kept.wanted, **parameters} | ({"required_scopes": sorted(consents)} if consents else {})
    kept.save(update_fields=["wanted"])


def asked_to_sign_in(reason: str, **facts: object) -> NotAuthorized:
    """Return the error that sends a person to Globus."""
    return NotAuthorized(
        f"{reason} Sign in with Globus again to go on; running jobs are not affected.",
        remediation=f"Open {CONNECT_PATH}.",
        sign_in=CONNECT_PATH,
        **facts,
    )


def _event(rows: list[Connection], reason: str) -> Happening:
    systems = [row.system.slug for row in rows]
    return Happening(
        type="connection.needs_sign_in",
        subject=rows[0].handle,
        user_id=rows[0].user_id,
        system=systems[0] if len(systems) == 1 else "",
        state="needs_sign_in",
        summary=f"{', '.join(systems)}: {reason} Sign in with Globus again; running jobs are not affected.",
        data={"reason": reason, "systems": systems, "connections": [row.handle for row in rows]},
        next_actions=[{"action": "sign_in", "url": CONNECT_PATH}],
    )


@transaction.atomic
def resume(user: AbstractBaseUser, *, now: datetime) -> list[str]:
    """Put a user's connections to work again after a sign-in; return their systems."""
    rows = list(
        Connection.objects.filter(user_id=user.pk, kind=LinkKind.GLOBUS_COMPUTE, state="needs_sign_in")
        .select_related("system")
        .select_for_update(of=("self",), no_key=True)
    )
    Connection.objects.filter(pk__in=[row.pk for row in rows]).update(
        state="active", state_reason="", facts_at=None
    )
    GlobusIdentity.objects.filter(user_id=user.pk).update(wanted={})
    System.objects.filter(pk__in=[row.system_id for row in rows]).update(next_probe_at=now)
    control.look_again([row.pk for row in rows], now=now)
    moving.look_again(user.pk, now=now)
    return [row.system.slug for row in rows]
