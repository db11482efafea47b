"""Tokens, subscriptions, deliveries and wakes: made, shown once, changed and ended on pages."""

import re
from datetime import datetime, timedelta
from html import unescape

import pytest
from django.contrib.auth.models import User
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from orchestrator.models import Delivery, Subscription
from orchestrator.services import deliveries
from portal.models import ApiToken
from portal.tokens import caller_of
from tests.web.test_task_pages import submit

pytestmark = pytest.mark.django_db

HOOK = "https://hooks.example.org/facet"


@pytest.fixture
def hook(browser: Client, mira: User) -> Subscription:
    """A webhook of mira's that hears of every event of her tasks."""
    given = {"name": "lab-bot", "target": "webhook", "url": HOOK, "families": ["task.*"]}
    assert browser.post("/subscriptions/", given).status_code == 200
    return Subscription.objects.get()


def written(hook: Subscription, now: datetime) -> Delivery:
    """Turn the log into deliveries and give the newest up."""
    while deliveries.fan_out(hook.pk, now=now):
        pass
    newest = Delivery.objects.order_by("-seq").first()
    assert newest is not None
    tried = [{"at": now.isoformat(), "status": 503, "error": "HTTP 503", "ms": 7}]
    Delivery.objects.filter(pk=newest.pk).update(state="dead", attempts=9, next_at=None, tries=tried)
    return newest


def test_the_page_says_how_to_begin(browser: Client) -> None:
    page = browser.get("/agents/").text

    assert "No token yet" in page
    assert "Nobody is told yet" in page
    assert 'href="/api/v1/bundle" download' in page


def test_a_token_is_made_as_narrow_as_asked_and_shown_once(
    federation: User, browser: Client, now: datetime
) -> None:
    given = {"name": "agent", "scopes": ["read", "submit"], "systems": ["anvil"], "lifetime": "7"}

    answer = browser.post("/tokens/", given)

    secret = re.search(r">(facet_[\w-]{30,})<", answer.text)
    assert secret is not None
    assert answer.headers["Cache-Control"] == "no-store"
    caller = caller_of(secret[1], now=now)
    assert (caller.user, sorted(caller.scopes), caller.systems) == (
        federation,
        ["read", "submit"],
        frozenset({"anvil"}),
    )
    assert secret[1] not in browser.get("/agents/").text
    row = ApiToken.objects.get()
    assert row.expires_at is not None
    assert timedelta(days=6) < row.expires_at - now < timedelta(days=8)


def test_a_token_answers_for_its_owner_only_where_its_box_is_ticked(browser: Client, mira: User) -> None:
    given = {"name": "alone", "scopes": ["read"], "lifetime": "7"}
    browser.post("/tokens/", given)
    assert not re.search(r"<span[^>]*>attended</span>", browser.get("/agents/").text)

    browser.post("/tokens/", given | {"name": "desk", "attended": "on"})

    assert dict(ApiToken.objects.values_list("name", "attended")) == {"alone": False, "desk": True}
    page = browser.get("/agents/").text
    assert len(re.findall(r"<span[^>]*>attended</span>", page)) == 1
    assert "approvals answered there count as yours" in page


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"name": "", "scopes": ["read"]}, "This field is required."),
        ({"name": "a"}, "Choose what it may do"),
        ({"name": "a", "scopes": ["admin"]}, "admin is not one of the available choices"),
        (
            {"name": "a", "scopes": ["read"], "systems": ["anvli"]},
            "anvli is not one of the available choices",
        ),
    ],
)
def test_a_token_that_cannot_be_is_refused_beside_its_field(
    browser: Client, given: dict[str, object], sentence: str
) -> None:
    answer = browser.post("/tokens/", given)

    assert answer.status_code == 422
    assert sentence in unescape(answer.text)
    assert not ApiToken.objects.exists()


def test_a_revoked_token_is_good_for_nothing(browser: Client, mira: User) -> None:
    made = browser.post("/tokens/", {"name": "agent", "scopes": ["read"], "lifetime": ""}).text
    secret = re.search(r">(facet_[\w-]{30,})<", made)
    assert secret is not None
    caller = Client(headers={"authorization": f"Bearer {secret[1]}"})
    assert caller.get("/api/v1/tasks").status_code == 200

    told = browser.post(f"/tokens/{ApiToken.objects.get().handle}/revoke/", follow=True).text

    assert "is revoked" in told
    assert caller.get("/api/v1/tasks").status_code == 401


def test_a_webhooks_secret_is_shown_once_and_again_when_it_is_renewed(browser: Client, mira: User) -> None:
    given = {"name": "lab-bot", "target": "webhook", "url": HOOK}
    first = re.search(r">(whsec_[^<]+)<", browser.post("/subscriptions/", given).text)
    row = Subscription.objects.get()

    again = browser.get(f"/subscriptions/{row.handle}/").text
    second = re.search(r">(whsec_[^<]+)<", browser.post(f"/subscriptions/{row.handle}/rotate/").text)

    assert first is not None
    assert second is not None
    assert first[1] not in again
    assert first[1] != second[1]
    row.refresh_from_db()
    assert row.sealed_previous


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"target": "webhook", "url": "ftp://x"}, "https"),
        ({"target": "webhook", "url": HOOK, "more_types": "task.wibble"}, "task.wibble"),
        ({"target": "email"}, "Your account has no e-mail address."),
        ({"target": "cursor", "subject": "task_nobodys"}, "task_nobodys"),
    ],
)
def test_a_subscription_that_cannot_be_says_why(
    browser: Client, mira: User, given: dict[str, str], sentence: str
) -> None:
    answer = browser.post("/subscriptions/", given)

    assert answer.status_code == 422
    assert sentence in unescape(answer.text)
    assert not Subscription.objects.exists()


def test_what_a_subscription_hears_is_changed_paused_and_removed(browser: Client, hook: Subscription) -> None:
    address = f"/subscriptions/{hook.handle}"

    browser.post(
        f"{address}/edit/", {"name": "new", "url": HOOK, "families": ["group.*"], "more_types": "task.failed"}
    )
    browser.post(f"{address}/switch/")
    hook.refresh_from_db()
    assert (hook.name, hook.types, hook.state) == ("new", ["group.*", "task.failed"], "paused")

    browser.post(f"{address}/switch/")
    hook.refresh_from_db()
    assert hook.state == "active"
    browser.post(f"{address}/remove/")
    assert not Subscription.objects.exists()


def test_deliveries_are_logged_and_what_was_given_up_is_sent_again(
    federation: User, browser: Client, hook: Subscription, now: datetime
) -> None:
    submit(federation, "md-equil", now)
    dead = written(hook, now)

    page = browser.get(f"/subscriptions/{hook.handle}/?state=dead").text
    assert re.findall(r'<tr id="(dlv_\w+)">', page) == [dead.handle]
    assert "HTTP 503" in page
    assert "Send the 1 given up again" in page

    told = browser.post(f"/subscriptions/{hook.handle}/replay/", follow=True).text
    assert "1 delivery is due again." in told
    dead.refresh_from_db()
    assert (dead.state, dead.attempts) == ("pending", 0)


def test_wakes_tell_whom_they_reached(
    federation: User, browser: Client, hook: Subscription, now: datetime
) -> None:
    task = submit(federation, "long", now, envelope={"gpus": 1, "walltime_s": 10 * 86_400})
    written(hook, now)

    wakes = browser.get("/agents/?part=live").text

    assert "task.unschedulable" in wakes
    assert f'href="/tasks/{task.handle}/"' in wakes
    assert re.search(rf'href="/subscriptions/{hook.handle}/">lab-bot</a> <span class="tag bad">', wakes)
    assert "task.accepted" not in wakes


def test_another_users_tokens_and_subscriptions_are_not_found(
    browser: Client, hook: Subscription, kofi: User
) -> None:
    browser.post("/tokens/", {"name": "agent", "scopes": ["read"], "lifetime": "7"})
    token = ApiToken.objects.get()
    browser.force_login(kofi)

    assert browser.get(f"/subscriptions/{hook.handle}/").status_code == 404
    for verb in ("edit", "switch", "rotate", "test", "replay", "remove"):
        assert browser.post(f"/subscriptions/{hook.handle}/{verb}/").status_code == 404
    assert browser.post(f"/tokens/{token.handle}/revoke/").status_code == 404
    page = browser.get("/agents/").text
    assert "lab-bot" not in page
    assert token.prefix not in page


def test_agent_pages_ask_a_bounded_number_of_questions(
    federation: User,
    browser: Client,
    hook: Subscription,
    now: datetime,
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    submit(federation, "long", now, envelope={"gpus": 1, "walltime_s": 10 * 86_400})
    written(hook, now)

    for address, most in (("/agents/", 15), (f"/subscriptions/{hook.handle}/", 10)):
        with django_assert_max_num_queries(most):
            browser.get(address)
