"""The local link: this host is the site. Used for the machine itself, lab clusters and emulated systems."""

import json
import os
import pwd
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from providers.errors import NotAuthorized, SiteUnreachable, UnparsableOutput
from providers.types import Batch, BatchReply, Frozen

_HERE = Path(__file__).parent
_MARGIN_S = 5.0
"""What starting the process and reading its answer may add to the batch's own deadline."""


class Become(Frozen):
    """The user a batch runs as."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...] = ()
    home: str = "/"

    @classmethod
    def named(cls, name: str) -> "Become":
        """Return the identity of a user of this host.

        Raises:
            NotAuthorized: this host has no such user.
        """
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            raise NotAuthorized(f"This host has no user {name!r}.", remote_user=name) from None
        groups = tuple(sorted(os.getgrouplist(name, entry.pw_gid)))
        return cls(name=name, uid=entry.pw_uid, gid=entry.pw_gid, groups=groups, home=entry.pw_dir)


class LocalLink:
    """Run batches on this host, as ourselves or as `become`."""

    def __init__(self, *, become: Become | None = None, env: Mapping[str, str] | None = None) -> None:
        if become is not None and become.uid != os.geteuid() and os.geteuid() != 0:
            raise NotAuthorized(
                f"Facet does not run as root here, so it cannot act as {become.name!r}.",
                remediation="Run Facet as that user, or leave the connection's run_as empty.",
            )
        self._become = become
        self._env = dict(env or {})

    def run(self, batch: Batch) -> BatchReply:
        """Run the batch in one process of its own and return every reply."""
        request: dict[str, Any] = {"become": None, "batch": batch.model_dump(mode="json")}
        env = {key: value for key, value in os.environ.items() if not key.startswith(_PRIVATE)} | self._env
        if self._become is not None:
            request["become"] = self._become.model_dump()
            request["home"] = self._become.home
            env |= {"USER": self._become.name, "LOGNAME": self._become.name, "HOME": self._become.home}
        argv = [sys.executable, "-I", "-S", str(_HERE / "local_runner.py"), str(_HERE / "site_function.py")]
        try:
            done = subprocess.run(
                argv,
                input=json.dumps(request),
                capture_output=True,
                text=True,
                timeout=batch.deadline_s + _MARGIN_S,
                check=False,
                env=env,
                start_new_session=True,
            )
        except subprocess.TimeoutExpired as error:
            raise SiteUnreachable(
                f"This host gave no answer within {batch.deadline_s + _MARGIN_S:.0f} s.",
                deadline_s=batch.deadline_s,
            ) from error
        return _read(done)


# Our own secrets and settings never reach a site's commands.
_PRIVATE = ("FACET_", "DATABASE_URL", "REDIS_URL", "DJANGO_", "OPENAI_", "GLOBUS_", "PYTHON", "PG")


def _read(done: subprocess.CompletedProcess[str]) -> BatchReply:
    if done.returncode != 0:
        raise SiteUnreachable(
            "The local runner ended before it answered.",
            rc=done.returncode,
            stderr=done.stderr[-500:],
        )
    try:
        return BatchReply.model_validate_json(done.stdout)
    except ValidationError as error:
        raise UnparsableOutput(
            "The local runner's answer is not a batch reply.", said=done.stdout[:200]
        ) from error
