"""`python -m tests.slurm.lab`: a lab for benchmarks and for looking around, outside the test suite.

start [ROOT] [--clusters delta,vista] [--no-accounting]   start, and stay until stopped
stop [ROOT] · status [ROOT]                               end it · its daemons, processes and memory
env CLUSTER [--user alice] [--root ROOT]                  lines for a shell: `eval "$(… env delta)"`
"""

import argparse
import json
import shlex
import sys
import time
from collections import Counter
from pathlib import Path

from tests.slurm.lab.laboratory import Lab
from tests.slurm.lab.sites import SITES

ROOT = Path("/tmp/facet-slurm")


def _say(value: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(value) + "\n")


def start(words: argparse.Namespace) -> None:
    """Start a lab that outlives this process."""
    names = words.clusters.split(",")
    unknown = set(names) - {site.name for site in SITES}
    if unknown:
        raise SystemExit(f"unknown clusters: {', '.join(sorted(unknown))}")
    begun = time.monotonic()
    sites = [site for site in SITES if site.name in names]
    lab = Lab.start(sites, accounting=not words.no_accounting, root=words.root, attached=False)
    seconds = round(time.monotonic() - begun, 2)
    _say({"root": str(lab.layout.root), "clusters": list(lab.clusters), "seconds": seconds})


def stop(words: argparse.Namespace) -> None:
    """End a lab and remove its files."""
    Lab.attach(words.root).stop()


def status(words: argparse.Namespace) -> None:
    """Print each cluster's nodes and queue, the processes by program, and their memory (PSS)."""
    lab = Lab.attach(words.root)
    programs = Counter(line.split()[0].split("/")[-1] for line in lab.space.processes().values())
    memory_kib = 0
    for pid in lab.space.processes():
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        memory_kib += int(rollup.split("\nPss:")[1].split()[0])
    clusters = {
        name: {"nodes": Counter(cluster.node_states().values()), "jobs": len(cluster.queue())}
        for name, cluster in lab.clusters.items()
    }
    _say({"clusters": clusters, "programs": programs, "memory_mib": memory_kib // 1024})


def env(words: argparse.Namespace) -> None:
    """Print what a shell exports to speak to one cluster."""
    for name, value in Lab.attach(words.root)[words.cluster].env(words.user).items():
        if name not in {"USER", "LOGNAME", "HOME"}:
            sys.stdout.write(f"export {name}={shlex.quote(value)}\n")


def main(argv: list[str]) -> None:
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(prog="python -m tests.slurm.lab", description=__doc__)
    commands = parser.add_subparsers(required=True)
    for do in (start, stop, status):
        command = commands.add_parser(do.__name__, help=do.__doc__)
        command.add_argument("root", nargs="?", type=Path, default=ROOT)
        command.set_defaults(do=do)
        if do is start:
            command.add_argument("--clusters", default=",".join(site.name for site in SITES))
            command.add_argument("--no-accounting", action="store_true")
    command = commands.add_parser("env", help=env.__doc__)
    command.add_argument("cluster")
    command.add_argument("--user", default="root")
    command.add_argument("--root", type=Path, default=ROOT)
    command.set_defaults(do=env)
    words = parser.parse_args(argv)
    words.do(words)


if __name__ == "__main__":
    main(sys.argv[1:])
