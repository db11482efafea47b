"""A worker at a stand-in's site: one process of one user and configuration, in the environment of that site.

Started as `python -I -S worker.py [UID GID GROUP,…]`; one JSON object a line on stdin and stdout. With ids
it gives up its rights first, as a multi-user endpoint does for the user it mapped an identity to. Source text
and JSON, the only forms Facet uses, are opened here without the SDK, so that a worker starts in 0.05 s and
holds 12 MB; the tests hold both ends against the SDK's own serializer. Anything else is refused, as an
endpoint with a list of allowed forms would.
"""

import datetime as dt
import encodings.idna
import errno
import hashlib
import json
import os
import selectors
import signal
import socket
import stat
import subprocess
import sys
import time
import traceback
from typing import Any

# Loaded now: they cannot be once the user has changed, where the interpreter lies out of the user's reach.
_PRELOADED = (dt, encodings.idna, errno, hashlib, selectors, signal, socket, stat, subprocess, time)

LIMIT = 10 * 1024 * 1024


class MaxResultSizeExceeded(Exception):
    """The result is larger than the service carries."""


class DeserializationError(Exception):
    """A buffer is in a form that this worker does not open."""


def unpack(packed: str) -> list[str]:
    """Return the buffers of: length, line feed, buffer, one after another."""
    found = []
    while packed:
        length, _, rest = packed.partition("\n")
        found.append(rest[: int(length)])
        packed = rest[int(length) :]
    return found


def opened(buffer: str) -> Any:  # whatever was sent
    """Return what a buffer holds: a function from source text, or a JSON value."""
    form, body = buffer[:3], buffer[3:]
    if form == "11\n":
        return json.loads(body)
    if form == "st\n":
        name, _, source = body.partition(":")
        scope: dict[str, Any] = {}
        exec(compile(source, "<function>", "exec"), scope)  # noqa: S102  # what an endpoint is for
        return scope[name]
    raise DeserializationError(f"Invalid payload header {form!r}")


def run(task: dict[str, Any]) -> dict[str, Any]:
    """Run one task and return its result or its traceback."""
    details = {"python_version": sys.version.split()[0], "os": sys.platform}
    if task.get("dies"):
        os._exit(9)
    try:
        function, args, kwargs = (opened(buffer) for buffer in unpack(task["function"] + task["payload"]))
        result = "11\n" + json.dumps(function(*args, **kwargs))
        _fits(result)
    except BaseException:  # noqa: BLE001  # whatever the task raised is its answer
        return {"exception": traceback.format_exc(), "details": details}
    return {"result": result, "details": details}


def _fits(result: str) -> None:
    if len(result) > LIMIT:
        raise MaxResultSizeExceeded(f"{len(result)} bytes, limit {LIMIT}")


def become(uid: int, gid: int, groups: list[int]) -> None:
    """Give up all other rights for good."""
    os.setgroups(groups)
    os.setgid(gid)
    os.setuid(uid)
    os.umask(0o077)


def main(argv: list[str]) -> None:
    """Take tasks until stdin ends; what a task prints goes to stderr."""
    if argv:
        become(int(argv[0]), int(argv[1]), [int(word) for word in argv[2].split(",")])
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    tasks = os.fdopen(os.dup(0), encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for line in tasks:
        answers.write(json.dumps(run(json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
