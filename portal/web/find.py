"""Find anything by a few letters: pages, systems, tasks. The palette asks it; so does a plain page."""

from dataclasses import dataclass

from django.http import HttpResponse
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_safe

from orchestrator import selectors
from portal.web.guard import SignedInRequest, signed_in
from portal.web.navigation import places
from portal.web.paging import page_of
from portal.web.presenters.shared import SystemRef, said
from portal.web.rendering import page
from portal.web.seen import system_refs

TASKS_SHOWN = 8
SYSTEMS_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Hit:
    """One thing found: where it is, its name, a word more, and how it is drawn."""

    url: str
    label: str
    hint: str = ""
    icon: str = ""
    ref: SystemRef | None = None
    """Set for a system: it is drawn in its colour."""


@dataclass(frozen=True, slots=True)
class Found:
    """Hits of one kind."""

    kind: str
    title: str | Promise
    hits: tuple[Hit, ...]


def find(request: SignedInRequest, words: str) -> tuple[Found, ...]:
    """Return what this user may open whose name has these letters; kinds without a hit are left out."""
    low = words.lower()
    refs = system_refs()
    pages = tuple(
        Hit(place.url, str(place.label), f"g {place.key}", place.icon)
        for place in places()
        if low in str(place.label).lower()
    )
    systems = tuple(
        Hit(reverse("web:system-show", args=[ref.slug]), ref.name, ref.slug, ref=ref)
        for ref in sorted(refs.values(), key=lambda ref: ref.name.lower())
        if low in ref.name.lower() or low in ref.slug
    )[:SYSTEMS_SHOWN]
    groups = (
        Found("tasks", _("Tasks"), _tasks(request, words)),
        Found("systems", _("Systems"), systems),
        Found("pages", _("Pages"), pages),
    )
    return tuple(found for found in (groups if words else reversed(groups)) if found.hits)


def _tasks(request: SignedInRequest, words: str) -> tuple[Hit, ...]:
    rows = selectors.tasks(request.user)
    if words:
        rows = selectors.with_words(rows, request.user, words)
    return tuple(
        Hit(
            reverse("web:task-show", args=[task.handle]),
            task.name,
            str(said(task.state, "task").word),
            said(task.state, "task").icon,
        )
        for task in page_of(rows, cursor="", size=TASKS_SHOWN)[0]
    )


@require_safe
@signed_in
def find_show(request: SignedInRequest) -> HttpResponse:
    """The page, or with `?part=options` what the palette lists."""
    words = request.GET.get("q", "").strip()[:80]
    context = {"here": "find", "words": words, "found": find(request, words)}
    return page(request, "find.html", context, parts=("options",))
