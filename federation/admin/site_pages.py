"""The pages that act on one system: probe, disable and enable it, and choose who looks after it."""

from time import sleep

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone

from federation import collector
from federation.admin import pages
from federation.admin.access import actor_of
from federation.admin.one_system import OneSystem
from federation.admin.profile_forms import DisableForm, ManagerForm
from federation.managers import appoint, dismiss
from federation.models import Snapshot, System
from federation.services import set_enabled

_TURNS, _TURN_S = 20, 0.25


class SitePages(OneSystem):
    """Each page parses, calls one verb and shows what came of it."""

    def probe_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Ask the site now, within the profile's own deadline, and show what came back."""
        system = self.system_of(request, pk, to_change=True)
        snapshot = probed(system)
        if snapshot is None:
            messages.warning(request, why_not_probed(system))
            return self.to_page_of(system)
        return HttpResponseRedirect(reverse("admin:federation_system_probed", args=(pk, snapshot.handle)))

    def probed_view(self, request: HttpRequest, pk: int, handle: str) -> HttpResponse:
        """Show one probe beside the profile in force."""
        system = self.system_of(request, pk)
        snapshot = system.snapshots.filter(handle=handle).first()
        if snapshot is None:
            raise Http404
        return self.draw(request, "probe", system, {"probe": pages.probe_shown(system, snapshot)})

    def disable_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Ask why; then keep new work away."""
        system = self.system_of(request, pk, to_change=True)
        form = DisableForm(request.POST or None)
        if request.method == "POST" and form.is_valid():
            reason = form.cleaned_data["reason"]
            set_enabled(system, enabled=False, reason=reason, now=timezone.now(), actor=actor_of(request))
            self.log_change(request, system, f"Disabled: {reason}")
            messages.success(request, f"{system.name} takes no new work.")
            return self.to_page_of(system)
        return self.draw(request, "disable", system, {"form": form})

    def enable_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Take new work again, and have the site probed."""
        system = self.system_of(request, pk, to_change=True)
        set_enabled(system, enabled=True, reason="", now=timezone.now(), actor=actor_of(request))
        self.log_change(request, system, "Enabled")
        messages.success(request, f"{system.name} takes work again, after the next good probe.")
        return self.to_page_of(system)

    def managers_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """List who looks after the system; appoint and dismiss, where this person may."""
        system = self.system_of(request, pk)
        may = self.may_appoint(request, system)
        form = ManagerForm(request.POST if request.method == "POST" else None, system=system)
        if request.method == "POST":
            if not may:
                raise Http404
            if form.is_valid() and form.person is not None:
                verb = dismiss if form.is_dismissal else appoint
                verb(system, form.person, now=timezone.now(), actor=actor_of(request))
                said = "no longer looks after" if form.is_dismissal else "looks after"
                self.log_change(request, system, f"{form.person} {said} it")
                messages.success(request, f"{form.person} {said} {system.name}.")
                return HttpResponseRedirect(request.path)
        rows = list(system.managers.select_related("user"))
        return self.draw(request, "managers", system, {"form": form, "managers": rows, "may_change": may})


def probed(system: System) -> Snapshot | None:
    """Probe in full; where a worker is at it just now, wait for it a little and take the next turn."""
    for _ in range(_TURNS):
        snapshot = collector.refresh(system.pk, now=timezone.now(), force_full=True)
        if snapshot is not None or _cannot_be_probed(system):
            return snapshot
        sleep(_TURN_S)
    return None


def why_not_probed(system: System) -> str:
    """Return why no probe came about, and what to do."""
    busy = f"{system.name} is being probed at this moment; try again in a few seconds."
    return _cannot_be_probed(system) or busy


def _cannot_be_probed(system: System) -> str:
    """Return why a probe would not even be tried; empty when it would."""
    if not system.is_enabled:
        return f"{system.name} is disabled; enable it first."
    if not system.connections.filter(state="active").exists():
        return f"Nobody has a working connection to {system.name}; add one under Connections."
    return ""
