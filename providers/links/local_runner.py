"""The process behind the local link: become the chosen user, run one batch, print the answer.

Started as `python -I -S local_runner.py SITE_FUNCTION.py` with `{"become": …, "batch": …}` on stdin.
Everything it needs is imported before it gives up its rights, since the interpreter may live where the
user cannot read.
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
import traceback  # noqa: F401  # loaded now: it cannot be once the user has changed
from pathlib import Path

_PRELOADED = (dt, encodings.idna, errno, hashlib, selectors, signal, socket, stat, subprocess, time)


def main() -> None:
    """Read one request from stdin and write one reply to stdout."""
    scope: dict[str, object] = {}
    source = Path(sys.argv[1]).read_text(encoding="utf-8")
    exec(compile(source, sys.argv[1], "exec"), scope)  # noqa: S102  # our own file, as a site would receive it
    request = json.load(sys.stdin)
    become = request.get("become")
    if become is not None and (become["uid"], become["gid"]) != (os.geteuid(), os.getegid()):
        os.setgroups(become["groups"])
        os.setgid(become["gid"])
        os.setuid(become["uid"])
    if request.get("home"):
        os.chdir(request["home"] if Path(request["home"]).is_dir() else "/")
    os.umask(0o077)
    run_batch = scope["run_batch"]
    json.dump(run_batch(request["batch"]), sys.stdout)  # type: ignore[operator]  # came out of exec


main()
