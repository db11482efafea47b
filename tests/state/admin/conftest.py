"""Somebody signed in, and one system made of a small profile."""

from datetime import datetime

import pytest
from django.contrib.auth.models import User
from django.test import Client

from federation.models import System
from federation.profile_yaml import read_profile
from federation.services import store_profile
from tests.state.admin.asking import TEXT


@pytest.fixture
def admin(db: None) -> Client:
    """A signed-in superuser."""
    client = Client()
    client.force_login(User.objects.create_superuser("root", password="a-long-password"))
    return client


@pytest.fixture
def delta(db: None, now: datetime) -> System:
    return store_profile(read_profile(TEXT), TEXT, now=now).system
