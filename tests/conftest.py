"""What every test may rely on."""

import os
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from hypothesis import settings
from pytest_django import DjangoDbBlocker
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

# The same examples every time where a run decides whether work lands; fresh ones at the desk.
settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("desk", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "desk")


_WHOLE = ("tests/slurm/", "tests/browser/")
"""Folders that start clusters or a browser once for all their tests: each goes to one worker, and first."""


class _ByFile(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Hands out whole files, and the folders above whole."""

    def _split_scope(self, nodeid: str) -> str:
        return next((folder for folder in _WHOLE if nodeid.startswith(folder)), nodeid.split("::", 1)[0])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _ByFile:
    """Keep the tests that share servers in one worker, in the order of collection."""
    config.option.loadscopereorder = False
    return _ByFile(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin a distributed run with what takes longest, so that no worker is left alone with it at the end."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: not item.nodeid.startswith(_WHOLE))


@pytest.fixture(scope="session")
def django_db_setup(
    request: pytest.FixtureRequest, django_db_setup: None, django_db_blocker: DjangoDbBlocker
) -> Iterator[None]:
    """End the sessions that threads of tests hold or would open again, before the database is dropped."""
    yield
    if request.config.getvalue("reuse_db"):
        return
    name = connection.settings_dict["NAME"]
    with django_db_blocker.unblock():
        connection.close()
        with connection._nodb_cursor() as cursor:
            cursor.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name]
            )
