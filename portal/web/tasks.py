"""One task, and what may be done to it. Each view reads selectors or calls one verb."""

from datetime import datetime
from typing import TYPE_CHECKING

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST, require_safe

from federation.selectors import charges
from orchestrator import selectors
from orchestrator.budget_selectors import approvals, show_approval
from orchestrator.lifecycle import TASK_MOVES, TaskState, is_terminal
from orchestrator.services import tasks as verbs
from portal.web.guard import SignedInRequest, signed_in
from portal.web.logs import log_tail, wants_log
from portal.web.presenters.allocations import ApprovalRow, approval_row
from portal.web.presenters.decisions import DecisionRef
from portal.web.presenters.events import event_rows
from portal.web.presenters.from_task import TaskRows, task_page
from portal.web.presenters.tasks import LogTail, TaskPage
from portal.web.rendering import page
from portal.web.seen import system_refs
from providers.errors import Conflict, InvalidInput, NotFound

if TYPE_CHECKING:
    from orchestrator.models import Task

EVENTS_SHOWN = 60


@require_safe
@signed_in
def task_show(request: SignedInRequest, handle: str) -> HttpResponse:
    """One task: timeline, attempts, decision, output, events, result."""
    now = timezone.now()
    rows = task_rows(request, handle)
    log = log_tail(request, rows, now=now) if wants_log(request) else None
    shown = _shown(request, rows, log, now=now)
    return page(request, "tasks/detail.html", {"here": "tasks", "page": shown}, parts=("live", "log"))


def task_rows(request: SignedInRequest, handle: str) -> TaskRows:
    """Return the rows of one task of the caller.

    Raises:
        NotFound: no such task for this user.
    """
    task = selectors.tasks(request.user).filter(handle=handle).first()
    if task is None:
        raise NotFound(f"No task {handle!r}.", pointer="/task")
    attempts = list(selectors.attempts(request.user).filter(task=task).order_by("number"))
    made = selectors.decisions(request.user).filter(task=task)
    known = [DecisionRef(*row) for row in made.values_list("handle", "purpose", "created_at")]
    asked = request.GET.get("decision", "")
    chosen = asked if asked in {ref.handle for ref in known} else known[0].handle if known else ""
    spent = charges(request.user).filter(attempt_handle__in=[attempt.handle for attempt in attempts])
    return TaskRows(
        task=task,
        attempts=attempts,
        decision=made.filter(handle=chosen).first() if chosen else None,
        manifest=getattr(task, "manifest", None),
        decisions=known,
        charges=list(spent) if attempts else [],
        approval=_approval(request, task),
    )


def _approval(request: SignedInRequest, task: "Task") -> ApprovalRow | None:
    if task.state != TaskState.PENDING_APPROVAL:
        return None
    row = approvals(request.user).filter(task=task, state="pending").first()
    return approval_row(show_approval(row), system_refs()) if row else None


def _shown(request: SignedInRequest, rows: TaskRows, log: LogTail | None, *, now: datetime) -> TaskPage:
    refs = system_refs()
    events = selectors.events(request.user).filter(task=rows.task.handle).order_by("-position__seq")
    return task_page(
        rows,
        refs,
        events=event_rows(events[:EVENTS_SHOWN], refs),
        log=log,
        now=now,
    )


@require_POST
@signed_in
def task_cancel(request: SignedInRequest, handle: str) -> HttpResponse:
    """Cancel the task, at once or when its site confirms."""
    task = verbs.cancel_task(request.user, handle, actor=_actor(request), now=timezone.now())
    if TaskState(task.state) is not TaskState.CANCELLED and not is_terminal(
        TASK_MOVES, TaskState(task.state)
    ):
        messages.info(request, _("Cancelling: it ends when the site confirms."))
    return redirect("web:task-show", handle=handle)


@require_POST
@signed_in
def task_replan(request: SignedInRequest, handle: str) -> HttpResponse:
    """Place the task anew with what is known now."""
    try:
        without = [slug.replace("\0", "") for slug in request.POST.getlist("without")]
        verbs.replan(request.user, handle, actor=_actor(request), now=timezone.now(), exclude_systems=without)
        messages.success(request, _("Placed anew, with what is known now."))
    except (Conflict, InvalidInput) as error:
        messages.error(request, f"{error.message} {error.remediation}".strip())
    return redirect("web:task-show", handle=handle)


def _actor(request: SignedInRequest) -> str:
    return f"user:{request.user.get_username()}"
