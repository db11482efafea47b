"""Checking the event log a stretch at a time, so that a long log can be checked with progress to look at."""

from dataclasses import dataclass

from django.db import connection

from federation.ledger import Break
from federation.models import EventArchive

STRETCH = 20_000
"""Events checked at once: well under a second."""

_STRETCH = """
    SELECT seq, handle, holds, follows FROM (
    SELECT p.seq, e.handle, p.hash = facet_event_hash(e, lag(p.hash, 1, %(hash)s::bytea) OVER w) AS holds,
           p.seq - lag(p.seq, 1, %(begin)s::bigint) OVER w = 1 AS follows
    FROM (SELECT * FROM federation_eventposition WHERE seq >= %(after)s ORDER BY seq LIMIT %(rows)s) p
    LEFT JOIN federation_event e ON e.id = p.event_id
    WINDOW w AS (ORDER BY p.seq)) chain
    WHERE seq > %(after)s ORDER BY seq
"""


@dataclass(frozen=True, slots=True)
class Stretch:
    """What one stretch of the log was found to be."""

    after: int
    """The position before it."""
    upto: int
    """Its last position."""
    checked: int
    breaks: tuple[Break, ...]
    is_last: bool
    """There was nothing beyond it."""


def verify_stretch(after: int, *, size: int = STRETCH) -> Stretch:
    """Check the next `size` events after a position: each hash against the event and the hash before it.

    What is archived is left to `federation.archives`: the kept log begins where the last archive ends.
    """
    last = EventArchive.objects.order_by("-first_seq").first()
    begin = last.last_seq if last is not None else 0
    after = max(after, begin)
    given = {"after": after, "rows": size + (after > begin), "begin": begin}
    with connection.cursor() as cursor:
        cursor.execute(_STRETCH, {**given, "hash": bytes(last.last_hash) if last is not None else None})
        rows = cursor.fetchall()
    breaks = tuple(
        Break(seq, handle or "", _fault(handle, holds=bool(holds), follows=bool(follows)))
        for seq, handle, holds, follows in rows
        if not (holds and follows)
    )
    return Stretch(
        after=after,
        upto=rows[-1][0] if rows else after,
        checked=len(rows),
        breaks=breaks,
        is_last=len(rows) < size,
    )


def _fault(handle: str | None, *, holds: bool, follows: bool) -> str:
    if handle is None:
        return "the event is missing"
    if not follows:
        return "a position is missing before it"
    return "the event was changed" if not holds else ""
