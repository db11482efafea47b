"""The accounting database: made once from nothing, kept as a template, unpacked at every later start."""

import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from tests.slurm.lab import daemons
from tests.slurm.lab.configuration import ACCOUNTING, SETTINGS, associations, write_site
from tests.slurm.lab.layout import (
    PATH,
    PORTS_PER_SITE,
    SYSTEM_TABLES,
    Layout,
    PortRange,
    SiteLayout,
    write_users,
)
from tests.slurm.lab.namespace import Namespace, until
from tests.slurm.lab.sites import SITES, Site

FORMAT = 1
"""Raise when `prepare` changes in a way the key does not see."""
KEPT_TEMPLATES = 3


def cache_directory() -> Path:
    """Return where templates are kept, outside the repository."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "facet" / "slurm-lab"


def template_key(sites: Sequence[Site]) -> str:
    """Return what the template depends on, hashed: accounts, QoS, settings, the programs that wrote it."""
    programs = [Path(shutil.which(name, path=PATH) or name) for name in ("mariadbd", "slurmdbd", "slurmctld")]
    parts = [
        str(FORMAT),
        SETTINGS,
        ACCOUNTING,
        *(associations(site) + repr((site.nodes, sorted(site.qos.items()))) for site in sites),
        *(f"{path} {path.stat().st_size} {int(path.stat().st_mtime)}" for path in programs),
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def restore(layout: Layout, sites: Sequence[Site]) -> None:
    """Put a prepared database into the lab, preparing it first where none is kept yet (some ten seconds)."""
    if all(site in SITES for site in sites):
        sites = SITES  # one template serves every part of the four
    template = cache_directory() / f"{template_key(sites)}.tar"
    if not template.exists():
        prepare(sites, template)
    else:
        template.touch()
    _forget_old(template)
    layout.database.mkdir()
    subprocess.run(["tar", "xf", template, "-C", layout.database], check=True, timeout=60)


def _forget_old(template: Path) -> None:
    # Some 100 MB each, and a new one whenever the configuration changes.
    kept = sorted(template.parent.glob("*.tar"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in kept[KEPT_TEMPLATES:]:
        path.unlink(missing_ok=True)


def prepare(sites: Sequence[Site], template: Path) -> None:
    """Make the databases of these clusters in a lab of its own, stop it in order, and keep the data."""
    ports = PortRange(size=1 + PORTS_PER_SITE * len(sites))
    root = Path(tempfile.mkdtemp(prefix="facet-slurm-", dir="/tmp"))
    root.chmod(0o755)
    try:
        layout = Layout(root=root, port_base=ports.base)
        space = Namespace.start(root, attached=True, keep=[ports.fileno])
        try:
            _fill(layout, space, sites)
            _stop_in_order(space, sites)
        finally:
            space.stop()
        template.parent.mkdir(parents=True, exist_ok=True)
        unfinished = template.with_suffix(f".{os.getpid()}")
        subprocess.run(["tar", "cf", unfinished, "-C", layout.database, "data"], check=True, timeout=60)
        unfinished.rename(template)
    finally:
        ports.release()
        shutil.rmtree(root, ignore_errors=True)


def _fill(layout: Layout, space: Namespace, sites: Sequence[Site]) -> None:
    write_users(layout)
    bootstrap(layout)
    space.spawn(daemons.mariadbd(layout))
    until(lambda: daemons.is_listening(layout.database_port), "mariadbd")
    places = [layout.site(site, index) for index, site in enumerate(sites)]
    with ThreadPoolExecutor(len(sites)) as pool:
        list(pool.map(lambda site, place: _register(site, place, space), sites, places))


def bootstrap(layout: Layout) -> None:
    """Make an empty database server's own tables (about two seconds)."""
    (layout.database / "data").mkdir(parents=True)
    sql = "create database if not exists mysql;\nuse mysql;\n" + SYSTEM_TABLES.read_text()
    argv = [*daemons.MARIADB, *daemons.CARELESS, "--bootstrap", "--innodb-buffer-pool-size=16M"]
    with (layout.database / "bootstrap.log").open("wb") as log:
        subprocess.run(
            [*argv, f"--datadir={layout.database}/data"],
            input=sql.encode(),
            stdout=log,
            stderr=log,
            env=daemons.environment({}),
            check=True,
            timeout=90,
        )


def _register(site: Site, place: SiteLayout, space: Namespace) -> None:
    """Load accounts and QoS. GPU limits come last: their TRES exist once the controller has registered."""
    write_site(site, place, accounting=True)
    space.spawn(daemons.munged(site.name, place))
    until(lambda: daemons.is_munge_answering(place), f"munged of {site.name}")
    space.spawn(daemons.slurmdbd(site.name, place))
    until(lambda: daemons.is_listening(place.database_daemon_port), f"slurmdbd of {site.name}")
    for name, settings in site.qos.items():
        _sacctmgr(place, "add", "qos", name, *[word for word in settings if "gres/" not in word])
    _sacctmgr(place, "load", f"file={place.root}/associations.cfg")
    if site.qos:
        names = ",".join(site.accounts)
        allowed = "qos+=" + ",".join(site.qos)
        _sacctmgr(place, "modify", "account", "where", f"name={names}", "set", allowed)
    space.spawn(daemons.slurmctld(site.name, place))
    until(lambda: daemons.is_listening(place.controller_port), f"slurmctld of {site.name}")
    for name, settings in site.qos.items():
        if late := [word for word in settings if "gres/" in word]:
            until(partial(_has_set, place, name, late), f"GPU limits of {name}", step_s=0.2)


def _has_set(place: SiteLayout, qos: str, words: Sequence[str]) -> bool:
    return _run_sacctmgr(place, "modify", "qos", qos, "set", *words).returncode == 0


def _sacctmgr(place: SiteLayout, *words: str) -> None:
    done = _run_sacctmgr(place, *words)
    if done.returncode != 0:
        raise RuntimeError(f"sacctmgr {' '.join(words)}: {done.stdout}{done.stderr}")


def _run_sacctmgr(place: SiteLayout, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sacctmgr", "-i", *words],
        env=daemons.environment(place.env("root")),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def _stop_in_order(space: Namespace, sites: Sequence[Site]) -> None:
    controllers, accounting = (
        {f"{site.name}:{kind}" for site in sites} for kind in ("slurmctld", "slurmdbd")
    )
    for wave in (controllers, accounting, {"mariadbd"}):
        for name in wave:
            space.signal(name, signal.SIGTERM)
        until(partial(_are_gone, space, wave), f"the end of {', '.join(sorted(wave))}", step_s=0.1)


def _are_gone(space: Namespace, names: set[str]) -> bool:
    return names.isdisjoint(space.alive())
