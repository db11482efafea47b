"""The command line against a real server: uvicorn, PostgreSQL, an emulated cluster with its control cycle."""

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import urlopen

import psycopg
import pytest
from psycopg import sql

from tests.cli import installed
from tests.cli.installed import CLI, ROOT

__all__ = ["CLI", "ROOT"]


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def until(holds: Callable[[], object], *, within_s: float = 30) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.1)


@dataclass
class Server:
    """uvicorn on a port of its own; it can be killed and started again."""

    environment: dict[str, str]
    log: Path
    port: int = field(default_factory=free_port)
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        options = ["--port", str(self.port), "--timeout-graceful-shutdown", "2", "--log-level", "warning"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "uvicorn", "portal.asgi:application", *options],
                cwd=ROOT,
                env={**self.environment, "PORT": str(self.port)},
                stdout=log,
                stderr=log,
            )
        until = time.monotonic() + 180  # a busy machine takes its time to load all of it
        while time.monotonic() < until:
            try:
                urlopen(f"{self.url}/healthz", timeout=5).close()
            except (URLError, OSError):
                assert self.process.poll() is None, self.log.read_text()
                time.sleep(0.1)
            else:
                return
        pytest.fail(f"the server did not start: {self.log.read_text()}")

    def stop(self, number: int = signal.SIGTERM) -> None:
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(20)
            self.process = None


@dataclass
class World:
    """The database with people and a cluster, and the server in front of it."""

    server: Server
    tokens: dict[str, str]
    process: "subprocess.Popen[str]"
    person: str = ""
    """Whose machine the test is about."""

    def ask(self, what: str, **asked: Any) -> Any:
        """Have something done in the database."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"do": what, "user": self.person, **asked}) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def happen(self, *events: dict[str, Any], at_once: bool = False) -> list[str]:
        """Write events and return their handles."""
        made: list[str] = self.ask("happen", events=list(events), at_once=at_once)["events"]
        return made


@pytest.fixture(scope="session")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of this machine in which people may move files."""
    return tmp_path_factory.mktemp("cli-shelf")


@pytest.fixture(scope="session")
def _environment(tmp_path_factory: pytest.TempPathFactory, shelf: Path) -> Iterator[dict[str, str]]:
    """A fresh database, dropped at the end."""
    url, name = os.environ["DATABASE_URL"], f"facet_cli_{secrets.token_hex(4)}"
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    yield {
        **os.environ,
        "DATABASE_URL": urlsplit(url)._replace(path=f"/{name}").geturl(),
        "DATA_DIR": str(tmp_path_factory.mktemp("cli-data")),
        "FACET_TESTING": "1",
        "FACET_RATE_PER_MINUTE": "0",
        "FACET_LOCAL_ROOTS": str(shelf),
    }
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture(scope="session")
def _world(_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    root = tmp_path_factory.mktemp("cli-world")
    with (root / "world.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.cli.world", str(root)],
            cwd=ROOT,
            env=_environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    server = Server(_environment, root / "server.log")
    with process:
        try:
            assert process.stdout is not None
            first = process.stdout.readline()
            assert first, (root / "world.log").read_text()
            server.start()
            yield World(server, json.loads(first), process)
        finally:
            server.stop()
            process.kill()


@pytest.fixture
def world(_world: World) -> World:
    """The world with its server up, and somebody new in it: what others do is not heard."""
    if _world.server.process is None:
        _world.server.start()
    _world.person = f"person-{secrets.token_hex(4)}"
    _world.tokens |= _world.ask("person", name=_world.person)
    return _world


@dataclass
class Ran:
    """How a command ended and what it said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


@dataclass
class Facet:
    """The command line of one person on one machine."""

    home: Path
    url: str
    token: str
    more: dict[str, str] = field(default_factory=dict)
    started: "list[subprocess.Popen[str]]" = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PATH": f"{self.home / 'bin'}:{os.environ['PATH']}",
            "HOME": str(self.home),
            "XDG_CONFIG_HOME": str(self.home / "config"),
            "XDG_STATE_HOME": str(self.home / "state"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONWARNINGS": "error",
            "LANG": "C.UTF-8",
            **({"FACET_URL": self.url, "FACET_TOKEN": self.token} if self.token else {}),
            **self.more,
        }

    def start(self, *words: str, stdin: int | IO[Any] | None = subprocess.DEVNULL) -> "subprocess.Popen[str]":
        """Start a command and return it."""
        process = subprocess.Popen(
            [installed.python(), "-m", "facet_cli", *words],
            env=self.environment,
            cwd=self.home,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # A suite that runs in the background of a shell ignores SIGINT, and its children would too.
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
        )
        self.started.append(process)
        return process

    def ended(
        self, process: "subprocess.Popen[str]", *, within_s: float = 60, given: str | None = None
    ) -> Ran:
        """Wait for a command; what it prints never holds the token."""
        try:
            out, err = process.communicate(given, timeout=within_s)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            pytest.fail(f"not done after {within_s} s; out: {out}; err: {err}")
        assert not self.token or self.token not in out + err
        assert "Traceback" not in err, err
        return Ran(process.returncode, out, err)

    def __call__(self, *words: str, within_s: float = 60, given: str | None = None) -> Ran:
        """Run a command to its end."""
        stdin = subprocess.DEVNULL if given is None else subprocess.PIPE
        return self.ended(self.start(*words, stdin=stdin), within_s=within_s, given=given)

    def at(self, token: str) -> "Facet":
        """Return the same machine with another token."""
        return Facet(self.home, self.url, token, self.more, self.started)


@pytest.fixture
def facet(world: World, tmp_path: Path) -> Iterator[Facet]:
    """That person at a machine of their own."""
    (tmp_path / "bin").mkdir()
    made = Facet(tmp_path, world.server.url, world.tokens["full"])
    yield made
    for process in made.started:
        with process:
            if process.poll() is None:
                process.kill()


@pytest.fixture
def still(world: World) -> Iterator[None]:
    """Nothing is worked on: tasks stay where they are put."""
    world.ask("pause", on=True)
    yield
    world.ask("pause", on=False)
