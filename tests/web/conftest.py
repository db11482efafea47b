"""A federation in the database and browsers that are signed in to it."""

from datetime import UTC, datetime

import pytest
from django.contrib.auth.models import User
from django.test import Client

from tests.web.world import make_system


@pytest.fixture
def now() -> datetime:
    return datetime.now(UTC)


@pytest.fixture
def mira(db: None) -> User:
    return User.objects.create_user("mira", password="a-long-password")


@pytest.fixture
def kofi(db: None) -> User:
    return User.objects.create_user("kofi", password="a-long-password")


@pytest.fixture
def federation(mira: User, now: datetime) -> User:
    """Two systems, both connected to mira only."""
    make_system(mira, "anvil", "Anvil", "a100", "40G", free=3, now=now)
    make_system(mira, "delta", "Delta", "h100", "80G", free=0, now=now)
    return mira


@pytest.fixture
def browser(client: Client, mira: User) -> Client:
    """A browser in which mira is signed in."""
    client.force_login(mira)
    return client
