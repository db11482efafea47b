"""The end of a task's output, by the same skill that agents use."""

from datetime import datetime

import portal.skills.logs  # noqa: F401  # registers read_log
from portal.skills import registry
from portal.skills.registry import Caller, Scope
from portal.web.guard import SignedInRequest
from portal.web.presenters.from_task import TaskRows, is_over
from portal.web.presenters.tasks import LogTail
from providers.errors import FacetError

TAIL_BYTES = 16_384
STREAMS = ("stdout", "stderr")


def wants_log(request: SignedInRequest) -> bool:
    """Return whether this request asks for output: reading it may mean asking a site."""
    return "stream" in request.GET


def log_tail(request: SignedInRequest, rows: TaskRows, *, now: datetime) -> LogTail | None:
    """Return the end of the asked stream of the accepted attempt; None while there is no attempt.

    What a site cannot say now is said in the tail itself: a page must not fail for it.
    """
    attempt = rows.task.attempt or (rows.attempts[-1] if rows.attempts else None)
    if attempt is None:
        return None
    stream = request.GET.get("stream", "")
    stream = stream if stream in STREAMS else STREAMS[0]
    caller = Caller(request.user, f"user:{request.user.get_username()}", frozenset({Scope.READ}))
    asked = {"task": rows.task.handle, "attempt": attempt.handle, "stream": stream, "offset": -TAIL_BYTES}
    follow = not is_over(attempt)
    try:
        said = registry.skill("read_log").call(asked, caller, now=now).value.model_dump()
    except FacetError as error:
        return LogTail(stream, attempt.number, "", 0, None, follow=follow, problem=error.message)
    return LogTail(stream, attempt.number, said["text"], said["offset"], said["size"], follow=follow)
