"""Skills that place work: preview, submit, replan."""

import time
from datetime import datetime
from typing import Any, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from orchestrator import selectors
from orchestrator.envelope.schema import envelope_input_schema
from orchestrator.leaders import refresh_leaders
from orchestrator.lifecycle import TaskState
from orchestrator.models import Task
from orchestrator.placement.types import Decision
from orchestrator.services import tasks
from orchestrator.services.again import as_before
from orchestrator.shown import TaskShown
from orchestrator.task_input import TaskInput
from portal.skills.bounds import shortened, size
from portal.skills.registry import Answer, Call, Options, Scope, Skill, register
from providers.types import Frozen

_POLL_S = (0.01, 0.02, 0.05, 0.1)
"""Pauses between looks at a task that is being dispatched; the last one repeats."""
WAITING = frozenset({TaskState.ACCEPTED, TaskState.PLACING, TaskState.STAGING})
_OPEN = WAITING | {TaskState.PENDING_APPROVAL}
"""Whether it will run is not settled yet; in the last of them a person decides, which nobody waits for."""


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
        call.caller.user,
        as_before(call.caller.user, given.model_extra or {}),
        now=call.now,
        systems=call.caller.systems,
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
        token=caller.token,
        now=refreshed.now,
        systems=caller.systems,
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
    status = 202 if TaskState(shown.state) in _OPEN else 201
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


class ReplanInput(Frozen):
    """Place a task anew."""

    task: str = Field(description="One that does not run yet.")
    exclude_systems: tuple[str, ...] = Field(
        (), description="Never these; replaces what was excluded before."
    )
    envelope: dict[str, Any] | None = Field(None, description="A whole new one, in place of the old.")
    changes: dict[str, Any] | None = Field(
        None,
        description="What changes in the envelope; what is not said stays as it is, member by member. "
        "null unsays one. Either this or `envelope`.",
    )

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if self.envelope is not None and self.changes is not None:
            raise PydanticCustomError("envelope_and_changes", "give `envelope` or `changes`, not both")
        return self


def _replan(given: ReplanInput, call: Call) -> Answer:
    user = call.caller.user
    task = tasks.replan(
        user,
        given.task,
        actor=call.caller.actor,
        now=call.now,
        exclude_systems=given.exclude_systems,
        envelope=given.envelope,
        changes=given.changes,
        systems=call.caller.systems,
    )
    if not task.attempts.filter(cancel_reason="superseded", finished_at=None).exists():
        task = _settled(task, call.options.wait_s)
    return Answer(selectors.show_task(selectors.tasks(user).get(pk=task.pk)))


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
