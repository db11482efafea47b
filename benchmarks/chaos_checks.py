"""A running Facet under chaos, seen from outside: its API, its processes, and what is wrong at the end.

Shared by `chaos.py` (emulated systems) and `chaos_slurm.py` (real Slurm). Nothing here knows a table: what
Facet says is read from the API, what the sites say comes as rows of their accounting.
"""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TERMINAL = {"succeeded", "failed", "cancelled"}
ENDED = {*TERMINAL, "superseded"}
OWN_PARTS = {
    "web": "uvicorn",
    "control worker": "control@",
    "default worker": "default@",
    "clock": "celery.beat",
    "postgres": "/postgres -D",
    "valkey": "valkey-server",
    "link (command in flight)": "links/local_runner",
}
"""Words in the command line of the processes of each part that every installation has."""
EVERY_FAILING = 10
"""Each tenth life fails by itself, with `EXIT_CODE`."""
EXIT_CODE = 3
RESTARTED = {"REQUEUED", "NODE_FAIL", "PREEMPTED"}
"""How accounting ends a row of a job that the site itself starts again under the same id."""
_SAYS = {"succeeded": "COMPLETED", "cancelled": "CANCELLED"}
_RAN_TO_ITS_END = {"COMPLETED", "FAILED"}


class Running:
    """An installation of its own in a data directory, and the API as one researcher uses it."""

    def __init__(
        self, place: Path, port: int, *, command: Sequence[str], env: Mapping[str, str] | None = None
    ) -> None:
        self.place = place
        self.env = {**(os.environ if env is None else env), "PORT": str(port), "DATA_DIR": str(place)}
        self.root_url = f"http://127.0.0.1:{port}"
        self.log = (place.parent / "facet.log").open("wb")
        self.process = subprocess.Popen(
            command,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
            start_new_session=True,
        )
        self.token = ""

    def wait_until_there(self, path: Path) -> None:
        """Wait for a file that says that the installation is up."""
        until = time.monotonic() + 180
        while not path.exists():
            self.must_run(until)
            time.sleep(0.3)

    def wait_until_ready(self) -> None:
        """Wait until `/readyz` answers 200."""
        until = time.monotonic() + 180
        while True:
            try:
                with urllib.request.urlopen(f"{self.root_url}/readyz", timeout=10):  # loopback only
                    return
            except OSError:
                self.must_run(until)
                time.sleep(0.3)

    def must_run(self, until: float) -> None:
        """End this program when the installation did, or `until` is past."""
        if self.process.poll() is not None or time.monotonic() > until:
            sys.exit(f"Facet did not start:\n{Path(self.log.name).read_text()[-3000:]}")

    def manage(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run one management command against it."""
        argv = [sys.executable, "-P", "-m", "portal.supervise", "manage", *words]
        env = {**self.env, "PYTHONPATH": str(ROOT)}
        return subprocess.run(argv, env=env, capture_output=True, text=True, check=False)

    def call(self, method: str, path: str, body: object = None, **headers: str) -> Any:
        """Call the API, again and again while it is down; the idempotency key makes that safe."""
        data = None if body is None else json.dumps(body).encode()
        until = time.monotonic() + 180
        while True:
            request = urllib.request.Request(  # loopback only
                f"{self.root_url}/api/v1{path}",
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

    def everything(self, path: str) -> list[dict[str, Any]]:
        """Return every row of a list of the API."""
        rows: list[dict[str, Any]] = []
        cursor = ""
        while True:
            page = self.call("GET", f"{path}?limit=200{cursor}")
            rows += page["results"]
            if not page["next"]:
                return rows
            cursor = f"&cursor={page['next']}"

    def pids(self, words: str) -> list[int]:
        """Return the processes of this installation with these words in their command line."""
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

    def kill(self, words: str) -> int:
        """Kill them at once; return how many there were."""
        pids = self.pids(words)
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        return len(pids)

    def stop(self) -> None:
        """Stop it in order."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self.log.close()


def submit_one(facet: Running, number: int, *, sleeps_s: int, **more: Any) -> str:
    """Submit one life: every tenth fails by itself, every second asks for a GPU; return its handle."""
    body = {
        "name": f"chaos {number}",
        "command": f"sleep {sleeps_s}; exit {0 if number % EVERY_FAILING else EXIT_CODE}",
        "envelope": {"gpus": number % 2, "cpus": 2, "walltime_s": 600, **more},
        "retry": {"max_attempts": 4},
        "client_ref": f"chaos-{number}",
    }
    key = {"Idempotency-Key": f"chaos-{number}"}
    handle: str = facet.call("POST", "/skills/submit_task?wait_s=0", body, **key)["id"]
    return handle


def settle(facet: Running, handles: list[str], within_s: float) -> dict[str, Any]:
    """Wait until every task has ended; return the tasks by handle."""
    until = time.monotonic() + within_s
    tasks: dict[str, Any] = {}
    while time.monotonic() < until:
        for handle in handles:
            if tasks.get(handle, {}).get("state") not in TERMINAL:
                tasks[handle] = facet.call("GET", f"/tasks/{handle}")
        open_ = [task for task in tasks.values() if task["state"] not in TERMINAL]
        if not open_:
            break
        time.sleep(2)
    return tasks


@dataclass(frozen=True, slots=True)
class SiteJob:
    """One row of a site's accounting: a job, or one start of a job that the site started again."""

    system: str
    job_id: str
    key: str
    """The job's name, which is the attempt's submit key."""
    state: str
    exit_code: int

    @classmethod
    def read(cls, system: str, lines: Iterable[str]) -> "list[SiteJob]":
        """Return our rows of `sacct -n -P --format=JobIDRaw,JobName,State,ExitCode`."""
        rows = (line.split("|") for line in lines)
        return [
            cls(system, job_id, name, state.split()[0], int(code.split(":")[0]))
            for job_id, name, state, code in rows
            if name.startswith("chaos")
        ]

    def __str__(self) -> str:
        return f"{self.system}/{self.job_id} {self.state} {self.exit_code}"


@dataclass(frozen=True, slots=True)
class Findings:
    """What is wrong after the chaos; every list empty and no word: nothing."""

    stuck: list[dict[str, Any]]
    wrong: list[dict[str, Any]]
    contradicted: list[str]
    doubled: dict[str, list[str]]
    still_open: list[str]
    ledger: list[str]
    lost: int
    chain: str
    jobs: int
    requeued: int
    """Rows of starts that the site itself repeated: no fault."""
    with_job: int
    attempts: int
    causes: Mapping[str, int]
    troubled: list[str]
    """Attempts that the chaos ended, with the reason that Facet gives: no fault, the task went on."""

    @property
    def are_clean(self) -> bool:
        """Whether nothing is lost, doubled, stuck, wrong, broken or out of balance."""
        faults = (self.stuck, self.wrong, self.contradicted, self.doubled, self.still_open, self.ledger)
        return not any((*faults, self.lost, self.chain))


def find(
    facet: Running,
    handles: list[str],
    tasks: dict[str, Any],
    rows: list[SiteJob],
    *,
    systems: Collection[str],
) -> Findings:
    """Compare what Facet says with what accounting says, `rows` being all of it at `systems`."""
    attempts = facet.everything("/attempts")
    verify = facet.manage("verify_events")
    ordered = [tasks[handle] for handle in handles]
    jobs = [row for row in rows if row.state not in RESTARTED]
    return Findings(
        stuck=[task for task in ordered if task["state"] not in TERMINAL],
        wrong=[
            task
            for number, task in enumerate(ordered)
            if task["state"] in TERMINAL
            and task["state"] != ("succeeded" if number % EVERY_FAILING else "failed")
        ],
        contradicted=contradictions([row for row in attempts if row["system"] in systems], rows),
        doubled=doubles(jobs),
        still_open=[attempt["id"] for attempt in attempts if attempt["state"] not in ENDED],
        ledger=unbalanced(facet),
        lost=len(handles) - len(set(handles)),
        chain="" if verify.returncode == 0 else verify.stdout + verify.stderr,
        jobs=len(jobs),
        requeued=len(rows) - len(jobs),
        with_job=sum(bool(attempt["job_id"]) for attempt in attempts),
        attempts=len(attempts),
        causes=Counter(str(row["cause"]) for row in attempts if row["state"] != "succeeded"),
        troubled=[
            f"{row['system']}/{row['job_id']} {row['cause']}: {row['reason_raw'] or row['reason_explained']}"
            for row in attempts
            if row["state"] != "succeeded" and row["cause"] != "exit_code"
        ],
    )


def doubles(jobs: Iterable[SiteJob]) -> dict[str, list[str]]:
    """Return the keys that more than one job has, and these jobs."""
    by_key: dict[str, list[str]] = {}
    for job in jobs:
        by_key.setdefault(job.key, []).append(str(job))
    return {key: same for key, same in by_key.items() if len(same) > 1}


def contradictions(attempts: Iterable[Mapping[str, Any]], rows: Iterable[SiteJob]) -> list[str]:
    """Return every attempt whose end accounting tells otherwise, and every job that no attempt knows."""
    last = {row.key.rpartition("-")[2]: row for row in rows}
    found = []
    for attempt in attempts:
        row = last.pop(attempt["id"].removeprefix("att_"), None)
        if not _agrees(attempt, row):
            found.append(f"{attempt['id']} {attempt['state']} ({attempt['cause']}), accounting: {row}")
    return found + [f"no attempt has {row.key}: {row}" for row in last.values()]


def _agrees(attempt: Mapping[str, Any], row: SiteJob | None) -> bool:
    state: str = attempt["state"]
    if row is None:  # only what never was at the site, or what the site forgot, may be absent there
        return state != "succeeded" and attempt["cause"] != "exit_code"
    if attempt["job_id"] is not None and attempt["job_id"] != row.job_id:
        return False
    if attempt["cause"] == "exit_code":
        return (row.state, row.exit_code) == ("FAILED", attempt["exit_code"])
    if state in _SAYS:
        return row.state == _SAYS[state]
    return row.state not in _RAN_TO_ITS_END


def unbalanced(facet: Running) -> list[str]:
    """Return the allocations that still hold something, or whose ledger does not add up to their totals."""
    lines: dict[str, list[dict[str, Any]]] = {}
    for line in facet.everything("/charges"):
        lines.setdefault(line["allocation"], []).append(line)
    faults = []
    for allocation in facet.everything("/allocations"):
        own = lines.get(allocation["id"], [])
        by_attempt: dict[str, set[str]] = {}
        for line in own:
            by_attempt.setdefault(line["attempt"], set()).add(line["kind"])
        used = sum(Decimal(str(line["amount"])) for line in own if line["kind"] == "settle")
        open_ = [attempt for attempt, kinds in by_attempt.items() if kinds == {"reserve"}]
        if open_ or Decimal(str(allocation["reserved"])) != 0 or Decimal(str(allocation["used"])) != used:
            faults.append(f"{allocation['system']}/{allocation['account']}: {len(open_)} open, used {used}")
    return faults


def report(found: Findings, count: int, took_s: float) -> int:
    """Print the table; 1 when anything is wrong."""
    rows = {
        "tasks submitted": count,
        "tasks lost": found.lost,
        "tasks stuck": len(found.stuck),
        "wrong final states": len(found.wrong),
        "attempts accounting contradicts": len(found.contradicted),
        "attempts": found.attempts,
        "attempts that know their job": found.with_job,
        "jobs at the sites": found.jobs,
        "requeued by the sites": found.requeued,
        "submit keys with two jobs": len(found.doubled),
        "attempts still open": len(found.still_open),
        "attempts that did not succeed": ", ".join(f"{n} {cause}" for cause, n in found.causes.items()),
        "ledger": "; ".join(found.ledger) or "balanced",
        "event chain": found.chain or "unbroken",
        "seconds": round(took_s),
    }
    for name, value in rows.items():
        print(f"{name:32} {value}")
    for task in (*found.stuck, *found.wrong)[:5]:
        print(json.dumps(task, indent=1)[:2000])
    for line in found.troubled:
        print("ended by the chaos:", line)
    for line in found.contradicted:
        print("contradicted:", line)
    print("doubled:", found.doubled) if found.doubled else None
    return 0 if found.are_clean else 1
