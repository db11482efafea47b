"""One system's page: its profile as YAML, reviewed before it is stored; probe, disable, downtime."""

from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Model
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import URLPattern, path
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST

from federation.admin import pages
from federation.admin.access import actor_of
from federation.admin.profile_forms import ProfileForm, WindowForm, fingerprint
from federation.admin.readonly import state_label
from federation.admin.site_pages import SitePages, probed, why_not_probed
from federation.models import System
from federation.profile_edit import with_maintenance
from federation.services import roll_back, store_profile

_START = "system: \nname: \ncentre: \narchitecture: x86_64\n\nnode_types: {}\n\npartitions:\n  \n"


@admin.register(System)
class SystemAdmin(SitePages):
    """Systems. A profile is never edited in place: every stored text is a new revision."""

    list_display = (
        "slug",
        "name",
        "centre",
        state_label("health"),
        "revision",
        "last_probe_at",
        "is_enabled",
    )
    list_select_related = ("profile",)
    list_filter = ("health", "is_enabled")
    search_fields = ("slug", "name", "centre")
    actions = None

    @admin.display(description="revision")
    def revision(self, system: System) -> str:
        """Return the number of the revision in force."""
        return str(system.profile.revision) if system.profile else "none"

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Refuse: history refers to it. Disable it instead."""
        return False

    def get_urls(self) -> list[URLPattern]:
        """Add the pages of one system."""
        views = (
            ("probe/", require_POST(self.probe_view), "probe"),
            ("probe/<str:handle>/", require_GET(self.probed_view), "probed"),
            ("history/", require_GET(self.revisions_view), "revisions"),
            ("history/<int:number>/", require_GET(self.revision_view), "revision"),
            ("history/<int:number>/roll-back/", self.roll_back_view, "roll_back"),
            ("profile.yaml", require_GET(self.export_view), "export"),
            ("maintenance/", self.maintenance_view, "maintenance"),
            ("disable/", self.disable_view, "disable"),
            ("enable/", require_POST(self.enable_view), "enable"),
            ("managers/", self.managers_view, "managers"),
        )
        own = [
            path(f"<int:pk>/{end}", self.admin_site.admin_view(view), name=f"federation_system_{name}")
            for end, view, name in views
        ]
        return [*own, *super().get_urls()]

    # --- the profile -------------------------------------------------------------------------------

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Take a first profile, which makes the system."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        return self._edit(request, None)

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show a system and take a new text for its profile."""
        return self._edit(request, self.system_of(request, object_id, to_change=request.method == "POST"))

    def _edit(self, request: HttpRequest, system: System | None) -> HttpResponse:
        if request.method != "POST":
            text = (system.profile.text if system and system.profile else "") or _START
            return self._editor(request, system, ProfileForm(system=system, initial=_filled(system, text)))
        form = ProfileForm(request.POST, request.FILES, system=system)
        if not form.is_valid() or form.document is None:
            return self._editor(request, system, form)
        if "_store" in request.POST and form.was_reviewed:
            return self._store(request, form)
        return self._review(request, system, form)

    def _tried(self, request: HttpRequest, system: System, form: ProfileForm) -> pages.DryRun | None:
        """Hold a text against the site as it is now; where the site cannot be asked, say why."""
        snapshot = probed(system)
        if snapshot is None or form.document is None:
            messages.warning(request, why_not_probed(system))
            return None
        return pages.dry_run(self.system_of(request, system.pk), form.document, snapshot)

    def _review(self, request: HttpRequest, system: System | None, form: ProfileForm) -> HttpResponse:
        """Show what a valid text would change, ready to be stored."""
        text, note = form.cleaned_data["text"], form.cleaned_data["note"]
        lines = pages.changed(system, text) if system else pages.changed(System(), text)
        reviewed = ProfileForm(
            system=system,
            initial={**_filled(system, text), "note": note, "reviewed": fingerprint(text)},
        )
        if "_store" in request.POST:
            messages.warning(
                request, "Not stored yet: this difference was not shown before. Look, then store."
            )
        tried = self._tried(request, system, form) if system and "_dry_run" in request.POST else None
        return self._editor(request, system, reviewed, lines=lines, is_reviewed=True, tried=tried)

    def _store(self, request: HttpRequest, form: ProfileForm) -> HttpResponse:
        assert form.document is not None  # noqa: S101  # the caller asked
        profile = store_profile(
            form.document,
            form.cleaned_data["text"],
            now=timezone.now(),
            user=request.user,  # type: ignore[arg-type]  # admin_view lets no stranger in
            note=form.cleaned_data["note"],
            actor=actor_of(request),
        )
        self.log_change(request, profile.system, f"Profile revision {profile.revision}")
        messages.success(request, f"{profile.system.name}: revision {profile.revision} is in force.")
        return self.to_page_of(profile.system)

    def _editor(
        self,
        request: HttpRequest,
        system: System | None,
        form: ProfileForm,
        *,
        lines: Any = (),
        is_reviewed: bool = False,
        tried: pages.DryRun | None = None,
    ) -> HttpResponse:
        may_change = self.has_change_permission(request, system) if system else True
        context = {
            "form": form,
            "faults": form.faults if form.is_bound else (),
            "lines": lines,
            "is_reviewed": is_reviewed,
            "tried": tried,
            "may_change": may_change,
            "next_revision": (len(pages.history(system)) if system else 0) + 1,
            "windows": [w for w in pages.windows(system, now=timezone.now()) if not w[2]] if system else (),
        }
        return self.draw(request, "page", system, context)

    # --- revisions ---------------------------------------------------------------------------------

    def revisions_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """List every revision."""
        system = self.system_of(request, pk)
        return self.draw(request, "history", system, {"revisions": pages.history(system)})

    def revision_view(self, request: HttpRequest, pk: int, number: int) -> HttpResponse:
        """Show one revision, against the one before it and against the one in force."""
        system = self.system_of(request, pk)
        row = self.revision_of(system, number)
        before = system.revisions.filter(revision__lt=number).order_by("-revision").first()
        context = {
            "revision": row,
            "against_before": pages.between(before, row),
            "against_force": pages.between(row, system.profile) if system.profile else (),
            "in_force": row.pk == system.profile_id,
        }
        return self.draw(request, "revision", system, context)

    def roll_back_view(self, request: HttpRequest, pk: int, number: int) -> HttpResponse:
        """Ask, showing what would change; then put the revision in force."""
        system = self.system_of(request, pk, to_change=True)
        row = self.revision_of(system, number)
        if request.method == "POST":
            roll_back(system, number, now=timezone.now(), actor=actor_of(request))
            self.log_change(request, system, f"Rolled back to profile revision {number}")
            messages.success(request, f"{system.name}: revision {number} is in force again.")
            return self.to_page_of(system)
        context = {"revision": row, "lines": pages.between(system.profile, row)}
        return self.draw(request, "roll_back", system, context)

    def export_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Give the YAML in force as a file."""
        system = self.system_of(request, pk)
        if system.profile is None:
            raise Http404
        response = HttpResponse(system.profile.text, content_type="application/yaml; charset=utf-8")
        response["Content-Disposition"] = f'attachment; filename="{system.slug}.yaml"'
        return response

    # --- downtime ----------------------------------------------------------------------------------

    def maintenance_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """List announced downtime; adding or removing one leads to the review of the changed profile."""
        system = self.system_of(request, pk, to_change=request.method == "POST")
        profile = pages.profile_of(system)
        if profile is None or system.profile is None:
            raise Http404
        is_adding = request.method == "POST" and "remove" not in request.POST
        form = WindowForm(request.POST if is_adding else None, profile=profile)
        if request.method == "POST":
            kept = list(profile.maintenance)
            place = request.POST.get("remove", "")
            if place.isdecimal() and int(place) < len(kept):
                gone = kept.pop(int(place))
                return self._review_windows(
                    request, system, kept, f"no downtime at {gone.start_at:%Y-%m-%d %H:%M}"
                )
            if is_adding and form.is_valid() and form.window:
                kept.append(form.window)
                note = f"downtime at {form.window.start_at:%Y-%m-%d %H:%M}: {form.window.reason}"
                return self._review_windows(request, system, kept, note)
        context = {
            "form": form,
            "windows": pages.windows(system, now=timezone.now()),
            "may_change": self.has_change_permission(request, system),
        }
        return self.draw(request, "maintenance", system, context)

    def _review_windows(self, request: HttpRequest, system: System, kept: Any, note: str) -> HttpResponse:
        assert system.profile is not None  # noqa: S101  # the caller asked
        text = with_maintenance(system.profile.text, kept)
        form = ProfileForm({"text": text, "note": note[:200].rstrip(": ")}, system=system)
        if not form.is_valid() or form.document is None:
            return self._editor(request, system, form)
        return self._review(request, system, form)


def _filled(system: System | None, text: str) -> dict[str, Any]:
    revision = system.profile.revision if system and system.profile else None
    return {"text": text, "base": revision}
