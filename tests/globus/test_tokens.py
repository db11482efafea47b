"""Delegated tokens: sealed, renewed by one, refused once, rotated; the application's own account."""

import json
import threading
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connections
from django.utils import timezone
from pydantic import SecretStr

from federation.models import Connection, Event, System
from federation.services import connect
from portal.globus import vault
from portal.globus.connections import GlobusSettings, settings_of
from portal.globus.endpoints import check_config, connect_endpoint
from portal.globus.links import open_globus_link
from portal.globus.tokens import Secrets, access_token, keep
from portal.models import GlobusFunction, GlobusToken
from providers.errors import InvalidInput, NotAuthorized, SiteUnreachable
from providers.sandbox.globus.server import StandIn
from providers.sandbox.globus.spec import COMPUTE_SCOPE, COMPUTE_SERVER, Endpoint, Fault
from tests.globus.conftest import ALICE, CLIENT, DELTA, VISTA, echo

pytestmark = pytest.mark.django_db(transaction=True)


def grant(server: StandIn, user: User, sub: str = ALICE) -> None:
    """Store what a consent would have brought."""
    made = server.auth._mint(sub, CLIENT, [COMPUTE_SCOPE], COMPUTE_SERVER, offline=True)
    now = timezone.now()
    keep(user.pk, made | {"expires_at_seconds": now.timestamp() + made["expires_in"]}, now=now)


@pytest.fixture
def connection(set_up: StandIn, alice: User) -> Connection:
    grant(set_up, alice)
    system = System.objects.create(slug="delta", name="Delta")
    return connect_endpoint(alice, system, GlobusSettings(endpoint=DELTA), now=timezone.now())


def test_a_token_is_renewed_before_it_expires_and_the_new_one_kept(
    set_up: StandIn, connection: Connection
) -> None:
    first = access_token(connection)
    assert access_token(connection) == first
    GlobusToken.objects.update(expires_at=timezone.now())

    second = access_token(connection)

    assert second != first
    assert access_token(connection) == second
    row = set_up.state.token(second, kind="access")
    assert row is not None
    assert row["sub"] == ALICE


def test_a_refresh_token_that_rotates_is_replaced(set_up: StandIn, connection: Connection) -> None:
    set_up.state.set("rotates_refresh", 1)
    for _ in range(3):
        GlobusToken.objects.update(expires_at=timezone.now())
        secret = access_token(connection)

    assert set_up.state.token(secret, kind="access") is not None


def test_many_workers_at_once_renew_a_token_once(set_up: StandIn, connection: Connection) -> None:
    set_up.state.set("rotates_refresh", 1)
    GlobusToken.objects.update(expires_at=timezone.now())
    set_up.state.arm(Fault(path="/v2/oauth2/token", delay_s=0.3))
    got: list[str] = []

    def work() -> None:
        try:
            got.append(access_token(connection))
        finally:
            connections.close_all()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)

    assert len(got) == 4
    assert len(set(got)) == 1


def test_a_token_expired_at_the_service_is_renewed_in_the_middle_of_a_run(
    set_up: StandIn, connection: Connection
) -> None:
    access_token(connection)
    set_up.state.expire()

    assert open_globus_link(connection).run(echo("x")).replies["echo"].stdout == "x\n"
    assert not Event.objects.filter(type="connection.needs_sign_in").exists()


def test_a_refused_renewal_marks_every_connection_once_and_asks_globus_no_more(
    set_up: StandIn, connection: Connection, alice: User
) -> None:
    other = System.objects.create(slug="vista", name="Vista")
    connect_endpoint(alice, other, GlobusSettings(endpoint=VISTA), now=timezone.now())
    set_up.state.expire()
    set_up.state.expire(kind="refresh")

    for _ in range(3):
        with pytest.raises(NotAuthorized, match="Sign in with Globus again"):
            open_globus_link(connection).run(echo("x"))

    states = set(Connection.objects.values_list("state", flat=True))
    assert states == {"needs_sign_in"}
    event = Event.objects.get(type="connection.needs_sign_in")
    assert event.data["systems"] == ["delta", "vista"]
    assert event.wake == "exception"
    assert set_up.state.requests("POST /v3/endpoints") == 0


def test_a_connection_that_waits_for_its_user_makes_no_request(
    set_up: StandIn, connection: Connection
) -> None:
    Connection.objects.update(state="needs_sign_in", state_reason="Use your university login.")
    connection.refresh_from_db()

    with pytest.raises(NotAuthorized, match=r"Use your university login\. Sign in"):
        open_globus_link(connection).run(echo("x"))

    assert set_up.state.requests() == 0


def test_globus_auth_being_away_is_not_a_lost_sign_in(set_up: StandIn, connection: Connection) -> None:
    GlobusToken.objects.update(expires_at=timezone.now())
    set_up.state.arm(Fault(path="/v2/oauth2/token", status=503))

    with pytest.raises(SiteUnreachable, match="Globus Auth answered 503"):
        access_token(connection)

    connection.refresh_from_db()
    assert connection.state == "active"
    assert access_token(connection)


def test_a_wrong_application_secret_is_the_operators_matter(
    set_up: StandIn, connection: Connection, settings: Any
) -> None:
    settings.GLOBUS_CLIENT_SECRET = SecretStr("wrong")
    GlobusToken.objects.update(expires_at=timezone.now())

    with pytest.raises(SiteUnreachable, match="does not accept Facet's own registration"):
        access_token(connection)

    connection.refresh_from_db()
    assert connection.state == "active"


def test_who_never_connected_is_asked_to(set_up: StandIn, alice: User) -> None:
    system = System.objects.create(slug="delta", name="Delta")
    connection = connect_endpoint(alice, system, GlobusSettings(endpoint=DELTA), now=timezone.now())

    with pytest.raises(NotAuthorized, match="Globus is not connected"):
        access_token(connection)


def test_tokens_are_sealed_at_rest_and_hidden_in_every_repr(connection: Connection) -> None:
    secret = access_token(connection)
    row = GlobusToken.objects.get()

    assert secret not in json.dumps(list(GlobusToken.objects.values()), default=str)
    assert json.loads(vault.unseal(row.sealed))["access"] == secret
    assert secret not in repr(row) + str(row)
    assert repr(Secrets(access="a-secret", refresh="b-secret")) == "Secrets()"
    assert secret not in repr(open_globus_link(connection))


def test_keys_are_rotated_while_everything_runs(connection: Connection, settings: Any, capsys: Any) -> None:
    secret, old = access_token(connection), settings.SECRET_KEY
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "n" * 40, [old]
    assert access_token(connection) == secret

    call_command("rotate_keys")
    assert "1 sealed anew, 0 were already." in capsys.readouterr().out
    settings.SECRET_KEY_FALLBACKS = []

    assert access_token(connection) == secret
    call_command("rotate_keys")
    assert "0 sealed anew, 1 were already." in capsys.readouterr().out


def test_a_lost_key_asks_for_a_sign_in_and_rotation_says_how_many(
    connection: Connection, settings: Any
) -> None:
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "n" * 40, []

    with pytest.raises(CommandError, match="1 cannot be opened"):
        call_command("rotate_keys")
    with pytest.raises(NotAuthorized, match="cannot be opened any more"):
        access_token(connection)

    connection.refresh_from_db()
    assert connection.state == "needs_sign_in"


def test_a_lab_owned_endpoint_is_reached_as_the_application_itself(set_up: StandIn, alice: User) -> None:
    set_up.state.know(endpoints=[Endpoint(id=DELTA, name="lab", users={CLIENT: {"USER": "labrobot"}})])
    system = System.objects.create(slug="lab", name="Lab")
    given = GlobusSettings(endpoint=DELTA, identity="service")
    connection = connect_endpoint(alice, system, given, now=timezone.now())

    for _ in range(2):
        assert open_globus_link(connection).run(echo("x")).replies["echo"].stdout == "x\n"

    row = GlobusToken.objects.get()
    assert (row.user_id, row.resource_server) == (None, "funcx_service")
    assert GlobusFunction.objects.get().owner == "service"


def test_settings_with_something_unknown_are_refused_by_name(set_up: StandIn, alice: User) -> None:
    system = System.objects.create(slug="delta", name="Delta")
    connection = connect(
        alice, system, kind="globus_compute", settings={"endpoint": "no-uuid", "x": 1}, now=timezone.now()
    )

    with pytest.raises(InvalidInput) as caught:
        settings_of(connection)

    assert {pointer for pointer, _, _ in caught.value.problems} == {"/endpoint", "/x"}


def test_a_configuration_is_held_against_the_endpoints_schema() -> None:
    schema = {
        "type": "object",
        "properties": {"account": {"type": "string"}, "nodes": {"type": "integer", "maximum": 2}},
        "required": ["account"],
    }

    check_config({"account": "a", "nodes": 1}, schema)
    check_config({"anything": 1}, None)
    with pytest.raises(InvalidInput) as caught:
        check_config({"nodes": 3}, schema)

    assert {pointer for pointer, _, _ in caught.value.problems} == {
        "/user_endpoint_config",
        "/user_endpoint_config/nodes",
    }


def test_the_administrators_command_connects_and_checks(
    set_up: StandIn, connection: Connection, capsys: Any
) -> None:
    schema = {
        "type": "object",
        "properties": {"partition": {"type": "string"}},
        "additionalProperties": False,
    }
    set_up.state.know(
        endpoints=[Endpoint(id=VISTA, name="vista-login", users={ALICE: {}}, user_config_schema=schema)]
    )
    System.objects.create(slug="vista", name="Vista")

    call_command("connect_globus", "alice", "vista", VISTA, "--config", "partition=gh", "--check")
    assert "the endpoint is called vista-login." in capsys.readouterr().out
    with pytest.raises(CommandError, match="does not take this configuration"):
        call_command("connect_globus", "alice", "vista", VISTA, "--config", "nodes=4", "--check")


def test_the_function_for_allow_lists_is_registered_publicly(
    set_up: StandIn, connection: Connection, capsys: Any
) -> None:
    call_command("globus_function")
    function_id = capsys.readouterr().out.split()[0]
    set_up.state.know(
        endpoints=[Endpoint(id=DELTA, name="delta", users={ALICE: {}}, allowed_functions=(function_id,))]
    )
    connection.settings = {"endpoint": DELTA, "function_id": function_id}
    connection.save()

    assert open_globus_link(connection).run(echo("x")).replies["echo"].stdout == "x\n"
    assert set_up.state.requests("POST /v3/functions") == 1
