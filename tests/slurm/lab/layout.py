"""Where everything of one lab lies: its run directory, its ports, and the programs it needs."""

import fcntl
import os
import random
import shutil
import socket
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.slurm.lab.sites import USERS, Site

HOST = socket.gethostname().split(".")[0]
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SYSTEM_TABLES = Path("/usr/share/mysql/mysql_system_tables.sql")
PROGRAMS = ("slurmctld", "slurmd", "slurmdbd", "sbatch", "sacctmgr", "munged", "mariadbd", "unshare", "tar")
PORTS_PER_SITE = 64
MAX_ROOT_CHARS = 48
"""Munge and step sockets lie up to 50 characters deeper and must stay under 108."""


def nss_wrapper() -> Path | None:
    """Return the library that gives our users a name without touching /etc/passwd, None where absent."""
    return next(Path("/usr/lib").glob("*/libnss_wrapper.so"), None)


def lacking() -> list[str]:
    """Return what this machine lacks to run the lab, as words for a person; empty when nothing."""
    gaps = [f"program {name}" for name in PROGRAMS if shutil.which(name, path=PATH) is None]
    if nss_wrapper() is None:
        gaps.append("libnss_wrapper.so")
    if not SYSTEM_TABLES.exists():
        gaps.append(str(SYSTEM_TABLES))
    if not any(Path("/usr/lib").glob("*/slurm*/accounting_storage_slurmdbd.so")):
        gaps.append("Slurm's accounting_storage_slurmdbd.so")
    if not any(Path("/usr/lib").glob("*/slurm*/accounting_storage_mysql.so")):
        gaps.append("Slurm's accounting_storage_mysql.so")
    if os.geteuid() != 0:
        gaps.append("root (to submit as several users)")
    elif "program unshare" not in gaps and not _may_unshare():
        gaps.append("the right to make a pid namespace (unshare --pid)")
    return gaps


def _may_unshare() -> bool:
    argv = ["unshare", "--pid", "--fork", "--mount-proc", "true"]
    return subprocess.run(argv, capture_output=True, check=False, timeout=20).returncode == 0


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths and ports of one lab; everything else is derived from these two."""

    root: Path
    port_base: int

    def __post_init__(self) -> None:
        if len(str(self.root)) > MAX_ROOT_CHARS:
            raise ValueError(f"{self.root}: longer than {MAX_ROOT_CHARS} characters, sockets would not fit")

    @property
    def control(self) -> Path:
        """The supervisor's socket."""
        return self.root / "control"

    @property
    def database(self) -> Path:
        """MariaDB's directory (`data/` below it)."""
        return self.root / "db"

    @property
    def database_port(self) -> int:
        """MariaDB's port, the first of the range."""
        return self.port_base

    def site(self, site: Site, index: int) -> "SiteLayout":
        """Return the place of the `index`-th cluster."""
        first = self.port_base + 1 + index * PORTS_PER_SITE
        return SiteLayout(lab=self, root=self.root / site.name, controller_port=first)

    def env(self, user: str) -> dict[str, str]:
        """Return the variables by which processes know the lab's users, and the user's own."""
        home = "/root" if user == "root" else str(self.root / "home" / user)
        return {
            "LD_PRELOAD": str(nss_wrapper()),
            "NSS_WRAPPER_PASSWD": str(self.root / "passwd"),
            "NSS_WRAPPER_GROUP": str(self.root / "group"),
            "USER": user,
            "LOGNAME": user,
            "HOME": home,
        }


@dataclass(frozen=True, slots=True)
class SiteLayout:
    """Paths and ports of one cluster."""

    lab: Layout
    root: Path
    controller_port: int

    @property
    def database_daemon_port(self) -> int:
        """The port of slurmdbd."""
        return self.controller_port + 1

    @property
    def first_node_port(self) -> int:
        """The port of the first slurmd; the others follow."""
        return self.controller_port + 2

    @property
    def munge_socket(self) -> Path:
        """The socket of this cluster's own munged."""
        return self.root / "munge" / "sock"

    @property
    def jobs(self) -> Path:
        """A directory every user may write to: where clients run and jobs leave their output."""
        return self.root / "jobs"

    def env(self, user: str) -> dict[str, str]:
        """Return what makes any Slurm client speak to this cluster as `user`."""
        return {"SLURM_CONF": str(self.root / "slurm.conf"), **self.lab.env(user)}


class PortRange:
    """A range of ports nobody listens on, ours until `release`, however many labs run side by side."""

    def __init__(self, *, size: int) -> None:
        locks = Path("/tmp/facet-slurm-ports")  # one place for every lab of this machine
        locks.mkdir(mode=0o700, exist_ok=True)
        for base in _bases(size):
            lock = (locks / str(base)).open("w")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                lock.close()
                continue
            if all(_is_free(port) for port in range(base, base + size)):
                self.base, self._lock = base, lock
                return
            lock.close()
        raise RuntimeError(f"no {size} free ports in a row below the ephemeral range")

    @property
    def fileno(self) -> int:
        """The locked file's descriptor; whoever inherits it keeps the range."""
        return self._lock.fileno()

    def release(self) -> None:
        """Let go of the range (a process that inherited the lock still holds it)."""
        self._lock.close()


def _bases(size: int) -> Iterable[int]:
    # Whole multiples, so that two ranges overlap only when they are the same lock. Below 32768 nothing
    # of the kernel's own choosing can take a port between the check and the daemon's bind.
    step = max(size, 512)
    bases = list(range(12_288, 32_768 - step, step))
    random.shuffle(bases)
    return bases


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def write(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Write a text file with exactly this mode."""
    path.write_text(text)
    path.chmod(mode)


def write_users(layout: Layout) -> None:
    """Write the passwd and group files of the lab and its users' homes."""
    passwd, group = Path("/etc/passwd").read_text(), Path("/etc/group").read_text()
    for user, uid in USERS.items():
        home = layout.root / "home" / user
        home.mkdir(parents=True, exist_ok=True)
        os.chown(home, uid, uid)
        passwd += f"{user}:x:{uid}:{uid}::{home}:/bin/bash\n"
        group += f"{user}:x:{uid}:\n"
    write(layout.root / "passwd", passwd)
    write(layout.root / "group", group)
