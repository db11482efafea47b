"""The embedded PostgreSQL: made once, started, asked, and stopped, whatever was killed before.

Traps handled here: a cluster half made by a crash (built aside, marked, renamed); a server left by a killed
launcher (stopped first); a `postmaster.pid` that names a process nobody collects, or one that reuses the
number (removed once nothing lives in the cluster); a shutdown that hangs after a killed backend (fast, then
immediate, then kill).
"""

import os
import secrets
import shutil
import signal
import subprocess
import time
from pathlib import Path
from urllib.parse import quote

import psycopg
from psycopg import sql

from portal.embedded import processes
from portal.embedded.binaries import postgres_programs
from portal.embedded.bounded_log import BoundedLog
from portal.embedded.errors import EngineError
from portal.embedded.run_as import RunAs

ROLE = DATABASE = "facet"
ADMIN = "postgres"
MARKER = ".made-whole"
SOCKET_PORT = 5432
STOP_LADDER = ((signal.SIGINT, 4.0), (signal.SIGQUIT, 4.0), (signal.SIGKILL, 5.0))
START_WITHIN_S = 60.0
_SETTINGS = {
    "unix_socket_permissions": "0700",
    "shared_buffers": "64MB",
    "max_connections": "100",
    "max_wal_size": "512MB",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "jit": "off",
    "autovacuum_naptime": "15s",
    "idle_in_transaction_session_timeout": "5min",
    "max_parallel_workers_per_gather": "0",
    "io_method": "sync",  # no extra processes for asynchronous reads
}
_FOR_TESTS = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


class Postgres:
    """One PostgreSQL server over one data folder, reached by a socket in a 0700 folder and a password.

    Args:
        home: folder that holds the cluster (`pg`) and the passwords.
        sockets: folder of the unix socket.
        tcp_port: also listen on loopback there; None: socket only.
        durable: False switches fsync off, for tests.
    """

    name = "postgres"

    def __init__(
        self,
        home: Path,
        sockets: Path,
        *,
        run_as: RunAs,
        log: BoundedLog,
        tcp_port: int | None,
        durable: bool,
    ) -> None:
        self.cluster = home / "pg"
        self.sockets = sockets
        self.run_as = run_as
        self.log = log
        self.tcp_port = tcp_port
        self.durable = durable
        self.programs = postgres_programs()
        self.process: subprocess.Popen[bytes] | None = None
        self._secrets = home / "postgres.passwords"

    @property
    def url(self) -> str:
        """The libpq URL of our own role and database."""
        return self._url(ROLE, DATABASE)

    def start(self, environment: dict[str, str]) -> None:
        """Make the cluster if there is none, clear what a crash left, start, and make our role and database.

        Raises:
            EngineError: it did not become ready; the message ends with its last log lines.
        """
        self._make(environment)
        self.clear_leftovers()
        command = self.run_as.command(self._command(), death_signal="INT")
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=_without_libpq(environment),
            start_new_session=True,
            cwd="/",
            **self.run_as.popen_options(),
        )
        if self.process.stdout is not None:
            self.log.follow(self.process.stdout)
        if not processes.wait_until(lambda: self._is_ready() or not self.is_running(), START_WITHIN_S):
            raise EngineError(f"PostgreSQL was not ready in {START_WITHIN_S:.0f} s.\n{self.log.last_lines()}")
        if not self.is_running():
            raise EngineError(f"PostgreSQL ended at once.\n{self.log.last_lines()}")
        self._make_role_and_database()

    def is_running(self) -> bool:
        """Say whether the server that we started runs."""
        return self.process is not None and self.process.poll() is None

    def stop(self) -> None:
        """Stop the server that we started: fast, then immediate, then killed."""
        if self.process is None:
            return
        for number, seconds in STOP_LADDER:
            if self.process.poll() is None:
                self.process.send_signal(number)
                try:
                    self.process.wait(seconds)
                except subprocess.TimeoutExpired:
                    continue
        self.process = None
        self.log.close()

    def clear_leftovers(self) -> None:
        """Stop whatever still serves this cluster, then remove a `postmaster.pid` that names nobody of ours.

        Raises:
            EngineError: a process that lives in the cluster cannot be stopped.
        """
        pid_file = self.cluster / "postmaster.pid"
        try:
            postmaster = int(pid_file.read_text().split("\n", 1)[0])
        except (OSError, ValueError):
            postmaster = 0
        living = processes.living_in(self.cluster)
        if postmaster in living:
            processes.stop([postmaster], STOP_LADDER)
        # The servers of a killed postmaster notice within milliseconds and end by themselves.
        if not processes.wait_until(lambda: not processes.living_in(self.cluster), 5) and not processes.stop(
            processes.living_in(self.cluster), ((signal.SIGQUIT, 3.0), (signal.SIGKILL, 5.0))
        ):
            raise EngineError(f"Another process still uses {self.cluster} and cannot be stopped.")
        pid_file.unlink(missing_ok=True)
        # The socket's own lock names the same process; a zombie there blocks the start just as well.
        for left in self.sockets.glob(".s.PGSQL.*"):
            left.unlink(missing_ok=True)

    def _make(self, environment: dict[str, str]) -> None:
        if (self.cluster / MARKER).exists():
            self._refuse_another_version()
            return
        if self.cluster.exists():  # made by hand or by a crash; never thrown away
            self.cluster.rename(self.cluster.with_name(f"pg.broken-{int(time.time())}"))
        aside = self.cluster.with_name("pg.new")
        shutil.rmtree(aside, ignore_errors=True)
        passwords = self._passwords()
        password_file = self.sockets / "initdb.password"
        password_file.touch(mode=0o600)
        password_file.write_text(f"{passwords[ADMIN]}\n")
        self.run_as.give(password_file)
        made = subprocess.run(
            self.run_as.command(self._initdb(aside, password_file)),
            env=_without_libpq(environment) | {"LC_ALL": "C.UTF-8", "TZ": "UTC"},
            capture_output=True,
            text=True,
            check=False,
            **self.run_as.popen_options(),
        )
        password_file.unlink()
        if made.returncode:
            raise EngineError(f"PostgreSQL's initdb failed: {made.stderr.strip() or made.stdout.strip()}")
        (aside / MARKER).touch()
        aside.rename(self.cluster)

    def _initdb(self, folder: Path, password_file: Path) -> list[str]:
        return [
            str(self.programs / "initdb"),
            f"--pgdata={folder}",
            f"--username={ADMIN}",
            "--auth=scram-sha-256",
            f"--pwfile={password_file}",
            "--encoding=UTF8",
            "--locale-provider=builtin",
            "--builtin-locale=C.UTF-8",
            "--locale=C",
            "--data-checksums",
            "--no-instructions",
            *([] if self.durable else ["--no-sync"]),
        ]

    def _refuse_another_version(self) -> None:
        made_by = (self.cluster / "PG_VERSION").read_text().strip()
        output = subprocess.run(
            [str(self.programs / "postgres"), "--version"], capture_output=True, text=True, check=True
        )
        ours = output.stdout.split()[2].partition(".")[0]
        if made_by != ours:
            raise EngineError(
                f"{self.cluster} was made by PostgreSQL {made_by}, the installed one is {ours}: "
                "dump it with the earlier release, or choose another DATA_DIR."
            )

    def _command(self) -> list[str]:
        given = {
            **_SETTINGS,
            "listen_addresses": "127.0.0.1" if self.tcp_port else "",
            "port": str(self.tcp_port or SOCKET_PORT),
            "unix_socket_directories": '"{}"'.format(str(self.sockets).replace('"', '""')),
            **({} if self.durable else _FOR_TESTS),
        }
        options = [part for name, content in given.items() for part in ("-c", f"{name}={content}")]
        return [str(self.programs / "postgres"), "-D", str(self.cluster), *options]

    def _is_ready(self) -> bool:
        """Read what PostgreSQL itself writes: line 1 is its process, line 8 its state."""
        try:
            lines = (self.cluster / "postmaster.pid").read_text().splitlines()
            return (
                self.process is not None and int(lines[0]) == self.process.pid and lines[7].strip() == "ready"
            )
        except (OSError, IndexError, ValueError):
            return False

    def _make_role_and_database(self) -> None:
        passwords = self._passwords()
        with psycopg.connect(self._url(ADMIN, "postgres"), autocommit=True, connect_timeout=10) as server:
            known = server.execute("select 1 from pg_roles where rolname = %s", [ROLE]).fetchone()
            # CREATEDB: the test runner makes its own databases; never SUPERUSER: triggers must bind us too.
            server.execute(
                sql.SQL("{} role {} login createdb password {}").format(
                    sql.SQL("alter" if known else "create"),
                    sql.Identifier(ROLE),
                    sql.Literal(passwords[ROLE]),
                )
            )
            if not server.execute("select 1 from pg_database where datname = %s", [DATABASE]).fetchone():
                server.execute(
                    sql.SQL("create database {} owner {}").format(
                        sql.Identifier(DATABASE), sql.Identifier(ROLE)
                    )
                )

    def _url(self, role: str, database: str) -> str:
        password = quote(self._passwords()[role], safe="")
        host = quote(str(self.sockets), safe="")
        return f"postgresql://{role}:{password}@/{database}?host={host}&port={self.tcp_port or SOCKET_PORT}"

    def _passwords(self) -> dict[str, str]:
        if not self._secrets.exists():
            aside = self._secrets.with_suffix(".new")
            descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.writelines(f"{role}:{secrets.token_urlsafe(24)}\n" for role in (ADMIN, ROLE))
            aside.replace(self._secrets)
        return dict(line.split(":", 1) for line in self._secrets.read_text().split())


def _without_libpq(environment: dict[str, str]) -> dict[str, str]:
    """Drop PGDATA, PGPORT and the like: they would steer the server away from its arguments."""
    return {name: content for name, content in environment.items() if not name.startswith("PG")}
