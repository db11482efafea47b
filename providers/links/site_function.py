"""The one function that runs at a site, shipped as source text.

Self-contained on purpose: every import is inside, no globals, no decorators, and Python 3.6 syntax, since
it runs under whatever Python the site has. It never uses a shell. In and out are plain JSON values: the
request is `providers.types.Batch.model_dump(mode="json")`, the answer has `providers.types.BatchReply`'s shape.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,misc,unused-ignore"


def run_batch(request):  # type: ignore[no-untyped-def]  # plain JSON in and out
    """Run every operation in order and return all replies by name."""
    import datetime
    import errno
    import hashlib
    import os
    import selectors
    import signal
    import socket
    import stat
    import subprocess
    import time

    started = time.monotonic()
    deadline = started + float(request.get("deadline_s", 60.0))
    if request.get("not_after") is not None:  # started late: what the sender no longer waits for must not run
        deadline = min(deadline, started + float(request["not_after"]) - time.time())
    scrubbed = ("SLURM_", "SBATCH_", "SQUEUE_", "SINFO_", "SACCT_", "SCANCEL_", "SALLOC_", "SRUN_", "SPRIO_")

    def environment(extra):
        env = {}
        for key, value in os.environ.items():
            if not key.startswith(scrubbed) or key == "SLURM_CONF":
                env[key] = value
        env["LC_ALL"] = "C.UTF-8"
        env["LANG"] = "C.UTF-8"
        env["TZ"] = "UTC"
        env.update(extra)
        return env

    def end(process):
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except OSError:
            pass

    def execute(op):
        left = deadline - time.monotonic()
        if left <= 0:
            return {"skipped": True}
        until = time.monotonic() + min(float(op["timeout_s"]), left)
        stdin = op.get("stdin")
        try:
            process = subprocess.Popen(
                list(op["argv"]),
                stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment(op.get("env") or {}),
                cwd=op.get("cwd") or None,
                start_new_session=True,
            )
        except OSError as error:
            return {"rc": None, "missing": error.errno == errno.ENOENT, "stderr": str(error)}
        limit = int(op["max_bytes"])
        chunks = {"out": [], "err": []}  # type: ignore[var-annotated]
        size = {"out": 0, "err": 0}
        verdict = {"truncated": False, "timed_out": False}
        selector = selectors.DefaultSelector()
        for name, stream in (("out", process.stdout), ("err", process.stderr)):
            os.set_blocking(stream.fileno(), False)
            selector.register(stream, selectors.EVENT_READ, name)
        pending = b""
        if stdin is not None:
            pending = stdin.encode("utf-8", "surrogateescape")
            os.set_blocking(process.stdin.fileno(), False)
            selector.register(process.stdin, selectors.EVENT_WRITE, "in")
        while selector.get_map():
            wait = until - time.monotonic()
            if wait <= 0:
                verdict["timed_out"] = True
                break
            for key, _ in selector.select(wait):
                if key.data == "in":
                    try:
                        sent = os.write(key.fd, pending[:65536]) if pending else 0
                        pending = pending[sent:]
                    except BlockingIOError:
                        continue
                    except OSError:
                        pending = b""
                    if not pending:
                        selector.unregister(key.fileobj)
                        key.fileobj.close()
                    continue
                data = os.read(key.fd, 65536)
                if not data:
                    selector.unregister(key.fileobj)
                    continue
                room = limit - size[key.data]
                chunks[key.data].append(data[: max(0, room)])
                size[key.data] += len(data)
                if size[key.data] > limit:
                    verdict["truncated"] = True
            if verdict["truncated"]:
                break
        if not verdict["timed_out"] and not verdict["truncated"]:
            try:
                process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                verdict["timed_out"] = True
        if process.poll() is None:
            end(process)
            process.wait()
        selector.close()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                try:
                    stream.close()
                except OSError:
                    pass
        return {
            "rc": None if verdict["timed_out"] or verdict["truncated"] else process.returncode,
            "stdout": b"".join(chunks["out"]).decode("utf-8", "replace"),
            "stderr": b"".join(chunks["err"]).decode("utf-8", "replace"),
            "truncated": verdict["truncated"],
            "timed_out": verdict["timed_out"],
        }

    def read(op):
        fd = os.open(op["path"], os.O_RDONLY | os.O_NONBLOCK)
        try:
            about = os.fstat(fd)
            if not stat.S_ISREG(about.st_mode):
                return {"rc": 1, "stderr": "not a regular file"}
            offset = int(op["offset"])
            if offset < 0:
                offset = max(0, about.st_size + offset)
            data = os.pread(fd, min(int(op["limit"]), 1048576), offset)
        finally:
            os.close(fd)
        return {"rc": 0, "stdout": data.decode("utf-8", "replace"), "size": about.st_size}

    def checksum(path):
        digest = hashlib.sha256()
        with open(path, "rb") as stream:
            for block in iter(lambda: stream.read(1048576), b""):
                digest.update(block)
                if time.monotonic() > deadline:
                    return None
        return digest.hexdigest()

    def listing(op):
        root = op["path"]
        if not os.path.isdir(root):
            return {"rc": 1, "missing": True, "stderr": "no such directory"}
        files = []
        truncated = False
        for folder, folders, names in os.walk(root):
            folders.sort()
            for name in sorted(names):
                path = os.path.join(folder, name)
                try:
                    about = os.lstat(path)
                    if not stat.S_ISREG(about.st_mode):
                        continue
                    if len(files) >= int(op["max_files"]) or time.monotonic() > deadline:
                        truncated = True
                        break
                    small = about.st_size <= int(op["checksum_max_bytes"])
                    files.append(
                        {
                            "path": os.path.relpath(path, root),
                            "bytes": about.st_size,
                            "sha256": checksum(path) if small else None,
                            "modified_at": datetime.datetime.fromtimestamp(
                                about.st_mtime, datetime.timezone.utc
                            ).isoformat(),
                        }
                    )
                except OSError:
                    truncated = True
            if truncated:
                break
        return {"rc": 0, "files": files, "truncated": truncated}

    def write(op):
        path = op["path"]
        draft = path + ".facet-%d" % os.getpid()
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, int(op["mode"]))
        try:
            with os.fdopen(fd, "w", encoding="utf-8", errors="surrogateescape", newline="") as stream:
                stream.write(op["text"])
            os.rename(draft, path)
        except OSError:
            os.unlink(draft)
            raise
        return {"rc": 0}

    def make(op):
        os.makedirs(op["path"], 0o700, exist_ok=True)
        return {"rc": 0}

    kinds = {"exec": execute, "read": read, "list": listing, "mkdir": make, "write": write}
    replies = {}
    stopped = False
    for op in request["operations"]:
        began = time.monotonic()
        needed = op.get("requires")
        if stopped or began >= deadline or (needed and replies.get(needed, {}).get("rc") != 0):
            reply = {"skipped": True}
        else:
            try:
                reply = kinds[op["kind"]](op)
            except OSError as error:
                reply = {"rc": 1, "stderr": str(error), "missing": error.errno == errno.ENOENT}
        reply["name"] = op["name"]
        reply["duration_s"] = round(time.monotonic() - began, 4)
        replies[op["name"]] = reply
        if op.get("stop_on_failure") and reply.get("rc") != 0:
            stopped = True
    return {
        "replies": replies,
        "site_time": datetime.datetime.now(datetime.timezone.utc).isoformat(),
        "hostname": socket.gethostname(),
        "duration_s": round(time.monotonic() - started, 4),
    }
