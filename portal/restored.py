"""Is a restored installation whole? Each question is asked of the database and the keys as they are now."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from django.db import connection

from federation.ledger import verify
from portal import health
from portal.globus.rotation import opened

_OFF_LEDGER = """
    SELECT a.handle FROM federation_allocation a LEFT JOIN (
        SELECT allocation_id,
               sum(CASE kind WHEN 'settle' THEN amount ELSE 0 END) AS used,
               sum(CASE kind WHEN 'reserve' THEN amount ELSE 0 END) FILTER (WHERE NOT closed) AS reserved
        FROM (SELECT c.*, bool_or(kind <> 'reserve') OVER (PARTITION BY attempt_handle) AS closed
              FROM federation_charge c) AS lines
        GROUP BY allocation_id
    ) AS ledger ON ledger.allocation_id = a.id
    WHERE a.used <> coalesce(ledger.used, 0) OR a.reserved <> coalesce(ledger.reserved, 0)
"""


@dataclass(frozen=True, slots=True)
class Answer:
    """What one question found."""

    question: str
    well: bool
    said: str


def answers() -> Iterator[Answer]:
    """Yield each answer; what follows a wrong one is asked all the same."""
    for question, ask in QUESTIONS.items():
        well, said = ask()
        yield Answer(question, well, said)


def _migrations() -> tuple[bool, str]:
    part = health.migrations()
    return bool(part["ok"]), "all applied" if part["ok"] else f"{part['missing']} are missing: run migrate"


def _events() -> tuple[bool, str]:
    breaks = list(verify())
    said = f"{len(breaks)} breaks, the first at position {breaks[0].seq}" if breaks else "unbroken"
    return not breaks, said


def _secrets() -> tuple[bool, str]:
    opens, lost = opened()
    wrong = f"{lost} of {opens + lost} cannot be opened: this is not the secret key of the backup"
    return not lost, wrong if lost else f"{opens} open"


def _ledger() -> tuple[bool, str]:
    with connection.cursor() as cursor:
        cursor.execute(_OFF_LEDGER)
        off = [str(handle) for (handle,) in cursor.fetchall()]
    return (
        not off,
        f"{len(off)} allocations differ from their lines: {', '.join(off[:5])}" if off else "adds up",
    )


def _views() -> tuple[bool, str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_views WHERE schemaname = 'metrics'")
        count = int(cursor.fetchone()[0])
    return count > 0, f"{count} views" if count else "schema metrics is empty"


def open_attempts() -> list[tuple[str, int]]:
    """Return by system how many attempts had not ended when the backup was taken."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT system, sum(attempts) FROM metrics.attempt_states GROUP BY system ORDER BY 1")
        return [(str(system), int(count)) for system, count in cursor.fetchall()]


QUESTIONS: dict[str, Callable[[], tuple[bool, str]]] = {
    "migrations": _migrations,
    "event log": _events,
    "sealed secrets": _secrets,
    "ledger": _ledger,
    "dashboards": _views,
}
