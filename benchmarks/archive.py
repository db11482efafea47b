"""What moving old events into files costs at scale, and what proving the chain costs before and after.

    .venv/bin/python -m benchmarks.archive [--events 1000000]

On a real PostgreSQL, filled with copies of one event of the product's own in one valid chain of hashes.
Prints seconds, events a second, the size of table and files and this process's memory; exits 1 where the
chain is found broken, or where a forged event is not found.
"""

import argparse
import sys
import time
from datetime import timedelta

from benchmarks import _services  # noqa: F401  # starts the servers before Django reads its settings

# isort: split
import psutil
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection, transaction
from django.utils import timezone

from benchmarks.load import multiply
from federation.archives import verify_archives
from federation.ledger import Happening, record, verify
from federation.models import Event
from portal.retention import archive_events, archive_folder

_CHAIN = """
    DO $$
    DECLARE previous bytea; place bigint; one federation_event;
    BEGIN
        SELECT seq, hash INTO place, previous FROM federation_eventposition ORDER BY seq DESC LIMIT 1;
        FOR one IN SELECT * FROM federation_event e WHERE NOT EXISTS
            (SELECT 1 FROM federation_eventposition p WHERE p.event_id = e.id) ORDER BY id
        LOOP
            place := place + 1;
            previous := facet_event_hash(one, previous);
            INSERT INTO federation_eventposition (seq, event_id, hash) VALUES (place, one.id, previous);
        END LOOP;
    END $$
"""


def fill(count: int) -> None:
    """Write `count` events of 400 days ago in one valid chain, and a young one after them."""
    user = User.objects.create_user("bench")
    now = timezone.now()
    old = Happening(
        type="task.started",
        subject="task_01m8nj793sf02bw38kzm68jmqc",
        summary="a job of the bench started on bench after 12 s",
        user_id=user.pk,
        system="bench",
        task="task_01m8nj793sf02bw38kzm68jmqc",
        attempt="att_01m8nj793sxe17fdp9t7m54k68",
        state="running",
        data={"waited_s": 12},
    )
    with transaction.atomic():
        record([old], now=now - timedelta(days=400))
    multiply(Event.objects.get(), count - 1, handle="'evt_old' || lpad(n::text, 9, '0')")
    with connection.cursor() as cursor:
        for order in ("DISABLE", "ENABLE"):
            cursor.execute(f"ALTER TABLE federation_eventposition {order} TRIGGER USER")
            if order == "DISABLE":
                cursor.execute(_CHAIN)
        cursor.execute("ANALYZE")
    with transaction.atomic():
        record([old], now=now)


def timed(what: str, count: int, began: float) -> None:
    """Print one line."""
    took_s = time.perf_counter() - began
    print(f"{what:36} {took_s:>8.1f} s {count / took_s:>10,.0f} events/s", flush=True)


def check(what: str, count: int) -> bool:
    """Verify archives and log; return whether they hold."""
    began = time.perf_counter()
    breaks = [*verify_archives(archive_folder()), *verify()]
    timed(what, count, began)
    for found in breaks[:5]:
        print(f"  position {found.seq} {found.event}: {found.fault}")
    return not breaks


def forged_is_found() -> bool:
    """Change one byte in an archive, as nobody may; return whether the check says so."""
    path = min(archive_folder().iterdir())
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))
    return [found.fault for found in verify_archives(archive_folder())] == ["the archive was changed"]


def size_mib() -> float:
    """Return what the log takes in the database, MiB."""
    with connection.cursor() as cursor:
        cursor.execute("VACUUM FULL federation_event, federation_eventposition")
        cursor.execute(
            "SELECT pg_total_relation_size('federation_event') "
            "+ pg_total_relation_size('federation_eventposition')"
        )
        return int(cursor.fetchone()[0]) / 2**20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--events", type=int, default=1_000_000)
    given = parser.parse_args()
    began = time.perf_counter()
    call_command("migrate", verbosity=0)
    fill(given.events)
    timed("written, in one chain", given.events, began)
    before = size_mib()
    holds = check("verified in the table", given.events)
    began = time.perf_counter()
    moved = archive_events(now=timezone.now(), days=180, files=100_000)
    timed(f"moved into {len(moved.files)} files", moved.events, began)
    holds &= moved.events == given.events and Event.objects.count() == 1
    holds &= check("verified in the files", given.events)
    files = sum(path.stat().st_size for path in archive_folder().iterdir()) / 2**20
    holds &= forged_is_found()
    print(f"log in the database {before:.0f} MiB, then {size_mib():.1f} MiB; files {files:.0f} MiB")
    memory = psutil.Process().memory_info().rss >> 20
    print(f"memory of this process {memory} MiB; chain: {'holds' if holds else 'BROKEN'}")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
