"""Moving old events into files, and proving that file and log are one unbroken chain.

An archive is gzip over JSON lines: a header, then for each event its position, its hash and the texts that
the hash covers, in their order. The file is on disk before its events leave the table; the row that names it
holds the hashes by which the log goes on.
"""

import gzip
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pgtrigger
from django.db import connection, transaction

from federation.ledger import Break
from federation.locks import only_one
from federation.models import EventArchive

FORMAT = "facet-events/1"
COLUMNS = (
    *("id", "type", "subject", "user", "system", "task", "group", "attempt", "transfer", "actor"),
    *("on_behalf_of", "at", "state", "summary", "data", "next_actions", "wake"),
)
"""What an event's hash covers, as text: `at` in epoch seconds, `data` and `next_actions` as JSON."""
AT_ONCE = 20_000
"""Events in one file."""
_SEPARATOR = "\x1f"

# The texts of `facet_event_hash`, one by one.
_READ = """
    SELECT p.seq, p.hash, e.at, ARRAY[e.handle, e.type, e.subject, coalesce(e.user_id::text, '-'), e.system,
        e.task, e."group", e.attempt, e.transfer, e.actor, e.on_behalf_of, extract(epoch FROM e.at)::text,
        e.state, e.summary, e.data::text, e.next_actions::text, e.wake]
    FROM federation_eventposition p JOIN federation_event e ON e.id = p.event_id
    WHERE p.seq < (SELECT max(seq) FROM federation_eventposition) AND p.seq < %s
    ORDER BY p.seq LIMIT %s
"""
_DROP = """
    WITH gone AS (DELETE FROM federation_eventposition WHERE seq BETWEEN %s AND %s RETURNING event_id)
    SELECT event_id FROM gone
"""


@dataclass(frozen=True, slots=True)
class Line:
    """One event as an archive holds it."""

    seq: int
    hash: bytes
    at: datetime
    texts: Sequence[str]


def archive(
    *, before: datetime, folder: Path, now: datetime, keep_from: int | None = None, at_once: int = AT_ONCE
) -> EventArchive | None:
    """Move the oldest events into a file; None when there are none, or another worker is at it.

    Args:
        before: Only events from before then, aware.
        folder: Where archives are; made where it is missing.
        now: The instant of the move.
        keep_from: Position from which on nothing is moved, because somebody has still to be told of it.
        at_once: Events in one file, at most. The newest event always stays.
    """
    with only_one("archive:events") as mine:
        if not mine:
            return None
        lines = _oldest(before, keep_from=keep_from, at_once=at_once)
        if not lines:
            return None
        last = EventArchive.objects.order_by("-first_seq").first()
        previous = bytes(last.last_hash) if last is not None else b""
        name, digest, size = _write(lines, previous, folder)
        with transaction.atomic():
            row = EventArchive.objects.create(
                first_seq=lines[0].seq,
                last_seq=lines[-1].seq,
                events=len(lines),
                first_at=lines[0].at,
                last_at=lines[-1].at,
                previous_hash=previous,
                last_hash=lines[-1].hash,
                file=name,
                sha256=digest,
                bytes=size,
                created_at=now,
            )
            _forget(lines[0].seq, lines[-1].seq)
        return row


def _oldest(before: datetime, *, keep_from: int | None, at_once: int) -> list[Line]:
    with connection.cursor() as cursor:
        cursor.execute(_READ, [2**62 if keep_from is None else keep_from, at_once])
        found = [Line(seq, bytes(digest), at, texts) for seq, digest, at, texts in cursor.fetchall()]
    # Positions follow commits, so instants may step back by moments: the first young one ends the stretch.
    young = next((place for place, line in enumerate(found) if line.at >= before), len(found))
    return found[:young]


def _write(lines: Sequence[Line], previous: bytes, folder: Path) -> tuple[str, str, int]:
    """Write a file durably; return its name, digest and size. Written again, the same events are the same."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    name = f"events-{lines[0].seq:012d}-{lines[-1].seq:012d}.jsonl.gz"
    head = {
        "format": FORMAT,
        "first_seq": lines[0].seq,
        "last_seq": lines[-1].seq,
        "events": len(lines),
        "previous_hash": previous.hex(),
        "columns": COLUMNS,
    }
    rows = [json.dumps(head), *(json.dumps([line.seq, line.hash.hex(), line.texts]) for line in lines)]
    content = gzip.compress(("\n".join(rows) + "\n").encode(), mtime=0)
    partial = folder / f".{name}.part"
    with partial.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(folder / name)
    held = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(held)
    finally:
        os.close(held)
    return name, hashlib.sha256(content).hexdigest(), len(content)


def _forget(first: int, last: int) -> None:
    """Take archived events out of the table, inside the transaction that names their file."""
    with (
        pgtrigger.ignore(
            "federation.Event:event_append_only", "federation.EventPosition:position_append_only"
        ),
        connection.cursor() as cursor,
    ):
        cursor.execute(_DROP, [first, last])
        ids = [pk for (pk,) in cursor.fetchall()]
        cursor.execute("DELETE FROM federation_event WHERE id = ANY(%s)", [ids])


def verify_archives(folder: Path | None) -> Iterator[Break]:
    """Yield every break between archives, and where `folder` is given, inside their files."""
    seq, digest = 0, b""
    for row in EventArchive.objects.order_by("first_seq"):
        if row.first_seq != seq + 1 or bytes(row.previous_hash) != digest:
            yield Break(row.first_seq, row.file, "the archive does not follow the one before")
        if folder is not None:
            yield from _verify_file(row, folder / row.file)
        seq, digest = row.last_seq, bytes(row.last_hash)


def _verify_file(row: EventArchive, path: Path) -> Iterator[Break]:
    try:
        content = path.read_bytes()
    except OSError as error:
        yield Break(row.first_seq, row.file, f"the archive cannot be read: {error.strerror}")
        return
    if hashlib.sha256(content).hexdigest() != row.sha256:
        yield Break(row.first_seq, row.file, "the archive was changed")
        return
    digest, expected = bytes(row.previous_hash), row.first_seq
    for line in read_archive(content):
        told = hashlib.sha256(digest + _SEPARATOR.join(line[2]).encode()).digest()
        if line[0] != expected or told.hex() != line[1]:
            yield Break(line[0], line[2][0], "the archived event was changed")
        digest, expected = bytes.fromhex(line[1]), expected + 1
    if digest != bytes(row.last_hash) or expected != row.last_seq + 1:
        yield Break(row.last_seq, row.file, "the archive ends elsewhere than its row says")


def read_archive(content: bytes) -> Iterator[tuple[int, str, Sequence[str]]]:
    """Yield (position, hash, texts) of each event of an archive.

    Raises:
        ValueError: it is no archive of ours.
    """
    head, *rows = gzip.decompress(content).decode().splitlines()
    if json.loads(head).get("format") != FORMAT:
        raise ValueError(f"not {FORMAT}")
    for row in rows:
        seq, digest, texts = json.loads(row)
        yield seq, digest, texts
