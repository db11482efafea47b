"""Is a restored installation whole? Each question is asked of the database and the keys as they are now."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from django.db import connection

from federation.ledger import verify
from portal import health
from portal.globus.rotation import opened

_OFF_LEDGER = """
    SELECT {shown} FROM {holder} h LEFT JOIN (
        SELECT {key}, sum(amount) FILTER (WHERE kind IN ('settle', 'correct')) AS used,
               sum(amount) FILTER (WHERE kind = 'reserve' AND NOT closed) AS reserved
        FROM (SELECT l.*, bool_or(kind <> 'reserve') OVER (PARTITION BY {key}, {subject}) AS closed
              FROM {lines} l) AS every
        GROUP BY {key}
    ) AS ledger ON ledger.{key} = h.id
    WHERE h.used <> coalesce(ledger.used, 0) OR h.reserved <> coalesce(ledger.reserved, 0)
"""
_LEDGERS = (
    {
        "holder": "federation_allocation", "lines": "federation_charge", "key": "allocation_id",
        "subject": "attempt_handle", "shown": "h.handle",
    },
    {
        "holder": "orchestrator_meter", "lines": "orchestrator_budgetline", "key": "meter_id",
        "subject": "subject", "shown": "'meter ' || h.id",
    },
)  # fmt: skip
"""Where running totals are kept, and the lines that they must equal."""


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
    off: list[str] = []
    for ledger in _LEDGERS:
        with connection.cursor() as cursor:
            cursor.execute(_OFF_LEDGER.format(**ledger))
            off += [str(shown) for (shown,) in cursor.fetchall()]
    if not off:
        return True, "adds up"
    return False, f"{len(off)} totals differ from their lines: {', '.join(off[:5])}"


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
