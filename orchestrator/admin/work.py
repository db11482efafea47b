"""Tasks and their history in Django's admin: to be read, never changed."""

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from unfold.decorators import action
from unfold.widgets import UnfoldAdminDecimalFieldWidget, UnfoldAdminTextInputWidget

from federation.admin.access import actor_of
from federation.admin.readonly import ReadOnlyAdmin, state_label
from federation.admin.scope import managed, system_filter
from orchestrator.models import Attempt, Decision, Envelope, Group, Manifest, Task, Transfer
from orchestrator.services.corrections import correct_cost
from providers.errors import FacetError, InvalidInput


class CostForm(forms.Form):
    """What an attempt truly cost, and why its ledger says otherwise."""

    cost = forms.DecimalField(
        min_value=0, max_digits=17, decimal_places=4, widget=UnfoldAdminDecimalFieldWidget()
    )
    reason = forms.CharField(
        max_length=150,
        widget=UnfoldAdminTextInputWidget(),
        help_text="Kept in the ledgers with your name, and told to the owner of the task.",
    )


@admin.register(Task)
class TaskAdmin(ReadOnlyAdmin):
    """The user's units of work."""

    list_display = ("handle", "name", "user", state_label(), "cause", "created_at", "finished_at")
    list_select_related = ("user",)
    list_filter = ("state", "cause")
    search_fields = ("=handle", "=client_ref", "=user__username")
    json_fields = ("spec", "excluded_systems", "plan")
    shown = (
        "handle", "user", "actor", "name", "objective", "state", "cause", "reason", "envelope", "group",
        "attempt", "client_ref", "kind", "replacements", "excluded_systems", "plan", "not_before",
        "cancel_requested_at", "created_at", "updated_at", "finished_at", "due_at", "spec",
    )  # fmt: skip


@admin.register(Attempt)
class AttemptAdmin(ReadOnlyAdmin):
    """One try at one placement; a site manager sees what runs at their site, as its queue would show it."""

    system_path = "system"
    actions_detail = ("correct_the_cost",)
    list_display = (
        "handle",
        "task",
        "number",
        "system",
        "partition",
        state_label(),
        "cause",
        "job_id",
        "planned_at",
    )
    list_select_related = ("task", "system")
    list_filter = ("state", "cause", system_filter())
    search_fields = ("=handle", "=task__handle", "=job_id", "=submit_key")
    json_fields = ("shape", "predicted", "node_names")
    shown = (
        "handle", "task", "number", "decision", "connection", "system", "partition", "account", "qos",
        "submit_key", "job_id", "state", "cause", "state_raw", "reason_raw", "reason_explained",
        "observed_at", "unseen_since", "looks_without_trace", "workdir", "stdout_path", "stderr_path",
        "planned_at", "dispatch_started_at", "dispatch_deadline_at", "dispatches", "submitted_at",
        "eligible_at", "expected_start_at", "started_at", "ended_at", "exit_code", "exit_signal", "restarts",
        "cancel_requested_at", "cancel_sent_at", "cancel_reason", "finished_at", "due_at",
        "charge_held", "charge_cost", "shape", "predicted", "node_names",
    )  # fmt: skip

    def has_correct_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        """Ask for the right to write the ledger, though no line of it can be changed."""
        return managed(request) is None and request.user.has_perm("federation.add_charge")

    @action(description="Correct the cost", permissions=["correct"])  # type: ignore[untyped-decorator]
    def correct_the_cost(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Ask for the true cost and the reason; then write the difference."""
        if not self.has_correct_permission(request):
            raise PermissionDenied
        attempt = self.get_queryset(request).filter(pk=object_id).select_related("task", "system").first()
        if attempt is None:
            raise Http404
        back = HttpResponseRedirect(reverse("admin:orchestrator_attempt_change", args=(attempt.pk,)))
        form = CostForm(request.POST or None, initial={"cost": attempt.charge_cost})
        if request.method == "POST" and form.is_valid():
            try:
                correct_cost(attempt.handle, **form.cleaned_data, actor=actor_of(request), now=timezone.now())
            except InvalidInput as error:
                for where, _, message in error.problems:
                    form.add_error(where.removeprefix("/"), message)
            except FacetError as error:
                form.add_error(None, error.message)
            else:
                self.log_change(request, attempt, f"Cost corrected: {form.cleaned_data['reason']}")
                messages.success(request, f"{attempt} cost {form.cleaned_data['cost']}.")
                return back
        unit = attempt.predicted.get("charge", {}).get("unit")
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": f"Correct the cost of {attempt}",
            "attempt": attempt,
            "form": form,
            "unit": unit,
        }
        return TemplateResponse(request, "admin/orchestrator/attempt/correct.html", context)


@admin.register(Decision)
class DecisionAdmin(ReadOnlyAdmin):
    """Placement decisions with every candidate and every reason."""

    list_display = ("handle", "task", "purpose", "system", "partition", "created_at")
    list_select_related = ("task",)
    list_filter = ("purpose",)
    search_fields = ("=handle", "=task__handle", "=input_hash")
    json_fields = ("body",)
    shown = ("handle", "user", "task", "purpose", "input_hash", "system", "partition", "created_at", "body")

    def get_queryset(self, request: Any) -> Any:
        """Return the rows; the trace is read on a decision's own page only."""
        return super().get_queryset(request).defer("body")


@admin.register(Envelope)
class EnvelopeAdmin(ReadOnlyAdmin):
    """What tasks need, as given and as normalized."""

    list_display = ("handle", "user", "source", "confidence", "created_at")
    list_select_related = ("user",)
    list_filter = ("source",)
    search_fields = ("=handle", "=user__username")
    json_fields = ("body", "original", "rationale")
    shown = ("handle", "user", "source", "confidence", "created_at", "body", "original", "rationale")


@admin.register(Group)
class GroupAdmin(ReadOnlyAdmin):
    """Tasks with a shared objective."""

    list_display = ("handle", "name", "user", state_label(), "created_at", "finished_at")
    list_select_related = ("user",)
    list_filter = ("state",)
    search_fields = ("=handle", "=user__username")
    json_fields = ("spec",)
    shown = ("handle", "user", "name", "objective", "state", "created_at", "finished_at", "spec")


@admin.register(Transfer)
class TransferAdmin(ReadOnlyAdmin):
    """Movements of data."""

    list_display = ("handle", "user", "task", state_label(), "source", "destination", "created_at")
    list_select_related = ("user", "task")
    list_filter = ("state",)
    search_fields = ("=handle", "=task__handle", "=remote_id")
    json_fields = ("options", "detail")
    shown = (
        "handle", "user", "task", "source", "destination", "state", "submission_id", "remote_id", "reason",
        "created_at", "finished_at", "due_at", "options", "detail",
    )  # fmt: skip


@admin.register(Manifest)
class ManifestAdmin(ReadOnlyAdmin):
    """What finished tasks left behind."""

    list_display = ("handle", "task", "attempt", "created_at")
    list_select_related = ("task", "attempt")
    search_fields = ("=handle", "=task__handle")
    json_fields = ("body",)
    shown = ("handle", "task", "attempt", "created_at", "body")
