"""How PostgreSQL, which refuses root, is run by root; and how a child learns that its parent died."""

import os
import pwd
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

NOBODY = 65534
Mode = Literal["direct", "userns", "setuid"]
_MAPPED = ("unshare", "--user", f"--map-user={NOBODY}", f"--map-group={NOBODY}")


@cache
def user_namespaces_work() -> bool:
    """Say whether this kernel lets us map ourselves to nobody in a user namespace of our own."""
    if not shutil.which("unshare"):
        return False
    probe = subprocess.run([*_MAPPED, "true"], capture_output=True, check=False)
    return probe.returncode == 0


def _has_a_name() -> bool:
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        return False  # `docker run -u 4242`: initdb refuses a user without a name
    return True


def choose_mode(wanted: Mode | Literal[""] = "") -> Mode:
    """Return how PostgreSQL is to be run by this user; `wanted` decides for root."""
    if os.geteuid() == 0:
        return wanted or ("userns" if user_namespaces_work() else "setuid")
    return "direct" if _has_a_name() or not user_namespaces_work() else "userns"


@cache
def _death_signals_work() -> bool:
    return shutil.which("setpriv") is not None and Path("/proc/self").exists()


def until_parent_dies(argv: list[str], signal_name: str = "TERM") -> list[str]:
    """Return a command that the kernel signals when the thread that started it ends; argv where it cannot."""
    return ["setpriv", "--pdeathsig", signal_name, *argv] if _death_signals_work() else argv


@dataclass(frozen=True, slots=True)
class RunAs:
    """One way to run a program as a user that PostgreSQL accepts."""

    mode: Mode

    def command(self, argv: list[str], *, death_signal: str = "") -> list[str]:
        """Return the argv to start; a change of user forgets the death signal, so it is set after."""
        inner = until_parent_dies(argv, death_signal) if death_signal else argv
        return [*_MAPPED, *inner] if self.mode == "userns" else inner

    def popen_options(self) -> dict[str, Any]:
        """Return what `subprocess` needs besides the argv."""
        return {"user": NOBODY, "group": NOBODY, "extra_groups": []} if self.mode == "setuid" else {}

    def give(self, path: Path) -> None:
        """Hand a file or folder of ours to the user that PostgreSQL runs as."""
        if self.mode == "setuid":
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
