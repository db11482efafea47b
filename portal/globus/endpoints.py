"""Giving a user a way in through a Compute endpoint, checked against what the endpoint says of itself."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import jsonschema
from django.contrib.auth.models import AbstractBaseUser

from federation.models import Connection, LinkKind, System
from federation.services import connect
from portal.globus.connections import GlobusSettings, settings_of
from providers.errors import InvalidInput


def connect_endpoint(
    user: AbstractBaseUser, system: System, given: GlobusSettings, *, now: datetime, remote_user: str = ""
) -> Connection:
    """Let a user reach a system through an endpoint; what they delegate is asked of them separately."""
    settings = given.model_dump(mode="json", exclude_defaults=True)
    return connect(
        user, system, kind=LinkKind.GLOBUS_COMPUTE, settings=settings, now=now, remote_user=remote_user
    )


def check_endpoint(connection: Connection) -> Mapping[str, Any]:
    """Ask the service for the endpoint and hold the connection's settings against its schema.

    Raises:
        InvalidInput: `user_endpoint_config` does not fit the endpoint's `user_config_schema`.
        SiteUnreachable, NotAuthorized: the endpoint is gone or not this user's, or a sign-in is needed.
    """
    from portal.globus.links import open_globus_link  # noqa: PLC0415  # loads the SDK

    said = open_globus_link(connection).describe()
    check_config(settings_of(connection).user_endpoint_config, said.get("user_config_schema"))
    return said


def check_config(config: Mapping[str, Any], schema: Mapping[str, Any] | None) -> None:
    """Hold values for an endpoint's template against its JSON schema.

    Raises:
        InvalidInput: they do not fit; every fault is named.
    """
    if not schema:
        return
    faults = sorted(jsonschema.Draft202012Validator(dict(schema)).iter_errors(dict(config)), key=str)
    if not faults:
        return
    problems = tuple(
        (
            "/user_endpoint_config" + "".join(f"/{part}" for part in fault.absolute_path),
            "schema",
            fault.message,
        )
        for fault in faults
    )
    raise InvalidInput(f"The endpoint does not take this configuration: {problems[0][2]}.", problems=problems)
