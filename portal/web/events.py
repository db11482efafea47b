"""The event log as the caller may see it: filtered, one event in full, and its chain checked."""

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from django.core import signing
from django.db.models import Q
from django.http import HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from federation.chain import verify_stretch
from federation.event_types import EVENT_TYPES
from orchestrator import selectors
from portal.web.guard import SignedInRequest, signed_in
from portal.web.paging import query_of
from portal.web.presenters.event_log import EventFilters, EventListPage, EventPage, VerifyPage
from portal.web.presenters.events import event_rows
from portal.web.presenters.shared import Page
from portal.web.rendering import page
from portal.web.seen import system_refs
from providers.errors import NotFound

if TYPE_CHECKING:
    from django.db.models import QuerySet

    from federation.models import Event

PAGE_SIZE = 60
FAMILIES = tuple(dict.fromkeys(f"{kind.partition('.')[0]}.*" for kind in EVENT_TYPES))
WAKES = ("milestone", "exception")
_SALT = "facet.verify"


@require_safe
@signed_in
def event_list(request: SignedInRequest) -> HttpResponse:
    """Every event of the caller's tasks and of the systems they may use, newest first."""
    filters = filters_of(request.GET)
    before = request.GET.get("cursor", "")
    rows = filtered(selectors.events(request.user), filters).order_by("-position__seq")
    if re.fullmatch(r"[0-9]{1,18}", before):
        rows = rows.filter(position__seq__lt=int(before))
    found = list(rows[: PAGE_SIZE + 1])
    words = filters.as_query()
    further = str(found[PAGE_SIZE - 1].position.seq) if len(found) > PAGE_SIZE else None
    shown = EventListPage(
        page=Page(
            event_rows(found[:PAGE_SIZE], system_refs()),
            next_query=query_of(words, cursor=further) if further else None,
            first_query=query_of(words) if before else None,
        ),
        types=tuple(EVENT_TYPES),
        families=FAMILIES,
        filters=filters,
    )
    return page(request, "events/list.html", {"here": "events", "page": shown}, parts=("rows",))


def filters_of(given: Mapping[str, str]) -> EventFilters:
    """Return what a query string asks for; what we do not know is ignored."""
    kind, about, actor, wake = (
        given.get(name, "").replace("\0", "").strip()[:120] for name in ("type", "about", "actor", "wake")
    )
    return EventFilters(
        type=kind if kind in EVENT_TYPES or kind in FAMILIES else "",
        about=about,
        actor=actor,
        wake=wake if wake in WAKES else "",
    )


def filtered(rows: "QuerySet[Event]", filters: EventFilters) -> "QuerySet[Event]":
    """Return the events that were asked for."""
    if filters.type:
        rows = selectors.of_types(rows, [filters.type])
    if filters.wake:
        rows = rows.filter(wake=filters.wake)
    if filters.actor:
        rows = rows.filter(actor__icontains=filters.actor)
    if filters.about:
        wanted = Q(summary__icontains=filters.about)
        for column in ("subject", "task", "group", "attempt", "transfer", "system", "handle"):
            wanted |= Q(**{column: filters.about})
        rows = rows.filter(wanted)
    return rows


@require_safe
@signed_in
def event_show(request: SignedInRequest, handle: str) -> HttpResponse:
    """One event in full: who, for whom, what it says, and its place in the chain."""
    event = selectors.events(request.user).filter(handle=handle).first()
    if event is None:
        raise NotFound(f"No event {handle!r}.")
    said = selectors.show_event(event)
    shown = EventPage(
        row=event_rows([event], system_refs())[0],
        event=said,
        hash=bytes(event.position.hash).hex(),
        data=json.dumps(said.data, indent=2, ensure_ascii=False, sort_keys=True) if said.data else "",
        actions=tuple(
            (str(each.get("skill", "")), each.get("arguments") or {}, str(each.get("why", "")))
            for each in said.next_actions
        ),
    )
    return page(request, "events/detail.html", {"here": "events", "page": shown})


@require_safe
@signed_in
def event_verify(request: SignedInRequest) -> HttpResponse:
    """Check the hash chain a stretch at a time; what was found so far travels signed in the address."""
    so_far = _so_far(request.GET.get("go", ""))
    found = verify_stretch(so_far["after"])
    head = max(selectors.head_cursor(), found.upto)
    checked, broken = so_far["checked"] + found.checked, so_far["broken"] + len(found.breaks)
    onward = {"after": found.upto, "checked": checked, "broken": broken}
    shown = VerifyPage(
        after=found.after,
        upto=found.upto,
        head=head,
        checked=checked,
        broken=broken,
        breaks=tuple((each.seq, each.fault) for each in found.breaks[:50]),
        percent=round(100 * found.upto / head, 2) if head else 100,
        onward=None if found.is_last else signing.dumps(onward, salt=_SALT, compress=False),
        at=timezone.now(),
    )
    context = {"here": "events", "page": shown, "is_part": request.GET.get("part") == "stretch"}
    return page(request, "events/verify.html", context, parts=("stretch",))


def _so_far(signed: str) -> dict[str, int]:
    begin = {"after": 0, "checked": 0, "broken": 0}
    try:
        found = signing.loads(signed, salt=_SALT) if signed else begin
    except signing.BadSignature:
        return begin
    return {name: int(found[name]) for name in begin}
