"""The federation at a glance, and one system in full."""

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from portal.web.presenters.one_system import system_page
from portal.web.presenters.records import federation_page
from portal.web.rendering import page
from portal.web.seen import queue_of, seen
from portal.web.waits import expected_waits


@require_safe
@login_required
def federation_show(request: HttpRequest) -> HttpResponse:
    """Every system this user may see, with its free devices, queue and partitions."""
    now = timezone.now()
    shown = seen(request.user, now=now)
    waits = expected_waits(request.user, now=now)
    context = {
        "here": "federation",
        "page": federation_page(shown.systems, shown.records, waits, active_tasks=0),
    }
    return page(request, "federation/overview.html", context, parts=("live",))


@require_safe
@login_required
def system_show(request: HttpRequest, slug: str) -> HttpResponse:
    """One system: nodes, partitions, queue, limits, maintenance."""
    now = timezone.now()
    shown = seen(request.user, now=now)
    system = next((s for s in shown.systems if s.slug == slug), None)
    if system is None:
        raise Http404
    found = system_page(
        system,
        [record for record in shown.records if record.system == slug],
        shown.refs[slug],
        expected_waits(request.user, now=now),
        jobs=queue_of(slug),
        ours={},
    )
    return page(request, "federation/system.html", {"here": "federation", "page": found}, parts=("live",))
