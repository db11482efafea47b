"""The verbs on approvals: ask, decide, withdraw, expire. What is asked holds nothing until it is granted.

Who decides is a person: the budget's owner, or an administrator where one imposed the budget. The token that
asked never decides, and no other token does: an agent that may make tokens could answer itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction

from federation.handles import new_handle
from federation.ledger import Happening, record
from federation.managers import is_administrator
from orchestrator.budgets import Ask, ask_words
from orchestrator.doorbell import ring
from orchestrator.lifecycle import Cause, TaskState
from orchestrator.models import Approval, Decision, Task
from orchestrator.services.moves import move_task, task_event
from providers.errors import Conflict, NotAuthorized, NotFound

LASTS = timedelta(hours=72)
"""How long a request waits for a person; then its task is cancelled."""
_WORDS = {"approved": "granted", "rejected": "rejected", "expired": "expired"}


@dataclass(frozen=True, slots=True)
class Approver:
    """Who decides: the person, and how they were asked."""

    user: AbstractBaseUser
    name: str
    """`user:NAME`, or `token:NAME`."""
    via: Literal["page", "api", "mcp"]
    token: str = ""
    """Handle of the token that carries the answer; empty for somebody who is signed in."""
    is_person: bool = True
    """Whether a person themself answers; False for a token on its own."""


def ask(
    task: Task,
    decision: Decision,
    asked: Sequence[Ask],
    *,
    needs_admin: bool,
    now: datetime,
    actor: str,
) -> tuple[Approval, Happening]:
    """Ask a person for what a placement would hold; an earlier open request of the task is withdrawn."""
    withdraw(task, now=now)
    approval = Approval.objects.create(
        handle=new_handle("apr", now),
        user_id=task.user_id,
        task=task,
        decision=decision,
        asked_by=actor if actor != "facet" else task.actor,
        asked_token=task.token,
        asks=[each.model_dump(mode="json") for each in asked],
        needs_admin=needs_admin,
        created_at=now,
        expires_at=now + LASTS,
    )
    words = ask_words(asked)
    return approval, _event(approval, "requested", f"{task.name} waits for approval: {words}", task)


def _event(approval: Approval, word: str, summary: str, task: Task, *, actor: str = "facet") -> Happening:
    decides = {
        "skill": "decide_approval",
        "arguments": {"approval": approval.handle, "decision": "approve"},
        "why": "a person only: the owner of the budget, signed in",
    }
    watches = {"skill": "wait_for_events", "arguments": {"subject": task.handle}, "why": "hear the answer"}
    return Happening(
        type=f"approval.{word}",
        subject=approval.handle,
        user_id=approval.user_id,
        task=task.handle,
        group=task.group.handle if task.group else "",
        actor=actor,
        state=approval.state,
        summary=summary,
        data={
            "approval": approval.handle,
            "asks": approval.asks,
            "expires_at": approval.expires_at.isoformat(),
            "needs_admin": approval.needs_admin,
            "decision": approval.decision.handle,
            "note": approval.note,
        },
        next_actions=[decides, watches] if word == "requested" else [],
    )


def granted(task: Task) -> list[Ask]:
    """Return what was approved for each of a task's attempts, the newest answer last."""
    rows = Approval.objects.filter(task=task, state="approved").order_by("pk")
    return [Ask.model_validate(each) for asks in rows.values_list("asks", flat=True) for each in asks]


@transaction.atomic
def decide_approval(
    approver: Approver, handle: str, decision: Literal["approve", "reject"], *, now: datetime, note: str = ""
) -> Approval:
    """Approve or reject; an approved task is placed anew at once, a rejected one is cancelled.

    Deciding again as before changes nothing.

    Raises:
        NotFound: no such approval that this person may see.
        NotAuthorized: the caller is no person, asked themself by token, or is no administrator.
        Conflict: it was decided otherwise, withdrawn, or has expired.
    """
    seen = Approval.objects.filter(handle=handle) if isinstance(handle, str) else Approval.objects.none()
    is_admin = is_administrator(approver.user)
    mine = seen if is_admin else seen.filter(user_id=approver.user.pk)
    task_id = mine.values_list("task_id", flat=True).first()
    if task_id is None:
        raise NotFound(f"No approval {str(handle)[:80]!r}.", pointer="/approval")
    task = Task.objects.select_for_update(no_key=True, of=("self",)).select_related("group").get(pk=task_id)
    approval = seen.select_for_update(no_key=True, of=("self",)).select_related("decision").get()
    _may_decide(approver, approval, is_admin=is_admin)
    target = "approved" if decision == "approve" else "rejected"
    if approval.state == target:
        return approval
    if approval.state != "pending" or approval.expires_at <= now:
        state = approval.state if approval.state != "pending" else "expired"
        raise Conflict(f"{approval.handle} is {state} already.", remediation="Read it, and the task, anew.")
    approval.state, approval.note = target, note[:500]
    approval.decided_by, approval.decided_via, approval.decided_at = approver.name, approver.via, now
    approval.save(update_fields=["state", "note", "decided_by", "decided_via", "decided_at"])
    _carry_out(approval, task, now=now, actor=approver.name)
    return approval


def _may_decide(approver: Approver, approval: Approval, *, is_admin: bool) -> None:
    if approver.token and approver.token == approval.asked_token and not approver.is_person:
        raise NotAuthorized(
            "The token that asked cannot answer.", remediation="Let the owner decide, signed in on the page."
        )
    if not approver.is_person:
        raise NotAuthorized(
            "Only a person approves; a token on its own does not.",
            remediation="Let the owner decide, signed in on the page.",
        )
    if approval.needs_admin and not is_admin:
        raise NotAuthorized(
            "An administrator imposed this budget; only an administrator approves beyond it.",
            remediation="Ask an administrator of this installation.",
        )
    if approval.user_id != approver.user.pk and not approval.needs_admin:
        raise NotAuthorized("Only the owner of the budget decides.", remediation="Let its owner decide.")


def _carry_out(approval: Approval, task: Task, *, now: datetime, actor: str) -> None:
    by = actor.partition(":")[2] or actor
    told = f": {approval.note}" if approval.note else ""
    words = {
        "approved": f"{by} approved what {task.name} needs{told}",
        "rejected": f"{by} did not approve what {task.name} needs{told}",
        "expired": f"nobody approved what {task.name} needs in {LASTS.total_seconds() / 3600:.0f} hours",
    }[approval.state]
    record([_event(approval, _WORDS[approval.state], words, task, actor=actor)], now=now)
    if task.state != TaskState.PENDING_APPROVAL:
        return
    if approval.state == "approved":
        plan = {**task.plan, "purpose": approval.decision.purpose}
        move_task(task, TaskState.PLACING, now=now, reason=words, due_at=now, plan=plan)
        task_id = task.pk
        transaction.on_commit(lambda: ring("advance_task", task_id))
        return
    cause = Cause.DEADLINE if approval.state == "expired" else Cause.CANCELLED_BY_USER
    move_task(task, TaskState.CANCELLED, now=now, cause=cause, reason=words[0].upper() + words[1:] + ".")
    record([task_event(task, "task.cancelled", f"{task.name} cancelled: {words}", actor=actor)], now=now)
    group_id = task.group_id
    if group_id is not None:
        transaction.on_commit(lambda: ring("advance_group", group_id))


def withdraw(task: Task, *, now: datetime) -> None:
    """Take back an open request: the task is cancelled or placed anew."""
    Approval.objects.filter(task=task, state="pending").update(state="withdrawn", decided_at=now)


def expire(*, now: datetime, limit: int = 100) -> int:
    """End the requests that nobody answered in time, and their tasks; return how many."""
    due = Approval.objects.filter(state="pending", expires_at__lte=now).order_by("expires_at")
    return sum(_expire(pk, now=now) for pk in list(due.values_list("pk", flat=True)[:limit]))


@transaction.atomic
def _expire(pk: int, *, now: datetime) -> bool:
    task_id = Approval.objects.values_list("task_id", flat=True).get(pk=pk)
    task = Task.objects.select_for_update(no_key=True, of=("self",)).select_related("group").get(pk=task_id)
    approval = (
        Approval.objects.select_for_update(no_key=True, of=("self",))
        .select_related("decision")
        .filter(pk=pk, state="pending")
        .first()
    )
    if approval is None:
        return False
    approval.state, approval.decided_at = "expired", now
    approval.save(update_fields=["state", "decided_at"])
    _carry_out(approval, task, now=now, actor="facet")
    return True
