"""Tasks and their history in Django's admin: to be read, never changed."""

from typing import Any

from django.contrib import admin

from federation.admin.readonly import ReadOnlyAdmin, state_label
from federation.admin.scope import system_filter
from orchestrator.models import Attempt, Decision, Envelope, Group, Manifest, Task, Transfer


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
        "shape", "predicted", "node_names",
    )  # fmt: skip


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
