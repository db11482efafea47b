"""Subscriptions are one's own, edited under their tag, acknowledged by cursor, and told of by e-mail."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.core import mail
from django.core.mail.backends.locmem import EmailBackend
from django.core.management import call_command
from django.utils import timezone
from pytest_django import Settings

from orchestrator import selectors
from orchestrator.models import Delivery, Subscription
from portal.digest import send_due
from portal.sealing import Unreadable, seal, unseal
from portal.webhooks.deliver import deliver
from portal.webhooks.signing import PURPOSE
from tests.api.conftest import Api
from tests.delivery.conftest import Receiver, happen, subscribe

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.services]


def test_another_users_subscription_is_not_there(api: Api, bob: User, caller: Callable[..., Api]) -> None:
    made = subscribe(api, target="cursor")
    other: Api = caller(bob)

    for answer in (
        other.get(f"subscriptions/{made['id']}"),
        other.patch(f"subscriptions/{made['id']}", {"name": "x"}),
        other.delete(f"subscriptions/{made['id']}"),
        other.post(f"subscriptions/{made['id']}/ack", {"cursor": 0}),
        other.post(f"subscriptions/{made['id']}/test"),
    ):
        assert answer.status_code == 404
    assert other.get("subscriptions").json()["results"] == []


def test_an_edit_under_an_old_tag_is_refused(api: Api) -> None:
    made = subscribe(api, target="cursor", name="one")
    tag = api.get(f"subscriptions/{made['id']}")["ETag"]

    first = api.patch(f"subscriptions/{made['id']}", {"name": "two"}, if_match=tag)
    second = api.patch(f"subscriptions/{made['id']}", {"name": "three"}, if_match=tag)
    third = api.patch(f"subscriptions/{made['id']}", {"name": "four"}, if_match=first["ETag"])

    assert (first.status_code, second.status_code, third.status_code) == (200, 412, 200)
    assert second.json()["code"] == "edited_meanwhile"
    assert api.get(f"subscriptions/{made['id']}").json()["name"] == "four"


def test_events_do_not_change_the_tag(api: Api, alice: User, receiver: Receiver) -> None:
    made = subscribe(api, target="cursor")
    tag = api.get(f"subscriptions/{made['id']}")["ETag"]

    happen(alice)
    api.post(f"subscriptions/{made['id']}/ack", {"cursor": selectors.head_cursor()})

    assert api.get(f"subscriptions/{made['id']}")["ETag"] == tag


def test_a_reader_says_how_far_it_is_and_never_goes_back(api: Api, alice: User) -> None:
    made = subscribe(api, target="cursor", types=["task.*"])
    start = selectors.head_cursor()
    happen(alice, count=3)
    path = f"subscriptions/{made['id']}"
    assert api.get(path).json()["lag"]["events"] == 3

    api.post(f"{path}/ack", {"cursor": start + 2})
    api.post(f"{path}/ack", {"cursor": start + 1})

    assert api.get(path).json()["acked"] == start + 2
    assert api.get(path).json()["lag"]["events"] == 1
    beyond = api.post(f"{path}/ack", {"cursor": start + 9})
    assert (beyond.status_code, beyond.json()["facts"]["head"]) == (409, start + 3)


def test_a_subscription_is_made_once_under_a_key_and_its_secret_is_replayed_to_it(
    api: Api, receiver: Receiver
) -> None:
    body = {"target": "webhook", "url": receiver.url}

    first = api.post("subscriptions", body, idempotency_key="k")
    again = api.post("subscriptions", body, idempotency_key="k")

    assert first.json() == again.json()
    assert again["Idempotency-Replayed"] == "true"
    assert Subscription.objects.count() == 1


def test_removing_one_removes_its_log(api: Api, alice: User, receiver: Receiver) -> None:
    made = subscribe(api, target="webhook", url=receiver.url)
    happen(alice)
    deliver()
    assert api.delete(f"subscriptions/{made['id']}").status_code == 204
    assert Delivery.objects.count() == 0
    assert api.get(f"subscriptions/{made['id']}").status_code == 404


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"target": "webhook"}, ""),
        ({"target": "cursor", "url": "https://example.org/"}, ""),
        ({"target": "cursor", "digest": "daily"}, ""),
        ({"target": "cursor", "types": ["task.finished"]}, "/types/0"),
        ({"target": "cursor", "subject": "task_unknown"}, "/subject"),
        ({"target": "pigeon"}, "/target"),
        ({"target": "cursor", "nam": "x"}, "/nam"),
    ],
)
def test_what_cannot_be_subscribed_says_where(api: Api, body: dict[str, object], pointer: str) -> None:
    answer = api.post("subscriptions", body)

    assert answer.status_code in (404, 422)
    assert answer.json()["errors"][0]["pointer"] == pointer


@pytest.mark.parametrize(
    ("held", "missing"), [(["read"], "submit"), (["submit"], "read"), (["manage", "draft"], "read")]
)
def test_subscribing_needs_to_read_and_to_change(
    api: Api, alice: User, caller: Callable[..., Api], held: list[str], missing: str
) -> None:
    made = subscribe(api, target="cursor")["id"]
    lesser: Api = caller(alice, *held)

    for answer in (
        lesser.post("subscriptions", {"target": "cursor"}),
        lesser.patch(f"subscriptions/{made}", {"name": "x"}),
        lesser.delete(f"subscriptions/{made}"),
        lesser.post(f"subscriptions/{made}/replay", {"after": 0}),
        lesser.post(f"subscriptions/{made}/rotate"),
        lesser.post(f"subscriptions/{made}/test"),
    ):
        assert answer.status_code == 403
        assert answer.json()["facts"]["missing_scope"] == missing
    assert Subscription.objects.count() == 1


def test_an_e_mail_tells_what_happened_since_the_last(api: Api, alice: User) -> None:
    alice.email = "alice@example.org"
    alice.save()
    subscribe(api, target="email", digest="hourly")
    now = timezone.now()
    happen(alice, count=2, task="task_1")
    happen(alice, type_="task.submitted")

    assert send_due(now=now) == 0, "it is not an hour yet"
    assert send_due(now=now + timedelta(hours=1, seconds=5)) == 1
    assert send_due(now=now + timedelta(hours=1, seconds=6)) == 0
    assert send_due(now=now + timedelta(hours=3)) == 0, "nothing happened meanwhile"

    [message] = mail.outbox
    assert message.to == ["alice@example.org"]
    assert message.subject == "Facet: 2 events of your work"
    assert message.body.count("task.succeeded") == 2
    assert "task.submitted" not in message.body
    assert "/tasks/task_1/" in message.body


def test_an_e_mail_that_cannot_be_sent_is_sent_later(
    api: Api, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice.email = "alice@example.org"
    alice.save()
    subscribe(api, target="email")
    happen(alice)
    later = timezone.now() + timedelta(days=1, seconds=5)

    def refuse(*_: object) -> int:
        raise ConnectionRefusedError

    with monkeypatch.context() as patch:
        patch.setattr(EmailBackend, "send_messages", refuse)
        assert send_due(now=later) == 0
    assert Subscription.objects.get().reason == "not sent: the mail server refused the connection"
    assert send_due(now=later + timedelta(minutes=11)) == 1
    assert len(mail.outbox) == 1
    assert Subscription.objects.get().reason == ""


def test_without_an_address_there_is_no_digest(api: Api) -> None:
    assert api.post("subscriptions", {"target": "email"}).status_code == 409


def test_a_seal_opens_with_an_earlier_key_and_for_its_own_purpose_only(settings: Settings) -> None:
    sealed = seal("word", purpose="one")

    assert unseal(sealed, purpose="one") == "word"
    with pytest.raises(Unreadable):
        unseal(sealed, purpose="another")
    settings.SECRET_KEY_FALLBACKS = [settings.SECRET_KEY]
    settings.SECRET_KEY = "another-key-that-is-long-enough-for-this"
    assert unseal(sealed, purpose="one") == "word"
    settings.SECRET_KEY_FALLBACKS = []
    with pytest.raises(Unreadable):
        unseal(sealed, purpose="one")


def test_rotating_keys_seals_webhook_secrets_anew(api: Api, settings: Settings) -> None:
    api.post("subscriptions", {"target": "webhook", "url": "https://hooks.example.org/facet"})
    before = Subscription.objects.get().sealed_secret
    assert before
    settings.SECRET_KEY_FALLBACKS = [settings.SECRET_KEY]
    settings.SECRET_KEY = "another-key-that-is-long-enough-for-this"

    call_command("rotate_keys")

    settings.SECRET_KEY_FALLBACKS = []
    after = Subscription.objects.get().sealed_secret
    assert after != before
    assert unseal(after, purpose=PURPOSE).startswith("whsec_")
