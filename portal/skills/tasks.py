"""Skills on tasks: preview, submit, result, log, replan, cancel."""

import time
from datetime import datetime
from itertools import accumulate
from typing import Any, Literal

from pydantic import Field, RootModel

from federation.links import open_link
from orchestrator import selectors
from orchestrator.envelope.schema import envelope_input_schema
from orchestrator.leaders import refresh_leaders
from orchestrator.lifecycle import TaskState
from orchestrator.models import Attempt, Task
from orchestrator.placement.types import Decision
from orchestrator.plain_text import without_job_tokens
from orchestrator.services import groups, tasks
from orchestrator.services.again import as_before
from orchestrator.shown import AttemptShown, GroupShown, TaskShown
from orchestrator.task_input import TaskInput
from portal.skills.bounds import fitting, shortened, size
from portal.skills.registry import Answer, Call, Caller, Options, Scope, Skill, register
from providers.errors import Conflict, InvalidInput, NotFound
from providers.types import Batch, Frozen, ReadFile

_LOG_LIMIT = 65_536
_BROKEN = "\ufffd"
"""What stands in a text for bytes that are no UTF-8."""
_POLL_S = (0.01, 0.02, 0.05, 0.1)
"""Pauses between looks at a task that is being dispatched; the last one repeats."""
WAITING = frozenset({TaskState.ACCEPTED, TaskState.PLACING, TaskState.STAGING})


class DecisionSummary(Frozen):
    """The decision as its trace tells it, in short; the whole is at /api/v1/decisions/{id}."""

    id: str
    input_hash: str
    objective: str
    result: str
    selected: dict[str, Any] | None
    runner_up: dict[str, Any] | None
    margin_s: int | None
    feasible: int = Field(description="How many candidates were feasible.")
    considered: int = Field(description="How many candidates there were.")
    candidates: list[dict[str, Any]] = Field(
        description="Every candidate; the rejected ones with rule, code, required, observed and remedy."
    )
    closest: dict[str, Any] | None = Field(
        description="The smallest change that would make an unschedulable task feasible."
    )
    warnings: list[str]
    generated_at: datetime


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
    schema["properties"]["like"] = {
        "type": "string",
        "title": "Like",
        "description": "Handle of a task of yours: everything not said here is as it said, the envelope "
        "member by member. `client_ref` and `group` are not repeated.",
    }
    return schema


def preview_schema() -> dict[str, Any]:
    """Return what can be previewed: a task input, its work left out if one likes, or a bare envelope."""
    task = submit_schema()
    definitions = task.pop("$defs", {})
    return {"type": "object", "anyOf": [task, envelope_input_schema()], "$defs": definitions}


class Previewed(Decision):
    """A whole decision that was not kept. Over 16 KiB, candidates leave out what helps least, codes never."""

    candidates: list[dict[str, Any]] = Field(  # type: ignore[assignment]  # shorter than the pure value
        description="Every (system, partition, account): feasible with its estimates, or with its rejections."
    )


class PreviewInput(Frozen):
    """An envelope, bare or within a task input; nothing is submitted."""

    model_config = Frozen.model_config | {"extra": "allow"}


def _preview(given: PreviewInput, call: Call) -> Answer:
    value, _ = tasks.preview(
        call.caller.user, as_before(call.caller.user, given.model_extra or {}), now=call.now
    )
    body = value.model_dump(mode="json", by_alias=True)
    return Answer(Previewed.model_validate(body if call.options.full else shortened(body, call.options.room)))


class SubmitInput(Frozen):
    """A task input, read by the verb so that every fault has its pointer."""

    model_config = Frozen.model_config | {"extra": "allow"}


def _submit(given: SubmitInput, call: Call) -> Answer:
    caller, options = call.caller, call.options
    wanted = as_before(caller.user, given.model_extra or {})
    refreshed = refresh_leaders(caller.user, wanted, now=call.now)
    submitted = tasks.submit_task(
        caller.user,
        wanted,
        actor=caller.actor,
        now=refreshed.now,
        created=options.created,
        notes=refreshed.notes,
    )
    task = _settled(submitted.task, options.wait_s)
    return submitted_answer(task, understood=submitted.understood.report(), options=options)


def _submit_again(handle: str, call: Call) -> Answer:
    """Return the answer to a submission whose task exists, but whose first answer was never given."""
    task = _settled(tasks.find_task(call.caller.user, handle), call.options.wait_s)
    return submitted_answer(task, understood={}, options=call.options)


def _settled(task: Task, wait_s: float) -> Task:
    """Wait, bounded, until the site has taken the task or it is clear that it will not."""
    until = time.monotonic() + wait_s
    turn = 0
    while TaskState(task.state) in WAITING and time.monotonic() < until:
        time.sleep(_POLL_S[min(turn, len(_POLL_S) - 1)])
        turn += 1
        task.refresh_from_db(fields=["state"])
    return task


def submitted_answer(task: Task, *, understood: dict[str, Any], options: Options) -> Answer:
    """Return what a submission answers: 201 when the site has it (or nobody can), 202 while that is open."""
    shown = selectors.show_task(selectors.tasks(task.user).get(pk=task.pk))
    body = selectors.decisions(task.user).filter(task=task).order_by("id")[0].body
    room = options.room - size(shown) - size(understood) - 512
    value = SubmittedTask(
        task=shown,
        id=shown.id,
        state=shown.state,
        system=shown.system,
        partition=shown.partition,
        shape=shown.shape,
        decision=summarize(body if options.full else shortened(body, room)),
        understood=understood,
    )
    status = 202 if TaskState(shown.state) in WAITING else 201
    return Answer(value, status=status, location=f"/api/v1/tasks/{shown.id}")


def summarize(body: dict[str, Any]) -> DecisionSummary:
    """Return a decision in short."""
    candidates = body["candidates"]
    kept = ("id", "input_hash", "objective", "result", "selected", "runner_up", "margin_s", "closest")
    return DecisionSummary(
        **{name: body[name] for name in kept},
        feasible=sum(candidate["feasible"] for candidate in candidates),
        considered=len(candidates),
        candidates=[_in_short(candidate) for candidate in candidates],
        warnings=list(body["warnings"]),
        generated_at=body["generated_at"],
    )


def _in_short(candidate: dict[str, Any]) -> dict[str, Any]:
    kept = ("system", "partition", "account", "feasible", "rank", "rejections", "tie_break")
    short = {name: candidate[name] for name in kept if candidate.get(name) is not None}
    if candidate.get("estimates"):
        short["completion_s"] = candidate["estimates"]["completion_s"]
    return short


class ResultInput(Frozen):
    """Whose result; exactly one."""

    task: str | None = None
    group: str | None = None


class Result(Frozen):
    """How a task ended, what it left, and every attempt."""

    id: str
    state: str
    system: str | None
    partition: str | None
    task: TaskShown
    manifest: dict[str, Any] | None
    triage: dict[str, Any] | None = Field(
        description="Of a failed task: cause, means, evidence (untrusted lines), suggestion, changes, calls."
    )
    attempts: list[AttemptShown]
    omitted: dict[str, int] = Field(description="How many attempts and files were left out for length.")


def _result(given: ResultInput, call: Call) -> Answer:
    kind, handle = _exactly_one(task=given.task, group=given.group)
    if kind == "group":
        return _group_result(handle, call)
    user = call.caller.user
    task = tasks.find_task(user, handle)
    row = selectors.tasks(user).get(pk=task.pk)
    shown = selectors.show_task(row)
    manifest = selectors.manifest_of(row)
    left = dict(manifest.body) if manifest else {}
    triage = left.pop("triage", None)
    value = Result(
        id=shown.id,
        state=shown.state,
        system=shown.system,
        partition=shown.partition,
        task=shown,
        manifest={"id": manifest.handle, **left} if manifest else None,
        triage=triage,
        attempts=[
            selectors.show_attempt(attempt)
            for attempt in selectors.attempts(user).filter(task=task).order_by("number")
        ],
        omitted={},
    )
    return Answer(AnyResult(value if call.options.full else _bounded(value, call.options.room)))


def _bounded(result: Result, most: int) -> Result:
    """Return a result of at most so many bytes: the newest attempts and the first files stay."""
    over = size(result) - most
    if over <= 0:
        return result
    attempts = fitting(list(reversed(result.attempts)), most * 3 // 8)[::-1]
    omitted = {"attempts": len(result.attempts) - len(attempts)}
    bounded = result.model_copy(update={"attempts": attempts})
    files = (result.manifest or {}).get("files") or []
    if size(bounded) > most and files:
        room = most - (size(bounded) - size(files)) - 200
        kept = [file for file, end in zip(files, _ends(files), strict=True) if end <= room]
        omitted["files"] = len(files) - len(kept)
        bounded = bounded.model_copy(update={"manifest": {**(result.manifest or {}), "files": kept}})
    return bounded.model_copy(update={"omitted": omitted})


def _ends(files: list[Any]) -> list[int]:
    """Return how many bytes of JSON each file and all before it take."""
    return list(accumulate(size(file) + 1 for file in files))


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


class ReplanInput(Frozen):
    """Place a task anew."""

    task: str
    exclude_systems: tuple[str, ...] = ()
    envelope: dict[str, Any] | None = None


def _replan(given: ReplanInput, call: Call) -> Answer:
    user = call.caller.user
    task = tasks.replan(
        user,
        given.task,
        actor=call.caller.actor,
        now=call.now,
        exclude_systems=given.exclude_systems,
        envelope=given.envelope,
    )
    if not task.attempts.filter(cancel_reason="superseded", finished_at=None).exists():
        task = _settled(task, call.options.wait_s)
    return Answer(selectors.show_task(selectors.tasks(user).get(pk=task.pk)))


class GroupResult(Frozen):
    """How a group stands or ended, and each child's own result."""

    id: str
    state: str
    group: GroupShown
    results: list[dict[str, Any]] = Field(description="By child: handle, state, place, cause, manifest.")
    more: str | None = Field(description="Where the rest is, when there are too many children to list here.")


class AnyResult(RootModel[Result | GroupResult]):
    """A task's result, or a group's."""


class AnyState(RootModel[TaskShown | GroupShown]):
    """A task, or a group."""


def _exactly_one(**named: str | None) -> tuple[str, str]:
    """Return the one thing that is named, as (kind, handle)."""
    given = [(kind, handle) for kind, handle in named.items() if handle is not None]
    if len(given) != 1:
        message = f"Name exactly one of {', '.join(f'`{kind}`' for kind in named)}."
        raise InvalidInput(message, problems=(("", "not_exactly_one", message),))
    return given[0]


_CHILDREN_SHOWN = 60


def _group_result(handle: str, call: Call) -> Answer:
    group = groups.find_group(call.caller.user, handle)
    shown = selectors.show_group(group)
    most = None if call.options.full else _CHILDREN_SHOWN
    rows = selectors.tasks(call.caller.user).filter(group=group).order_by("pk")[:most]
    results = [
        {
            "key": row.group_key,
            "task": row.handle,
            "state": row.state,
            "cause": row.cause or None,
            "system": row.attempt.system.slug if row.attempt else None,
            "partition": row.attempt.partition if row.attempt else None,
            "exit_code": row.attempt.exit_code if row.attempt else None,
            "manifest": manifest.handle if (manifest := getattr(row, "manifest", None)) else None,
        }
        for row in rows
    ]
    more = f"/api/v1/tasks?group={handle}" if most and sum(shown.counts.values()) > most else None
    shown = shown.model_copy(update={"children": None})
    return Answer(
        AnyResult(GroupResult(id=shown.id, state=shown.state, group=shown, results=results, more=more))
    )


class CancelInput(Frozen):
    """What to cancel; exactly one."""

    task: str | None = None
    group: str | None = None
    transfer: str | None = None


def _cancel(given: CancelInput, call: Call) -> Answer:
    kind, handle = _exactly_one(task=given.task, group=given.group, transfer=given.transfer)
    user, actor = call.caller.user, call.caller.actor
    if kind == "transfer":
        raise NotFound(f"No transfer {handle!r}.", pointer="/transfer")
    if kind == "group":
        group = groups.cancel_group(user, handle, actor=actor, now=call.now)
        group.refresh_from_db()
        shown = selectors.show_group(group, with_children=call.options.full)
        return Answer(AnyState(shown))
    task = tasks.cancel_task(user, handle, actor=actor, now=call.now)
    return Answer(AnyState(selectors.show_task(selectors.tasks(user).get(pk=task.pk))))


register(
    Skill(
        "preview_placement",
        "Decide where a task or envelope would run, with every candidate and reason, without submitting.",
        PreviewInput,
        Previewed,
        (Scope.READ,),
        _preview,
        input_schema=preview_schema,
    )
)
register(
    Skill(
        "submit_task",
        "Submit a described piece of work; answers with a durable handle, the placement and why.",
        SubmitInput,
        SubmittedTask,
        (Scope.SUBMIT,),
        _submit,
        side_effects=True,
        creates=True,
        statuses=(201, 202),
        resume=_submit_again,
        waits=True,
        input_schema=submit_schema,
    )
)
register(
    Skill(
        "get_result",
        "Manifest, attempts and times of a task, or every child's result of a group.",
        ResultInput,
        AnyResult,
        (Scope.READ,),
        _result,
    )
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
register(
    Skill(
        "replan",
        "Place a task that does not run yet anew, without some systems or with another envelope.",
        ReplanInput,
        TaskShown,
        (Scope.SUBMIT, Scope.MANAGE),
        _replan,
        side_effects=True,
        creates=True,
        waits=True,
    )
)
register(
    Skill(
        "cancel",
        "Cancel a task or a group; confirmed by every site before it is final.",
        CancelInput,
        AnyState,
        (Scope.SUBMIT, Scope.MANAGE),
        _cancel,
        side_effects=True,
        creates=True,
    )
)
