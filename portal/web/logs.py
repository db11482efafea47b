"""A task's output by byte ranges, through the same skill that agents use."""

from datetime import datetime
from typing import TYPE_CHECKING

import portal.skills.logs  # noqa: F401  # registers read_log
from portal.skills import registry
from portal.skills.registry import Caller, Scope
from portal.web.guard import SignedInRequest
from portal.web.presenters.from_task import TaskRows, is_over
from portal.web.presenters.tasks import STRETCH, LogTail
from providers.errors import FacetError

if TYPE_CHECKING:
    from orchestrator.models import Attempt

TAIL_BYTES = 16_384
STREAMS = ("stdout", "stderr")


def wants_log(request: SignedInRequest) -> bool:
    """Return whether this request asks for output: reading it may mean asking a site."""
    return "stream" in request.GET


def log_tail(request: SignedInRequest, rows: TaskRows, *, now: datetime) -> LogTail | None:
    """Return the asked stream of an attempt: its end, or with `from` the stretch that begins at that byte.

    `try` names an attempt by its number; without it the accepted one speaks. None while there is none. What a
    site cannot say now is said in the tail itself: a page must not fail for it.
    """
    attempt = _attempt(request, rows)
    if attempt is None:
        return None
    stream = request.GET.get("stream", "")
    stream = stream if stream in STREAMS else STREAMS[0]
    start, end = (_byte(request.GET.get(name, "")) for name in ("from", "to"))
    asked: dict[str, object] = {"task": rows.task.handle, "attempt": attempt.handle, "stream": stream}
    asked |= {"offset": -TAIL_BYTES} if start is None else {"offset": start}
    if start is not None and end is not None and start < end:
        asked["limit"] = min(end - start, STRETCH)
    caller = Caller(request.user, f"user:{request.user.get_username()}", frozenset({Scope.READ}))
    follow = start is None and not is_over(attempt)
    try:
        said = registry.skill("read_log").call(asked, caller, now=now).value.model_dump()
    except FacetError as error:
        return LogTail(stream, attempt.number, "", 0, None, follow=follow, problem=error.message)
    return LogTail(
        stream,
        attempt.number,
        said["text"],
        said["offset"],
        said["size"],
        follow=follow,
        next_offset=said["next_offset"],
        is_part=start is not None,
    )


def _attempt(request: SignedInRequest, rows: TaskRows) -> "Attempt | None":
    asked = request.GET.get("try", "")
    named = [attempt for attempt in rows.attempts if str(attempt.number) == asked]
    return next(iter(named), None) or rows.task.attempt or (rows.attempts[-1] if rows.attempts else None)


def _byte(written: str) -> int | None:
    return int(written) if written.isascii() and written.isdigit() and len(written) < 16 else None
