"""Guessing a password ends soon, on the page and in the admin, and is in nobody else's way."""

from collections.abc import Iterator
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from redis import Redis

from portal import heartbeat, sign_in

pytestmark = pytest.mark.django_db(transaction=True)

SAID = "Too many sign-ins failed. Try again in 15 minutes"


@pytest.fixture(autouse=True)
def _not_counted_before() -> Iterator[None]:
    client = heartbeat.redis_client()
    _forget(client)
    yield
    _forget(client)


def _forget(client: Redis) -> None:
    for key in client.scan_iter("facet:sign-in:*"):
        client.delete(key)


def _try(username: str, password: str, *, page: str = "/sign-in/", address: str = "192.0.2.1") -> Any:
    return Client().post(page, {"username": username, "password": password}, REMOTE_ADDR=address)


@pytest.mark.parametrize("page", ["/sign-in/", "/admin/login/"])
def test_after_ten_failures_even_the_right_password_has_to_wait(alice: User, page: str) -> None:
    User.objects.filter(pk=alice.pk).update(is_staff=True)
    for _ in range(10):
        assert SAID not in unescape(_try("alice", "wrong", page=page).content.decode())

    refused = _try("alice", "a-long-password", page=page)

    assert SAID in unescape(refused.content.decode())
    assert refused.status_code == 200
    assert _try("alice", "a-long-password", page=page, address="192.0.2.2").status_code == 302


def test_another_name_from_there_is_not_in_the_way(alice: User, bob: User) -> None:
    for _ in range(11):
        _try("alice", "wrong")

    assert _try("bob", "a-long-password").status_code == 302


def test_the_case_of_a_name_does_not_begin_a_new_count(alice: User) -> None:
    for number in range(10):
        _try("alice" if number % 2 else "ALICE", "wrong")

    assert SAID in unescape(_try("Alice", "wrong").content.decode())


def test_a_name_tried_from_many_addresses_has_to_wait_everywhere(alice: User) -> None:
    for number in range(50):
        sign_in.note_failure(sign_in.limits("alice", f"198.51.100.{number}"))

    assert SAID in unescape(_try("alice", "a-long-password", address="203.0.113.9").content.decode())


def test_many_names_tried_from_one_address_have_to_wait(alice: User) -> None:
    for number in range(100):
        sign_in.note_failure(sign_in.limits(f"name{number}", "192.0.2.1"))

    assert SAID in unescape(_try("alice", "a-long-password").content.decode())


def test_redis_away_lets_people_in(alice: User, monkeypatch: pytest.MonkeyPatch) -> None:
    away = Redis.from_url("redis://127.0.0.1:1/0", socket_connect_timeout=0.2)
    monkeypatch.setattr(heartbeat, "redis_client", lambda: away)

    assert _try("alice", "a-long-password").status_code == 302
