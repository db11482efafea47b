"""Kill real Slurm daemons and parts of a running Facet at random while tasks go through both; then count.

Run as root where Slurm's packages are: .venv/bin/python -m benchmarks.chaos_slurm --tasks 100 --seed 7

Starts the lab's clusters and an installation of its own (web, Celery workers, clock, PostgreSQL, Valkey),
submits short jobs by the API, and kills with SIGKILL: slurmctld, slurmdbd and slurmd of any cluster, which
come back seconds later as under a site's service manager, and every part of Facet, which its supervisor
restarts. At the end sacct, asked from outside, is compared with what Facet says. Prints one table; exits 1
on any fault.
"""

import argparse
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.chaos_checks import (
    OWN_PARTS,
    ROOT,
    TERMINAL,
    Running,
    SiteJob,
    find,
    report,
    settle,
    submit_one,
)
from tests.slurm.lab.cluster import Cluster, Refused
from tests.slurm.lab.laboratory import Lab
from tests.slurm.lab.namespace import until
from tests.slurm.lab.sites import SITES

DAEMONS = ("slurmctld", "slurmdbd", "slurmd")
EVERY_PART = (*DAEMONS, *DAEMONS, *OWN_PARTS)
"""What is killed in one round, in an order drawn anew for each: as much of the sites as of Facet."""
MENDED_WITHIN_S = 120.0
STEADY = 3
"""Looks, a second apart, that find a daemon alive before it counts as back."""
OWN_NAMES = ("FACET_", "DATABASE_URL", "REDIS_URL", "DATA_DIR", "PORT")


class Sites:
    """The clusters, with a hand that kills their daemons and one that starts them again."""

    def __init__(self, lab: Lab, dice: random.Random) -> None:
        self.lab = lab
        self.dice = dice
        self.down: set[tuple[str, str]] = set()
        self.menders: list[threading.Thread] = []
        self.unmended: list[str] = []

    def kill(self, kind: str) -> str:
        """Kill a daemon of a random cluster, and have it back 1 to 8 seconds later; return its name."""
        name = self.dice.choice(list(self.lab.clusters))
        cluster, pause_s = self.lab[name], self.dice.uniform(1, 8)
        daemon = f"slurmd:{self._node(cluster)}" if kind == "slurmd" else kind
        if (name, daemon) in self.down:
            return f"{name}:{daemon} (down already)"
        self.down.add((name, daemon))
        cluster.kill(daemon)
        mender = threading.Thread(target=self._mend, args=(cluster, daemon, pause_s))
        mender.start()
        self.menders.append(mender)
        return f"{name}:{daemon} for {pause_s:.1f} s"

    def _node(self, cluster: Cluster) -> str:
        """Return a node that runs a job of ours, if there is one and the controller answers, else any."""
        answer = cluster.client("root", ("squeue", "-ah", "-t", "R", "-o", "%N"), timeout=3)
        busy = sorted(set(answer.stdout.split()) & set(cluster.site.node_names)) if answer.rc == 0 else []
        return self.dice.choice(busy or cluster.site.node_names)

    def _mend(self, cluster: Cluster, daemon: str, pause_s: float) -> None:
        """Start a daemon until it stays: a controller ends at once where its accounting is down too."""
        full, last_try = f"{cluster.name}:{daemon}", time.monotonic() + MENDED_WITHIN_S
        steady = 0
        time.sleep(pause_s)
        while steady < STEADY and time.monotonic() < last_try:
            if full in self.lab.space.alive():
                steady += 1
            else:
                steady = 0
                self.lab.space.spawn_again(full)
            time.sleep(1)
        if steady < STEADY:
            self.unmended.append(full)
        self.down.discard((cluster.name, daemon))

    def mend(self) -> None:
        """Wait until every daemon runs again, and return nodes that were marked down to service."""
        for mender in self.menders:
            mender.join()
        for cluster in self.lab.clusters.values():
            until(partial(_answers, cluster), f"slurmctld of {cluster.name}")
            out = cluster.ask("sinfo", "-ahN", "-t", "down,fail", "-o", "%N").split()
            for node in sorted(set(out)):  # one that came back by itself refuses
                cluster.client("root", ("scontrol", "update", f"nodename={node}", "state=resume"))

    def register_again(self) -> int:
        """Start the node daemons again where a job of seconds counts as running; return how many.

        A controller that was killed within seconds of a job's end recovers it as running from its last saved
        state, and does not notice before the node registers again, which takes Slurm a quarter of an hour.
        """
        count = 0
        for cluster in self.lab.clusters.values():
            for node in sorted(set(cluster.ask("squeue", "-ah", "-t", "R", "-o", "%N").split())):
                cluster.kill(f"slurmd:{node}")
                self.lab.space.spawn_again(f"{cluster.name}:slurmd:{node}")
                count += 1
        return count

    def accounting(self) -> list[SiteJob]:
        """Return all that accounting knows of our jobs, once it has heard of the end of each."""
        rows: list[SiteJob] = []
        for cluster in self.lab.clusters.values():
            rows += _accounting(cluster)
        return rows


def _answers(cluster: Cluster) -> bool:
    return cluster.client("root", ("sinfo", "-h"), timeout=5).rc == 0


def _accounting(cluster: Cluster) -> list[SiteJob]:
    columns = "--format=JobIDRaw,JobName,State,ExitCode"
    answer = cluster.client("root", ("sacct", "-aDXnP", "-S", "now-1days", columns))
    if answer.rc != 0:
        raise Refused(answer)
    return SiteJob.read(cluster.name, answer.stdout.splitlines())


def installed(place: Path, port: int) -> Running:
    """Start an installation that hears none of this shell's own settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OWN_NAMES)}
    small = {"FACET_CONTROL_WORKERS": "1", "FACET_DEFAULT_WORKERS": "1", "PYTHONPATH": str(ROOT)}
    place.mkdir()
    return Running(
        place, port, command=[sys.executable, "-P", "-m", "portal.supervise", "up"], env={**kept, **small}
    )


def join(facet: Running, lab: Lab) -> None:
    """Make the clusters systems of the installation, and take its researcher's token."""
    argv = [sys.executable, "-m", "benchmarks._slurm_systems", str(lab.layout.root)]
    done = subprocess.run(argv, env=facet.env, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    facet.token = done.stdout.split()[-1]


def submit_all(facet: Running, sites: Sites, given: argparse.Namespace, killed: Counter[str]) -> list[str]:
    """Submit at a steady pace, spread over the systems, killing one part after the other in random order."""
    dice, handles = sites.dice, []
    parts: list[str] = []
    next_kill = time.monotonic() + dice.uniform(2, 5)
    for number in range(given.tasks):
        system = dice.choice(list(sites.lab.clusters))
        handles.append(submit_one(facet, number, sleeps_s=dice.randint(1, 5), policy={"prefer": [system]}))
        if time.monotonic() > next_kill:
            parts = parts or dice.sample(EVERY_PART, len(EVERY_PART))
            strike(facet, sites, parts.pop(), number, killed)
            next_kill = time.monotonic() + dice.uniform(*given.kill_every_s)
        time.sleep(given.every_s)
    return handles


def strike(facet: Running, sites: Sites, part: str, number: int, killed: Counter[str]) -> None:
    """Kill one part, count it and say so."""
    if part in DAEMONS:
        said = sites.kill(part)
        hit = "already" not in said
    else:
        count = facet.kill(OWN_PARTS[part])
        said, hit = f"{part} ({count} processes)", count > 0
    killed[part] += hit
    print(f"  task {number}: killed {said}", flush=True)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run(facet: Running, lab: Lab, given: argparse.Namespace) -> int:
    """Do it all on a running lab and installation; 1 on any fault."""
    facet.wait_until_ready()
    join(facet, lab)
    sites, killed = Sites(lab, random.Random(given.seed)), Counter[str]()
    began = time.monotonic()
    handles = submit_all(facet, sites, given, killed)
    sites.mend()
    tasks: dict[str, Any] = settle(facet, handles, within_s=90)
    if any(task["state"] not in TERMINAL for task in tasks.values()):
        print(f"  nodes that registered again: {sites.register_again()}", flush=True)
        tasks = settle(facet, handles, within_s=given.settle_s)
    took_s = time.monotonic() - began
    found = find(facet, handles, tasks, sites.accounting(), systems=set(lab.clusters))
    print("killed:", ", ".join(f"{part} {times}" for part, times in sorted(killed.items())))
    code = report(found, given.tasks, took_s)
    for fault in sites.unmended:
        print("not mended:", fault)
    return code or int(bool(sites.unmended))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tasks", type=int, default=100)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--every-s", type=float, default=1.0, help="between two submissions")
    parser.add_argument("--kill-every-s", type=float, nargs=2, default=(3, 7), metavar=("FROM", "TO"))
    parser.add_argument("--clusters", nargs="+", default=["delta", "deltaai", "anvil", "vista"])
    parser.add_argument(
        "--settle-s",
        type=float,
        default=1200,
        help="wait this long for the last; a job that its site forgot takes 15 minutes",
    )
    parser.add_argument("--keep", action="store_true", help="keep the files of Facet and of the clusters")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what was started is stopped
    lab = Lab.start([site for site in SITES if site.name in given.clusters])
    try:
        folder = Path(tempfile.mkdtemp(prefix="facet-chaos-"))
        facet = installed(folder / "data", free_port())
        try:
            return run(facet, lab, given)
        finally:
            facet.stop()
            if given.keep:
                print("files:", folder, lab.layout.root)
            else:
                shutil.rmtree(folder)
    finally:
        lab.stop(keep=given.keep)


if __name__ == "__main__":
    sys.exit(main())
