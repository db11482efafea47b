"""What work may use: budgets that administrators impose, their ledgers, placements that wait for a person."""

import json
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from unfold.admin import TabularInline
from unfold.decorators import action, display
from unfold.widgets import UnfoldAdminTextareaWidget

from federation.admin.access import actor_of
from federation.admin.readonly import ReadOnlyAdmin, state_label
from federation.admin.scope import ScopedAdmin, managed
from orchestrator.budget_input import BudgetInput
from orchestrator.budget_models import Approval, Budget, BudgetLine, Meter
from orchestrator.services.approvals import Approver, decide_approval
from orchestrator.services.budgets import close_budget, set_budget
from providers.errors import FacetError, InvalidInput
from providers.reading import read

_EXAMPLE = {"max_accelerator_hours": 100, "max_attempts": 50, "thresholds": [0.5, 0.9]}


def limits_of(budget: Budget) -> dict[str, Any]:
    """Return the limits of a budget as they would be given."""
    said: dict[str, Any] = {"thresholds": budget.thresholds, "on_exhaustion": budget.on_exhaustion}
    if budget.deadline_at:
        said["deadline"] = budget.deadline_at.isoformat()
    asked: dict[str, Any] = {}
    for meter in budget.meters.all():
        for figure, into, key in (
            (meter.limit, said, f"max_{meter.measure}"),
            (meter.approval_above, asked, meter.measure),
        ):
            if figure is not None and meter.system:
                into.setdefault(key, {})[meter.system] = float(figure)
            elif figure is not None:
                into[key] = int(figure) if figure == figure.to_integral() else float(figure)
    return said | ({"approve_above": asked} if asked else {})


class BudgetForm(forms.ModelForm):  # type: ignore[type-arg]  # django-stubs wants the model twice
    """A budget and its limits, in the words of the API."""

    limits = forms.CharField(
        widget=UnfoldAdminTextareaWidget(attrs={"class": "facet-code", "rows": 14, "spellcheck": "false"}),
        help_text="A JSON object as in the API: max_charge (by system), max_node_hours, max_attempts, "
        "max_accelerator_hours, max_model_tokens, deadline, thresholds, approve_above, on_exhaustion.",
    )

    class Meta:
        model = Budget
        fields = ("user", "scope", "subject", "name")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        given = limits_of(self.instance) if self.instance.pk else _EXAMPLE
        self.fields["limits"].initial = json.dumps(given, indent=2)
        self.read: BudgetInput | None = None

    def clean_limits(self) -> str:
        """Read the limits; each fault names its field."""
        text = str(self.cleaned_data["limits"])
        try:
            self.read = read(BudgetInput, json.loads(text), what="budget")
        except json.JSONDecodeError as error:
            raise ValidationError(f"line {error.lineno}, column {error.colno}: {error.msg}") from None
        except InvalidInput as error:
            said = [f"{where or 'limits'}: {message}" for where, _, message in error.problems]
            raise ValidationError(said or [error.message]) from None
        return text

    def clean(self) -> dict[str, Any]:
        """Try it, and take it back: what the verb refuses is told here."""
        given = super().clean() or {}
        if self.errors or self.read is None:
            return given
        try:
            with transaction.atomic():
                self.put(actor="user:nobody")
                transaction.set_rollback(True)
        except FacetError as error:
            self.add_error(None, error.message)
        return given

    def put(self, *, actor: str) -> Budget:
        """Set the budget through its verb, as an administrator."""
        kept = self.instance if self.instance.pk else None
        values = self.cleaned_data
        user: User = kept.user if kept else values["user"]
        on = (kept.scope, kept.subject) if kept else (values["scope"], values["subject"])
        assert self.read is not None  # noqa: S101  # the form is valid
        return set_budget(
            user.pk, on, self.read, actor=actor, now=timezone.now(), name=values["name"], as_admin=True
        )


class MeterInline(TabularInline):  # type: ignore[misc]  # unfold has no types
    """What each limit counts; the ledger moves it."""

    model = Meter
    fields = ("measure", "system", "unit", "limit", "reserved", "used", "approval_above", "exhausted_at")
    readonly_fields = fields
    extra = 0
    can_delete = False

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Refuse: limits are set above."""
        return False


@admin.register(Budget)
class BudgetAdmin(ScopedAdmin):
    """What a task, group, project or token may use. One that is set here only administrators change."""

    form = BudgetForm
    inlines = (MeterInline,)
    list_display = ("handle", "user", "scope", "subject", "name", "standing", "is_imposed", "updated_at")
    list_select_related = ("user",)
    list_filter = ("scope", "is_imposed", ("closed_at", admin.EmptyFieldListFilter))
    search_fields = ("=handle", "=subject", "=user__username", "name")
    autocomplete_fields = ("user",)
    actions = ("close",)
    fields = ("user", "scope", "subject", "name", "limits")
    seen = ("handle", "is_imposed", "created_by", "created_at", "updated_at", "closed_at")

    @display(  # type: ignore[untyped-decorator]
        description="state", label={"open": "success", "exhausted": "danger", "closed": "info"}
    )
    def standing(self, budget: Budget) -> str:
        """Return open, exhausted or closed."""
        if budget.closed_at is not None:
            return "closed"
        return "exhausted" if any(meter.exhausted_at for meter in budget.meters.all()) else "open"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Budget]:
        """Return the rows with their meters."""
        found: QuerySet[Budget] = super().get_queryset(request)
        return found.prefetch_related("meters")

    def get_inlines(self, request: HttpRequest, obj: Model | None) -> Any:
        """Show meters once there are some."""
        return self.inlines if obj else ()

    def get_fields(self, request: HttpRequest, obj: Model | None = None) -> list[Any]:
        """Return what may be written, and below it what is known."""
        return [*self.fields, *(self.seen if obj else ())]

    def get_readonly_fields(self, request: HttpRequest, obj: Model | None = None) -> list[Any]:
        """Keep what an existing budget is set on."""
        return ["user", "scope", "subject", *self.seen] if obj else []

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Refuse for a closed one."""
        is_closed = isinstance(obj, Budget) and obj.closed_at is not None
        return not is_closed and super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Refuse: its ledger stays. Close it instead."""
        return False

    def save_model(self, request: HttpRequest, obj: Budget, form: BudgetForm, change: bool) -> None:  # noqa: FBT001  # Django's signature
        """Store through the verb."""
        obj.pk = form.put(actor=actor_of(request)).pk

    @action(description="Close the chosen budgets", permissions=["change"])  # type: ignore[untyped-decorator]
    def close(self, request: HttpRequest, queryset: QuerySet[Budget]) -> None:
        """Let them bind nothing more; their ledgers stay."""
        for budget in queryset.select_related("user"):
            close_budget(budget.user, budget.handle, now=timezone.now(), as_admin=True)
        self.message_user(request, f"{len(queryset)} closed.")


@admin.register(BudgetLine)
class BudgetLineAdmin(ReadOnlyAdmin):
    """The ledger of budgets."""

    list_display = ("meter", "subject", state_label("kind"), "amount", "note", "at")
    list_select_related = ("meter__budget",)
    list_filter = ("kind", "meter__measure")
    search_fields = ("=subject", "=meter__budget__handle")
    shown = ("meter", "subject", "kind", "amount", "note", "at")


@admin.register(Approval)
class ApprovalAdmin(ReadOnlyAdmin):
    """Placements that hold more than a budget lets pass without a person."""

    actions = ("approve", "reject")
    list_display = ("handle", "user", "task", state_label(), "needs_admin", "created_at", "expires_at")
    list_select_related = ("user", "task")
    list_filter = ("state", "needs_admin")
    search_fields = ("=handle", "=task__handle", "=user__username")
    json_fields = ("asks",)
    shown = (
        "handle", "user", "task", "decision", "state", "needs_admin", "asked_by", "asks", "created_at",
        "expires_at", "decided_by", "decided_via", "decided_at", "note",
    )  # fmt: skip

    def has_decide_permission(self, request: HttpRequest) -> bool:
        """Ask for the right to change approvals, though no field of one can be changed."""
        return managed(request) is None and request.user.has_perm("orchestrator.change_approval")

    @action(description="Approve the chosen placements", permissions=["decide"])  # type: ignore[untyped-decorator]
    def approve(self, request: HttpRequest, queryset: QuerySet[Approval]) -> None:
        """Let them go on."""
        self._decide(request, queryset, "approve")

    @action(description="Reject the chosen placements", permissions=["decide"])  # type: ignore[untyped-decorator]
    def reject(self, request: HttpRequest, queryset: QuerySet[Approval]) -> None:
        """Have their tasks cancelled."""
        self._decide(request, queryset, "reject")

    def _decide(self, request: HttpRequest, queryset: QuerySet[Approval], decision: Any) -> None:
        approver = Approver(user=request.user, name=actor_of(request), via="page")  # type: ignore[arg-type]  # admin lets no stranger in
        for approval in queryset:
            try:
                decided = decide_approval(approver, approval.handle, decision, now=timezone.now())
            except FacetError as error:
                self.message_user(request, f"{approval}: {error.message}", messages.ERROR)
            else:
                self.message_user(request, f"{decided} is {decided.state}.", messages.SUCCESS)
