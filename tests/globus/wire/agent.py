"""A broker and agents of our own, started and ended by their ids, each in a folder of its own."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

VERSION = "4.19.0"
SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
ROOT = Path(__file__).resolve().parents[3]
KEPT_IN = Path("/var/tmp")  # it outlives a run; whoever else owns it is not believed
SITE_PYTHON = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable
_UP_WITHIN_S = 90.0


def free_port() -> int:
    """Return a port of this machine that nobody has now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Daemon:
    """A process group that ends with its test."""

    argv: list[str]
    folder: Path
    env: Mapping[str, str]
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def log(self) -> Path:
        """Where its output goes."""
        return self.folder / "out.log"

    def start(self) -> None:
        """Start it in a session of its own."""
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                self.argv, cwd=self.folder, env=dict(self.env), stdout=out, stderr=out, start_new_session=True
            )

    def stop(self) -> None:
        """End its whole group."""
        if self.process is None:
            return
        for number, wait_s in ((signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0)):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(wait_s)
                break

    def tail(self) -> str:
        """Return its last words."""
        return self.log.read_text(errors="replace")[-3000:] if self.log.exists() else ""


@dataclass
class Rabbit:
    """A broker on loopback, with a port mapper of its own."""

    folder: Path
    port: int = field(default_factory=free_port)
    mapper_port: int = field(default_factory=free_port)
    daemons: list[Daemon] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"amqp://guest:guest@127.0.0.1:{self.port}/%2F"

    def start(self) -> None:
        """Start it and return when it takes connections."""
        (self.folder / "plugins").write_text("[].\n")
        env = {
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "HOME": str(self.folder),
            "RABBITMQ_NODENAME": f"facet{self.port}@localhost",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "db"),
            "RABBITMQ_LOG_BASE": str(self.folder / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_CONF_ENV_FILE": os.devnull,
            "RABBITMQ_CONFIG_FILE": str(self.folder / "none"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1 +sbwt none",
            "ERL_EPMD_PORT": str(self.mapper_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
        }
        mapper = Daemon(["epmd"], self.folder, env)
        broker = Daemon([str(SERVER)], self.folder, env)
        self.daemons = [mapper, broker]
        for daemon in self.daemons:
            daemon.start()
        deadline = time.monotonic() + _UP_WITHIN_S
        while not self._listens():
            assert time.monotonic() < deadline, broker.tail()
            time.sleep(0.2)

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0 and "completed" in self.daemons[1].tail()

    def stop(self) -> None:
        """End it."""
        for daemon in reversed(self.daemons):
            daemon.stop()


def installed() -> Path:
    """Return the agent's program, in an environment of its own that later runs find again.

    It is made from the system's Python where there is one, as at a site, and lies where other users can read:
    the mapped user runs it too.

    Raises:
        FileNotFoundError: it could not be installed; says why.
    """
    home = KEPT_IN / f"facet-agent-{VERSION}-{os.geteuid()}"
    program = home / "bin" / "globus-compute-endpoint"
    if program.exists() and home.stat().st_uid == os.geteuid():
        return program
    shutil.rmtree(home, ignore_errors=True)
    uv = next((each for each in _places_of_uv() if each and Path(each).exists()), None)
    wanted, python = f"globus-compute-endpoint=={VERSION}", str(home / "bin" / "python")
    steps = [[SITE_PYTHON, "-m", "venv", str(home)], [python, "-m", "pip", "install", "--quiet", wanted]]
    if uv:
        made = [uv, "venv", "--quiet", "--python", SITE_PYTHON, str(home)]
        steps = [made, [uv, "pip", "install", "--quiet", "--python", python, wanted]]
    for step in steps:
        done = subprocess.run(step, capture_output=True, text=True, check=False, timeout=300)
        if done.returncode:
            shutil.rmtree(home, ignore_errors=True)
            raise FileNotFoundError(f"{wanted} could not be installed: {done.stderr[-300:]}")
    return program


def _places_of_uv() -> list[str | None]:
    kept = [ROOT / folder / "bin" / "uv" for folder in (".facet", ".facet-test")]
    return [shutil.which("uv"), *map(str, kept)]


def agent_environment(folder: Path, url: str, application: tuple[str, str]) -> dict[str, Any]:
    """Return the environment in which an unmodified agent takes the stand-in for the hosted services."""
    return {
        "PATH": f"{installed().parent}:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "HOME": str(folder),
        "GLOBUS_COMPUTE_USER_DIR": str(folder),
        "GLOBUS_COMPUTE_CLIENT_ID": application[0],
        "GLOBUS_COMPUTE_CLIENT_SECRET": application[1],
        "GLOBUS_SDK_ENVIRONMENT": "local",
        "GLOBUS_SDK_SERVICE_URL_AUTH": url,
        "GLOBUS_SDK_SERVICE_URL_COMPUTE": url,
        "http_proxy": url,
        "no_proxy": "",
    }
