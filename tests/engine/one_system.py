"""`python -m tests.engine.one_system FOLDER`: makes a cluster and somebody who may submit; prints a token."""

import os
import sys
from pathlib import Path

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")
django.setup()

from django.contrib.auth.models import User  # noqa: E402  # Django must be set up first
from django.utils import timezone  # noqa: E402

from federation import collector  # noqa: E402
from federation.models import System  # noqa: E402
from federation.profile import ProfileDocument  # noqa: E402
from federation.services import connect, store_profile  # noqa: E402
from portal.skills.registry import Scope  # noqa: E402
from portal.tokens import issue_token  # noqa: E402
from providers.sandbox.slurm.setup import DELTA, create, env  # noqa: E402
from tests.state.conftest import PROFILES  # noqa: E402


def main(folder: Path) -> str:
    """Make them and return the token."""
    create(folder / "delta", DELTA.quiet(), seed=7)
    now = timezone.now()
    store_profile(ProfileDocument.model_validate(PROFILES["delta"]), str(PROFILES["delta"]), now=now)
    alice = User.objects.create_user("alice")
    settings = {"env": env(folder / "delta", user="alice") | {"USER": "alice", "HOME": str(folder)}}
    connect(alice, System.objects.get(), kind="local", settings=settings, now=now, remote_user="alice")
    collector.refresh(System.objects.get().pk, now=now, force_full=True)
    _, token = issue_token(alice, name="t", scopes=[Scope.READ, Scope.SUBMIT], now=now)
    return token


if __name__ == "__main__":
    print(main(Path(sys.argv[1])))  # noqa: T201  # its answer
