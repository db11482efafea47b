"""The embedded Valkey: a queue's doorbell over a unix socket, append-only on disk, never evicting."""

import signal
import socket
import subprocess
from pathlib import Path
from urllib.parse import quote

from portal.embedded import processes
from portal.embedded.binaries import valkey_program
from portal.embedded.bounded_log import BoundedLog
from portal.embedded.errors import EngineError
from portal.embedded.run_as import until_parent_dies

START_WITHIN_S = 30.0


class Valkey:
    """One Valkey server over one folder.

    Args:
        home: folder of its append-only file and its configuration.
        sockets: 0700 folder of the unix socket; there is no TCP port.
        durable: False keeps nothing on disk, for tests.
    """

    name = "valkey"

    def __init__(self, home: Path, sockets: Path, *, log: BoundedLog, durable: bool) -> None:
        self.folder = home / "valkey"
        self.socket = sockets / "valkey.sock"
        self.log = log
        self.durable = durable
        self.program = valkey_program()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The URL in the form that redis-py reads."""
        return f"unix://{quote(str(self.socket))}?db=0"

    def start(self, environment: dict[str, str]) -> None:
        """Stop a server left by a killed launcher, then start ours.

        Raises:
            EngineError: it did not answer; the message ends with its last log lines.
        """
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.clear_leftovers()
        configuration = self.folder / "valkey.conf"
        configuration.write_text("\n".join(self._configuration()) + "\n")
        self.process = subprocess.Popen(
            until_parent_dies([str(self.program), str(configuration)]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
            cwd=self.folder,
        )
        if self.process.stdout is not None:
            self.log.follow(self.process.stdout)
        if not processes.wait_until(lambda: self._answers() or not self.is_running(), START_WITHIN_S):
            raise EngineError(f"Valkey did not answer in {START_WITHIN_S:.0f} s.\n{self.log.last_lines()}")
        if not self.is_running():
            raise EngineError(f"Valkey ended at once.\n{self.log.last_lines()}")

    def is_running(self) -> bool:
        """Say whether the server that we started runs."""
        return self.process is not None and self.process.poll() is None

    def stop(self) -> None:
        """Stop the server that we started; it writes what it holds first."""
        if self.process is None:
            return
        for number, seconds in ((signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0)):
            if self.process.poll() is None:
                self.process.send_signal(number)
                try:
                    self.process.wait(seconds)
                except subprocess.TimeoutExpired:
                    continue
        self.process = None
        self.log.close()

    def clear_leftovers(self) -> None:
        """Stop whatever still serves this folder.

        Raises:
            EngineError: it cannot be stopped.
        """
        left = processes.living_in(self.folder)
        if not processes.stop(left, ((signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0))):
            raise EngineError(f"Another process still uses {self.folder} and cannot be stopped.")

    def _configuration(self) -> list[str]:
        kept = ["appendonly yes", "appendfsync everysec"] if self.durable else ["appendonly no"]
        return [
            "port 0",
            f"unixsocket {_quoted(self.socket)}",
            "unixsocketperm 700",
            f"dir {_quoted(self.folder)}",
            *kept,
            'save ""',
            "daemonize no",
            'logfile ""',
            "maxmemory 128mb",
            "maxmemory-policy noeviction",
            "databases 16",
        ]

    def _answers(self) -> bool:
        try:
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(1)
                client.connect(str(self.socket))
                client.sendall(b"PING\r\n")
                return client.recv(64).startswith(b"+PONG")
        except OSError:
            return False


def _quoted(path: Path) -> str:
    """Return a path as Valkey's configuration file reads it."""
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
