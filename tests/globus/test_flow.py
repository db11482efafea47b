"""Out to Globus and back: signing in, connecting, and every way in which the way back can be wrong."""

from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from federation.models import Connection, Event, System
from portal.globus.application import COMPUTE_SCOPE, TRANSFER_SCOPE
from portal.globus.connections import GlobusSettings
from portal.globus.endpoints import connect_endpoint
from portal.globus.links import open_globus_link
from portal.globus.movers import open_mover
from portal.globus.tokens import access_token
from portal.models import GlobusIdentity, GlobusToken
from providers.errors import NotAuthorized
from providers.movers.types import Move, MoveItem
from providers.sandbox.globus.server import StandIn
from providers.sandbox.globus.spec import Collection, Fault
from tests.globus.conftest import ALICE, BOB, DELTA, consent, echo

pytestmark = pytest.mark.django_db(transaction=True)
BACK = "/connections/globus/callback/"


@pytest.fixture
def browser(alice: User) -> Client:
    client = Client()
    client.force_login(alice)
    return client


def _out(browser: Client, path: str = "/connections/globus/connect/") -> str:
    answer = browser.get(path)
    assert answer.status_code == 302, answer.content
    return str(answer["Location"])


def _connect(browser: Client, sub: str = ALICE, **how: Any) -> Any:
    return browser.get(BACK, consent(_out(browser), sub, **how))


def _connection(user: User) -> Connection:
    system, _ = System.objects.get_or_create(slug="delta", defaults={"name": "Delta"})
    return connect_endpoint(user, system, GlobusSettings(endpoint=DELTA), now=timezone.now())


def test_connecting_stores_a_sealed_grant_and_the_identity(
    set_up: StandIn, browser: Client, alice: User
) -> None:
    connection = _connection(alice)

    answer = _connect(browser)

    assert (answer.status_code, answer["Location"]) == (302, "/connections/")
    assert answer["Referrer-Policy"] == "no-referrer"
    assert GlobusIdentity.objects.get(user=alice).sub == ALICE
    scopes = set(GlobusToken.objects.filter(user=alice).values_list("resource_server", "scope"))
    assert scopes == {
        ("auth.globus.org", "openid profile email"),
        ("funcx_service", COMPUTE_SCOPE),
        ("transfer.api.globus.org", TRANSFER_SCOPE),
    }
    secret = access_token(connection)
    row = set_up.state.token(secret, kind="access")
    assert row is not None
    assert row["sub"] == ALICE
    page = browser.get("/connections/").content.decode()
    assert "alice@example.org" in page
    assert secret not in page


def test_the_way_out_asks_for_compute_with_a_fresh_random_state(set_up: StandIn, browser: Client) -> None:
    first, second = (parse_qs(urlsplit(_out(browser)).query) for _ in range(2))

    assert first["scope"][0].split() == ["openid", "profile", "email", COMPUTE_SCOPE, TRANSFER_SCOPE]
    assert first["access_type"] == ["offline"]
    assert first["redirect_uri"] == ["http://127.0.0.1:8000/connections/globus/callback/"]
    assert len(first["state"][0]) == 43
    assert first["state"] != second["state"]


def test_a_forged_state_stores_nothing(set_up: StandIn, browser: Client) -> None:
    query = consent(_out(browser), ALICE) | {"state": "forged"}

    answer = browser.get(BACK, query)

    assert answer.status_code == 409
    assert "not begun in this browser" in answer.content.decode()
    assert query["code"] not in answer.content.decode()
    assert GlobusToken.objects.count() == 0


def test_a_way_back_in_another_browser_stores_nothing(set_up: StandIn, browser: Client, alice: User) -> None:
    query = consent(_out(browser), ALICE)
    other = Client()
    other.force_login(User.objects.create_user("mallory"))

    assert other.get(BACK, query).status_code == 409
    assert GlobusToken.objects.count() == 0


def test_another_user_of_the_same_browser_does_not_get_the_grant(set_up: StandIn, browser: Client) -> None:
    query = consent(_out(browser), ALICE)
    session = browser.session
    flows = session["globus_flows"]
    browser.force_login(User.objects.create_user("mallory"))
    session = browser.session
    session["globus_flows"] = flows
    session.save()

    answer = browser.get(BACK, query)

    assert answer.status_code == 409
    assert "begun by another user" in answer.content.decode()
    assert GlobusToken.objects.count() == 0


def test_a_way_back_used_twice_is_refused_the_second_time(set_up: StandIn, browser: Client) -> None:
    query = consent(_out(browser), ALICE)
    assert browser.get(BACK, query).status_code == 302

    assert browser.get(BACK, query).status_code == 409


def test_a_replayed_code_under_a_new_state_is_refused_by_globus(set_up: StandIn, browser: Client) -> None:
    used = consent(_out(browser), ALICE)
    assert browser.get(BACK, used).status_code == 302
    fresh = parse_qs(urlsplit(_out(browser)).query)["state"][0]

    answer = browser.get(BACK, {"code": used["code"], "state": fresh})

    assert answer.status_code == 409
    assert "used or has expired" in answer.content.decode()


def test_a_denied_consent_is_told_and_stores_nothing(set_up: StandIn, browser: Client) -> None:
    answer = _connect(browser, decision="deny")

    assert answer.status_code == 403
    assert "was not allowed to give Facet access" in answer.content.decode()
    assert GlobusToken.objects.count() == 0


def test_narrower_scopes_are_refused_and_what_came_is_revoked(set_up: StandIn, browser: Client) -> None:
    answer = _connect(browser, leave_out=(COMPUTE_SCOPE,))

    assert answer.status_code == 403
    assert "Less was allowed than Facet needs" in answer.content.decode()
    assert GlobusToken.objects.count() == 0
    assert set_up.state.active_tokens(ALICE) == 0


def test_an_identity_serves_one_account_only(set_up: StandIn, browser: Client) -> None:
    _connect(browser)
    other = Client()
    other.force_login(User.objects.create_user("mallory"))

    answer = _connect(other)

    assert answer.status_code == 403
    assert "connected to another account" in answer.content.decode()


def test_an_account_keeps_its_identity_until_it_is_disconnected(set_up: StandIn, browser: Client) -> None:
    _connect(browser)

    answer = _connect(browser, BOB)

    assert answer.status_code == 403
    assert "connected as alice@example.org, not as bob@example.org" in answer.content.decode()
    assert set_up.state.active_tokens(BOB) == 0


def test_ten_minutes_at_globus_are_too_long(set_up: StandIn, browser: Client) -> None:
    query = consent(_out(browser), ALICE)
    session = browser.session
    flows = session["globus_flows"]
    flows[query["state"]]["at"] = "2020-01-01T00:00:00+00:00"
    session["globus_flows"] = flows
    session.save()

    assert browser.get(BACK, query).status_code == 409


def test_globus_being_away_is_told_and_nothing_is_stored(set_up: StandIn, browser: Client) -> None:
    query = consent(_out(browser), ALICE)
    set_up.state.arm(Fault(path="/v2/oauth2/token", status=503))

    answer = browser.get(BACK, query)

    assert answer.status_code == 504
    assert GlobusToken.objects.count() == 0


def test_an_identity_that_globus_did_not_sign_is_refused(
    set_up: StandIn, browser: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = consent(_out(browser), ALICE)
    honest = set_up.auth._id_token
    real = set_up.auth._key

    def forged(sub: str, client: str) -> str:
        set_up.auth._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        try:
            return honest(sub, client)
        finally:
            set_up.auth._key = real

    monkeypatch.setattr(set_up.auth, "_id_token", forged)

    answer = browser.get(BACK, query)

    assert answer.status_code == 409
    assert "not signed by Globus" in answer.content.decode()
    assert GlobusToken.objects.count() == 0


def test_disconnecting_revokes_at_globus_and_forgets(set_up: StandIn, browser: Client, alice: User) -> None:
    connection = _connection(alice)
    _connect(browser)
    assert set_up.state.active_tokens(ALICE) == 6

    answer = browser.post("/connections/globus/disconnect/")

    assert answer.status_code == 302
    assert set_up.state.active_tokens(ALICE) == 0
    assert not GlobusToken.objects.exists()
    assert not GlobusIdentity.objects.exists()
    connection.refresh_from_db()
    assert (connection.state, connection.state_reason) == ("needs_sign_in", "You disconnected Globus.")


def test_a_revocation_that_globus_did_not_take_is_said_so(
    set_up: StandIn, browser: Client, alice: User
) -> None:
    _connect(browser)
    set_up.state.arm(Fault(path="/v2/oauth2/token/revoke", status=503, times=10))

    answer = browser.post("/connections/globus/disconnect/", follow=True)

    assert "did not confirm every revocation" in answer.content.decode()
    assert not GlobusToken.objects.exists()


def test_disconnecting_by_a_link_is_not_possible(set_up: StandIn, browser: Client) -> None:
    assert browser.get("/connections/globus/disconnect/").status_code == 405


def test_a_known_identity_signs_in_and_leaves_no_access_behind(
    set_up: StandIn, browser: Client, alice: User
) -> None:
    _connect(browser)
    kept = set_up.state.active_tokens(ALICE)
    stranger = Client()

    answer = stranger.get(BACK, consent(_out(stranger, "/sign-in/globus/?next=/tasks/"), ALICE))

    assert (answer.status_code, answer["Location"]) == (302, "/tasks/")
    assert stranger.session["_auth_user_id"] == str(alice.pk)
    assert set_up.state.active_tokens(ALICE) == kept


def test_an_unknown_identity_is_turned_away_unless_the_operator_opens_the_door(
    set_up: StandIn, db: None, settings: Any
) -> None:
    stranger = Client()
    answer = stranger.get(BACK, consent(_out(stranger, "/sign-in/globus/"), BOB))
    assert answer.status_code == 403
    assert "Nobody here is known as bob@example.org" in answer.content.decode()

    settings.GLOBUS_SIGN_UP = True
    answer = stranger.get(BACK, consent(_out(stranger, "/sign-in/globus/"), BOB))

    assert answer.status_code == 302
    assert User.objects.get(username="bob@example.org").globus_identity.sub == BOB
    assert not User.objects.get().has_usable_password()


def test_a_next_address_elsewhere_is_not_followed(set_up: StandIn, browser: Client) -> None:
    _connect(browser)
    stranger = Client()

    answer = stranger.get(BACK, consent(_out(stranger, "/sign-in/globus/?next=https://evil.example/"), ALICE))

    assert answer["Location"] == "/"


def test_an_installation_without_globus_says_so(browser: Client, settings: Any) -> None:
    settings.GLOBUS_CLIENT_ID = ""

    answer = browser.get("/connections/globus/connect/")

    assert answer.status_code == 409
    assert "not set up" in answer.content.decode()
    assert "has not set Globus up" in browser.get("/connections/").content.decode()
    assert "Sign in with Globus" not in Client().get("/sign-in/").content.decode()


def test_a_step_up_is_carried_into_the_next_sign_in(set_up: StandIn, browser: Client, alice: User) -> None:
    connection = _connection(alice)
    _connect(browser)
    wanted = {"session_required_single_domain": ["example.org"], "session_message": "Use example.org."}
    set_up.state.arm(
        Fault(path="/v3/", status=403, body={"code": "F", "message": "m", "authorization_parameters": wanted})
    )

    with pytest.raises(NotAuthorized, match=r"Use example\.org\. Sign in with Globus again"):
        open_globus_link(connection).run(echo("x"))
    query = parse_qs(urlsplit(_out(browser)).query)
    assert query["session_required_single_domain"] == ["example.org"]
    assert query["session_message"] == ["Use example.org."]
    _connect(browser)

    connection.refresh_from_db()
    assert connection.state == "active"
    assert "session_message" not in parse_qs(urlsplit(_out(browser)).query)
    assert open_globus_link(connection).run(echo("x")).replies["echo"].stdout == "x\n"
    event = Event.objects.get(type="connection.needs_sign_in")
    assert (event.subject, event.system, event.user_id) == (connection.handle, "delta", alice.pk)
    assert event.next_actions == [{"action": "sign_in", "url": "/connections/globus/connect/"}]


def test_a_collections_consent_is_asked_for_with_the_next_sign_in_and_then_given(
    set_up: StandIn, browser: Client, alice: User, tmp_path: Path
) -> None:
    first, second = (f"c0000000-0000-4000-8000-00000000000{n}" for n in "ab")
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "in").write_text("data")
    set_up.state.know(
        collections=[
            Collection(id=key, name=key[-1], root=str(tmp_path / "x"), needs_consent=True)
            for key in (first, second)
        ]
    )
    connection = _connection(alice)
    _connect(browser)
    mover = open_mover(alice.pk)
    move = Move(
        source_collection=first,
        destination_collection=second,
        items=(MoveItem(source="/in", destination="/out"),),
        label="x",
    )
    submission = mover.new_submission_id()

    with pytest.raises(NotAuthorized, match="asks for your consent"):
        mover.submit(move, submission)
    connection.refresh_from_db()
    assert connection.state == "active"
    asked = parse_qs(urlsplit(_out(browser)).query)["scope"][0]
    scopes = " ".join(f"*https://auth.globus.org/scopes/{key}/data_access" for key in (first, second))
    assert asked.endswith(f" {TRANSFER_SCOPE}[{scopes}]")
    _connect(browser)

    assert mover.submit(move, submission)
    assert "[" not in parse_qs(urlsplit(_out(browser)).query)["scope"][0]
