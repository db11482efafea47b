"""Who may reach which system, and what they may spend there."""

import json
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.auth.models import User
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from unfold.decorators import action
from unfold.widgets import UnfoldAdminTextareaWidget

from federation import collector
from federation.admin.readonly import as_json, state_label
from federation.admin.scope import ScopedAdmin, managed, system_filter
from federation.connection_settings import checked
from federation.models import Allocation, Connection
from federation.services import allocate, connect, set_connection_state
from providers.errors import FacetError, InvalidInput


def actor_of(request: HttpRequest) -> str:
    """Return who acts, in the words of the event log."""
    return f"user:{request.user.get_username()}"


class IndentedJSON(forms.JSONField):
    """JSON that is shown as a person would write it."""

    def prepare_value(self, value: Any) -> Any:  # Django's signature
        """Indent what is stored; keep what was typed."""
        typed = not isinstance(value, dict)
        return super().prepare_value(value) if typed else json.dumps(value, indent=2, ensure_ascii=False)


class ConnectionForm(forms.ModelForm):  # type: ignore[type-arg]  # django-stubs wants the model twice
    """A connection, its settings as JSON that its kind of link understands."""

    settings = IndentedJSON(
        required=False,
        widget=UnfoldAdminTextareaWidget(attrs={"class": "facet-code", "rows": 12, "spellcheck": "false"}),
        help_text='A JSON object. This host: {"run_as": "alice"} or {"become": {…}}, and "env". '
        'Globus Compute: {"endpoint_id": "…"}. Never a secret.',
    )

    class Meta:
        model = Connection
        fields = ("user", "system", "kind", "remote_user", "settings")

    def clean(self) -> dict[str, Any]:
        """Hold the settings against the kind."""
        given = super().clean() or {}
        if "settings" in given and "kind" in given:
            try:
                given["settings"] = checked(given["kind"], given["settings"] or {})
            except InvalidInput as error:
                said = [f"{where or 'settings'}: {message}" for where, _, message in error.problems]
                self.add_error("settings", said or [error.message])
        return given


@admin.register(Connection)
class ConnectionAdmin(ScopedAdmin):
    """One user's way into one system.

    A site manager may look, switch one off and on and ask the site; how the system is reached, and as whom,
    is for administrators: a connection on this host names the account that its commands run as.
    """

    system_path = "system"

    form = ConnectionForm
    list_display = ("handle", "user", "system", "kind", "remote_user", state_label(), "last_success_at")
    list_select_related = ("user", "system")
    list_filter = (system_filter(), "kind", "state")
    search_fields = ("=handle", "user__username", "remote_user")
    autocomplete_fields = ("user", "system")
    actions = ("disable_connections", "enable_connections", "ask_the_site")
    fields = ("user", "system", "kind", "remote_user", "settings")
    seen = ("handle", "state", "state_reason", as_json("facts"), "facts_at", "last_success_at", "created_at")

    def get_fields(self, request: HttpRequest, obj: Model | None = None) -> list[Any]:
        """Return what may be written, and below it what was seen."""
        return [*self.fields, *(self.seen if obj else ())]

    def get_readonly_fields(self, request: HttpRequest, obj: Model | None = None) -> list[Any]:
        """Keep user and system of an existing connection."""
        return ["user", "system", *self.seen] if obj else []

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Refuse: attempts refer to it. Disable it instead."""
        return False

    def has_look_after_permission(self, request: HttpRequest) -> bool:
        """Say whether connections may be switched off, on, and asked: of theirs, by a site manager too."""
        return managed(request) is not None or self.has_change_permission(request)

    def save_model(self, request: HttpRequest, obj: Connection, form: ConnectionForm, change: bool) -> None:  # noqa: FBT001  # Django's signature
        """Store through the verb."""
        kept = connect(
            obj.user,
            obj.system,
            kind=obj.kind,
            settings=form.cleaned_data["settings"],
            remote_user=obj.remote_user,
            now=timezone.now(),
        )
        obj.pk = kept.pk

    @action(description="Disable the chosen connections", permissions=["look_after"])  # type: ignore[untyped-decorator]
    def disable_connections(self, request: HttpRequest, queryset: QuerySet[Connection]) -> None:
        """Keep new work away from them."""
        for connection in queryset:
            set_connection_state(connection, "disabled", reason=f"by {actor_of(request)}")
        self.message_user(request, f"{len(queryset)} disabled.")

    @action(description="Enable the chosen connections", permissions=["look_after"])  # type: ignore[untyped-decorator]
    def enable_connections(self, request: HttpRequest, queryset: QuerySet[Connection]) -> None:
        """Use them again."""
        for connection in queryset:
            set_connection_state(connection, "active", reason="")
        self.message_user(request, f"{len(queryset)} enabled.")

    @action(description="Ask the site what these users may use", permissions=["look_after"])  # type: ignore[untyped-decorator]
    def ask_the_site(self, request: HttpRequest, queryset: QuerySet[Connection]) -> None:
        """Refresh accounts, QoS and home of each; one site's silence is told and keeps none of the others."""
        for connection in queryset.select_related("user", "system"):
            try:
                answered = collector.refresh_access(connection.pk, now=timezone.now())
            except FacetError as error:
                self.message_user(request, f"{connection}: {error.message}", messages.ERROR)
                continue
            level = messages.SUCCESS if answered else messages.WARNING
            self.message_user(request, f"{connection}: {'answered' if answered else 'no answer'}.", level)


@admin.register(Allocation)
class AllocationAdmin(ScopedAdmin):
    """What one user may spend through Facet on one account; the ledger moves the rest."""

    system_path = "system"
    manager_may = frozenset({"view", "add", "change"})

    list_display = ("handle", "user", "system", "account", "granted", "reserved", "used", "left", "unit")
    list_select_related = ("user", "system")
    list_filter = (system_filter(),)
    search_fields = ("=handle", "user__username", "account")
    autocomplete_fields = ("user", "system")
    fields = ("user", "system", "account", "unit", "granted")
    seen = ("handle", "reserved", "used", "left", "created_at")

    @admin.display(description="left")
    def left(self, allocation: Allocation) -> str:
        """Return what may still be spent."""
        if allocation.granted is None:
            return "not limited"
        return f"{allocation.granted - allocation.used - allocation.reserved:f}"

    def get_fields(self, request: HttpRequest, obj: Model | None = None) -> list[Any]:
        """Return what may be written, and below it what the ledger says."""
        return [*self.fields, *(self.seen if obj else ())]

    def get_readonly_fields(self, request: HttpRequest, obj: Model | None = None) -> list[Any]:
        """Keep whose allocation it is."""
        return ["user", "system", "account", *self.seen] if obj else []

    def get_autocomplete_fields(self, request: HttpRequest) -> tuple[str, ...]:
        """Look people up for administrators only: a site manager chooses among those who have a way in."""
        return self.autocomplete_fields if managed(request) is None else ()

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        """Take nobody from a site manager who has no way into their systems."""
        scope = managed(request)
        if scope is not None and db_field.name == "user":
            kwargs["queryset"] = User.objects.filter(connections__system__in=scope.ids).distinct()
        return super().formfield_for_foreignkey(db_field, request, **kwargs)

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Refuse: the ledger refers to it. Grant nothing instead."""
        return False

    def save_model(self, request: HttpRequest, obj: Allocation, form: Any, change: bool) -> None:  # noqa: FBT001  # Django's signature
        """Store through the verb."""
        kept = allocate(
            obj.user, obj.system, obj.account, unit=obj.unit, granted=obj.granted, now=timezone.now()
        )
        obj.pk = kept.pk
