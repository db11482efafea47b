"""Starts and stops the supervisor's pid namespace, and speaks to it from outside."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

SUPERVISOR = Path(__file__).with_name("supervisor.py")
ASK_S = 30.0


@dataclass(frozen=True, slots=True)
class Spec:
    """One daemon: its name in the lab, what to run, with which whole environment, and where it logs."""

    name: str
    argv: Sequence[str]
    env: Mapping[str, str]
    log: str


def until(claim: Callable[[], bool], what: str, *, timeout_s: float = 60.0, step_s: float = 0.03) -> None:
    """Return when `claim` holds.

    Raises:
        TimeoutError: it did not within `timeout_s`.
    """
    end = time.monotonic() + timeout_s
    while not claim():
        if time.monotonic() > end:
            raise TimeoutError(f"waited {timeout_s:.0f} s for {what}")
        time.sleep(step_s)


class Namespace:
    """A pid namespace with our supervisor as pid 1; when `owner` dies, all that runs in it dies."""

    def __init__(self, *, root: Path, owner: int, inode: str) -> None:
        self.root = root
        self.owner = owner
        self.inode = inode
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def start(cls, root: Path, *, attached: bool, keep: Sequence[int] = ()) -> "Namespace":
        """Start it. `attached`: it ends with this process. `keep`: descriptors the owner holds open."""
        mode = "attached" if attached else "detached"
        argv = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child=SIGKILL"]
        with (root / "supervisor.log").open("ab") as log:
            process = subprocess.Popen(
                [*argv, sys.executable, "-I", str(SUPERVISOR), str(root), mode],
                stdin=subprocess.PIPE if attached else subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=keep,
                start_new_session=True,
            )
        control = root / "control"
        until(lambda: control.exists() or process.poll() is not None, "the supervisor's socket")
        if process.poll() is not None:
            raise RuntimeError("the supervisor ended: " + (root / "supervisor.log").read_text()[-2000:])
        inode = str(Path(f"/proc/{process.pid}/ns/pid_for_children").readlink())
        space = cls(root=root, owner=process.pid, inode=inode)
        space._process = process
        return space

    def ask(self, **request: object) -> dict[str, Any]:
        """Send one request to the supervisor and return its answer.

        Raises:
            RuntimeError: the supervisor could not do it.
        """
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(ASK_S)
            connection.connect(str(self.root / "control"))
            connection.sendall(json.dumps(request).encode() + b"\n")
            with connection.makefile("rb") as stream:
                reply: dict[str, Any] = json.loads(stream.readline())
        if "error" in reply:
            raise RuntimeError(f"{request.get('do')}: {reply['error']}")
        return reply

    def spawn(self, *specs: Spec) -> None:
        """Start daemons."""
        self.ask(do="start", specs=[asdict(spec) for spec in specs])

    def spawn_again(self, *names: str) -> None:
        """Start daemons that ended, just as they were started before."""
        self.ask(do="again", names=names)

    def signal(self, name: str, number: signal.Signals, *, until_gone: bool = False) -> None:
        """Signal one daemon by its name in the lab."""
        self.ask(do="signal", name=name, signal=int(number), until_gone=until_gone)

    def alive(self) -> set[str]:
        """Return the names of the daemons that run (a frozen one does)."""
        return set(self.ask(do="alive")["names"])

    def known(self) -> set[str]:
        """Return the names of all daemons ever started."""
        return set(self.ask(do="alive")["known"])

    def processes(self) -> dict[int, str]:
        """Return pid (as seen outside) → command line of everything that lives in the namespace."""
        found = {}
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if str((entry / "ns" / "pid").readlink()) == self.inode:
                    found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:  # ended while we looked
                continue
        return {pid: words for pid, words in found.items() if words}  # a zombie has no command line

    def stop(self) -> None:
        """End everything at once; return when no process of the namespace is left."""
        if self.is_running():
            os.kill(self.owner, signal.SIGKILL)
        if self._process is not None:
            self._process.wait(timeout=10)
            if self._process.stdin is not None:
                self._process.stdin.close()
        until(lambda: not self.processes(), "the namespace to empty", timeout_s=10)

    def is_running(self) -> bool:
        """Whether `owner` is still our namespace's owner (pids are recycled, inodes tell)."""
        try:
            return str(Path(f"/proc/{self.owner}/ns/pid_for_children").readlink()) == self.inode
        except OSError:
            return False
