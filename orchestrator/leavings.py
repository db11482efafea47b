"""What is asked of a site about an ended attempt: its files, its last words, the milestones it dropped.

One request carries all of it, so that nothing has to be asked again: the files may be gone tomorrow. Pure.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from orchestrator.plain_text import without_job_tokens
from orchestrator.triage import TAIL_BYTES
from providers.types import BatchReply, Exec, FileEntry, ListFiles, Operation, ReadFile

OWN_FOLDER = ".facet"
"""In an attempt's folder: what we put there for the job, never part of what it left behind."""
DROPPED = ".facet-milestones"
"""In the working directory: milestones as text files, one line each."""
MOST_DROPPED = 200
_DROPPED_BYTES = 32_768
_CLOCKS_DIFFER = timedelta(minutes=2)


@dataclass(frozen=True, slots=True)
class Tails:
    """The last bytes of an attempt's outputs; empty where there are none, or nobody could read them."""

    stderr: str = ""
    stdout: str = ""


@dataclass(frozen=True, slots=True)
class Leavings:
    """What one ended attempt left behind."""

    files: tuple[FileEntry, ...] | None = None
    """None: they could not be listed."""
    tails: Tails = Tails()
    milestones: tuple[str, ...] = ()


def operations(key: str, *, workdir: str, stdout: str, stderr: str, with_tails: bool) -> Iterator[Operation]:
    """Yield what to ask about one attempt; the names of the operations begin with `key`."""
    yield ListFiles(name=f"{key}.files", path=workdir)
    # grep prints "FILE:LINE", needs no shell, and passes over pipes, devices and links.
    yield Exec(
        name=f"{key}.milestones",
        argv=("grep", "-rs", "-m", "1", "--include=*.txt", "", "--", f"{workdir.rstrip('/')}/{DROPPED}"),
        timeout_s=5,
        max_bytes=_DROPPED_BYTES,
    )
    if with_tails:
        for stream, path in (("stderr", stderr), ("stdout", stdout)):
            if path:
                yield ReadFile(name=f"{key}.{stream}", path=path, offset=-TAIL_BYTES, limit=TAIL_BYTES)


def read(key: str, reply: BatchReply, *, workdir: str, since: datetime | None) -> Leavings:
    """Return what the site said about one attempt; milestones from `since` on, as folders may be shared."""
    listed = reply.replies.get(f"{key}.files")
    if listed is None or listed.rc != 0:
        return Leavings(tails=_tails(key, reply))
    return Leavings(
        files=tuple(entry for entry in listed.files if not entry.path.startswith(f"{OWN_FOLDER}/")),
        tails=_tails(key, reply),
        milestones=tuple(_dropped(key, reply, listed.files, workdir=workdir, since=since))[:MOST_DROPPED],
    )


def _tails(key: str, reply: BatchReply) -> Tails:
    found: Mapping[str, str] = {
        stream: without_job_tokens(said.stdout)
        for stream in ("stderr", "stdout")
        if (said := reply.replies.get(f"{key}.{stream}")) is not None and said.rc == 0
    }
    return Tails(**found)


def _dropped(
    key: str, reply: BatchReply, files: tuple[FileEntry, ...], *, workdir: str, since: datetime | None
) -> Iterator[str]:
    """Yield the first line of each milestone file of this attempt, in the order of the files' names."""
    said = reply.replies.get(f"{key}.milestones")
    if said is None:
        return
    start = f"{workdir.rstrip('/')}/"
    lines = dict(
        line.removeprefix(start).split(":", 1)
        for line in said.stdout.splitlines()
        if line.startswith(start) and ":" in line
    )
    for entry in sorted(files, key=lambda entry: entry.path):
        changed = entry.modified_at
        is_ours = since is None or changed is None or changed >= since - _CLOCKS_DIFFER
        if is_ours and lines.get(entry.path, "").strip():
            yield lines[entry.path]
