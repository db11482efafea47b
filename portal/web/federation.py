"""The federation at a glance, and one system in full."""

from django.http import Http404, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from orchestrator import selectors
from portal.web.guard import SignedInRequest, signed_in
from portal.web.presenters.one_system import system_page
from portal.web.presenters.records import federation_page
from portal.web.rendering import page
from portal.web.seen import queue_of, seen
from portal.web.task_list import ACTIVE
from portal.web.waits import expected_waits


@require_safe
@signed_in
def federation_show(request: SignedInRequest) -> HttpResponse:
    """Every system this user may see, with its free devices, queue and partitions."""
    now = timezone.now()
    shown = seen(request.user, now=now)
    waits = expected_waits(request.user, now=now)
    active = selectors.tasks(request.user).filter(state__in=ACTIVE).count()
    context = {
        "here": "federation",
        "page": federation_page(shown.systems, shown.records, waits, active_tasks=active),
    }
    return page(request, "federation/overview.html", context, parts=("live",))


@require_safe
@signed_in
def system_show(request: SignedInRequest, slug: str) -> HttpResponse:
    """One system: nodes, partitions, queue, limits, maintenance."""
    now = timezone.now()
    shown = seen(request.user, now=now)
    system = next((s for s in shown.systems if s.slug == slug), None)
    if system is None:
        raise Http404
    ours = (
        selectors.attempts(request.user)
        .filter(system__slug=slug, finished_at__isnull=True)
        .exclude(job_id="")
        .values_list("job_id", "task__handle")
    )
    found = system_page(
        system,
        [record for record in shown.records if record.system == slug],
        shown.refs[slug],
        expected_waits(request.user, now=now),
        jobs=queue_of(slug),
        ours=dict(ours),
        calibration=selectors.calibration(request.user),
    )
    return page(request, "federation/system.html", {"here": "federation", "page": found}, parts=("live",))
