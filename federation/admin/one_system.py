"""What every page of one system needs: the system itself, if this person may see it, and the frame around."""

from typing import Any

from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse

from federation.admin.scope import ScopedAdmin, managed
from federation.models import SiteProfile, System


class OneSystem(ScopedAdmin):
    """Finds the system of a page by its key, and draws the page."""

    system_path = "pk"
    manager_may = frozenset({"view", "change"})

    def get_queryset(self, request: HttpRequest) -> QuerySet[System]:
        """Return the systems this person may see."""
        return super().get_queryset(request).select_related("profile__created_by", "snapshot")

    def system_of(self, request: HttpRequest, pk: int | str, *, to_change: bool = False) -> System:
        """Return the system if this person may see it, or change it where that is asked.

        Raises:
            Http404: there is none, or not for this person.
            PermissionDenied: it may be seen and not changed.
        """
        system = self.get_queryset(request).filter(pk=pk).first() if str(pk).isdecimal() else None
        if system is None:
            raise Http404
        may = self.has_change_permission if to_change else self.has_view_permission
        if not may(request, system):
            raise PermissionDenied
        return system

    def may_appoint(self, request: HttpRequest, system: System) -> bool:
        """Say whether this person may choose who looks after the system: no site manager may."""
        return managed(request) is None and self.has_change_permission(request, system)

    @staticmethod
    def revision_of(system: System, number: int) -> SiteProfile:
        """Return one revision of its profile."""
        row = system.revisions.select_related("created_by").filter(revision=number).first()
        if row is None:
            raise Http404
        return row

    @staticmethod
    def to_page_of(system: System) -> HttpResponseRedirect:
        """Go back to the system's first page."""
        return HttpResponseRedirect(reverse("admin:federation_system_change", args=(system.pk,)))

    def draw(
        self, request: HttpRequest, template: str, system: System | None, context: dict[str, Any]
    ) -> HttpResponse:
        """Return a page in the frame of this system."""
        shared = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "system": system,
            "original": system,
            "title": system.name if system else "Add a system",
            "may_appoint": system is not None and self.may_appoint(request, system),
        }
        return TemplateResponse(request, f"admin/federation/system/{template}.html", {**shared, **context})
