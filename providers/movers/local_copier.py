"""The process behind the local mover: become the chosen user, copy, verify, tell how it goes.

Started as `python -I -S local_copier.py FOLDER`; FOLDER holds `request.json`, and `state.json` is written
there. It leaves its parent at once. Standard library alone, and all of it loaded before it gives up its
rights. No symbolic link is ever followed below a root: each part of a path is opened from the one above it.
"""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_BLOCK = 1024 * 1024
_TELL_EVERY_S = 0.3
_TRIES = 3
"""How often a file whose copy differs is copied."""
_MOST_SEEN = 1000
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Ended(Exception):
    """The move is over before its end."""

    def __init__(self, fault: str, said: str) -> None:
        super().__init__(said)
        self.fault = fault


class State:
    """What is known of the move, written where the mover reads it."""

    def __init__(self, fd: int) -> None:
        self.fd, self.told_at, self.length = fd, 0.0, os.fstat(fd).st_size
        self.doc: dict[str, Any] = {
            "pid": os.getpid(), "state": "active", "reason": "", "fault": None, "faults": 0, "files": 0,
            "files_moved": 0, "files_skipped": 0, "bytes_moved": 0, "finished_at": None, "seen": [],
        }  # fmt: skip

    def tell(self, *, at_once: bool = True, **changes: Any) -> None:
        """Write it down; padded, so that a reader never meets the end of an older, longer one."""
        self.doc.update(changes)
        if not at_once and time.monotonic() - self.told_at < _TELL_EVERY_S:
            return
        self.told_at = time.monotonic()
        text = json.dumps(self.doc).encode()
        os.pwrite(self.fd, text.ljust(self.length), 0)
        self.length = max(self.length, len(text))


class Copier:
    """One move."""

    def __init__(self, request: dict[str, Any], state: State) -> None:
        self.request, self.state, self.is_cancelled, self.links = request, state, False, 0

    def run(self) -> None:
        """Copy everything, then say how it ended."""
        try:
            for item in self.request["items"]:
                self._item(item)
        except Ended as ended:
            kind = "cancelled" if ended.fault == "cancelled" else "failed"
            fault = None if kind == "cancelled" else ended.fault
            self.state.tell(state=kind, reason=str(ended)[:500], fault=fault, finished_at=time.time())
            return
        except Exception as error:  # noqa: BLE001  # nobody else would tell that it stopped
            said = f"{type(error).__name__}: {error}"[:500]
            self.state.tell(state="failed", reason=said, fault="other", finished_at=time.time())
            return
        left = f"{self.links} symbolic links were left out: a move follows none." if self.links else ""
        self.state.tell(state="succeeded", reason=left, fault=None, finished_at=time.time())

    def _item(self, item: dict[str, Any]) -> None:
        with _words(item["source"]):
            above, name = _walk(item["source_root"], item["source"], make=False)
            try:
                about = os.stat(name, dir_fd=above, follow_symlinks=False)
                if item["is_folder"]:
                    self._folder(item, above, name)
                    return
                if stat.S_ISDIR(about.st_mode):
                    raise Ended("other", f"{item['source']} is a folder; end both paths with a slash")
            finally:
                os.close(above)
        self._file(item, item["source"], item["destination"], item.get("sha256"))

    def _folder(self, item: dict[str, Any], above: int, name: str) -> None:
        here = os.open(name or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
        source, target = item["source"].rstrip("/"), item["destination"].rstrip("/")
        found: list[str] = []
        try:
            for place, folders, names, fd in os.fwalk(".", dir_fd=here, follow_symlinks=False):
                folders.sort()
                for each in sorted(names):
                    if stat.S_ISREG(os.stat(each, dir_fd=fd, follow_symlinks=False).st_mode):
                        found.append(os.path.normpath(os.path.join(place, each)))  # noqa: PTH118  # relative to a descriptor
                    else:
                        self.links += 1
        finally:
            os.close(here)
        with _words(target):
            os.close(_walk(item["destination_root"], f"{target}/x", make=True)[0])
        for each in found:
            self._file(item, f"{source}/{each}", f"{target}/{each}", None)

    def _file(self, item: dict[str, Any], source: str, target: str, wanted: str | None) -> None:
        self.state.tell(files=self.state.doc["files"] + 1, at_once=False)
        for turn in range(_TRIES):
            try:
                self._copy(item, source, target, wanted)
            except Ended as ended:
                if ended.fault != "checksum_mismatch" or wanted is not None or turn == _TRIES - 1:
                    raise
                faults = self.state.doc["faults"] + 1
                self.state.tell(faults=faults, reason=str(ended), fault=ended.fault)
            else:
                self.state.tell(reason="", fault=None, at_once=False)
                return

    def _copy(self, item: dict[str, Any], source: str, target: str, wanted: str | None) -> None:
        with contextlib.ExitStack() as stack:
            with _words(source):
                src, name = _walk(item["source_root"], source, make=False)
                stack.callback(os.close, src)
                reading = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=src)
                stack.callback(os.close, reading)
                about = os.fstat(reading)
                if not stat.S_ISREG(about.st_mode):
                    raise Ended("other", f"{source} is not a regular file")
                digest = self._digest(reading)
            if wanted is not None and digest != wanted:
                said = f"{source} is not the declared file: its SHA-256 is {digest}, declared is {wanted}"
                raise Ended("checksum_mismatch", said)
            with _words(target):
                dst, name = _walk(item["destination_root"], target, make=True)
                stack.callback(os.close, dst)
                if self._is_there(dst, name, about.st_size, digest):
                    self._seen(target, about.st_size, digest, files_skipped=1)
                    return
                self._write(reading, about, dst, target, digest)
            self._seen(target, about.st_size, digest, files_moved=1, bytes_moved=about.st_size)

    def _write(self, reading: int, about: os.stat_result, dst: int, target: str, digest: str) -> None:
        name = target.rpartition("/")[2]
        draft = f".{name[:100]}.{self.request['id'][:8]}.part"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(draft, dir_fd=dst)
        writing = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=dst)
        try:
            for block in self._blocks(reading):
                left = memoryview(block)
                while left:
                    left = left[os.write(writing, left) :]
            os.fsync(writing)
            self._compare(writing, target, digest)
            os.fchmod(writing, stat.S_IMODE(about.st_mode) & 0o777)
            os.utime(writing, ns=(about.st_atime_ns, about.st_mtime_ns))
            os.rename(draft, name, src_dir_fd=dst, dst_dir_fd=dst)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(draft, dir_fd=dst)
            raise
        finally:
            os.close(writing)

    def _compare(self, written: int, target: str, digest: str) -> None:
        if self._digest(written) != digest:
            raise Ended("checksum_mismatch", f"the copy of {target} differs from its source")

    def _is_there(self, folder: int, name: str, size: int, digest: str) -> bool:
        """Return whether the destination holds the same file already."""
        try:
            about = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return False
        if stat.S_ISDIR(about.st_mode):
            raise Ended("other", f"there is a folder where {name} should go")
        if not stat.S_ISREG(about.st_mode) or about.st_size != size:
            return False
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=folder)
        try:
            return self._digest(fd) == digest
        finally:
            os.close(fd)

    def _digest(self, fd: int) -> str:
        digest = hashlib.sha256()
        for block in self._blocks(fd):
            digest.update(block)
        return digest.hexdigest()

    def _blocks(self, fd: int) -> Iterator[bytes]:
        at = 0
        while block := os.pread(fd, _BLOCK, at):
            at += len(block)
            self._heed()
            yield block

    def _heed(self) -> None:
        if self.is_cancelled:
            raise Ended("cancelled", "cancelled as asked")
        until = self.request.get("deadline")
        if until is not None and time.time() > until:
            raise Ended("deadline", "the deadline passed before everything was copied")

    def _seen(self, target: str, size: int, digest: str, **more: int) -> None:
        doc = self.state.doc
        if len(doc["seen"]) < _MOST_SEEN:
            doc["seen"].append({"path": target, "bytes": size, "sha256": digest})
        self.state.tell(at_once=False, **{name: doc[name] + count for name, count in more.items()})


def _walk(root: str, path: str, *, make: bool) -> tuple[int, str]:
    """Return the folder that holds a path, opened part by part from its root, and the last part."""
    *parts, name = [part for part in os.path.relpath(path, root).split("/") if part != "."] or [""]
    fd = os.open(root, _FOLDER)
    for part in parts:
        try:
            try:
                below = os.open(part, _FOLDER, dir_fd=fd)
            except FileNotFoundError:
                if not make:
                    raise
                os.mkdir(part, 0o700, dir_fd=fd)
                below = os.open(part, _FOLDER, dir_fd=fd)
        finally:
            os.close(fd)
        fd = below
    return fd, name


@contextlib.contextmanager
def _words(path: str) -> Iterator[None]:
    """Say in a sentence what the system's error number means for this path."""
    try:
        yield
    except OSError as error:
        number, said = error.errno, error.strerror or str(error)
        if number in (errno.ELOOP, errno.ENOTDIR):
            raise Ended("permission_denied", f"{path} leads over a symbolic link or a file") from None
        if number == errno.ENOENT:
            raise Ended("missing_source", f"{said}: {path}") from None
        if number in (errno.ENOSPC, errno.EDQUOT):
            raise Ended("quota", f"{said}: {path}") from None
        if number in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise Ended("permission_denied", f"{said}: {path}") from None
        raise Ended("other", f"{said}: {path}") from None


def _become(user: dict[str, Any] | None) -> None:
    if user is not None and (user["uid"], user["gid"]) != (os.geteuid(), os.getegid()):
        os.setgroups(user["groups"])
        os.setgid(user["gid"])
        os.setuid(user["uid"])
    os.umask(0o077)


def _is_ours(lock: int) -> bool:
    """Take the lock; a look at it by others lasts a moment, another process at this move much longer."""
    for _ in range(20):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.02)
        else:
            return True
    return False


def _is_over(folder: Path) -> bool:
    with contextlib.suppress(FileNotFoundError, ValueError):
        return bool(json.loads((folder / "state.json").read_text(encoding="utf-8"))["state"] != "active")
    return False


def main(folder: Path) -> None:
    """Do the move that FOLDER describes, unless another process is at it."""
    if os.fork():
        os._exit(0)
    os.setsid()
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if not _is_ours(lock) or _is_over(folder):
        return
    state = State(os.open(folder / "state.json", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    copier = Copier(json.loads((folder / "request.json").read_text(encoding="utf-8")), state)
    copier.is_cancelled = (folder / "cancel").exists()

    def cancel(*_: object) -> None:
        copier.is_cancelled = True

    handler: Callable[..., None] = cancel
    signal.signal(signal.SIGTERM, handler)
    state.tell()
    _become(copier.request.get("become"))
    os.chdir("/")
    copier.run()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
