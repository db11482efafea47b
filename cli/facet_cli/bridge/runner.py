"""Carrying one wake out, in a process of its own that outlives the bridge.

Whatever dies, and whenever, the wake happens at most once and its outcome is known or known to be unknown:

1. lock `JOB.run` (a second runner of the same job leaves at once);
2. lock the session (somebody lives in it: outcome `live`, nothing was done);
3. make `JOB.started`, which can be made only once;
4. run the command or send the request;
5. write `JOB.done`.

A bridge that finds no lock, no `done` but `started` knows that this process was killed in step 4.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import http.client
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from facet_cli.client import NoRedirect
from facet_cli.files import lock_path, read_json, sync_folder, take, write_json

_TAIL_BYTES = 4096


def beside(path: Path, ending: str) -> Path:
    """Return the file of a job with another ending."""
    return path.with_suffix(f".{ending}")


def run(path: Path) -> None:
    """Carry the job in a file out, unless somebody does or did."""
    with contextlib.ExitStack() as stack:
        ours = take(beside(path, "run"))
        if ours is None:
            return
        stack.enter_context(ours)
        job = read_json(path)
        if job is None or beside(path, "done").exists():
            return
        if job["session"]:
            alone = take(lock_path("session", job["session"]), within_s=0.2)
            if alone is None:
                write_json(beside(path, "done"), {"outcome": "live"})
                return
            stack.enter_context(alone)
        if not _start(beside(path, "started")):
            return
        write_json(beside(path, "done"), _carried_out(job))


def _start(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return False
    os.fsync(descriptor)
    os.close(descriptor)
    sync_folder(path.parent)
    return True


def _carried_out(job: dict[str, Any]) -> dict[str, Any]:
    try:
        return _sent(job) if job["url"] else _ran(job)
    except OSError as error:
        return {"outcome": "failed", "why": str(error)[:500]}


def _ran(job: dict[str, Any]) -> dict[str, Any]:
    """Run the command with the payload on its standard input."""
    environment = {**os.environ, "FACET_WAKE": job["wake"], "FACET_SESSION": job["session"] or ""}
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            job["argv"],
            stdin=subprocess.PIPE,
            stdout=said,
            stderr=subprocess.STDOUT,
            cwd=job["cwd"],
            env=environment,
        )
        try:
            process.communicate(job["payload"].encode(), timeout=job["timeout_s"])
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return {"outcome": "failed", "why": f"not done after {job['timeout_s']:.0f} s; it was stopped"}
        if process.returncode == 0:
            return {"outcome": "done"}
        said.seek(max(0, said.tell() - _TAIL_BYTES))
        tail = said.read().decode("utf-8", "replace")[-500:]
        return {"outcome": "failed", "why": f"exit code {process.returncode}: {tail}"}


def signature(secret: str, wake: str, timestamp: int, body: bytes) -> str:
    """Return the signature of a webhook.

    Source: Standard Webhooks 1.0, "Signature scheme".
    """
    key = base64.b64decode(secret[6:]) if secret.startswith("whsec_") else secret.encode()
    said = f"{wake}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(key, said, hashlib.sha256).digest()).decode()


def _sent(job: dict[str, Any]) -> dict[str, Any]:
    """Send the payload to a webhook; only 2xx counts, redirects are refused."""
    secret = Path(job["secret_file"]).read_text(encoding="utf-8").strip()
    body, now = job["payload"].encode(), int(time.time())
    headers = {
        "Content-Type": "application/json",
        "webhook-id": job["wake"],
        "webhook-timestamp": str(now),
        "webhook-signature": signature(secret, job["wake"], now, body),
    }
    request = urllib.request.Request(job["url"], data=body, headers=headers, method="POST")
    try:
        with urllib.request.build_opener(NoRedirect()).open(request, timeout=min(30.0, job["timeout_s"])):
            return {"outcome": "done"}
    except urllib.error.HTTPError as error:
        with error:
            outcome = "refused" if error.code == 410 else "failed"
            return {"outcome": outcome, "why": f"HTTP {error.code}"}
    except http.client.HTTPException as error:
        return {"outcome": "failed", "why": str(error)[:500]}


def spawn(path: Path) -> subprocess.Popen[bytes]:
    """Start a runner that goes on when we end."""
    return subprocess.Popen(
        [sys.executable, "-m", "facet_cli.bridge.runner", str(path)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def main(arguments: Sequence[str]) -> int:
    """Carry out the job in the file named."""
    run(Path(arguments[0]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
