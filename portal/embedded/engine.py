"""The engine: the embedded servers of one data directory, at most one engine per directory.

Used in-process: by the supervisor of `run.py up`, by `run.py manage` for one command, by the test suite.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Literal, Self

from portal import env as environment
from portal.embedded import address
from portal.embedded.bounded_log import BoundedLog
from portal.embedded.errors import EngineError
from portal.embedded.postgres import Postgres
from portal.embedded.run_as import RunAs, choose_mode
from portal.embedded.valkey import Valkey

MARK = environment.variable_of("engine")
_LONGEST_SOCKET = 100  # a socket's path must fit 104 bytes on macOS, 108 on Linux
_LONGEST_NAME = ".s.PGSQL.65535.lock"


class Engine:
    """PostgreSQL and Valkey of one data directory; either is left out when a URL is used instead.

    Args:
        data_dir: where everything is kept; made if absent, mode 0700.
        postgres, valkey: which servers to run.
        durable: False trades safety against a power cut for speed, for tests.
        tcp_port: loopback port of PostgreSQL; None: unix socket only.
        root_mode: how root runs PostgreSQL; "": whichever way works.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        postgres: bool = True,
        valkey: bool = True,
        durable: bool = True,
        tcp_port: int | None = None,
        root_mode: Literal["", "userns", "setuid"] = "",
    ) -> None:
        self.data_dir = data_dir.absolute()
        self.environment = environment.outside(**{MARK: str(self.data_dir)})
        self._lock: IO[str] | None = None
        _private(self.data_dir)
        run_as = RunAs(choose_mode(root_mode))
        home = self._home_of_postgres(run_as) if postgres else self.data_dir
        own_sockets = socket_folder(self.data_dir)
        self.postgres = (
            Postgres(
                home,
                _sockets_for(run_as, home) if run_as.mode == "setuid" else own_sockets,
                run_as=run_as,
                log=self.log("postgres"),
                tcp_port=tcp_port,
                durable=durable,
            )
            if postgres
            else None
        )
        self.valkey = (
            Valkey(self.data_dir, own_sockets, log=self.log("valkey"), durable=durable) if valkey else None
        )
        if self.postgres and run_as.mode == "setuid":
            self.postgres.programs = _readable_programs(self.postgres.programs, home, run_as)

    @property
    def servers(self) -> list[Postgres | Valkey]:
        """The servers this engine runs, in the order of starting."""
        return [server for server in (self.postgres, self.valkey) if server is not None]

    def log(self, program: str) -> BoundedLog:
        """Return the bounded log of a program of this engine."""
        return BoundedLog(self.data_dir / "logs" / f"{program}.log")

    def lock(self) -> None:
        """Claim the data directory for this process, until it ends.

        Raises:
            EngineError: another engine runs there.
        """
        if self._lock is not None:
            return
        lock = (self.data_dir / "engine.lock").open("a+")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.seek(0)
            owner = lock.read().strip() or "unknown"
            lock.close()
            raise EngineError(
                f"Facet already runs in {self.data_dir} (process {owner}): "
                "stop it, or choose another DATA_DIR."
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        self._lock = lock

    def start(self) -> Self:
        """Claim the directory, start what is missing, publish the address; all or nothing.

        Raises:
            EngineError: another engine runs there, or a server did not start.
        """
        self.lock()
        try:
            self.restart_missing()
            address.write(self.data_dir, self.address)
        except BaseException:
            self.stop()
            raise
        return self

    def restart_missing(self) -> None:
        """Start the servers that do not run.

        Raises:
            EngineError: one did not start.
        """
        for server in self.servers:
            if not server.is_running():
                server.start(self.environment)

    @property
    def address(self) -> address.Address:
        """Where the servers are reached; nowhere for one that this engine does not run."""
        nowhere = address.nowhere(self.data_dir)
        return address.Address(
            database_url=self.postgres.url if self.postgres else nowhere.database_url,
            redis_url=self.valkey.url if self.valkey else nowhere.redis_url,
        )

    @property
    def is_ours(self) -> bool:
        """Whether this process has claimed the data directory."""
        return self._lock is not None

    def stop_servers(self) -> None:
        """Stop the servers in reverse order, and keep the directory."""
        for server in reversed(self.servers):
            server.stop()

    def stop(self) -> None:
        """Stop the servers in reverse order and give the directory back; safe to call twice."""
        self.stop_servers()
        if self._lock is not None:
            (self.data_dir / address.FILE).unlink(missing_ok=True)
            self._lock.close()
            self._lock = None

    def _home_of_postgres(self, run_as: RunAs) -> Path:
        """Return where the cluster lives: `nobody` cannot enter /root, so in setuid mode under /var/tmp."""
        if run_as.mode != "setuid":
            return self.data_dir
        home = Path("/var/tmp") / f"facet-root-{_short(self.data_dir)}"  # noqa: S108  # survives a reboot; checked below
        _private(home, owners={0, 65534})
        run_as.give(home)
        return home


@contextlib.contextmanager
def running(engine: Engine) -> Iterator[Engine]:
    """Run the engine for the length of a block."""
    engine.start()
    try:
        yield engine
    finally:
        engine.stop()


def socket_folder(data_dir: Path) -> Path:
    """Return a 0700 folder for sockets whose path is short enough: in the data directory if it can be.

    Raises:
        EngineError: somebody else already owns the folder of that name.
    """
    inside = data_dir / "run"
    if len(os.fsencode(inside / _LONGEST_NAME)) <= _LONGEST_SOCKET:
        _private(inside)
        return inside
    base = environment.outside().get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    outside = Path(base) / f"facet-{os.getuid()}-{_short(data_dir)}"
    _private(outside)
    return outside


def _short(path: Path) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:10]


def _private(folder: Path, owners: set[int] | None = None) -> None:
    """Make a folder that only we may enter, or check that an existing one is ours."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if folder.stat().st_uid not in (owners or {os.geteuid()}) or folder.is_symlink():
        raise EngineError(f"{folder} belongs to another user: choose another DATA_DIR.")


def _sockets_for(run_as: RunAs, home: Path) -> Path:
    sockets = home / "run"
    _private(sockets, owners={0, 65534})
    run_as.give(sockets)
    return sockets


def _readable_programs(programs: Path, home: Path, run_as: RunAs) -> Path:
    """Copy the server programs where nobody may read them; their libraries are found beside the package."""
    install = programs.parent
    package = install.parent
    copied = home / "programs" / package.name / install.name
    marker = copied / ".copied"
    if not marker.exists() or marker.read_text() != str(install):
        shutil.rmtree(home / "programs", ignore_errors=True)
        shutil.copytree(install, copied, symlinks=True)
        libraries = package.with_name(f"{package.name}.libs")
        if libraries.exists():
            shutil.copytree(libraries, home / "programs" / libraries.name)
        marker.write_text(str(install))
        for path in (home / "programs", *(home / "programs").rglob("*")):
            run_as.give(path)
    return copied / programs.name
