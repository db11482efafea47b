"""The list of tasks, one task, and what may be done to it. Each view reads selectors or calls one verb."""

from datetime import datetime
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from django.contrib import messages
from django.db.models import Q
from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST, require_safe

from orchestrator import selectors
from orchestrator.lifecycle import TASK_MOVES, TaskState, is_terminal
from orchestrator.services import tasks as verbs
from portal.web.guard import SignedInRequest, signed_in
from portal.web.logs import log_tail, wants_log
from portal.web.presenters.events import event_rows
from portal.web.presenters.from_task import TaskRows, task_page, task_row
from portal.web.presenters.shared import Page
from portal.web.presenters.tasks import LogTail, TaskFilters, TaskListPage, TaskPage
from portal.web.rendering import page
from portal.web.seen import system_refs
from providers.errors import Conflict, NotFound

if TYPE_CHECKING:
    from django.db.models import QuerySet

    from orchestrator.models import Task

PAGE_SIZE = 40
EVENTS_SHOWN = 60
ACTIVE = tuple(state.value for state in TaskState if not is_terminal(TASK_MOVES, state))


@require_safe
@signed_in
def task_list(request: SignedInRequest) -> HttpResponse:
    """The caller's tasks, newest first; filtered by words, state and system."""
    filters = TaskFilters(*(request.GET.get(name, "").strip() for name in ("q", "state", "system")))
    mine = selectors.tasks(request.user)
    rows = _filtered(mine, filters)
    cursor = request.GET.get("cursor", "")
    if cursor:
        rows = rows.filter(id__lt=mine.filter(handle=cursor).values("id")[:1])
    found = list(rows[: PAGE_SIZE + 1])
    refs, now = system_refs(), timezone.now()
    shown = TaskListPage(
        page=Page(
            tuple(
                task_row(task, refs, attempts=selectors.show_task(task).attempts, now=now)
                for task in found[:PAGE_SIZE]
            ),
            next_query=_query(filters, cursor=found[PAGE_SIZE - 1].handle)
            if len(found) > PAGE_SIZE
            else None,
            first_query=_query(filters) if cursor else None,
        ),
        filters=filters,
        states=tuple(state.value for state in TaskState),
        systems=tuple(sorted(refs.values(), key=lambda ref: ref.name)),
        any_tasks=bool(found) or mine.exists(),
    )
    return page(request, "tasks/list.html", {"here": "tasks", "page": shown}, parts=("rows",))


def _filtered(rows: "QuerySet[Task]", filters: TaskFilters) -> "QuerySet[Task]":
    if filters.state == "active":
        rows = rows.filter(state__in=ACTIVE)
    elif filters.state:
        rows = rows.filter(state=filters.state)
    if filters.system:
        rows = rows.filter(attempt__system__slug=filters.system)
    if filters.q:
        rows = rows.filter(Q(name__icontains=filters.q) | Q(handle__startswith=filters.q))
    return rows


def _query(filters: TaskFilters, **more: str) -> str:
    words = {"q": filters.q, "state": filters.state, "system": filters.system, **more}
    return urlencode({name: word for name, word in words.items() if word})


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
    return TaskRows(
        task=task,
        attempts=list(selectors.attempts(request.user).filter(task=task).order_by("number")),
        decision=selectors.decisions(request.user).filter(task=task).first(),
        manifest=getattr(task, "manifest", None),
    )


def _shown(request: SignedInRequest, rows: TaskRows, log: LogTail | None, *, now: datetime) -> TaskPage:
    refs = system_refs()
    events = selectors.events(request.user).filter(task=rows.task.handle).order_by("-position__seq")
    return task_page(
        rows,
        refs,
        events=event_rows(events[:EVENTS_SHOWN], refs),
        log=log,
        base_url=request.build_absolute_uri("/").rstrip("/"),
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
        verbs.replan(request.user, handle, actor=_actor(request), now=timezone.now())
        messages.success(request, _("Placed anew, with what is known now."))
    except Conflict as error:
        messages.error(request, f"{error.message} {error.remediation}".strip())
    return redirect("web:task-show", handle=handle)


def _actor(request: SignedInRequest) -> str:
    return f"user:{request.user.get_username()}"
