"""The list of tasks: searched, filtered, ordered, paged; and many of them cancelled at once."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from django.contrib import messages
from django.db.models import Count
from django.http import HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_POST, require_safe

from orchestrator import selectors
from orchestrator.lifecycle import TASK_MOVES, TaskState, is_terminal
from orchestrator.services import bulk
from portal.web.guard import SignedInRequest, signed_in
from portal.web.paging import page_of, query_of
from portal.web.presenters.from_task import task_row
from portal.web.presenters.shared import Page, SystemRef
from portal.web.presenters.tasks import BulkCancelPage, TaskFilters, TaskListPage
from portal.web.rendering import page
from portal.web.seen import system_refs

if TYPE_CHECKING:
    from django.contrib.auth.models import AbstractBaseUser
    from django.db.models import QuerySet

    from orchestrator.models import Task

PAGE_SIZE = 40
GROUPS_OFFERED = 30
ACTIVE = tuple(state.value for state in TaskState if not is_terminal(TASK_MOVES, state))
ORDERS: Mapping[str, str] = {"": "-id", "oldest": "id", "changed": "-updated_at", "name": "name"}
"""What `sort` may be; "" = newest first."""


@require_safe
@signed_in
def task_list(request: SignedInRequest) -> HttpResponse:
    """The caller's tasks: filtered by words, state, system and group; newest first unless asked otherwise."""
    filters = filters_of(request.GET)
    mine = selectors.tasks(request.user)
    cursor = _clean(request.GET.get("cursor", ""))
    found, following = page_of(
        filtered(mine, request.user, filters),
        cursor=cursor,
        size=PAGE_SIZE,
        order=ORDERS[filters.sort],
        mine=mine,
    )
    refs, now = system_refs(), timezone.now()
    words = filters.as_query()
    shown = TaskListPage(
        page=Page(
            tuple(
                task_row(task, refs, attempts=selectors.show_task(task).attempts, now=now) for task in found
            ),
            next_query=query_of(words, cursor=following) if following else None,
            first_query=query_of(words) if cursor else None,
        ),
        filters=filters,
        states=tuple(state.value for state in TaskState),
        systems=by_name(refs),
        any_tasks=bool(found) or mine.exists(),
        groups=_groups(request),
        counts=active_counts(mine),
        query=query_of(words),
    )
    return page(request, "tasks/list.html", {"here": "tasks", "page": shown}, parts=("rows",))


def _groups(request: SignedInRequest) -> tuple[tuple[str, str], ...]:
    rows = selectors.groups(request.user).prefetch_related(None).values_list("handle", "name")
    return tuple(rows[:GROUPS_OFFERED])


def by_name(refs: Mapping[str, SystemRef]) -> tuple[SystemRef, ...]:
    """Return systems in the order of their names, to choose from."""
    return tuple(sorted(refs.values(), key=lambda ref: ref.name))


def filters_of(given: Mapping[str, str]) -> TaskFilters:
    """Return what a query string asks for; an order we do not know is the usual one."""
    q, state, system, group, sort = (
        _clean(given.get(name, "")) for name in ("q", "state", "system", "group", "sort")
    )
    return TaskFilters(q, state, system, group, sort if sort in ORDERS else "")


def _clean(word: str) -> str:
    return word.replace("\0", "").strip()[:200]


def filtered(rows: "QuerySet[Task]", user: "AbstractBaseUser", filters: TaskFilters) -> "QuerySet[Task]":
    """Return the tasks that were asked for."""
    if filters.state == "active":
        rows = rows.filter(state__in=ACTIVE)
    elif filters.state:
        rows = rows.filter(state=filters.state)
    if filters.system:
        rows = rows.filter(attempt__system__slug=filters.system)
    if filters.group:
        rows = rows.filter(group__handle=filters.group)
    if filters.q:
        rows = selectors.with_words(rows, user, filters.q)
    return rows


def active_counts(mine: "QuerySet[Task]") -> dict[str, int]:
    """Return how many tasks stand in each state that is not final, and `active` for all of them."""
    rows = mine.filter(state__in=ACTIVE).order_by().values("state").annotate(n=Count("id", distinct=True))
    found = {row["state"]: row["n"] for row in rows}
    return {"active": sum(found.values()), **found}


@require_POST
@signed_in
def task_bulk_cancel(request: SignedInRequest) -> HttpResponse:
    """Ask whether the chosen tasks (or all that match) shall end; with `sure`, end them."""
    filters = filters_of(request.POST)
    mine = selectors.tasks(request.user)
    chosen = [_clean(handle) for handle in request.POST.getlist("task")]
    if request.POST.get("sure"):
        return _cancelled(request, chosen, filters)
    rows = mine.filter(state__in=ACTIVE, cancel_requested_at__isnull=True)
    rows = (
        filtered(rows, request.user, filters) if request.POST.get("all") else rows.filter(handle__in=chosen)
    )
    now, refs = timezone.now(), system_refs()
    found = list(rows[: bulk.MOST + 1])
    if not found:
        messages.info(request, _("None of these tasks can be cancelled: they have ended already."))
        return redirect(_list_address(filters))
    shown = BulkCancelPage(
        rows=tuple(task_row(task, refs, attempts=0, now=now) for task in found[: bulk.MOST]),
        running=sum(task.state == TaskState.RUNNING for task in found[: bulk.MOST]),
        is_cut=len(found) > bulk.MOST,
        filters=filters,
        back=_list_address(filters),
    )
    return page(request, "tasks/cancel.html", {"here": "tasks", "page": shown})


def _list_address(filters: TaskFilters) -> str:
    query = query_of(filters.as_query())
    return reverse("web:task-list") + (f"?{query}" if query else "")


def _cancelled(request: SignedInRequest, handles: list[str], filters: TaskFilters) -> HttpResponse:
    actor = f"user:{request.user.get_username()}"
    done = bulk.cancel_tasks(request.user, handles, actor=actor, now=timezone.now())
    said = []
    if n := len(done.ended):
        said.append(ngettext("%(n)s task is cancelled.", "%(n)s tasks are cancelled.", n) % {"n": n})
    if n := len(done.asked):
        said.append(
            ngettext("%(n)s ends when its site confirms.", "%(n)s end when their sites confirm.", n)
            % {"n": n}
        )
    if n := len(done.untouched) + len(done.missing):
        said.append(ngettext("%(n)s had ended already.", "%(n)s had ended already.", n) % {"n": n})
    messages.success(request, " ".join(said))
    return redirect(_list_address(filters))
