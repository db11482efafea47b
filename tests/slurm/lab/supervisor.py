"""Pid 1 of the lab's own pid namespace: starts daemons when told, reaps, and takes all along when it goes.

Run by path, with the standard library only: `supervisor.py ROOT attached|detached`. Listens on ROOT/control;
one JSON line in, one out. Attached, it ends when its standard input closes: a killed test run leaves nothing.
"""

import json
import os
import selectors
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

REAP_S = 5.0


class Daemons:
    """The children by name, and how each was started."""

    def __init__(self) -> None:
        self.specs: dict[str, dict[str, Any]] = {}
        self.pids: dict[str, int] = {}

    def start(self, spec: dict[str, Any]) -> int:
        """Start one daemon in a session of its own, its output appended to its log."""
        log = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        pid = os.posix_spawnp(
            spec["argv"][0],
            spec["argv"],
            spec["env"],
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, spec["log"], log, 0o644),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
            setsigdef=[signal.SIGPIPE],  # Python ignores it, and ignoring is inherited
        )
        self.specs[spec["name"]] = spec
        self.pids[spec["name"]] = pid
        return pid

    def reap(self) -> None:
        """Collect every ended child, and whatever was orphaned to us (slurmstepd, job shells)."""
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for name in [name for name, known in self.pids.items() if known == pid]:
                del self.pids[name]

    def signal(self, name: str, number: int, *, until_gone: bool) -> None:
        """Signal one daemon; with `until_gone`, return only when it has ended."""
        pid = self.pids[name]
        os.kill(pid, number)
        end = time.monotonic() + REAP_S
        while until_gone and self.pids.get(name) == pid and time.monotonic() < end:
            self.reap()
            time.sleep(0.01)
        if until_gone and self.pids.get(name) == pid:
            raise TimeoutError(f"{name} has not ended within {REAP_S} s")


def answer(daemons: Daemons, request: dict[str, Any]) -> dict[str, Any]:
    """Do one request."""
    match request["do"]:
        case "start":
            return {"pids": [daemons.start(spec) for spec in request["specs"]]}
        case "again":
            return {"pids": [daemons.start(daemons.specs[name]) for name in request["names"]]}
        case "signal":
            daemons.signal(request["name"], request["signal"], until_gone=request["until_gone"])
            return {}
        case "alive":
            return {"names": sorted(daemons.pids), "known": sorted(daemons.specs)}
        case unknown:
            raise ValueError(f"unknown request {unknown!r}")


def serve(connection: socket.socket, daemons: Daemons) -> None:
    """Read one line, do it, write one line; a fault of the request is the caller's, not ours."""
    with connection, connection.makefile("rwb") as stream:
        try:
            reply = answer(daemons, json.loads(stream.readline()))
        except (OSError, KeyError, ValueError) as fault:
            reply = {"error": f"{type(fault).__name__}: {fault}"}
        stream.write(json.dumps(reply).encode() + b"\n")


def supervise(root: Path, *, attached: bool) -> None:
    """Serve until told to end by SIGTERM or, when attached, by the end of standard input."""
    awake, wake = socket.socketpair()
    wake.setblocking(False)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    control = socket.socket(socket.AF_UNIX)
    control.bind(str(root / "control"))
    control.listen(64)
    daemons = Daemons()
    with selectors.DefaultSelector() as ready:
        ready.register(control, selectors.EVENT_READ)
        ready.register(awake, selectors.EVENT_READ)
        if attached:
            ready.register(sys.stdin, selectors.EVENT_READ)
        while True:
            for key, _ in ready.select():
                if key.fileobj is control:
                    serve(control.accept()[0], daemons)
                elif key.fileobj is awake:
                    awake.recv(4096)
                else:
                    os._exit(0)  # pid 1 gone: the kernel ends the whole namespace
            daemons.reap()


if __name__ == "__main__":
    supervise(Path(sys.argv[1]), attached=sys.argv[2] == "attached")
