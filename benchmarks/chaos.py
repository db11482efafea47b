"""Kill parts of a running Facet at random while tasks go through it, then count what was lost or doubled.

    .venv/bin/python benchmarks/chaos.py --tasks 200 --seed 7

Starts its own demo in a temporary directory, submits tasks to the emulated systems by the API, kills web,
workers, clock, PostgreSQL, Valkey and the emulated clusters' daemon with SIGKILL, and at the end compares
what Facet says with what each scheduler's accounting says. Prints one table; exits 1 on any fault.
`chaos_slurm.py` does the same on real Slurm.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.chaos_checks import (
    OWN_PARTS,
    ROOT,
    Findings,
    Running,
    SiteJob,
    find,
    report,
    settle,
    submit_one,
)

PARTS = {
    **OWN_PARTS,
    "sandbox daemon": "portal.demo.sandbox",
    "link (Globus stand-in)": "portal.demo.globus_serve",
}
"""Words in the command line of each part's processes."""


class Demo(Running):
    """A demo of its own, and the API as its first researcher uses it."""

    def __init__(
        self, place: Path, port: int, *, command: Sequence[str] = (), env: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(
            place, port, command=command or [sys.executable, str(ROOT / "run.py"), "demo"], env=env
        )

    def wait_ready(self) -> None:
        offered = self.place / "demo.json"
        self.wait_until_there(offered)
        self.token = json.loads(offered.read_text())["users"][0]["token"]

    def compare(self, handles: list[str], tasks: dict[str, dict[str, object]]) -> Findings:
        """Compare what Facet says with the accounting of every emulated system."""
        places = sorted((self.place / "sandbox").iterdir())
        rows = [row for place in places for row in jobs_at(place)]
        return find(self, handles, tasks, rows, systems={place.name for place in places})


def jobs_at(place: Path) -> list[SiteJob]:
    """Return what the accounting of an emulated system knows of our jobs."""
    env = {**os.environ, "FACET_SANDBOX": str(place), "FACET_SANDBOX_USER": "alice"}
    words = ("-D", "-X", "-n", "-P", "-S", "now-1days", "--format=JobIDRaw,JobName,State,ExitCode")
    argv = [str(place / "bin" / "sacct"), *words]
    out = subprocess.run(argv, env=env, capture_output=True, text=True, check=True).stdout
    return SiteJob.read(place.name, out.splitlines())


def submit_all(demo: Demo, count: int, every_s: float, dice: random.Random) -> list[str]:
    """Submit tasks at a steady pace, killing a random part between some of them; return the handles."""
    handles = []
    next_kill = time.monotonic() + dice.uniform(2, 6)
    for number in range(count):
        handles.append(submit_one(demo, number, sleeps_s=dice.choice([0, 1, 2, 3])))
        if time.monotonic() > next_kill:
            part = dice.choice(list(PARTS))
            print(f"  task {number}: killed {part} ({demo.kill(PARTS[part])} processes)", flush=True)
            next_kill = time.monotonic() + dice.uniform(4, 12)
        time.sleep(every_s)
    return handles


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tasks", type=int, default=100)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--every-s", type=float, default=0.3)
    parser.add_argument("--port", type=int, default=8391)
    parser.add_argument("--settle-s", type=float, default=600, help="wait this long for the last to end")
    given = parser.parse_args()
    dice = random.Random(given.seed)  # a repeatable run
    with tempfile.TemporaryDirectory(prefix="facet-chaos-") as folder:
        demo = Demo(Path(folder) / "data", given.port)
        demo.place.mkdir()
        try:
            demo.wait_ready()
            began = time.monotonic()
            handles = submit_all(demo, given.tasks, given.every_s, dice)
            tasks = settle(demo, handles, within_s=given.settle_s)
            took_s = time.monotonic() - began
            return report(demo.compare(handles, tasks), given.tasks, took_s)
        finally:
            demo.stop()


if __name__ == "__main__":
    sys.exit(main())
