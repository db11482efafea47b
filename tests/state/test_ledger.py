"""The event log keeps commit order, refuses changes and shows tampering."""

import pytest
from django.db import DatabaseError, connection, transaction
from django.utils import timezone

from federation.ledger import Happening, record, verify
from federation.models import Event, EventPosition

pytestmark = pytest.mark.django_db(transaction=True)


def _write(count: int = 1) -> list[Event]:
    with transaction.atomic():
        return record(
            [Happening(type="system.online", subject=f"delta{n}", summary="came back") for n in range(count)],
            now=timezone.now(),
        )


def test_positions_follow_commit_order_without_gaps() -> None:
    _write(3)
    _write(2)

    assert list(EventPosition.objects.values_list("seq", flat=True)) == [1, 2, 3, 4, 5]
    assert list(verify()) == []


def test_an_event_outside_a_transaction_is_refused() -> None:
    with pytest.raises(RuntimeError, match="transaction"):
        record([Happening(type="system.online", subject="x", summary="")], now=timezone.now())


def test_the_database_refuses_to_change_or_delete_an_event() -> None:
    (event,) = _write()

    with pytest.raises(DatabaseError, match="Cannot update"):
        Event.objects.filter(pk=event.pk).update(summary="forged")
    with pytest.raises(DatabaseError, match="delete rows"), connection.cursor() as cursor:
        cursor.execute("DELETE FROM federation_event")


def _as_the_owner(table: str, sql: str) -> None:
    """Do what somebody with the owner's rights could do behind our back."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
        cursor.execute(sql)
        cursor.execute(f"ALTER TABLE {table} ENABLE TRIGGER USER")


def test_an_edited_event_is_found() -> None:
    events = _write(3)

    _as_the_owner("federation_event", f"UPDATE federation_event SET summary = 'x' WHERE id = {events[1].pk}")

    assert [(b.seq, b.fault) for b in verify()] == [(2, "the event was changed")]


def test_a_removed_event_is_found() -> None:
    events = _write(3)

    _as_the_owner(
        "federation_eventposition", f"DELETE FROM federation_eventposition WHERE event_id = {events[1].pk}"
    )

    faults = [(b.seq, b.fault) for b in verify()]
    assert (3, "the event was changed") in faults or (3, "a position is missing before it") in faults
    assert (0, "the event has no position") in faults
