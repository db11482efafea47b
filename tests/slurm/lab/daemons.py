"""How each daemon of the lab is started, in the foreground, and how to know that it answers."""

import os
import socket
import subprocess
from collections.abc import Sequence

from tests.slurm.lab.layout import PATH, Layout, SiteLayout
from tests.slurm.lab.namespace import Spec

MARIADB = ("mariadbd", "--no-defaults", "--user=root", "--innodb-log-file-size=8M", "--skip-grant-tables")
CARELESS = ("--innodb-flush-method=nosync", "--sync-frm=OFF")
"""A lab's database need not survive a power cut."""


def environment(variables: dict[str, str]) -> dict[str, str]:
    """Return a whole environment: nothing of the caller's own leaks into daemons or clients."""
    return {"PATH": PATH, "LANG": "C.UTF-8", "TZ": os.environ.get("TZ", "UTC"), **variables}


def mariadbd(layout: Layout) -> Spec:
    """Return the one database server, 64 MiB of cache, listening on loopback only."""
    d = layout.database
    argv = (
        *MARIADB,
        *CARELESS,
        f"--datadir={d}/data",
        f"--socket={d}/sock",
        f"--pid-file={d}/pid",
        f"--port={layout.database_port}",
        "--bind-address=127.0.0.1",
        "--innodb-buffer-pool-size=64M",
        "--innodb-lock-wait-timeout=900",
        "--innodb-flush-log-at-trx-commit=0",
        "--innodb-doublewrite=0",
        "--innodb-stats-persistent=0",
        "--aria-pagecache-buffer-size=8M",
        "--key-buffer-size=1M",
        "--max-connections=60",
        "--skip-name-resolve",
        "--performance-schema=OFF",
        "--skip-log-bin",
    )
    return Spec("mariadbd", argv, environment({}), f"{d}/log")


def munged(site: str, place: SiteLayout) -> Spec:
    """Return the cluster's own munged, with its own key."""
    d = place.root / "munge"
    argv = (
        "munged",
        "-F",
        "--force",
        f"--socket={place.munge_socket}",
        f"--key-file={d}/munge.key",
        f"--pid-file={d}/pid",
        f"--log-file={d}/log",
        f"--seed-file={d}/seed",
        "--num-threads=2",
    )
    return Spec(f"{site}:munged", argv, environment(place.lab.env("root")), f"{d}/out")


def slurmdbd(site: str, place: SiteLayout) -> Spec:
    """Return the accounting daemon."""
    return _slurm(site, place, "slurmdbd", ("slurmdbd", "-D"))


def slurmctld(site: str, place: SiteLayout) -> Spec:
    """Return the controller."""
    return _slurm(site, place, "slurmctld", ("slurmctld", "-D"))


def slurmd(site: str, place: SiteLayout, node: str) -> Spec:
    """Return one node's daemon."""
    return _slurm(site, place, f"slurmd:{node}", ("slurmd", "-D", "-N", node))


def _slurm(site: str, place: SiteLayout, name: str, argv: Sequence[str]) -> Spec:
    log = name.split(":", 1)[0]
    return Spec(f"{site}:{name}", argv, environment(place.env("root")), f"{place.root}/log/{log}.out")


def is_listening(port: int) -> bool:
    """Whether something accepts connections there."""
    try:
        socket.create_connection(("127.0.0.1", port), 0.5).close()
    except OSError:
        return False
    return True


def is_munge_answering(place: SiteLayout) -> bool:
    """Whether munged gives out a credential (its socket file alone outlives a killed daemon)."""
    argv = ["munge", "-n", "-S", str(place.munge_socket)]
    done = subprocess.run(argv, capture_output=True, check=False, timeout=10, env=environment({}))
    return done.returncode == 0
