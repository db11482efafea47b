"""The Celery application: three queues, one clock, and workers that say they are alive.

`portal.chores` registers its chores with `shared_task` and lists their rhythm as
`RHYTHM = {"task name": Every(seconds, queue)}`; the clock's schedule is made from that list and nothing else.
"""

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from celery import Celery, signals
from redis import RedisError
from structlog.contextvars import bind_contextvars, clear_contextvars, get_contextvars

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")

TICK = "portal.tick"
CHORES = "portal.chores"
QUEUES = ("control", "default", "delivery")
"""The clock's own chores; what waits for sites; what is told to others, which no site may keep waiting."""
REQUEST = "facet_request_id"
"""The header of a chore that names the request it came with."""


@dataclass(frozen=True, slots=True)
class Every:
    """The rhythm of one chore: every so many seconds, on this queue."""

    seconds: float
    queue: str = "control"
    patience_s: float | None = None
    """How long it may wait for its turn; None = its own period."""


app = Celery("facet")
app.config_from_object("django.conf:settings", namespace="CELERY")


def schedule(rhythm: Mapping[str, Every]) -> dict[str, dict[str, Any]]:
    """Return Celery's beat schedule; what was not started within its patience is dropped, not piled up."""
    return {
        name: {
            "task": name,
            "schedule": every.seconds,
            "options": {"queue": every.queue, "expires": every.patience_s or every.seconds},
        }
        for name, every in rhythm.items()
    }


def has_chores() -> bool:
    """Say whether this installation has chores, and so must show a fresh control cycle."""
    return find_spec(CHORES) is not None


@app.on_after_finalize.connect  # type: ignore[untyped-decorator]  # celery has no types
def _register(sender: Celery, **_: object) -> None:
    rhythm: dict[str, Every] = {TICK: Every(5)}
    if has_chores():
        rhythm |= import_module(CHORES).RHYTHM
    sender.conf.beat_schedule = schedule(rhythm)


@app.task(name=TICK)  # type: ignore[untyped-decorator]  # celery has no types
def tick() -> None:
    """Show that the clock ticks and that the control queue moves."""
    from portal import heartbeat  # noqa: PLC0415  # settings are not ready while this module loads

    heartbeat.beat(heartbeat.CLOCK)


@signals.before_task_publish.connect  # type: ignore[untyped-decorator]  # celery has no types
def _name_the_request(headers: dict[str, Any] | None = None, **_: object) -> None:
    """Send the id of the request that rang along with the chore."""
    request_id = get_contextvars().get("request_id")
    if headers is not None and request_id:
        headers[REQUEST] = request_id


@signals.task_prerun.connect  # type: ignore[untyped-decorator]  # celery has no types
def _bind(task_id: str, task: Any, **_: object) -> None:  # celery has no types
    """Have all that a chore logs say which chore it was, and which request it came with."""
    clear_contextvars()
    request_id = task.request.get(REQUEST)
    bind_contextvars(chore=task.name, chore_id=task_id, **({"request_id": request_id} if request_id else {}))


@signals.task_postrun.connect  # type: ignore[untyped-decorator]  # celery has no types
def _unbind(**_: object) -> None:
    clear_contextvars()


@signals.heartbeat_sent.connect  # type: ignore[untyped-decorator]  # celery has no types
def _alive(sender: Any, **_: object) -> None:  # celery has no types
    """Record every two seconds that the worker's own loop turns; named `control@host`, `default@host`."""
    from portal import heartbeat  # noqa: PLC0415  # settings are not ready while this module loads

    queue = str(sender.eventer.hostname).partition("@")[0]
    with contextlib.suppress(RedisError):  # silence is the sign: age() grows
        heartbeat.beat(f"worker:{queue}")


@signals.beat_init.connect  # type: ignore[untyped-decorator]  # celery has no types
def _all_due_at_start(**_: object) -> None:
    """Start every chore once when the clock starts, so that a daily one runs however often we restart."""
    for entry in app.conf.beat_schedule.values():
        app.send_task(entry["task"], **entry["options"])


@signals.setup_logging.connect  # type: ignore[untyped-decorator]  # celery has no types
def _log_as_django_does(**_: object) -> None:
    """Keep Celery from installing its own handlers: LOGGING already did."""
