"""One worker at a time per subject, across processes, without a transaction held open.

A session-level advisory lock on a connection of its own: it ends with the process that holds it, so a
killed worker never leaves it behind.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b

import psycopg
from django.db import connection


def _number(name: str) -> int:
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big", signed=True)


@contextmanager
def only_one(name: str) -> Iterator[bool]:
    """Yield whether this caller holds the lock `name`; never waits for it."""
    params = connection.get_connection_params()
    allowed = {"dbname", "user", "password", "host", "port", "sslmode", "sslrootcert", "connect_timeout"}
    direct = {key: value for key, value in params.items() if key in allowed}
    with psycopg.connect(**direct, autocommit=True) as session:
        row = session.execute("SELECT pg_try_advisory_lock(%s)", (_number(name),)).fetchone()
        held = bool(row and row[0])
        try:
            yield held
        finally:
            if held:
                session.execute("SELECT pg_advisory_unlock(%s)", (_number(name),))
