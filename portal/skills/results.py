"""Skills on what became of work: the result of a task or a group, and cancelling it, or a transfer."""

from itertools import accumulate
from typing import Any

from pydantic import Field, RootModel

from orchestrator import selectors
from orchestrator.group_selectors import manifest_of_group
from orchestrator.services import groups, tasks, transfer_ends
from orchestrator.shown import AttemptShown, GroupManifestShown, GroupShown, TaskShown, TransferShown
from orchestrator.transfer_selectors import show_transfer
from portal.skills.bounds import fitting, size
from portal.skills.registry import Answer, Call, Scope, Skill, register
from providers.errors import InvalidInput
from providers.types import Frozen


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


class GroupResult(Frozen):
    """How a group stands or ended, and each child's own result."""

    id: str
    state: str
    group: GroupShown
    manifest: GroupManifestShown
    results: list[dict[str, Any]] = Field(description="By child: handle, state, place, cause, manifest.")
    more: str | None = Field(description="Where the rest is, when there are too many children to list here.")


class AnyResult(RootModel[Result | GroupResult]):
    """A task's result, or a group's."""


class AnyState(RootModel[TaskShown | GroupShown | TransferShown]):
    """A task, a group, or a transfer."""


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
        AnyResult(
            GroupResult(
                id=shown.id,
                state=shown.state,
                group=shown,
                manifest=manifest_of_group(group),
                results=results,
                more=more,
            )
        )
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
        transfer = transfer_ends.cancel_transfer(user, handle, actor=actor, now=call.now)
        return Answer(AnyState(show_transfer(transfer)))
    if kind == "group":
        group = groups.cancel_group(user, handle, actor=actor, now=call.now)
        group.refresh_from_db()
        shown = selectors.show_group(group, with_children=call.options.full)
        return Answer(AnyState(shown))
    task = tasks.cancel_task(user, handle, actor=actor, now=call.now)
    return Answer(AnyState(selectors.show_task(selectors.tasks(user).get(pk=task.pk))))


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
        "cancel",
        "Cancel a task, a group or a transfer; confirmed by every site before it is final.",
        CancelInput,
        AnyState,
        (Scope.SUBMIT, Scope.MANAGE),
        _cancel,
        side_effects=True,
        creates=True,
    )
)
