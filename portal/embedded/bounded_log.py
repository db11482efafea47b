"""A log file that cannot grow without bound and cannot hurt: a full disk loses lines, never the product."""

import threading
from pathlib import Path
from typing import IO

MOST_BYTES = 5 * 2**20
KEPT = 2


class BoundedLog:
    """One program's output, appended to `path`; past `most_bytes` that becomes `path.1`, then `path.2`."""

    def __init__(self, path: Path, *, most_bytes: int = MOST_BYTES, kept: int = KEPT) -> None:
        self.path = path
        self.most_bytes = most_bytes
        self.kept = kept
        self.lost = 0
        self._file: IO[bytes] | None = None
        self._size = 0
        self._lock = threading.Lock()
        self._follower: threading.Thread | None = None

    def write(self, lines: bytes) -> None:
        """Append; what cannot be written is counted in `lost` and forgotten."""
        with self._lock:
            try:
                if self._file is None:
                    self._open()
                elif self._size > self.most_bytes:
                    self._turn_over()
                if self._file is not None:
                    self._file.write(lines)
                    self._size += len(lines)
            except OSError:
                self.lost += len(lines)
                self._close()

    def follow(self, stream: IO[bytes]) -> threading.Thread:
        """Copy a program's output here from a thread of its own until the program closes it."""

        def copy() -> None:
            with stream:
                for line in stream:
                    self.write(line)
            with self._lock:
                self._close()

        thread = threading.Thread(target=copy, name=f"log {self.path.name}", daemon=True)
        thread.start()
        self._follower = thread
        return thread

    def close(self, within_s: float = 2.0) -> None:
        """Wait for the last lines of a program that has ended, then close; writing opens it again."""
        if self._follower is not None:
            self._follower.join(within_s)
        with self._lock:
            self._close()

    def last_lines(self, count: int = 15) -> str:
        """Return the end of the log for an error message; empty when there is none."""
        try:
            return "\n".join(self.path.read_text(errors="replace").splitlines()[-count:])
        except OSError:
            return ""

    def _open(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._file = self.path.open("ab", buffering=0)
        self._size = self._file.tell()

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _turn_over(self) -> None:
        self._close()
        for number in range(self.kept, 0, -1):
            older = self.path.with_name(f"{self.path.name}.{number}")
            newer = self.path.with_name(f"{self.path.name}.{number - 1}") if number > 1 else self.path
            if newer.exists():
                newer.replace(older)
        self._open()
