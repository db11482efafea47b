"""Writing the event log, always inside the transaction of the change it reports."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import structlog
from django.contrib.auth import get_user_model
from django.db import connection, transaction
from structlog.contextvars import get_contextvars

from federation.event_types import EVENT_TYPES
from federation.handles import new_handle
from federation.models import Event, EventArchive

log = structlog.get_logger(__name__)

_SUMMARY_CHARS = 400


@dataclass(frozen=True, slots=True)
class Happening:
    """One event to be written. `subject` is the handle (or system slug) it is about."""

    type: str
    subject: str
    summary: str
    user_id: int | None = None
    system: str = ""
    task: str = ""
    group: str = ""
    attempt: str = ""
    transfer: str = ""
    actor: str = "facet"
    state: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    next_actions: Sequence[Mapping[str, Any]] = ()


def record(happenings: Sequence[Happening], *, now: datetime) -> list[Event]:
    """Write the events in order and return them. Positions in the log are given at commit.

    Whoever acted, `on_behalf_of` names the user whose event it is; the system's own events have none.

    Raises:
        KeyError: a type that the catalogue does not list.
    """
    if not connection.in_atomic_block:
        raise RuntimeError("Events are written in the transaction of the change they report.")
    people = _people(happening.user_id for happening in happenings)
    rows = [
        Event(
            handle=new_handle("evt", now),
            type=happening.type,
            wake=EVENT_TYPES[happening.type],
            subject=happening.subject,
            user_id=happening.user_id,
            system=happening.system,
            task=happening.task,
            group=happening.group,
            attempt=happening.attempt,
            transfer=happening.transfer,
            actor=happening.actor,
            on_behalf_of=people.get(happening.user_id, ""),
            at=now,
            state=happening.state,
            summary=happening.summary[:_SUMMARY_CHARS],
            data=dict(happening.data),
            next_actions=[dict(action) for action in happening.next_actions],
        )
        for happening in happenings
    ]
    known = get_contextvars()
    transaction.on_commit(lambda: _tell(rows, known))
    return Event.objects.bulk_create(rows)


def _people(ids: Iterable[int | None]) -> dict[int | None, str]:
    wanted = {pk for pk in ids if pk is not None}
    if not wanted:
        return {}
    users = get_user_model()._default_manager.filter(pk__in=wanted)  # noqa: SLF001  # its only name
    return {user.pk: f"user:{user.get_username()}" for user in users}


def _tell(events: Sequence[Event], known: Mapping[str, Any]) -> None:
    """Log what was committed, with the ids that a search goes by; words are left to the event itself."""
    for event in events:
        ids = {"task": event.task, "attempt": event.attempt, "group": event.group, "system": event.system}
        named = {name: handle for name, handle in ids.items() if handle}
        log.info(event.type, **{**known, **named, "state": event.state, "actor": event.actor})


@dataclass(frozen=True, slots=True)
class Break:
    """A place where the log is not what was committed."""

    seq: int
    event: str
    fault: str


_VERIFY = """
    SELECT seq, handle, holds, follows FROM (
    SELECT p.seq, e.handle, p.hash = facet_event_hash(e, lag(p.hash, 1, %s::bytea) OVER w) AS holds,
           p.seq - lag(p.seq, 1, %s::bigint) OVER w = 1 AS follows
    FROM federation_eventposition p LEFT JOIN federation_event e ON e.id = p.event_id
    WINDOW w AS (ORDER BY p.seq)) chain
    WHERE NOT (coalesce(holds, false) AND follows) ORDER BY seq
"""

_WITHOUT_POSITION = """
    SELECT e.handle FROM federation_event e
    LEFT JOIN federation_eventposition p ON p.event_id = e.id WHERE p.seq IS NULL
"""


def verify() -> Iterator[Break]:
    """Yield every break of the kept chain: an edited event, a missing one, an event without a position.

    It begins where the last archive ends (`federation.archives` looks at those).
    """
    last = EventArchive.objects.order_by("-first_seq").first()
    begins = (bytes(last.last_hash), last.last_seq) if last is not None else (None, 0)
    with connection.cursor() as cursor:
        cursor.execute(_VERIFY, begins)
        for seq, handle, holds, _follows in cursor.fetchall():
            fault = "the event is missing" if handle is None else "a position is missing before it"
            yield Break(
                seq=seq,
                event=handle or "",
                fault=fault if holds or handle is None else "the event was changed",
            )
        cursor.execute(_WITHOUT_POSITION)
        for (handle,) in cursor.fetchall():
            yield Break(seq=0, event=handle, fault="the event has no position")
