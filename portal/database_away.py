"""What is answered while PostgreSQL cannot be used: 503, why, and when to come again; never a trace.

Two cases. It cannot be reached (stopped, restarting, failing over): whoever hears events in this process
knows it first, and requests are answered at once instead of each waiting for a connection. Or it works and is
asked for too much at once: no connection of the pool came free in time, or a lock, a deadlock or a time limit
of its own ended the statement. Both leave nothing half done, for a transaction is all or nothing.
"""

from typing import Any

from django.db import Error, InterfaceError, InternalError, OperationalError
from psycopg_pool import PoolTimeout, TooManyRequests

from portal.listening import LISTENER
from providers.errors import FacetError

_BUSY = frozenset({"40001", "40P01", "53300", "55P03", "57014"})
"""Serialization failure, deadlock, too many connections, lock not available, statement cancelled."""
_READ_ONLY = "25006"
"""What a server says that is not (or no longer) the one to write to."""
_REMEDY = "Send the same request again after Retry-After; with its Idempotency-Key nothing is done twice."


class DatabaseUnavailable(FacetError):
    """The database cannot be reached just now; nothing was changed."""

    code = "database_unavailable"
    http_status = 503
    retryable = True


class DatabaseBusy(FacetError):
    """The database is asked for more at once than it gives; nothing was changed."""

    code = "database_busy"
    http_status = 503
    retryable = True


def failure_of(error: BaseException | None) -> FacetError | None:
    """Return what to answer for a failure of the database; None for every other failure."""
    state = _state(error)
    if isinstance(error, InternalError) and state == _READ_ONLY:
        return unavailable()
    if not isinstance(error, OperationalError | InterfaceError):
        return None
    no_room = isinstance(error.__cause__, PoolTimeout | TooManyRequests) and not LISTENER.is_away
    return _busy() if no_room or state in _BUSY else unavailable()


def _state(error: BaseException | None) -> Any:
    return getattr(error.__cause__, "sqlstate", None) if isinstance(error, Error) else None


def unavailable() -> FacetError:
    """Return what is answered while the database cannot be reached."""
    return DatabaseUnavailable(
        "Facet cannot reach its database just now. Jobs at the sites go on; what was accepted is kept.",
        remediation=_REMEDY,
    )


def _busy() -> FacetError:
    return DatabaseBusy("More is asked of Facet's database at once than it gives.", remediation=_REMEDY)
