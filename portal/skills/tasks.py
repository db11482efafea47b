"""Skills on tasks: preview, submit, result, log, replan, cancel."""

import time
from datetime import datetime
from typing import Any, Literal

from django.utils import timezone
from pydantic import Field

from federation.links import open_link
from orchestrator import selectors
from orchestrator.envelope.schema import envelope_input_schema
from orchestrator.lifecycle import TaskState
from orchestrator.models import Attempt, Task
from orchestrator.placement.types import Decision
from orchestrator.services import tasks
from orchestrator.shown import AttemptShown, TaskShown
from orchestrator.task_input import TaskInput
from portal.skills.registry import Answer, Caller, Scope, Skill, register
from providers.errors import Conflict, InvalidInput, NotFound
from providers.types import Batch, Frozen, ReadFile

_LOG_LIMIT = 65_536
_POLL_S = (0.01, 0.02, 0.05, 0.1)
WAITING = frozenset({TaskState.ACCEPTED, TaskState.PLACING, TaskState.STAGING})


class DecisionSummary(Frozen):
    """The decision in short; the whole is at /api/v1/decisions/{id}."""

    id: str
    result: str
    selected: dict[str, Any] | None
    runner_up: dict[str, Any] | None
    margin_s: int | None
    feasible: int = Field(description="How many candidates were feasible.")
    candidates: int
    rejected: list[dict[str, Any]] = Field(description="Every rejected candidate with its reasons.")
    closest: dict[str, Any] | None
    warnings: list[str]


class SubmittedTask(Frozen):
    """The handle, where it goes, in which size, and why."""

    task: TaskShown
    id: str
    state: str
    system: str | None
    partition: str | None
    shape: dict[str, Any] | None
    decision: DecisionSummary
    understood: dict[str, Any] = Field(description="Conflicts, defaults and what was not understood.")


def submit_schema() -> dict[str, Any]:
    """Return the task input's schema with the envelope's own inside."""
    schema = TaskInput.model_json_schema()
    schema["properties"]["envelope"] = envelope_input_schema()
    return schema


class PreviewInput(Frozen):
    """An envelope, bare or within a task input; nothing is submitted."""

    model_config = Frozen.model_config | {"extra": "allow"}


def _preview(given: PreviewInput, caller: Caller, now: datetime) -> Answer:
    value, _ = tasks.preview(caller.user, given.model_extra or {}, now=now)
    return Answer(value)


class SubmitInput(Frozen):
    """A task input, read by the verb so that every fault has its pointer."""

    model_config = Frozen.model_config | {"extra": "allow"}
    wait_s: float = Field(15, ge=0, le=50)


def _submit(given: SubmitInput, caller: Caller, now: datetime) -> Answer:
    submitted = tasks.submit_task(caller.user, given.model_extra or {}, actor=caller.actor, now=now)
    task = _settled(submitted.task, given.wait_s)
    value = _submitted(task, submitted)
    in_time = TaskState(task.state) not in WAITING
    return Answer(value, status=201 if in_time else 202, location=f"/api/v1/tasks/{task.handle}")


def _settled(task: Task, wait_s: float) -> Task:
    """Wait, bounded, until the site has taken the task or it is clear that it will not."""
    until = time.monotonic() + wait_s
    turn = 0
    while TaskState(task.state) in WAITING and time.monotonic() < until:
        time.sleep(_POLL_S[min(turn, len(_POLL_S) - 1)])
        turn += 1
        task.refresh_from_db(fields=["state"])
    return task


def _submitted(task: Task, submitted: tasks.Submitted) -> SubmittedTask:
    shown = selectors.show_task(selectors.tasks(task.user).get(pk=task.pk))
    return SubmittedTask(
        task=shown,
        id=shown.id,
        state=shown.state,
        system=shown.system,
        partition=shown.partition,
        shape=shown.shape,
        decision=summarize(submitted.placed.decision.body),
        understood=submitted.understood.report(),
    )


def summarize(body: dict[str, Any]) -> DecisionSummary:
    """Return a decision in short."""
    candidates = body["candidates"]
    return DecisionSummary(
        id=body["id"],
        result=body["result"],
        selected=body["selected"],
        runner_up=body["runner_up"],
        margin_s=body["margin_s"],
        feasible=sum(candidate["feasible"] for candidate in candidates),
        candidates=len(candidates),
        rejected=[
            {
                "system": candidate["system"],
                "partition": candidate["partition"],
                "account": candidate["account"],
                "codes": [rejection["code"] for rejection in candidate["rejections"]],
                "remedy": candidate["rejections"][0]["remedy"],
            }
            for candidate in candidates
            if candidate["rejections"]
        ][:40],
        closest=body["closest"],
        warnings=list(body["warnings"]),
    )


class ResultInput(Frozen):
    """Whose result."""

    task: str


class Result(Frozen):
    """How a task ended, what it left, and every attempt."""

    id: str
    state: str
    system: str | None
    partition: str | None
    task: TaskShown
    manifest: dict[str, Any] | None
    attempts: list[AttemptShown]


def _result(given: ResultInput, caller: Caller, now: datetime) -> Answer:
    del now
    task = tasks.find_task(caller.user, given.task)
    row = selectors.tasks(caller.user).get(pk=task.pk)
    shown = selectors.show_task(row)
    manifest = selectors.manifest_of(row)
    return Answer(
        Result(
            id=shown.id,
            state=shown.state,
            system=shown.system,
            partition=shown.partition,
            task=shown,
            manifest={"id": manifest.handle, **manifest.body} if manifest else None,
            attempts=[
                selectors.show_attempt(attempt)
                for attempt in selectors.attempts(caller.user).filter(task=task).order_by("number")
            ],
        )
    )


class LogInput(Frozen):
    """Which part of which output. A negative offset counts from the end."""

    task: str
    attempt: str | None = None
    stream: Literal["stdout", "stderr"] = "stdout"
    offset: int = 0
    limit: int = Field(_LOG_LIMIT, ge=1, le=_LOG_LIMIT)


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


def _log(given: LogInput, caller: Caller, now: datetime) -> Answer:
    del now
    attempt = _attempt_of(given, caller)
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
    following = min(size, start + given.limit)
    return Answer(
        Log(
            task=given.task,
            attempt=attempt.handle,
            stream=given.stream,
            text=reply.stdout,
            offset=start,
            next_offset=following,
            size=size,
            is_complete=attempt.finished_at is not None and following >= size,
        )
    )


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


class ReplanInput(Frozen):
    """Place a task anew."""

    task: str
    exclude_systems: tuple[str, ...] = ()
    envelope: dict[str, Any] | None = None
    wait_s: float = Field(15, ge=0, le=50)


def _replan(given: ReplanInput, caller: Caller, now: datetime) -> Answer:
    task = tasks.replan(
        caller.user,
        given.task,
        actor=caller.actor,
        now=now,
        exclude_systems=given.exclude_systems,
        envelope=given.envelope,
    )
    if not task.attempts.filter(cancel_reason="superseded", finished_at=None).exists():
        task = _settled(task, given.wait_s)
    return Answer(selectors.show_task(selectors.tasks(caller.user).get(pk=task.pk)))


class CancelInput(Frozen):
    """What to cancel; exactly one."""

    task: str | None = None
    group: str | None = None
    transfer: str | None = None


def _cancel(given: CancelInput, caller: Caller, now: datetime) -> Answer:
    named = [word for word in (given.task, given.group, given.transfer) if word is not None]
    if len(named) != 1:
        message = "Name exactly one of `task`, `group`, `transfer`."
        raise InvalidInput(message, problems=(("", "not_exactly_one", message),))
    if given.task is None:
        raise NotFound(f"No group or transfer {named[0]!r}.")
    task = tasks.cancel_task(caller.user, given.task, actor=caller.actor, now=now)
    return Answer(selectors.show_task(selectors.tasks(caller.user).get(pk=task.pk)))


def now() -> datetime:
    """Return the instant of a call; the edges alone read the clock."""
    return timezone.now()


register(
    Skill(
        "preview_placement",
        "Decide where a task or envelope would run, with every candidate and reason, without submitting.",
        PreviewInput,
        Decision,
        Scope.READ,
        _preview,
        input_schema=submit_schema,
    )
)
register(
    Skill(
        "submit_task",
        "Submit a described piece of work; answers with a durable handle, the placement and why.",
        SubmitInput,
        SubmittedTask,
        Scope.SUBMIT,
        _submit,
        side_effects=True,
        creates=True,
        input_schema=submit_schema,
    )
)
register(
    Skill("get_result", "Manifest, attempts and times of a task.", ResultInput, Result, Scope.READ, _result)
)
register(
    Skill(
        "read_log",
        "At most 64 KiB of a task's output or error output, by byte offset.",
        LogInput,
        Log,
        Scope.READ,
        _log,
    )
)
register(
    Skill(
        "replan",
        "Place a task that does not run yet anew, without some systems or with another envelope.",
        ReplanInput,
        TaskShown,
        Scope.SUBMIT,
        _replan,
        side_effects=True,
        creates=True,
    )
)
register(
    Skill(
        "cancel",
        "Cancel a task; confirmed by the site before it is final.",
        CancelInput,
        TaskShown,
        Scope.SUBMIT,
        _cancel,
        side_effects=True,
        creates=True,
    )
)
