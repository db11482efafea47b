"""Kill parts of a running Facet at random while tasks go through it, then count what was lost or doubled.

    .venv/bin/python benchmarks/chaos.py --tasks 200 --seed 7

Starts its own demo in a temporary directory, submits tasks to the emulated systems by the API, kills web,
workers, clock, PostgreSQL, Valkey and the emulated clusters' daemon with SIGKILL, and at the end compares
what Facet says with what each scheduler's accounting says. Prints one table; exits 1 on any fault.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TERMINAL = {"succeeded", "failed", "cancelled"}
ENDED = {*TERMINAL, "superseded"}
PARTS = {
    "web": "uvicorn",
    "control worker": "control@",
    "default worker": "default@",
    "clock": "celery.beat",
    "postgres": "/postgres -D",
    "valkey": "valkey-server",
    "sandbox daemon": "portal.demo.sandbox",
    "link (Globus stand-in)": "portal.demo.globus_serve",
    "link (command in flight)": "links/local_runner",
}
"""Words in the command line of each part's processes."""


class Demo:
    """A demo of its own, and the API as one researcher uses it."""

    def __init__(
        self, place: Path, port: int, *, command: Sequence[str] = (), env: Mapping[str, str] | None = None
    ) -> None:
        self.place = place
        self.env = {**(os.environ if env is None else env), "PORT": str(port), "DATA_DIR": str(place)}
        self.url = f"http://127.0.0.1:{port}/api/v1"
        self.log = (place.parent / "demo.log").open("wb")
        self.process = subprocess.Popen(
            command or [sys.executable, str(ROOT / "run.py"), "demo"],
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
            start_new_session=True,
        )
        self.token = ""

    def wait_ready(self) -> None:
        until = time.monotonic() + 180
        while not (self.place / "demo.json").exists():
            if self.process.poll() is not None or time.monotonic() > until:
                sys.exit(f"the demo did not start; see {self.place.parent}/demo.log")
            time.sleep(0.3)
        self.token = json.loads((self.place / "demo.json").read_text())["users"][0]["token"]

    def call(self, method: str, path: str, body: object = None, **headers: str) -> Any:
        """Call the API, again and again while it is down; the idempotency key makes that safe."""
        data = None if body is None else json.dumps(body).encode()
        until = time.monotonic() + 180
        while True:
            request = urllib.request.Request(  # loopback only
                self.url + path,
                data,
                {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json", **headers},
                method=method,
            )
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                if error.code < 500 and error.code not in (409, 429):
                    raise SystemExit(f"{method} {path}: {error.code} {error.read()[:500]!r}") from None
            except (OSError, ValueError):
                pass
            if time.monotonic() > until:
                raise SystemExit(f"{method} {path}: no answer for three minutes")
            time.sleep(0.5)

    def pids(self, words: str) -> list[int]:
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                environ = (entry / "environ").read_bytes()
            except OSError:
                continue
            if words in command and (str(self.place) in command or str(self.place).encode() in environ):
                found.append(int(entry.name))
        return found

    def kill(self, part: str) -> int:
        pids = self.pids(PARTS[part])
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        return len(pids)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self.log.close()


def submit_one(demo: Demo, number: int, *, sleeps_s: int) -> str:
    """Submit one life: every tenth fails by itself, every second asks for a GPU; return its handle."""
    body = {
        "name": f"chaos {number}",
        "command": f"sleep {sleeps_s}; exit {0 if number % 10 else 3}",
        "envelope": {"gpus": number % 2, "cpus": 2, "walltime_s": 600},
        "retry": {"max_attempts": 4},
        "client_ref": f"chaos-{number}",
    }
    key = {"Idempotency-Key": f"chaos-{number}"}
    handle: str = demo.call("POST", "/skills/submit_task?wait_s=0", body, **key)["id"]
    return handle


def submit_all(demo: Demo, count: int, every_s: float, dice: random.Random) -> list[str]:
    """Submit tasks at a steady pace, killing a random part between some of them; return the handles."""
    handles = []
    next_kill = time.monotonic() + dice.uniform(2, 6)
    for number in range(count):
        handles.append(submit_one(demo, number, sleeps_s=dice.choice([0, 1, 2, 3])))
        if time.monotonic() > next_kill:
            part = dice.choice(list(PARTS))
            print(f"  task {number}: killed {part} ({demo.kill(part)} processes)", flush=True)
            next_kill = time.monotonic() + dice.uniform(4, 12)
        time.sleep(every_s)
    return handles


def unbalanced(demo: Demo) -> list[str]:
    """Return the allocations that still hold something, or whose ledger does not add up to their totals."""
    lines: dict[str, list[dict[str, Any]]] = {}
    for line in everything(demo, "/charges"):
        lines.setdefault(line["allocation"], []).append(line)
    faults = []
    for allocation in everything(demo, "/allocations"):
        own = lines.get(allocation["id"], [])
        by_attempt: dict[str, set[str]] = {}
        for line in own:
            by_attempt.setdefault(line["attempt"], set()).add(line["kind"])
        used = sum(Decimal(str(line["amount"])) for line in own if line["kind"] == "settle")
        open_ = [attempt for attempt, kinds in by_attempt.items() if kinds == {"reserve"}]
        if open_ or Decimal(str(allocation["reserved"])) != 0 or Decimal(str(allocation["used"])) != used:
            faults.append(f"{allocation['system']}/{allocation['account']}: {len(open_)} open, used {used}")
    return faults


def everything(demo: Demo, path: str) -> list[dict[str, Any]]:
    """Return every row of a list of the API."""
    rows: list[dict[str, Any]] = []
    cursor = ""
    while True:
        page = demo.call("GET", f"{path}?limit=200{cursor}")
        rows += page["results"]
        if not page["next"]:
            return rows
        cursor = f"&cursor={page['next']}"


def settle(demo: Demo, handles: list[str], within_s: float) -> dict[str, Any]:
    """Wait until every task has ended; return the tasks by handle."""
    until = time.monotonic() + within_s
    tasks: dict[str, Any] = {}
    while time.monotonic() < until:
        for handle in handles:
            if tasks.get(handle, {}).get("state") not in TERMINAL:
                tasks[handle] = demo.call("GET", f"/tasks/{handle}")
        open_ = [task for task in tasks.values() if task["state"] not in TERMINAL]
        if not open_:
            break
        time.sleep(2)
    return tasks


def jobs_at_sites(demo: Demo) -> Counter[str]:
    """Return how many jobs each submit key has in the accounting of all sites."""
    found: Counter[str] = Counter()
    for place in sorted((demo.place / "sandbox").iterdir()):
        env = {**os.environ, "FACET_SANDBOX": str(place), "FACET_SANDBOX_USER": "alice"}
        argv = [str(place / "bin" / "sacct"), "-X", "-n", "-P", "-S", "now-1days", "--format=JobName,State"]
        out = subprocess.run(argv, env=env, capture_output=True, text=True, check=True).stdout
        for line in out.splitlines():
            name = line.split("|")[0]
            if name.startswith("chaos"):
                found[name] += 1
    return found


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
            return report(find(demo, handles, tasks), given.tasks, took_s)
        finally:
            demo.stop()


@dataclass(frozen=True, slots=True)
class Findings:
    """What is wrong after the chaos; every list empty and no word: nothing."""

    stuck: list[dict[str, Any]]
    wrong: list[dict[str, Any]]
    doubled: dict[str, int]
    still_open: list[str]
    ledger: list[str]
    lost: int
    chain: str
    jobs: int
    with_job: int

    @property
    def are_clean(self) -> bool:
        """Whether nothing is lost, doubled, stuck, wrong, broken or out of balance."""
        faults = (self.stuck, self.wrong, self.doubled, self.still_open, self.ledger, self.lost, self.chain)
        return not any(faults)


def find(demo: Demo, handles: list[str], tasks: dict[str, Any]) -> Findings:
    """Compare what Facet says with what every scheduler's accounting says."""
    attempts = everything(demo, "/attempts")
    jobs = jobs_at_sites(demo)
    verify = subprocess.run(
        [sys.executable, str(ROOT / "run.py"), "manage", "verify_events"],
        env=demo.env,
        capture_output=True,
        text=True,
        check=False,
    )
    ordered = [tasks[handle] for handle in handles]
    return Findings(
        stuck=[task for task in ordered if task["state"] not in TERMINAL],
        wrong=[
            task
            for number, task in enumerate(ordered)
            if task["state"] in TERMINAL and task["state"] != ("succeeded" if number % 10 else "failed")
        ],
        doubled={name: times for name, times in jobs.items() if times > 1},
        still_open=[attempt["id"] for attempt in attempts if attempt["state"] not in ENDED],
        ledger=unbalanced(demo),
        lost=len(handles) - len(set(handles)),
        chain="" if verify.returncode == 0 else verify.stdout + verify.stderr,
        jobs=sum(jobs.values()),
        with_job=sum(bool(attempt["job_id"]) for attempt in attempts),
    )


def report(found: Findings, count: int, took_s: float) -> int:
    """Print the table; 1 when anything is wrong."""
    rows = {
        "tasks submitted": count,
        "tasks lost": found.lost,
        "tasks stuck": len(found.stuck),
        "wrong final states": len(found.wrong),
        "jobs at the sites": found.jobs,
        "attempts that know their job": found.with_job,
        "submit keys with two jobs": len(found.doubled),
        "attempts still open": len(found.still_open),
        "ledger": "; ".join(found.ledger) or "balanced",
        "event chain": found.chain or "unbroken",
        "seconds": round(took_s),
    }
    for name, value in rows.items():
        print(f"{name:32} {value}")
    for task in (*found.stuck, *found.wrong)[:5]:
        print(json.dumps(task, indent=1)[:2000])
    print("doubled:", found.doubled) if found.doubled else None
    return 0 if found.are_clean else 1


if __name__ == "__main__":
    sys.exit(main())
