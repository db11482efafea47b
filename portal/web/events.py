"""The event log as the caller may see it, newest first."""

from urllib.parse import urlencode

from django.http import HttpResponse
from django.views.decorators.http import require_safe

from federation.event_types import EVENT_TYPES
from orchestrator import selectors
from portal.web.guard import SignedInRequest, signed_in
from portal.web.presenters.events import event_rows
from portal.web.presenters.shared import Page
from portal.web.presenters.tasks import EventListPage
from portal.web.rendering import page
from portal.web.seen import system_refs

PAGE_SIZE = 60


@require_safe
@signed_in
def event_list(request: SignedInRequest) -> HttpResponse:
    """Every event of the caller's tasks and of the systems they may use."""
    kind = request.GET.get("type", "")
    before = request.GET.get("cursor", "")
    rows = selectors.events(request.user).order_by("-position__seq")
    if kind in EVENT_TYPES:
        rows = rows.filter(type=kind)
    if before.isdigit():
        rows = rows.filter(position__seq__lt=int(before))
    found = list(rows[: PAGE_SIZE + 1])
    query = {"type": kind} if kind in EVENT_TYPES else {}
    further = {**query, "cursor": str(found[PAGE_SIZE - 1].position.seq)} if len(found) > PAGE_SIZE else None
    shown = EventListPage(
        page=Page(
            event_rows(found[:PAGE_SIZE], system_refs()),
            next_query=urlencode(further) if further else None,
            first_query=urlencode(query) if before else None,
        ),
        type=kind,
        types=tuple(EVENT_TYPES),
    )
    return page(request, "events/list.html", {"here": "events", "page": shown}, parts=("rows",))
