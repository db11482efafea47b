"""The list of groups, one group, and cancelling it."""

from django.contrib import messages
from django.db.models import Q
from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST, require_safe

from orchestrator import selectors
from orchestrator.lifecycle import GroupState
from orchestrator.services import groups as verbs
from portal.web.guard import SignedInRequest, signed_in
from portal.web.paging import page_of, query_of
from portal.web.presenters.events import event_rows
from portal.web.presenters.from_group import GroupRows, group_page, group_row
from portal.web.presenters.groups import GroupListPage
from portal.web.presenters.shared import Page
from portal.web.rendering import page
from portal.web.seen import system_refs
from providers.errors import NotFound

PAGE_SIZE = 20
STORY_LENGTH = 200
TOLD = ("task.replaced", "task.replanned", "task.retrying", "task.unschedulable", "task.attention")
"""What the story of a group tells of its children; all of the group's own events are told."""


@require_safe
@signed_in
def group_list(request: SignedInRequest) -> HttpResponse:
    """The caller's groups, newest first; filtered by words and state."""
    q, state, cursor = (
        request.GET.get(name, "").replace("\0", "").strip() for name in ("q", "state", "cursor")
    )
    mine = selectors.groups(request.user)
    rows = mine.filter(state=state) if state else mine
    if q:
        rows = rows.filter(Q(name__icontains=q) | Q(objective__icontains=q) | Q(handle__startswith=q))
    found, following = page_of(rows, cursor=cursor, size=PAGE_SIZE, mine=mine)
    refs, words = system_refs(), {"q": q, "state": state}
    shown = GroupListPage(
        page=Page(
            tuple(group_row(group, selectors.children(group), refs) for group in found),
            next_query=query_of(words, cursor=following) if following else None,
            first_query=query_of(words) if cursor else None,
        ),
        q=q,
        state=state,
        states=tuple(each.value for each in GroupState),
        any_groups=bool(found) or mine.prefetch_related(None).exists(),
    )
    return page(request, "groups/list.html", {"here": "groups", "page": shown}, parts=("rows",))


@require_safe
@signed_in
def group_show(request: SignedInRequest, handle: str) -> HttpResponse:
    """One group: rounds, children on a time axis, what each site says, results, and how it came about."""
    rows = group_rows(request, handle)
    refs, handles = system_refs(), [task.handle for task in rows.tasks]
    story = selectors.events(request.user).filter(
        Q(group=handle, type__startswith="group.")
        | Q(task__in=handles, type__in=TOLD)
        | Q(task__in=handles, type="attempt.moved", data__has_key="other")
    )
    shown = group_page(
        rows,
        refs,
        story=event_rows(story.order_by("position__seq")[:STORY_LENGTH], refs),
        now=timezone.now(),
    )
    return page(request, "groups/detail.html", {"here": "groups", "page": shown}, parts=("live",))


def group_rows(request: SignedInRequest, handle: str) -> GroupRows:
    """Return the rows of one group of the caller.

    Raises:
        NotFound: no such group for this user.
    """
    group = selectors.groups(request.user).prefetch_related(None).filter(handle=handle).first()
    if group is None:
        raise NotFound(f"No group {handle!r}.", pointer="/group")
    return GroupRows(
        group=group,
        tasks=list(selectors.tasks(request.user).filter(group=group).order_by("pk")),
        attempts=list(selectors.attempts(request.user).filter(task__group=group).order_by("number")),
    )


@require_POST
@signed_in
def group_cancel(request: SignedInRequest, handle: str) -> HttpResponse:
    """Cancel every child; the group ends when every site has confirmed."""
    actor = f"user:{request.user.get_username()}"
    group = verbs.cancel_group(request.user, handle, actor=actor, now=timezone.now())
    if group.state == GroupState.RUNNING:
        messages.info(request, _("Cancelling: the group ends when every site has confirmed."))
    return redirect("web:group-show", handle=handle)
