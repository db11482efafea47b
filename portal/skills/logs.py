"""The skill that reads what a job wrote, by byte range."""

from typing import Literal

from pydantic import Field

from federation.links import open_link
from orchestrator.models import Attempt
from orchestrator.plain_text import without_job_tokens
from orchestrator.services import tasks
from portal.skills.registry import Answer, Call, Caller, Scope, Skill, register
from providers.errors import Conflict, NotFound
from providers.types import Batch, Frozen, ReadFile

_LOG_LIMIT = 65_536
_BROKEN = "\ufffd"
"""What stands in a text for bytes that are no UTF-8."""


class LogInput(Frozen):
    """Which part of which output. A negative offset counts from the end."""

    task: str
    attempt: str | None = Field(None, description="Absent: the latest.")
    stream: Literal["stdout", "stderr"] = "stdout"
    offset: int = Field(
        0, description="First byte; negative: so many before the end. Go on with `next_offset`."
    )
    limit: int = Field(_LOG_LIMIT, ge=1, le=_LOG_LIMIT, description="Most bytes.")


class Log(Frozen):
    """A stretch of output as bytes decoded; `untrusted` because the job wrote it."""

    task: str
    attempt: str
    stream: str
    text: str
    offset: int
    next_offset: int
    size: int
    is_complete: bool = Field(description="The attempt has ended and this reaches the end of the file.")
    untrusted: bool = True


def _log(given: LogInput, call: Call) -> Answer:
    attempt = _attempt_of(given, call.caller)
    path = attempt.stdout_path if given.stream == "stdout" else attempt.stderr_path
    if not path:
        return Answer(_nothing_yet(given, attempt))
    operation = ReadFile(name="log", path=path, offset=given.offset, limit=given.limit)
    reply = open_link(attempt.connection).run(Batch(operations=(operation,), deadline_s=10)).replies["log"]
    if reply.missing:
        return Answer(_nothing_yet(given, attempt))
    if reply.rc != 0:
        raise Conflict(f"The site could not read {path}: {reply.stderr[:200]}", path=path)
    size = reply.size or 0
    start = max(0, size + given.offset) if given.offset < 0 else min(given.offset, size)
    text, following = _whole_characters(
        without_job_tokens(reply.stdout), start, min(size, start + given.limit), size
    )
    return Answer(
        Log(
            task=given.task,
            attempt=attempt.handle,
            stream=given.stream,
            text=text,
            offset=start,
            next_offset=following,
            size=size,
            is_complete=attempt.finished_at is not None and following >= size,
        )
    )


def _whole_characters(text: str, start: int, following: int, size: int) -> tuple[str, int]:
    """Leave a character that the limit cuts in two for the next stretch; other broken bytes stay marked."""
    if following >= size or not text.endswith(_BROKEN) or text.count(_BROKEN) > 1 or len(text) == 1:
        return text, following
    whole = text[:-1]
    return whole, start + len(whole.encode())


def _attempt_of(given: LogInput, caller: Caller) -> Attempt:
    task = tasks.find_task(caller.user, given.task)
    rows = task.attempts.select_related("connection", "system")
    if given.attempt is not None:
        attempt = rows.filter(handle=given.attempt).first()
        if attempt is None:
            raise NotFound(f"Task {given.task} has no attempt {given.attempt}.", pointer="/attempt")
        return attempt
    latest = task.attempt_id or (rows.order_by("-number").values_list("pk", flat=True).first())
    if latest is None:
        raise NotFound(f"Task {given.task} has no attempt yet.", pointer="/task")
    return rows.get(pk=latest)


def _nothing_yet(given: LogInput, attempt: Attempt) -> Log:
    return Log(
        task=given.task,
        attempt=attempt.handle,
        stream=given.stream,
        text="",
        offset=0,
        next_offset=0,
        size=0,
        is_complete=attempt.finished_at is not None,
    )


register(
    Skill(
        "read_log",
        "At most 64 KiB of a task's output or error output, by byte offset.",
        LogInput,
        Log,
        (Scope.READ,),
        _log,
    )
)
