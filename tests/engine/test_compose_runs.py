"""Every program of the compose file, started with its own command, variables and secrets, until all is well.

What a container engine adds (images, networks, users) is not here; the servers are the embedded ones.
"""

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


def test_everything_starts_says_that_it_is_healthy_and_stops_when_told(machine: Machine) -> None:
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

    scrape = urllib.request.Request(
        f"http://127.0.0.1:{machine.port}/metrics",
        headers={"Host": "web:8000", "Authorization": f"Bearer {TOKEN}"},
    )
    with urllib.request.urlopen(scrape, timeout=10) as answer:
        assert b'facet_scrape_ok{part="queues"} 1.0' in answer.read()

    for process in machine.running.values():
        process.send_signal(signal.SIGTERM)
    codes = {service: process.wait(30) for service, process in machine.running.items()}
    assert codes == dict.fromkeys(ALIVE, 0) | {
        "web": -signal.SIGTERM
    }  # uvicorn ends, then dies of the signal
    for service in ALIVE:
        assert "only-for-this-test" not in machine.log(service)
        assert "Traceback" not in machine.log(service)
