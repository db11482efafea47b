"""The federation at a glance, and one system in full."""

from datetime import datetime

from django.http import Http404, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from federation import selectors as federation
from federation.types import ResourceRecord
from orchestrator import selectors
from orchestrator.outcome_selectors import run_calibration
from portal.web.guard import SignedInRequest, signed_in
from portal.web.presenters.events import event_rows
from portal.web.presenters.history import POINTS, HistoryView, history_view, hours_of
from portal.web.presenters.one_system import devices, system_page
from portal.web.presenters.records import federation_page
from portal.web.presenters.shared import SystemRef
from portal.web.presenters.work import MOST, WorkView, is_recent, work_view
from portal.web.rendering import page
from portal.web.seen import queue_of, seen
from portal.web.task_list import ACTIVE
from portal.web.waits import expected_waits

EVENTS_SHOWN = 14
PROBES_SHOWN = 6


@require_safe
@signed_in
def federation_show(request: SignedInRequest) -> HttpResponse:
    """Every system this user may see, with its free devices, queue and partitions."""
    now = timezone.now()
    shown = seen(request.user, now=now)
    waits = expected_waits(request.user, now=now)
    active = selectors.tasks(request.user).filter(state__in=ACTIVE).count()
    events = selectors.events(request.user).order_by("-position__seq")[:EVENTS_SHOWN]
    context = {
        "here": "federation",
        "page": federation_page(
            shown.systems,
            shown.records,
            waits,
            active_tasks=active,
            work=_work(request, shown.refs, now=now),
            events=event_rows(events, shown.refs),
        ),
    }
    return page(request, "federation/overview.html", context, parts=("live",))


def _work(request: SignedInRequest, refs: dict[str, SystemRef], *, now: datetime) -> WorkView | None:
    newest = selectors.tasks(request.user)[:MOST]
    tasks = [task for task in newest if is_recent(task, now=now)]
    attempts = selectors.attempts(request.user).filter(task__in=[task.pk for task in tasks])
    return work_view(tasks, attempts if tasks else (), refs, now=now)


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
    records = [record for record in shown.records if record.system == slug]
    probes = federation.snapshots(request.user).filter(system__slug=slug)[:PROBES_SHOWN]
    found = system_page(
        system,
        records,
        shown.refs[slug],
        expected_waits(request.user, now=now, system=slug),
        jobs=queue_of(slug),
        ours=dict(ours),
        calibration=selectors.calibration(request.user),
        runs=run_calibration(request.user),
        history=_history(request, slug, records, now=now),
        probes=[federation.show_snapshot(row) for row in probes],
        whole_queue="queue" in request.GET,
    )
    return page(request, "federation/system.html", {"here": "federation", "page": found}, parts=("live",))


def _history(
    request: SignedInRequest, slug: str, records: list[ResourceRecord], *, now: datetime
) -> HistoryView | None:
    word = request.GET.get("hours", "")
    known_since = None if word else federation.known_since(request.user, slug)
    hours = hours_of(word, known_for=now - known_since if known_since else None)
    found = federation.history([slug], hours=hours, points=POINTS, now=now)
    gpus, cpus = devices(records)
    return history_view(found, request.GET.get("partition", ""), gpus, cpus, hours=hours, now=now)
