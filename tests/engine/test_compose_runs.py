"""Every program of the compose file, started with its own command, variables and secrets, until all is well.

What a container engine adds (images, networks, users) is not here; the servers are the embedded ones.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from portal.embedded.engine import Engine
from portal.grafana_role import embedded_admin
from tests.engine.test_installation import free_port

pytestmark = [pytest.mark.services, pytest.mark.timeout(180)]
ROOT = Path(__file__).resolve().parents[2]
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
PROGRAMS = Path(sys.executable).parent
TOKEN = "a-token-of-the-scraper"
REQUEST = "request-of-this-test"
ALIVE = ("web", "control-worker", "default-worker", "clock")


@dataclass
class Machine:
    """Stands for the one machine: what containers would find under other names."""

    folder: Path
    port: int
    redis_url: str
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def _here(self, text: str) -> str:
        """Return a word of the compose file as it reads on this machine."""
        text = re.sub(r"\$\{FACET_PUBLIC_URL:\?[^}]*\}", "https://facet.example.org", text)
        text = text.replace("/run/secrets/", f"{self.folder}/secrets/").replace(
            "redis://valkey:6379/0", self.redis_url
        )
        return re.sub(r"\b8000\b", str(self.port), text)

    def words(self, words: list[str]) -> list[str]:
        """Return a command with its program from this environment."""
        program, *rest = [self._here(word) for word in words]
        return [str(PROGRAMS / program), *rest]

    def variables(self, service: str) -> dict[str, str]:
        """Return the variables of a container: the image's and the service's, and none of ours."""
        image = {"PATH": os.environ["PATH"], "DATA_DIR": str(self.folder / "data"), "LC_ALL": "C.UTF-8"}
        given = SERVICES[service]["environment"].items()
        return image | {name: self._here(text) for name, text in given} | {"HOME": str(self.folder)}

    def run(self, service: str, words: list[str] | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command of a service to its end."""
        return subprocess.run(
            self.words(words or SERVICES[service]["command"]),
            cwd=ROOT, env=self.variables(service), capture_output=True, text=True, timeout=90, check=False,
        )  # fmt: skip

    def start(self, service: str) -> None:
        with (self.folder / f"{service}.log").open("wb") as log:
            self.running[service] = subprocess.Popen(
                self.words(SERVICES[service]["command"]),
                cwd=ROOT, env=self.variables(service), stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def is_healthy(self, service: str) -> bool:
        """Ask as the engine would."""
        return self.run(service, SERVICES[service]["healthcheck"]["test"][1:]).returncode == 0

    def log(self, service: str) -> str:
        return (self.folder / f"{service}.log").read_text()


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    folder = tmp_path_factory.mktemp("machine")
    engine = Engine(folder / "servers", durable=False).start()
    url = engine.address.database_url
    admin = embedded_admin(folder / "servers", url, url)
    secrets = {
        "database_url": url,
        "secret_key": "only-for-this-test-0123456789-0123456789",
        "metrics_token": TOKEN,
        "grafana_db_password": "a-password-of-our-own",
        "postgres_admin_url": re.sub(r"//[^@]*@", f"//{admin['user']}:{admin['password']}@", url),
    }
    (folder / "secrets").mkdir()
    for name, secret in secrets.items():
        (folder / "secrets" / name).write_text(f"{secret}\n")
    made = Machine(folder, free_port(), engine.address.redis_url)
    try:
        yield made
    finally:
        for process in made.running.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(10)
        engine.stop()


def _call(machine: Machine, path: str, *, host: str, **headers: str) -> urllib.request.Request:
    return urllib.request.Request(f"http://127.0.0.1:{machine.port}{path}", headers={"Host": host, **headers})


def _asked(request: urllib.request.Request, body: dict[str, Any] | None = None) -> Any:
    if body is not None:
        request.data = json.dumps(body).encode()
        request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def _one_task(machine: Machine) -> str:
    """Submit a task under a request id of our own, wait for its end, and return its handle."""
    made = machine.run("web", ["python", "-m", "tests.engine.one_system", str(machine.folder)])
    assert made.returncode == 0, made.stderr
    known = {
        "Authorization": f"Bearer {made.stdout.split()[-1]}",
        "X-Forwarded-Proto": "https",
        "X-Request-ID": REQUEST,
    }
    wanted = {"command": ["true"], "envelope": {"cpus": 1, "walltime_s": 300}}
    submitted = _asked(_call(machine, "/api/v1/tasks", host="facet.example.org", **known), wanted)
    task = str(submitted["task"]["id"] if "task" in submitted else submitted["id"])
    known["X-Request-ID"] = "somebody-elses"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        state = _asked(_call(machine, f"/api/v1/tasks/{task}", host="facet.example.org", **known))["state"]
        if state == "succeeded":
            return task
        time.sleep(0.5)
    pytest.fail(f"{task} is {state}: {machine.log('default-worker')[-3000:]}")


def test_everything_starts_works_and_stops_when_told(machine: Machine) -> None:
    migrated = machine.run("migrate")
    assert migrated.returncode == 0, migrated.stderr
    role = machine.run("grafana-role")
    assert role.returncode == 0, role.stderr
    assert not machine.is_healthy("control-worker")

    for service in ALIVE:
        machine.start(service)
    deadline = time.monotonic() + 100
    while not machine.is_healthy("web") and time.monotonic() < deadline:
        time.sleep(0.5)
    unwell = {service: machine.log(service)[-2000:] for service in ALIVE if not machine.is_healthy(service)}
    assert unwell == {}
    scrape = _call(machine, "/metrics", host="web:8000", Authorization=f"Bearer {TOKEN}")
    with urllib.request.urlopen(scrape, timeout=10) as answer:
        assert b'facet_scrape_ok{part="queues"} 1.0' in answer.read()
    task = _one_task(machine)

    for process in machine.running.values():
        process.send_signal(signal.SIGTERM)
    codes = {service: process.wait(30) for service, process in machine.running.items()}
    # uvicorn ends, then dies of the signal
    assert codes == dict.fromkeys(ALIVE, 0) | {"web": -signal.SIGTERM}
    for service in ALIVE:
        assert "only-for-this-test" not in machine.log(service)
        assert "Traceback" not in machine.log(service)
    _follow_the_request(machine, task)


def _lines(log: str) -> list[dict[str, Any]]:
    """Return a log's lines, each one a JSON object, but for what Celery itself says when it is stopped."""
    return [json.loads(line) for line in log.splitlines() if line and not line.startswith("worker: ")]


def _follow_the_request(machine: Machine, task: str) -> None:
    """Find the submission's id at web, and in what the workers said of the task and its attempt."""
    lines = {service: _lines(machine.log(service)) for service in ALIVE}
    (answered,) = [line for line in lines["web"] if line.get("request_id") == REQUEST and "path" in line]
    of_worker = [line for line in lines["default-worker"] if line.get("task") == task]
    told = {line["event"] for line in of_worker}

    assert (answered["method"], answered["path"]) == ("POST", "/api/v1/tasks")
    assert {"task.submitted", "attempt.moved", "task.succeeded"} <= told
    assert {line["request_id"] for line in of_worker} == {REQUEST}
    assert len({line["attempt"] for line in of_worker if line["event"].startswith("attempt.")}) == 1
    assert all(line["chore"].startswith("portal.") and line["chore_id"] for line in of_worker)
