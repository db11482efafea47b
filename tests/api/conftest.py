"""Callers of the API: alice and bob with tokens, a federation of emulated clusters where one is needed."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoDbBlocker

from federation.models import System
from portal import heartbeat
from portal.api import rates
from portal.listening import LISTENER
from portal.skills.registry import Scope
from portal.tokens import issue_token
from tests.state.conftest import (
    Sites,
    _by_hand,
    alice,
    bob,
    now,
    sites,
    until,
)

__all__ = ["_by_hand", "alice", "bob", "now", "sites", "until"]

ALL = ("read", "draft", "submit", "manage")


@dataclass
class Api:
    """A caller with a token."""

    token: str
    client: Client

    def get(self, path: str, **headers: str) -> Any:
        return self._checked(self.client.get(f"/api/v1/{path}", headers=self._headers(headers)))

    def post(self, path: str, body: object = None, **headers: str) -> Any:
        content = body if isinstance(body, str | bytes) else json.dumps(body if body is not None else {})
        return self._checked(
            self.client.post(
                f"/api/v1/{path}", content, content_type="application/json", headers=self._headers(headers)
            )
        )

    def patch(self, path: str, body: object, **headers: str) -> Any:
        return self._checked(
            self.client.patch(
                f"/api/v1/{path}",
                json.dumps(body),
                content_type="application/json",
                headers=self._headers(headers),
            )
        )

    def delete(self, path: str, **headers: str) -> Any:
        return self._checked(self.client.delete(f"/api/v1/{path}", headers=self._headers(headers)))

    def skill(self, name: str, body: object = None, **headers: str) -> Any:
        return self.post(f"skills/{name}", body, **headers)

    def _headers(self, headers: dict[str, str]) -> dict[str, str]:
        told = {name.replace("_", "-"): value for name, value in headers.items()}
        return {"authorization": f"Bearer {self.token}", **told}

    def _checked(self, response: Any) -> Any:
        """Every answer keeps the secret, and every failure is a whole problem."""
        assert self.token not in response.content.decode()
        if response.status_code >= 400:
            check_problem(response)
        return response


def check_problem(response: Any) -> dict[str, Any]:
    assert response["Content-Type"] == "application/problem+json"
    problem: dict[str, Any] = response.json()
    wanted = {
        *("type", "title", "status", "detail", "code", "retry_safe", "errors", "remediation", "next_actions")
    }
    assert wanted <= problem.keys()
    assert problem["status"] == response.status_code
    assert problem["type"] == f"/api/v1/docs/errors#{problem['code']}"
    assert problem["title"]
    assert problem["remediation"]
    assert all({"pointer", "code", "message"} == set(each) for each in problem["errors"])
    if "retry_after_s" in problem:
        assert response["Retry-After"] == str(problem["retry_after_s"])
    return problem


@pytest.fixture(autouse=True)
def _fresh_rates() -> Iterator[None]:
    rates._Away.until = 0.0
    yield
    heartbeat.redis_client().flushdb()


@pytest.fixture(scope="session", autouse=True)
def _no_listener_left(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """A listening connection would keep the test database from being dropped.

    The listener's thread outlives the test that started it: it must not find the database blocked.
    """
    with django_db_blocker.unblock():
        yield
    LISTENER.stop(within_s=5)


@pytest.fixture
def caller() -> Callable[..., Api]:
    """Make a caller: a user, scopes, and how long the token lives."""

    def make(user: User, *scopes: str, life: timedelta | None = timedelta(days=1)) -> Api:
        instant: datetime = timezone.now()
        _, secret = issue_token(
            user,
            name="test",
            scopes=[Scope(word) for word in scopes or ALL],
            now=instant,
            expires_at=instant + life if life is not None else None,
        )
        return Api(secret, Client(raise_request_exception=False))

    return make


@pytest.fixture
def api(alice: User, caller: Callable[..., Api]) -> Api:
    """Alice with every ordinary scope."""
    return caller(alice)


@pytest.fixture
def delta(sites: Sites, alice: User) -> System:
    """One quiet cluster that alice may use."""
    return sites.add("delta", alice, account="bbka-delta-gpu", granted=Decimal(100))
