"""Who may call: tokens, sessions, scopes, and what nobody may ever see."""

import json
import logging
from collections.abc import Callable
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from portal.models import ApiToken, IdempotencyRecord
from portal.tokens import digest
from tests.api.conftest import ALL, Api, check_problem

pytestmark = pytest.mark.django_db


def _get(client: Client, path: str = "tasks", **headers: str) -> Any:
    return client.get(f"/api/v1/{path}", headers=headers)


def test_without_a_token_the_scheme_is_named(client: Client) -> None:
    answer = _get(client)

    problem = check_problem(answer)
    assert (answer.status_code, problem["code"]) == (401, "not_authenticated")
    assert answer["WWW-Authenticate"] == 'Bearer realm="facet"'


@pytest.mark.parametrize(
    "header", ["Basic YWJj", "Bearer", "Bearer  ", "Bearer facet_nope", "Bearer a b", "x"]
)
def test_a_strange_or_unknown_token_is_401(client: Client, header: str) -> None:
    answer = _get(client, authorization=header)

    assert answer.status_code == 401
    assert answer["WWW-Authenticate"].startswith('Bearer realm="facet", error="invalid_token"')
    check_problem(answer)


def test_an_expired_token_says_so(alice: User, caller: Callable[..., Api]) -> None:
    api = caller(alice, life=timedelta(seconds=-1))

    answer = api.get("tasks")

    assert answer.status_code == 401
    assert "expired at 2" in answer.json()["detail"]
    assert answer.json()["facts"] == {"reason": "token_expired"}
    assert "expired" in answer["WWW-Authenticate"]


def test_a_revoked_token_says_so(api: Api) -> None:
    mine = api.get("tokens").json()["results"][0]

    assert api.delete(f"tokens/{mine['id']}").json()["state"] == "revoked"

    answer = api.get("tasks")
    assert answer.status_code == 401
    assert "was revoked at" in answer.json()["detail"]


def test_the_token_of_an_inactive_user_is_401(api: Api, alice: User) -> None:
    User.objects.filter(pk=alice.pk).update(is_active=False)

    assert api.get("tasks").status_code == 401


SKILL_SCOPES = {
    "inspect_federation": {"read"},
    "draft_envelope": {"draft"},
    "preview_placement": {"read"},
    "submit_task": {"submit"},
    "submit_group": {"submit"},
    "get_result": {"read"},
    "read_log": {"read"},
    "replan": {"submit", "manage"},
    "cancel": {"submit", "manage"},
    "wait_for_events": {"read"},
    "relax_envelope": {"read"},
    "move_data": {"submit"},
    "set_budget": {"manage"},
    "close_budget": {"manage"},
    "decide_approval": {"submit", "manage"},
    "save_template": {"submit", "manage"},
    "delete_template": {"submit", "manage"},
}


def test_every_skill_is_in_the_scope_matrix(api: Api) -> None:
    listed = {each["name"]: set(each["scopes"]) for each in api.get("skills").json()["results"]}

    assert listed == SKILL_SCOPES


@pytest.mark.django_db(transaction=True)  # a long poll is answered in the event loop, on another connection
@pytest.mark.parametrize("held", ALL)
def test_a_skill_needs_its_scope(alice: User, caller: Callable[..., Api], held: str) -> None:
    api = caller(alice, held)

    for name, wanted in SKILL_SCOPES.items():
        answer = api.skill(name, {"nonsense": 1})
        if held in wanted:
            assert answer.status_code == 422, name
        else:
            problem = answer.json()
            assert (answer.status_code, problem["code"]) == (403, "not_authorized"), name
            assert problem["facts"]["missing_scope"] in wanted
            assert 'error="insufficient_scope"' in answer["WWW-Authenticate"]


@pytest.mark.parametrize("kind", ["tasks", "events", "systems", "tokens", "decisions"])
def test_reading_needs_the_scope_read(alice: User, caller: Callable[..., Api], kind: str) -> None:
    assert caller(alice, "read").get(kind).status_code == 200
    assert caller(alice, "submit").get(kind).status_code == 403


def test_a_token_is_kept_as_a_digest_and_shown_once(api: Api) -> None:
    made = api.post("tokens", {"name": "laptop", "scopes": ["read"]})

    assert made.status_code == 201
    secret = made.json()["token"]
    assert secret.startswith("facet_")
    assert made["Location"] == f"/api/v1/tokens/{made.json()['id']}"
    row = ApiToken.objects.get(name="laptop")
    assert row.digest == digest(secret)
    assert secret not in json.dumps({k: str(v) for k, v in row.__dict__.items()})
    assert secret not in api.get("tokens").content.decode()
    assert secret not in api.get(f"tokens/{made.json()['id']}").content.decode()
    assert Api(secret, api.client).get("tasks").status_code == 200


def test_a_token_cannot_give_what_it_does_not_hold(alice: User, caller: Callable[..., Api]) -> None:
    api = caller(alice, "manage", "read")

    answer = api.post("tokens", {"name": "wider", "scopes": ["read", "submit"]})

    assert answer.status_code == 403
    assert answer.json()["facts"]["missing_scope"] == "submit"
    assert not ApiToken.objects.filter(name="wider").exists()


def test_a_token_made_with_a_token_ends_with_it(api: Api, alice: User, caller: Callable[..., Api]) -> None:
    ends = timezone.now() + timedelta(days=3)
    parent = ApiToken.objects.get()
    ApiToken.objects.filter(pk=parent.pk).update(expires_at=ends)
    child = api.post("tokens", {"name": "child", "scopes": ["manage"], "expires_in_days": None}).json()
    below = Api(child["token"], api.client)
    grandchild = below.post("tokens", {"name": "grandchild", "scopes": ["manage"], "expires_in_days": 1})
    other = caller(alice, "manage")

    assert ApiToken.objects.get(name="child").expires_at == ends
    assert ApiToken.objects.get(name="grandchild").expires_at < ends  # type: ignore[operator]  # it expires
    assert other.delete(f"tokens/{parent.handle}").status_code == 200

    for secret in (child["token"], grandchild.json()["token"]):
        assert Api(secret, api.client).get("tasks").json()["facts"] == {"reason": "token_revoked"}
    assert other.post("tokens", {"name": "mine", "scopes": ["manage"]}).status_code == 201


def test_only_administrators_hold_admin(alice: User, caller: Callable[..., Api]) -> None:
    api = caller(alice)

    assert api.post("tokens", {"name": "x", "scopes": ["admin"]}).status_code == 403
    User.objects.filter(pk=alice.pk).update(is_staff=True)
    alice.refresh_from_db()
    boss = caller(alice, "admin")
    assert boss.skill("inspect_federation", {"x": 1}).status_code == 422
    User.objects.filter(pk=alice.pk).update(is_staff=False)
    assert boss.get("tasks").status_code == 403


@pytest.mark.parametrize(
    ("given", "pointer"),
    [
        ({"name": "x", "scopes": ["reed"]}, "/scopes/0"),
        ({"name": "", "scopes": ["read"]}, "/name"),
        ({"name": "x", "scopes": []}, "/scopes"),
        ({"name": "x"}, "/scopes"),
        ({"name": "x", "scopes": ["read"], "expires_in_days": 0}, "/expires_in_days"),
        ({"name": "x", "scopes": ["read"], "expire": 1}, "/expire"),
    ],
)
def test_a_faulty_token_request_names_the_field(api: Api, given: dict[str, Any], pointer: str) -> None:
    answer = api.post("tokens", given)

    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == pointer


def test_last_use_is_written_at_most_once_a_minute(api: Api) -> None:
    api.get("tasks")
    first = ApiToken.objects.get().last_used_at
    api.get("tasks")
    assert ApiToken.objects.get().last_used_at == first

    ApiToken.objects.update(last_used_at=timezone.now() - timedelta(seconds=61))
    api.get("tasks")

    assert ApiToken.objects.get().last_used_at > first  # type: ignore[operator]  # written just now


def test_another_users_token_is_404(api: Api, bob: User, caller: Callable[..., Api]) -> None:
    caller(bob)
    theirs = ApiToken.objects.get(user=bob)

    assert api.get(f"tokens/{theirs.handle}").status_code == 404
    assert api.delete(f"tokens/{theirs.handle}").status_code == 404
    assert api.post(f"tokens/{theirs.handle}/revoke").status_code == 404
    assert ApiToken.objects.get(user=bob).revoked_at is None


def test_a_revocation_heeds_if_match(api: Api) -> None:
    made = api.post("tokens", {"name": "x", "scopes": ["read"]}).json()
    tag = api.get(f"tokens/{made['id']}")["ETag"]

    assert api.delete(f"tokens/{made['id']}", if_match='"other"').status_code == 412
    assert api.delete(f"tokens/{made['id']}", if_match=tag).status_code == 200


def test_a_session_reads_and_needs_the_csrf_token_to_write(alice: User) -> None:
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(alice)

    assert _get(browser).status_code == 200
    refused = browser.post("/api/v1/skills/inspect_federation", "{}", content_type="application/json")
    assert (refused.status_code, check_problem(refused)["code"]) == (403, "csrf_failed")

    browser.get("/admin/login/")
    token = next(cookie.value for name, cookie in browser.cookies.items() if "csrf" in name)
    accepted = browser.post(
        "/api/v1/skills/inspect_federation",
        "{}",
        content_type="application/json",
        headers={"x-csrftoken": token},
    )
    assert accepted.status_code == 200


def test_the_command_prints_only_the_token(alice: User) -> None:
    said = StringIO()

    call_command("facet_token", "alice", scopes="read,submit", name="ci", expires_days=7, stdout=said)

    secret = said.getvalue().removesuffix("\n")
    row = ApiToken.objects.get(name="ci")
    assert digest(secret) == row.digest
    assert row.scopes == ["read", "submit"]
    assert row.expires_at is not None
    assert timedelta(days=6, hours=23) < row.expires_at - timezone.now() <= timedelta(days=7)


@pytest.mark.parametrize(
    ("user", "scopes", "why"),
    [
        ("alice", "reed", "Did you mean `read`"),
        ("nobody", "read", "no user"),
        ("alice", "admin", "administrators"),
    ],
)
def test_the_command_refuses_with_a_sentence(alice: User, user: str, scopes: str, why: str) -> None:
    with pytest.raises(CommandError, match=why):
        call_command("facet_token", user, scopes=scopes)


def test_no_secret_is_logged_or_kept(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        made = api.post("tokens", {"name": "x", "scopes": ["read"]}, idempotency_key="k1")
        api.get("tasks/nope")
        api.post("tasks", "{")

    secret = made.json()["token"]
    logged = "\n".join(str(record.__dict__) for record in caplog.records)
    assert secret not in logged
    assert api.token not in logged
    assert secret not in json.dumps(IdempotencyRecord.objects.get().body)
