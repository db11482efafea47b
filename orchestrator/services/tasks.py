"""The verbs on tasks: submit, preview, cancel, replan, advance. Each one transaction, events included."""

import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db import IntegrityError, transaction

from federation.handles import new_handle
from federation.ledger import record
from federation.models import System
from orchestrator.doorbell import ring
from orchestrator.dueness import has_come
from orchestrator.envelope.changes import with_changes
from orchestrator.envelope.types import Envelope as EnvelopeValue
from orchestrator.envelope.validate import read_envelope
from orchestrator.lifecycle import (
    GROUP_MOVES,
    TASK_MOVES,
    AttemptState,
    Cause,
    GroupState,
    TaskState,
    is_terminal,
)
from orchestrator.models import Envelope, Group, Task
from orchestrator.placement.types import Decision as DecisionValue
from orchestrator.services import approvals, budgets, hedging, staging
from orchestrator.services.cancelling import ask_to_cancel, end_unsent, follow_open, open_attempts
from orchestrator.services.deadlines import end_late
from orchestrator.services.deciding import decide
from orchestrator.services.envelopes import Understood, keep_envelope, understand, within
from orchestrator.services.moves import attempt_event, move_task, task_event
from orchestrator.services.named_systems import known_systems
from orchestrator.services.placing import LOOK_AGAIN_AFTER, Placed, could_place
from orchestrator.services.replacement import reconsider
from orchestrator.services.rivals import still_in_the_way
from orchestrator.services.spending import purse_of
from orchestrator.services.subscriptions import known_subscriptions
from orchestrator.services.transfer_ends import end_stage_in
from orchestrator.staging import checked
from orchestrator.task_input import TaskInput, stored
from orchestrator.tracing import about, request_id
from providers.errors import Conflict, InvalidInput, NotFound
from providers.reading import nearest, read

ENDING_PAUSE = timedelta(seconds=5)
"""Until a task asks again whether its former attempts have ended."""


@dataclass(frozen=True, slots=True)
class Submitter:
    """Who submits: the user whose task it is, who acts for them, and the API token they act with."""

    user: AbstractBaseUser
    actor: str
    """`user:NAME` or `token:NAME`."""
    token: str = ""
    """The token's handle; empty for a person who is signed in."""


@dataclass(frozen=True, slots=True)
class Submitted:
    """A task that now exists, and what was understood of it."""

    task: Task
    placed: Placed
    understood: Understood


def read_task(given: object, *, pointer: str = "") -> TaskInput:
    """Return a task input.

    Raises:
        InvalidInput: with every fault by pointer.
    """
    return read(TaskInput, given, pointer=pointer, what="task")


def submit_task(
    user: AbstractBaseUser,
    given: object,
    *,
    actor: str,
    now: datetime,
    systems: Collection[str] | None = None,
    token: str = "",
    created: Callable[[str], None] | None = None,
    notes: Sequence[str] = (),
) -> Submitted:
    """Accept a task, place it and plan its first attempt; the site is touched only after the commit.

    `systems` are the only ones it may ever run on, where its caller is limited to some; `token` is the handle
    of the API token that submits, empty for a person who is signed in.
    `created` is called with the handle in the transaction that makes the task; what it raises undoes it.
    `notes` join the warnings of the decision.

    Raises:
        InvalidInput: the input cannot be read.
        Conflict: `client_ref` was used for another task.
    """
    wanted = read_task(given)
    known_systems(wanted.envelope)
    known_subscriptions(user, wanted.continuation.subscriptions, pointer="/continuation/subscriptions")
    understood = understand(wanted, user_id=user.pk, systems=systems)
    try:
        with transaction.atomic():
            who = Submitter(user, actor, token)
            submitted = _create(who, wanted, understood, now=now, notes=notes)
            if created is not None:
                created(submitted.task.handle)
    except IntegrityError as error:
        if "one_task_per_client_ref" not in str(error):
            raise
        known = Task.objects.get(user_id=user.pk, client_ref=wanted.client_ref)
        raise Conflict(
            f"client_ref {wanted.client_ref!r} already names {known.handle}.",
            remediation="Read that task, or choose another client_ref.",
            task=known.handle,
        ) from None
    return submitted


def _create(
    who: Submitter, wanted: TaskInput, understood: Understood, *, now: datetime, notes: Sequence[str]
) -> Submitted:
    task = new_task(who, wanted, understood, now=now, group=_group_of(who.user, wanted))
    placed = hedging.place(task, purpose="submit", now=now, actor=who.actor, notes=notes)
    record(placed.happenings, now=now)
    _hand_out(task, placed, now=now)
    return Submitted(task, placed, understood)


def new_task(
    who: Submitter,
    wanted: TaskInput,
    understood: Understood,
    *,
    now: datetime,
    group: Group | None = None,
    place: tuple[str, int, Sequence[str]] = ("", 1, ()),
) -> Task:
    """Write an accepted task with envelope, budget and event; `place`: its key, round and siblings.

    A task that joins a group on its own is known by its handle there.
    """
    user, actor = who.user, who.actor
    envelope = keep_envelope(understood.envelope, user_id=user.pk, now=now)
    spec, handle = dict(stored(wanted)), new_handle("task", now)
    key, round_, after = place
    task = Task.objects.create(
        handle=handle,
        user_id=user.pk,
        actor=actor,
        token=who.token,
        project=wanted.project or "",
        name=wanted.shown_name(understood.draft.hints.job_name if understood.draft else None),
        objective=wanted.objective,
        state=TaskState.ACCEPTED.value,
        spec=spec,
        envelope=envelope,
        group=group,
        group_key=key or (handle if group is not None else ""),
        group_round=round_,
        group_after=list(after),
        client_ref=wanted.client_ref,
        request_id=request_id(),
        kind=kind_of(spec),
        created_at=now,
        updated_at=now,
    )
    record([task_event(task, "task.accepted", f"{task.name} accepted", actor=actor)], now=now)
    if wanted.budget is not None:
        on = ("task", task.handle)
        budgets.set_budget(user.pk, on, wanted.budget, actor=actor, now=now, pointer="/budget")
    if wanted.envelope_id is not None:
        _book_drafting(task, wanted.envelope_id, now=now)
    return task


def _book_drafting(task: Task, envelope: str, *, now: datetime) -> None:
    """Book what a model used to draft the envelope on the task's budgets; its token's were booked then."""
    row = Envelope.objects.filter(handle=envelope, user_id=task.user_id).first()
    tokens = int(((row.drafting if row else None) or {}).get("tokens") or 0)
    if tokens:
        rows = [each for each in budgets.budgets_of(task) if each.scope != "token"]
        budgets.spend_tokens(rows, envelope, tokens, now=now)


def _group_of(user: AbstractBaseUser, wanted: TaskInput) -> Group | None:
    if wanted.group is None:
        return None
    rows = Group.objects.select_for_update(no_key=True)  # so that it does not end meanwhile
    group = rows.filter(handle=wanted.group, user_id=user.pk).first()
    if group is None:
        raise NotFound(f"No group {wanted.group!r}.", pointer="/group")
    is_over = is_terminal(GROUP_MOVES, GroupState(group.state))
    if is_over or group.cancel_requested_at is not None:
        raise Conflict(
            f"Group {group.handle} {'has ended' if is_over else 'is being cancelled'}; no task joins it.",
            remediation="Submit the task without `group`, or make another group.",
            pointer="/group",
        )
    return group


def _hand_out(task: Task, placed: Placed, *, now: datetime) -> None:
    if placed.attempt is not None and not staging.begin(task, placed.attempt, now=now):
        attempt_id = placed.attempt.pk
        transaction.on_commit(lambda: ring("dispatch", attempt_id))


def kind_of(spec: Mapping[str, Any]) -> str:
    """Return the fingerprint of a kind of work: the same program in the same environment, at any size."""
    command = spec["command"]
    head = command[:2] if isinstance(command, list) else (command or spec["script"] or "").strip().split("\n")
    environment = spec["environment"]
    seen = [head, environment["modules"], environment["conda"], environment["container"]]
    return hashlib.sha256(json.dumps(seen, sort_keys=True).encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked about: an envelope, and what the work beside it says, where there is work."""

    envelope: EnvelopeValue
    understood: Understood | None = None
    kind: str = ""
    environment: Mapping[str, Any] | None = None
    """What the task states of it."""


def asked(user: AbstractBaseUser, given: object, *, systems: Collection[str] | None = None) -> Asked:
    """Read a task or a bare envelope that is only asked about.

    Args:
        user: whose envelopes and tasks it may name.
        given: the input as it came.
        systems: where it may run at all; None = everywhere.

    Raises:
        InvalidInput: the input cannot be read.
    """
    if isinstance(given, dict) and not {"command", "script", "envelope", "envelope_id"} & given.keys():
        known_systems(given, pointer="")
        bare = read_envelope(given, pointer="")
        checked(bare.data, pointer="/data")
        return Asked(within(bare, systems, pointer=""))
    if isinstance(given, dict) and not {"command", "script"} & given.keys():
        given = {**given, "command": ["true"]}  # an envelope alone is enough to ask where it would run
    wanted = read_task(given)
    known_systems(wanted.envelope)
    understood = understand(wanted, user_id=user.pk, systems=systems)
    spec = stored(wanted)
    return Asked(understood.envelope, understood, kind_of(spec), spec["environment"])


def preview(
    user: AbstractBaseUser, given: object, *, now: datetime, systems: Collection[str] | None = None
) -> tuple[DecisionValue, Understood | None]:
    """Return the decision a task or a bare envelope would get; nothing is kept.

    `systems` are the only ones it may run on, where its caller is limited to some.

    Raises:
        InvalidInput: the input cannot be read.
    """
    wanted = asked(user, given, systems=systems)
    value = decide(user, wanted.envelope, now=now, kind=wanted.kind, environment=wanted.environment)
    return value, wanted.understood


def find_task(user: AbstractBaseUser, handle: object, *, lock: bool = False) -> Task:
    """Return a task of this user.

    Raises:
        NotFound: no such task for this user.
    """
    rows = Task.objects.select_related("envelope", "group", "user", "attempt__system", "attempt__connection")
    if lock:
        rows = rows.select_for_update(no_key=True, of=("self",))
    task = rows.filter(handle=handle, user_id=user.pk).first() if isinstance(handle, str) else None
    if task is None:
        raise NotFound(f"No task {handle!r}.", pointer="/task")
    return task


@transaction.atomic
def cancel_task(user: AbstractBaseUser, handle: object, *, actor: str, now: datetime) -> Task:
    """Cancel a task: at once where no job can exist, else when the site confirms. A finished task stays."""
    task = find_task(user, handle, lock=True)
    if is_terminal(TASK_MOVES, TaskState(task.state)) or task.cancel_requested_at is not None:
        return task
    Task.objects.filter(pk=task.pk).update(cancel_requested_at=now, updated_at=now)
    task.cancel_requested_at = now
    approvals.withdraw(task, now=now)
    waiting = [attempt for attempt in open_attempts(task) if not end_unsent(attempt, now=now)]
    end_stage_in(task, now=now)
    follow_open(task, waiting)
    for attempt in waiting:
        ask_to_cancel(attempt, "user", now=now)
    if not waiting:
        move_task(
            task, TaskState.CANCELLED, now=now, cause=Cause.CANCELLED_BY_USER, reason="Cancelled as asked."
        )
        record([task_event(task, "task.cancelled", f"{task.name} cancelled", actor=actor)], now=now)
    return task


@transaction.atomic
def replan(
    user: AbstractBaseUser,
    handle: object,
    *,
    actor: str,
    now: datetime,
    exclude_systems: Sequence[str] = (),
    envelope: object = None,
    changes: Mapping[str, Any] | None = None,
    systems: Collection[str] | None = None,
) -> Task:
    """Place a task anew: at once where no job exists, else when the site confirmed the old one's end.

    Where its caller is limited to some systems, from now on it runs on no other. `envelope` takes the place
    of the old one; `changes` says what changes in it, member by member.

    Raises:
        NotFound: no such task for this user.
        Conflict: the task is finished, being cancelled, or running.
        InvalidInput: the envelope cannot be read, or a system is unknown.
    """
    task = find_task(user, handle, lock=True)
    _may_replan(task)
    known = set(System.objects.values_list("slug", flat=True))
    for number, word in enumerate(exclude_systems):
        if word not in known:
            message = f"No system `{word}`." + nearest(str(word), known)
            raise InvalidInput(message, problems=((f"/exclude_systems/{number}", "unknown_system", message),))
    columns: dict[str, Any] = {"excluded_systems": list(exclude_systems), "updated_at": now}
    if envelope is not None or changes is not None or systems is not None:
        for said in (envelope, changes):
            if isinstance(said, dict):
                known_systems(said)
        body: Any = task.envelope.body if envelope is None else envelope
        value = read_envelope(body if changes is None else with_changes(task.envelope.body, changes))
        columns["envelope"] = keep_envelope(within(value, systems), user_id=user.pk, now=now)
    Task.objects.filter(pk=task.pk).update(**columns)
    for name, value in columns.items():
        setattr(task, name, value)
    summary = f"{task.name} is placed anew" + (
        f", without {', '.join(exclude_systems)}" if exclude_systems else ""
    )
    record([task_event(task, "task.replanned", summary, actor=actor)], now=now)
    waits = _supersede(task, now=now)
    end_stage_in(task, now=now)
    if not waits:
        _place_again(task, purpose="replan", now=now, actor=actor)
    return task


def _may_replan(task: Task) -> None:
    state = TaskState(task.state)
    if is_terminal(TASK_MOVES, state):
        raise Conflict(f"{task.handle} is {state} and cannot be placed again.", remediation="Submit it anew.")
    if task.cancel_requested_at is not None:
        raise Conflict(f"{task.handle} is being cancelled.")
    if state is TaskState.RUNNING:
        raise Conflict(
            f"{task.handle} is running and stays where it is.",
            remediation="Cancel it first if it should run elsewhere.",
        )


def _supersede(task: Task, *, now: datetime) -> bool:
    """Ask the open attempts to give way; return whether the site must confirm that first."""
    asked = []
    for attempt in open_attempts(task):
        if end_unsent(attempt, now=now, target=AttemptState.SUPERSEDED):
            summary = f"attempt {attempt.number} gives way before it was sent"
            record([attempt_event(attempt, "attempt.superseded", summary)], now=now)
            continue
        if attempt.cancel_requested_at is None:
            ask_to_cancel(attempt, "superseded", now=now)
        asked.append(attempt)
    waiting = still_in_the_way(task, asked)
    follow_open(task, waiting)
    return bool(waiting)


def _place_again(task: Task, *, purpose: str, now: datetime, actor: str = "facet") -> Placed:
    placed = hedging.place(task, purpose=purpose, now=now, actor=actor)
    record(placed.happenings, now=now)
    _hand_out(task, placed, now=now)
    return placed


@transaction.atomic
def advance_task(task_id: int, *, now: datetime) -> None:
    """Do what a task waits for: its next attempt, or another try to place it. Safe to repeat."""
    task = (
        Task.objects.select_for_update(no_key=True, of=("self",), skip_locked=True)
        .select_related("envelope", "group", "user")
        .filter(pk=task_id)
        .first()
    )
    if task is None or task.due_at is None or task.cancel_requested_at is not None:
        return
    is_placing = task.state in (TaskState.PLACING, TaskState.UNSCHEDULABLE)
    if not (has_come(task.due_at, now=now) if is_placing else task.due_at <= now):
        return
    with about(task):
        _advance(task, now=now)


def _advance(task: Task, *, now: datetime) -> None:
    state = TaskState(task.state)
    if state in (TaskState.SUBMITTED, TaskState.PENDING):
        reconsider(task, now=now)
        return
    if state not in (TaskState.PLACING, TaskState.UNSCHEDULABLE):
        Task.objects.filter(pk=task.pk).update(due_at=None)
        return
    if before := still_in_the_way(task, open_attempts(task)):
        # The accepted one calls the task when it ends; another does not.
        is_called = all(attempt.pk == task.attempt_id for attempt in before)
        Task.objects.filter(pk=task.pk).update(due_at=None if is_called else now + ENDING_PAUSE)
        return
    late = purse_of(task).too_late(now)
    if late is not None:
        end_late(task.pk, f"the deadline of the budget {late.handle} has passed", with_running=True, now=now)
        return
    if state is TaskState.UNSCHEDULABLE and not _has_room(task, now=now):
        return
    _place_again(task, purpose=task.plan.get("purpose", "retry"), now=now)


def _has_room(task: Task, *, now: datetime) -> bool:
    """Return whether an unschedulable task would fit somewhere now; only then is a new decision kept."""
    if could_place(task, now=now):
        return True
    Task.objects.filter(pk=task.pk).update(due_at=now + LOOK_AGAIN_AFTER)
    return False
