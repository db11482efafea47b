"""What every test may rely on."""

import os
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

# The same examples every time where a run decides whether work lands; fresh ones at the desk.
settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("desk", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "desk")


class _ByFile(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Hands out whole files; what starts clusters or a browser once for all its tests, as a whole folder."""

    _WHOLE = ("tests/slurm/", "tests/browser/")

    def _split_scope(self, nodeid: str) -> str:
        return next((folder for folder in self._WHOLE if nodeid.startswith(folder)), nodeid.split("::", 1)[0])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _ByFile:
    """Keep the tests that share servers in one worker."""
    return _ByFile(config, log)
