"""What was seen, what happened and what was charged: to be read, never changed."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from federation.admin.readonly import ReadOnlyAdmin, state_label
from federation.admin.scope import system_filter
from federation.event_types import EVENT_TYPES
from federation.managers import Managed
from federation.models import Charge, Event, Snapshot


class EventType(admin.SimpleListFilter):
    """Filter by the catalogue, so that no query has to look for the types in use."""

    title = "type"
    parameter_name = "type"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return every type."""
        return [(name, name) for name in EVENT_TYPES]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Event]) -> QuerySet[Event]:
        """Return the events of the chosen type."""
        return queryset.filter(type=self.value()) if self.value() in EVENT_TYPES else queryset


@admin.register(Event)
class EventAdmin(ReadOnlyAdmin):
    """The event log, newest first, each with its place in commit order."""

    system_path = "system"
    list_display = ("place", "at", "type", "subject", "summary", "actor")
    list_display_links = ("place", "type")
    list_select_related = ("position",)
    list_filter = (EventType, "wake")
    search_fields = ("=handle", "=subject", "=task", "=attempt")
    json_fields = ("data", "next_actions")
    shown = (
        "handle", "place", "type", "wake", "subject", "user", "system", "task", "group", "attempt",
        "transfer", "actor", "on_behalf_of", "at", "state", "summary", "data", "next_actions",
    )  # fmt: skip

    def of_manager(self, found: QuerySet[Event], scope: Managed) -> QuerySet[Event]:
        """Return what happened to a site manager's systems; what happened to people's work is theirs."""
        return found.filter(system__in=scope.slugs, user__isnull=True)

    @admin.display(description="no.")
    def place(self, event: Event) -> str:
        """Return its place in commit order."""
        return str(event.position.seq) if hasattr(event, "position") else "–"


@admin.register(Snapshot)
class SnapshotAdmin(ReadOnlyAdmin):
    """What each probe of a system brought."""

    system_path = "system"
    list_display = (
        "handle",
        "system",
        "taken_at",
        state_label("availability"),
        "is_full",
        "seconds",
        "error",
    )
    list_select_related = ("system", "connection")
    list_filter = (system_filter(), "availability", "is_full")
    search_fields = ("=handle",)
    json_fields = ("counts",)
    shown = (
        "handle", "system", "connection", "taken_at", "duration_s", "availability", "is_full", "scheduler",
        "digest", "counts", "error",
    )  # fmt: skip

    @admin.display(description="seconds", ordering="duration_s")
    def seconds(self, snapshot: Snapshot) -> str:
        """Return how long the site took."""
        return f"{snapshot.duration_s:.2f}"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Snapshot]:
        """Return the rows without their compressed bodies."""
        found: QuerySet[Snapshot] = super().get_queryset(request)
        return found.defer("body")


@admin.register(Charge)
class ChargeAdmin(ReadOnlyAdmin):
    """The ledger of allocations; an attempt's own page corrects what it cost."""

    system_path = "allocation__system"
    list_display = ("handle", "allocation", "attempt_handle", state_label("kind"), "amount", "unit", "at")
    list_select_related = ("allocation__user", "allocation__system")
    list_filter = ("kind", system_filter("allocation__system"))
    search_fields = ("=handle", "=attempt_handle", "=allocation__handle")
    shown = ("handle", "allocation", "attempt_handle", "kind", "amount", "unit", "note", "at")

    @admin.display(description="unit")
    def unit(self, charge: Charge) -> str:
        """Return the site's own unit."""
        return charge.allocation.unit
