"""Allocations, budgets and what waits for approval: read, set, closed and decided by their verbs."""

from typing import Any, Literal

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST, require_safe

import portal.skills.budgets  # noqa: F401  # registers set_budget and close_budget
from federation import selectors as federation
from orchestrator import budget_selectors as spending
from orchestrator.services.approvals import Approver, decide_approval
from portal import tokens
from portal.skills import registry
from portal.web.agent_forms import blame
from portal.web.budget_form import BudgetForm
from portal.web.guard import SignedInRequest, signed_in
from portal.web.presenters.allocations import AllocationsPage, allocation_row, approval_row, budget_row
from portal.web.rendering import page
from portal.web.seen import system_refs
from portal.web.told import tell
from providers.errors import FacetError, NotFound

BUDGETS_SHOWN = 100
DECIDED_SHOWN = 20


@require_safe
@signed_in
def allocation_list(request: SignedInRequest) -> HttpResponse:
    """What waits for a person, balances by system and account, and budgets with how far they are used."""
    asked = {name: request.GET[name] for name in ("scope", "subject") if request.GET.get(name)}
    return _list(request, BudgetForm(initial=asked))


def _list(request: SignedInRequest, form: BudgetForm, *, status: int = 200) -> HttpResponse:
    now, refs, user = timezone.now(), system_refs(), request.user
    closed = request.GET.get("closed") == "1"
    mine = spending.approvals(user)
    waiting = [spending.show_approval(row) for row in mine.filter(state="pending")]
    theirs = spending.approvals_for_admins() if user.is_staff else ()
    others = [spending.show_approval(row) for row in theirs if row.user_id != user.pk]
    budgets = spending.budgets(user) if closed else spending.budgets(user).filter(closed_at=None)
    shown = AllocationsPage(
        waiting=tuple(approval_row(each, refs) for each in [*waiting, *others]),
        decided=tuple(
            approval_row(spending.show_approval(row), refs)
            for row in mine.exclude(state="pending")[:DECIDED_SHOWN]
        ),
        allocations=tuple(
            allocation_row(federation.show_allocation(row, now=now), refs)
            for row in federation.allocations(user).order_by("system__name", "account")
        ),
        budgets=tuple(budget_row(spending.show_budget(row), refs) for row in budgets[:BUDGETS_SHOWN]),
        with_closed=closed,
        now=now,
    )
    context = {
        "here": "allocations",
        "page": shown,
        "form": form,
        "is_open": status != 200 or bool(form.initial),
    }
    return page(request, "allocations/list.html", context, parts=("live",), status=status)


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def budget_set(request: SignedInRequest) -> HttpResponse:
    """Set a budget; an open one on the same thing keeps its counts."""
    if request.method != "POST":
        return redirect("web:allocation-list")
    form = BudgetForm(request.POST)
    if not form.is_valid():
        return _list(request, form, status=422)
    try:
        registry.skill("set_budget").call(
            form.given(), tokens.caller_in_session(request.user), now=timezone.now()
        )
    except FacetError as error:
        blame(form, error, form.field_of)
        return _list(request, form, status=422)
    tell(request, _("The budget is set."))
    return redirect("web:allocation-list")


@require_POST
@signed_in
def budget_close(request: SignedInRequest, handle: str) -> HttpResponse:
    """End a budget: it binds nothing any more, and what it counted stays."""
    caller = tokens.caller_in_session(request.user)
    try:
        registry.skill("close_budget").call({"budget": handle}, caller, now=timezone.now())
        tell(request, _("The budget is closed: it binds nothing any more."))
    except NotFound:
        raise
    except FacetError as error:
        tell(request, f"{error.message} {error.remediation}".strip(), level=messages.ERROR)
    return redirect("web:allocation-list")


@require_POST
@signed_in
def approval_decide(request: SignedInRequest, handle: str) -> HttpResponse:
    """Approve or reject: an approved task is placed anew at once, a rejected one is cancelled."""
    word: Literal["approve", "reject"] = "approve" if request.POST.get("decision") == "approve" else "reject"
    approver = Approver(request.user, f"user:{request.user.get_username()}", via="page")
    note = request.POST.get("note", "").replace("\0", "").strip()[:300]
    try:
        decide_approval(approver, handle, word, now=timezone.now(), note=note)
        said = _("Approved: it is placed with what is known now.") if word == "approve" else _("Rejected.")
        tell(request, said)
    except NotFound:
        raise
    except FacetError as error:
        tell(request, f"{error.message} {error.remediation}".strip(), level=messages.ERROR)
    return redirect(_back(request))


def _back(request: SignedInRequest) -> str:
    """Return the page the answer came from, where that is one of ours."""
    back: Any = request.POST.get("back", "")
    ours = url_has_allowed_host_and_scheme(back, allowed_hosts=None)
    return back if ours and back.startswith("/") else "/allocations/"
