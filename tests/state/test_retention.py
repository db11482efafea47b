"""Old events leave into files, the chain goes on over the boundary, and what is needed stays."""

import gzip
import json
from datetime import datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection, transaction

from federation.archives import archive, read_archive, verify_archives
from federation.ledger import Happening, record, verify
from federation.models import Event, EventArchive, EventPosition, PartitionSample, Snapshot, System
from orchestrator.models import Subscription
from portal import retention
from portal.skills.events import check_cursor
from providers.errors import Gone
from tests.web.world import make_system

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def folder(tmp_path: Path, settings: Any) -> Path:
    settings.ARCHIVE_DIR = tmp_path / "archive"
    return tmp_path / "archive"


def _write(count: int, at: datetime) -> None:
    """Commit events one by one."""
    for number in range(count):
        with transaction.atomic():
            event = Happening(
                type="system.online", subject="delta", summary=f"ünder | {number}", data={"n": 1.5, "ä": None}
            )
            record([event], now=at)


def _seqs() -> list[int]:
    return list(EventPosition.objects.values_list("seq", flat=True))


def test_old_events_leave_and_the_chain_goes_on(folder: Path, now: datetime) -> None:
    _write(5, now - timedelta(days=10))
    _write(2, now)

    row = archive(before=now - timedelta(days=1), folder=folder, now=now)

    assert row is not None
    assert (row.first_seq, row.last_seq, row.events) == (1, 5, 5)
    assert _seqs() == [6, 7]
    assert Event.objects.count() == 2
    assert list(verify()) == list(verify_archives(folder)) == []
    _write(1, now)
    assert _seqs() == [6, 7, 8]
    assert list(verify()) == []


def test_archives_follow_one_another_and_hold_what_was_written(folder: Path, now: datetime) -> None:
    old = now - timedelta(days=10)
    _write(5, old)
    told = list(Event.objects.order_by("id").values_list("handle", flat=True))
    before = now - timedelta(days=1)

    rows = [archive(before=before, folder=folder, now=now, at_once=2) for _ in range(3)]

    assert [row and (row.first_seq, row.last_seq) for row in rows] == [(1, 2), (3, 4), None]
    assert _seqs() == [5]
    assert list(verify_archives(folder)) == []
    files = [row.file for row in EventArchive.objects.order_by("first_seq")]
    lines = [line for name in files for line in read_archive((folder / name).read_bytes())]
    assert [(seq, texts[0], texts[13]) for seq, _, texts in lines] == [
        (number + 1, told[number], f"ünder | {number}") for number in range(4)
    ]
    assert json.loads(lines[0][2][14]) == {"n": 1.5, "ä": None}


def test_a_changed_archive_is_found(folder: Path, now: datetime) -> None:
    _write(3, now - timedelta(days=10))
    row = archive(before=now, folder=folder, now=now)
    assert row is not None
    path = folder / row.file
    whole = path.read_bytes()

    path.write_bytes(gzip.compress(gzip.decompress(whole).replace(b"| 1", b"| 7"), mtime=0))
    assert [found.fault for found in verify_archives(folder)] == ["the archive was changed"]

    path.unlink()
    (missing,) = verify_archives(folder)
    assert missing.fault == "the archive cannot be read: No such file or directory"
    assert list(verify_archives(None)) == []


def test_a_kept_log_that_does_not_follow_its_archive_is_found(folder: Path, now: datetime) -> None:
    _write(4, now - timedelta(days=10))
    archive(before=now, folder=folder, now=now, at_once=2)

    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE federation_eventposition DISABLE TRIGGER USER")
        cursor.execute("DELETE FROM federation_eventposition WHERE seq = 3")
        cursor.execute("ALTER TABLE federation_eventposition ENABLE TRIGGER USER")

    assert {found.seq for found in verify()} == {0, 4}


def test_nothing_changes_an_archive_or_deletes_events_otherwise(folder: Path, now: datetime) -> None:
    _write(3, now - timedelta(days=10))
    archive(before=now, folder=folder, now=now)

    with pytest.raises(DatabaseError, match="Cannot update"):
        EventArchive.objects.update(last_seq=9)
    with pytest.raises(DatabaseError, match="delete rows"), connection.cursor() as cursor:
        cursor.execute("DELETE FROM federation_event")


def test_a_second_worker_and_a_file_left_by_a_dead_one_do_no_harm(folder: Path, now: datetime) -> None:
    _write(3, now - timedelta(days=10))
    folder.mkdir()
    (folder / "events-000000000001-000000000002.jsonl.gz").write_bytes(b"half a file")

    row = archive(before=now, folder=folder, now=now)

    assert row is not None
    assert row.file == "events-000000000001-000000000002.jsonl.gz"
    assert list(verify_archives(folder)) == []


def test_a_cursor_from_before_the_archive_is_gone_and_told_where_to_go_on(
    folder: Path, now: datetime
) -> None:
    _write(5, now - timedelta(days=10))
    archive(before=now, folder=folder, now=now, at_once=3)

    check_cursor(3)
    with pytest.raises(Gone) as gone:
        check_cursor(2)
    assert gone.value.facts["oldest"] == 3
    assert "after=3" in gone.value.remediation


def test_what_a_webhook_has_still_to_be_told_stays(alice: User, folder: Path, now: datetime) -> None:
    _write(5, now - timedelta(days=10))
    wanted = {"user": alice, "name": "x", "target": "webhook", "created_at": now, "updated_at": now}
    Subscription.objects.create(handle="sub_1", cursor_seq=2, acked_seq=0, **wanted)

    found = retention.archive_events(now=now, days=1)

    assert (found.events, _seqs()) == (2, [3, 4, 5])


def test_the_clock_archives_only_where_the_setting_says_so(
    folder: Path, now: datetime, settings: Any
) -> None:
    _write(3, now - timedelta(days=10))

    settings.KEEP_EVENTS_DAYS = 0
    assert retention.archive_events(now=now).events == 0
    settings.KEEP_EVENTS_DAYS = 30
    assert retention.archive_events(now=now).events == 0
    settings.KEEP_EVENTS_DAYS = 5
    assert retention.archive_events(now=now).events == 2


def _said(*words: str) -> str:
    out = StringIO()
    call_command(*words, stdout=out)
    return out.getvalue()


def test_the_commands_say_what_they_did(folder: Path, now: datetime) -> None:
    _write(4, now - timedelta(days=10))

    assert _said("archive_events", "--days", "1").splitlines() == [
        "events-000000000001-000000000003.jsonl.gz",
        f"3 events moved into 1 files in {folder}.",
    ]
    assert _said("verify_events") == "4 events, 3 of them in archives, unbroken.\n"
    next(folder.iterdir()).unlink()
    with pytest.raises(CommandError, match="broken at 1 places"):
        _said("verify_events")
    assert _said("verify_events", "--without-files") == "4 events, 3 of them in archives, unbroken.\n"


def test_old_snapshots_and_samples_are_dropped_but_never_the_newest(alice: User, now: datetime) -> None:
    make_system(alice, "anvil", "Anvil", "a100", "40G", free=3, now=now - timedelta(days=9))
    newest = System.objects.get().snapshot
    assert newest is not None
    Snapshot.objects.create(
        handle="snap_old", system=System.objects.get(), taken_at=now - timedelta(days=9), duration_s=1
    )

    assert "1 snapshots and 1 samples dropped" in _said(
        "prune_history", "--snapshots-days", "8", "--samples-days", "8"
    )

    assert list(Snapshot.objects.all()) == [newest]
    assert PartitionSample.objects.count() == 0
