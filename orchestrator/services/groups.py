"""The verbs on groups: submit, advance, cancel. Children are tasks; a group starts, watches, sums up."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from time import monotonic
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction

from federation.handles import new_handle
from federation.ledger import record
from orchestrator.doorbell import ring
from orchestrator.dueness import is_due
from orchestrator.envelope.validate import read_envelope_input
from orchestrator.group_input import ChildSpec, GroupInput, children_of
from orchestrator.grouping import Child, Step, step
from orchestrator.lifecycle import (
    GROUP_MOVES,
    TASK_MOVES,
    Cause,
    GroupState,
    TaskState,
    check_move,
    is_terminal,
)
from orchestrator.models import Attempt, Group, Task
from orchestrator.services import hedging, staging
from orchestrator.services.budgets import set_budget
from orchestrator.services.envelopes import understand
from orchestrator.services.moves import group_event, move_task, task_event
from orchestrator.services.named_systems import known_systems
from orchestrator.services.replacement import reconsider, sent_at
from orchestrator.services.tasks import Submitter, cancel_task, new_task, read_task
from orchestrator.task_input import TaskInput
from orchestrator.tracing import about
from providers.errors import InvalidInput, NotFound
from providers.reading import read

LOOK_AGAIN = timedelta(seconds=15)
"""How often a running group is looked at although no child reported."""
PLACED_AT_ONCE = 25
"""Children placed in one transaction; the rest follows at once in the next."""
PLACING_S = 3.0
"""A transaction that took so long places no more: its user's other submissions wait for it."""


@dataclass(frozen=True, slots=True)
class SubmittedGroup:
    """A group that now exists, with its children in order."""

    group: Group
    tasks: Sequence[Task]


def submit_group(
    user: AbstractBaseUser,
    given: object,
    *,
    actor: str,
    now: datetime,
    systems: Collection[str] | None = None,
    token: str = "",
    created: Callable[[str], None] | None = None,
) -> SubmittedGroup:
    """Accept a group: every child is read before anything is written, and all exist or none does.

    `systems` are the only ones its children may ever run on, where its caller is limited to some.

    `created` is called with the handle in the transaction that makes the group; what it raises undoes it.

    Raises:
        InvalidInput: with every fault of every child by pointer.
    """
    wanted = read(GroupInput, given, what="group")
    _check_shared(wanted)
    children = children_of(wanted)
    ready = _read_children(children, user, systems)
    with transaction.atomic():
        group = Group.objects.create(
            handle=new_handle("grp", now),
            user_id=user.pk,
            name=wanted.name or (wanted.objective.split("\n")[0][:60] or "group"),
            objective=wanted.objective,
            spec={"diversity": wanted.diversity, "require": wanted.require},
            created_at=now,
            due_at=now,
        )
        if wanted.budget is not None:
            on = ("group", group.handle)
            set_budget(user.pk, on, wanted.budget, actor=actor, now=now, pointer="/budget")
        tasks = [
            new_task(
                Submitter(user, actor, token),
                task,
                understood,
                now=now,
                group=group,
                place=(spec.key, spec.round, spec.after),
            )
            for spec, task, understood in ready
        ]
        summary = f"{group.name}: {_in_rounds(len(tasks), len({spec.round for spec in children}))}"
        record([group_event(group, "group.submitted", summary, actor=actor)], now=now)
        if created is not None:
            created(group.handle)
        group_id = group.pk
        transaction.on_commit(lambda: ring("advance_group", group_id))
    return SubmittedGroup(group, tasks)


def _check_shared(wanted: GroupInput) -> None:
    """Refuse a fault in what the children share once, where it stands, and not in every child."""
    for shared, pointer in ((wanted.envelope, "/envelope"), ({"policy": wanted.policy}, "")):
        read_envelope_input(shared, pointer=pointer)
        known_systems(shared, pointer=pointer)


def _in_rounds(tasks: int, rounds: int) -> str:
    """Return how many tasks a group has; rounds are worth a word where there are several."""
    counted = f"{tasks} task{'' if tasks == 1 else 's'}"
    return counted if rounds == 1 else f"{counted} in {rounds} rounds"


def _read_children(
    children: Sequence[ChildSpec], user: AbstractBaseUser, systems: Collection[str] | None
) -> list[tuple[ChildSpec, TaskInput, Any]]:
    ready: list[tuple[ChildSpec, TaskInput, Any]] = []
    problems: list[tuple[str, str, str]] = []
    for spec in children:
        try:
            task = read_task(spec.task, pointer=spec.pointer)
            known_systems(task.envelope, pointer=f"{spec.pointer}/envelope")
            understood = understand(task, user_id=user.pk, pointer=spec.pointer, systems=systems)
            ready.append((spec, task, understood))
        except InvalidInput as error:
            problems += list(error.problems) or [(spec.pointer, error.code, error.message)]
        problems = list(dict.fromkeys(problems))  # all of a sweep share one task
        if len(problems) > 50:
            break
    if problems:
        raise InvalidInput(
            "Some children are not valid; nothing was submitted.", problems=tuple(problems[:50])
        )
    return ready


def find_group(user: AbstractBaseUser, handle: object, *, lock: bool = False) -> Group:
    """Return a group of this user.

    Raises:
        NotFound: no such group for this user.
    """
    rows = Group.objects.select_for_update(no_key=True) if lock else Group.objects.all()
    group = rows.filter(handle=handle, user_id=user.pk).first() if isinstance(handle, str) else None
    if group is None:
        raise NotFound(f"No group {handle!r}.", pointer="/group")
    return group


@transaction.atomic
def advance_group(group_id: int, *, now: datetime) -> bool:
    """Start what may start, help what is stalled, end what has ended; return whether more is due at once."""
    group = Group.objects.select_for_update(no_key=True, skip_locked=True).filter(pk=group_id).first()
    if group is None or is_terminal(GROUP_MOVES, GroupState(group.state)):
        return False
    tasks = {_key(task): task for task in _children(group)}
    found = step(
        [_child(task) for task in tasks.values()],
        required=group.spec["require"],
        cancel_requested=group.cancel_requested_at is not None,
        now=now,
    )
    _record_rounds(group, found, now=now)
    for key, sibling in found.give_up.items():
        with about(tasks[key]):
            _give_up(tasks[key], sibling, now=now)
    # The stalled first: who starts work holds its budgets, and must not wait for another task's lock then.
    # One at a time: where the next could go is known once this one has gone.
    if (stalled := _next_stalled(tasks[key] for key in found.stalled)) is not None:
        with about(stalled):
            _help(group, stalled, now=now)
    left = _start_some([tasks[key] for key in found.start], now=now)
    if found.target is not None:
        _end(group, found.target, list(tasks.values()), now=now)
        return False
    more = left > 0 or bool(found.give_up)
    group.due_at = now if more else now + LOOK_AGAIN
    group.save(update_fields=["due_at", "completed_rounds"])
    return more


def _children(group: Group) -> list[Task]:
    rows = Task.objects.filter(group=group).select_related("attempt__system", "envelope", "group", "user")
    return list(rows.order_by("pk"))


def _key(task: Task) -> str:
    """Return a child's name among its siblings; what joined before it was given one goes by its handle."""
    return task.group_key or task.handle


def _child(task: Task) -> Child:
    attempt = task.attempt
    waits = (
        attempt is not None
        and attempt.cancel_requested_at is None
        and task.state in (TaskState.SUBMITTED, TaskState.PENDING)
    )
    return Child(
        key=_key(task),
        round=task.group_round,
        after=tuple(task.group_after),
        state=TaskState(task.state),
        is_started=task.state != TaskState.ACCEPTED,
        waiting_since=sent_at(attempt) if attempt is not None and waits else None,
        wait_p90_s=int(attempt.predicted["wait_s"]["p90"]) if attempt is not None and waits else 0,
    )


def _start_some(tasks: Sequence[Task], *, now: datetime) -> int:
    """Start as many children as one transaction should, one at least; return how many are left."""
    until = monotonic() + PLACING_S
    for number, task in enumerate(tasks):
        if number == PLACED_AT_ONCE or (number and monotonic() > until):
            return len(tasks) - number
        with about(task):
            _start(task, now=now)
    return 0


def _start(task: Task, *, now: datetime) -> None:
    placed = hedging.place(task, purpose="submit", now=now)
    record(placed.happenings, now=now)
    if placed.attempt is not None and not staging.begin(task, placed.attempt, now=now):
        # Due now: the control cycle sends all of a connection's planned attempts in one request.
        Attempt.objects.filter(pk=placed.attempt.pk).update(due_at=now)
        system_id = placed.attempt.system_id
        transaction.on_commit(lambda: ring("control_system", system_id))


def _give_up(task: Task, sibling: str, *, now: datetime) -> None:
    reason = f"Its sibling {sibling} did not succeed."
    move_task(task, TaskState.CANCELLED, now=now, cause=Cause.CANCELLED_BY_USER, reason=reason)
    record([task_event(task, "task.cancelled", f"{task.name} cancelled: {reason}")], now=now)


def _next_stalled(tasks: Iterable[Task]) -> Task | None:
    """Return the first stalled child that nothing was done about."""
    waiting = (task for task in tasks if not task.plan.get("is_relaxed") and task.cancel_requested_at is None)
    return next(waiting, None)


def _help(group: Group, task: Task, *, now: datetime) -> None:
    """Say that a child is stalled, and move it if that pays; else it is compared again as any other."""
    task.plan = {**task.plan, "is_relaxed": True}
    Task.objects.filter(pk=task.pk).update(plan=task.plan)
    where = task.attempt.system.slug if task.attempt else "nowhere"
    text = f"{task.name} still waits on {where}; nothing else of its round runs any more"
    data = {"task": task.handle, "system": where}
    record([group_event(group, "group.child_stalled", text, data=data)], now=now)
    reconsider(task, now=now)


def _record_rounds(group: Group, found: Step, *, now: datetime) -> None:
    fresh = [number for number in found.completed_rounds if number not in group.completed_rounds]
    if not fresh:
        return
    group.completed_rounds = sorted({*group.completed_rounds, *fresh})
    record(
        [
            group_event(
                group,
                "group.round_completed",
                f"{group.name}: round {number} is complete",
                data={"round": number},
            )
            for number in fresh
        ],
        now=now,
    )


def _end(group: Group, target: GroupState, tasks: Sequence[Task], *, now: datetime) -> None:
    check_move(GROUP_MOVES, GroupState(group.state), target)
    group.state, group.finished_at, group.due_at = target.value, now, None
    group.save(update_fields=["state", "finished_at", "due_at", "completed_rounds"])
    counts = {
        state: sum(task.state == state for task in tasks) for state in ("succeeded", "failed", "cancelled")
    }
    told = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    result = {"skill": "get_result", "arguments": {"group": group.handle}, "why": "every child's result"}
    event = group_event(
        group, f"group.{target}", f"{group.name}: {told}", data={"children": counts}, next_actions=[result]
    )
    record([event], now=now)


def cancel_group(user: AbstractBaseUser, handle: object, *, actor: str, now: datetime) -> Group:
    """Cancel every child; the group is cancelled when every site has confirmed."""
    with transaction.atomic():
        group = find_group(user, handle, lock=True)
        if is_terminal(GROUP_MOVES, GroupState(group.state)):
            return group
        if group.cancel_requested_at is None:
            group.cancel_requested_at, group.due_at = now, now
            group.save(update_fields=["cancel_requested_at", "due_at"])
        # All tasks before any ledger: a child that settles meanwhile holds its task and waits for the ledger.
        list(Task.objects.select_for_update(no_key=True, of=("self",)).filter(group=group).order_by("pk"))
        children = _children(group)
        unplaced = [task for task in children if task.state == TaskState.ACCEPTED and task.attempt is None]
        _end_unplaced(unplaced, actor=actor, now=now)
        for task in children:
            if task.cancel_requested_at is None:
                cancel_task(user, task.handle, actor=actor, now=now)
        group_id = group.pk
        transaction.on_commit(lambda: ring("advance_group", group_id))
    return group


def _end_unplaced(tasks: Sequence[Task], *, actor: str, now: datetime) -> None:
    """Cancel children that hold nothing anywhere yet, all in one write: a sweep has a thousand of them."""
    ended = {
        "state": TaskState.CANCELLED.value,
        "cause": Cause.CANCELLED_BY_USER.value,
        "reason": "Cancelled as asked.",
        "cancel_requested_at": now,
        "updated_at": now,
        "finished_at": now,
        "due_at": None,
    }
    Task.objects.filter(pk__in=[task.pk for task in tasks]).update(**ended)
    for task in tasks:
        check_move(TASK_MOVES, TaskState(task.state), TaskState.CANCELLED)
        for column, value in ended.items():
            setattr(task, column, value)
    record(
        [task_event(task, "task.cancelled", f"{task.name} cancelled", actor=actor) for task in tasks], now=now
    )


def groups_with_work(*, now: datetime, limit: int = 100) -> list[int]:
    """Return the groups that are due."""
    return list(Group.objects.filter(is_due(now)).order_by("due_at").values_list("pk", flat=True)[:limit])
