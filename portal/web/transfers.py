"""Data: the list of transfers, one of them, starting a move, and cancelling it."""

from collections.abc import Mapping
from typing import Any

from django import forms
from django.contrib import messages
from django.db.models import Q
from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from orchestrator import selectors, transfer_selectors
from orchestrator.lifecycle import TransferState
from orchestrator.services import transfers as verbs
from orchestrator.services.transfer_ends import cancel_transfer
from portal.web.agent_forms import blame
from portal.web.guard import SignedInRequest, signed_in
from portal.web.paging import page_of, query_of
from portal.web.presenters.events import event_rows
from portal.web.presenters.shared import Page
from portal.web.presenters.transfers import TransferListPage, TransferPage, transfer_row
from portal.web.rendering import page
from portal.web.seen import system_refs
from portal.web.told import tell
from providers.errors import FacetError

PAGE_SIZE = 40
EVENTS_SHOWN = 60
ACTIVE = (TransferState.REQUESTED.value, TransferState.ACTIVE.value)


def _line(label: Any, **more: Any) -> forms.CharField:
    attrs = {
        "class": "input",
        "autocomplete": "off",
        "spellcheck": "false",
        "placeholder": more.pop("hint", ""),
    }
    return forms.CharField(label=label, widget=forms.TextInput(attrs=attrs), **more)


class MoveForm(forms.Form):
    """One movement of data; the verb reads the places, so that every fault is its own."""

    source = _line(gettext_lazy("From"), max_length=2000, hint="globus://COLLECTION/path/ or file:///path")
    destination = _line(gettext_lazy("To"), max_length=2000, hint="globus://COLLECTION/path/")
    recursive = forms.BooleanField(label=gettext_lazy("The folder, whole"), required=False)
    sha256 = _line(gettext_lazy("SHA-256"), required=False, max_length=64)
    task = _line(gettext_lazy("For the task"), required=False, max_length=60, hint="task_…")
    label = _line(gettext_lazy("Label"), required=False, max_length=100)

    def given(self) -> dict[str, Any]:
        """Return the input of the verb."""
        said = self.cleaned_data
        source: Any = {"uri": said["source"], "sha256": said["sha256"]} if said["sha256"] else said["source"]
        options = {name: said[name] for name in ("recursive", "label") if said[name]}
        task = {"task": said["task"]} if said["task"] else {}
        return {"source": source, "destination": said["destination"], "options": options, **task}


@require_safe
@signed_in
def transfer_list(request: SignedInRequest) -> HttpResponse:
    """The caller's transfers, newest first; filtered by words and state."""
    return _list(request, MoveForm(initial=_asked(request.GET)))


def _asked(query: Mapping[str, str]) -> dict[str, str]:
    """Return what the address asks to fill in, so that other pages can lead here with both ends."""
    return {name: query[name] for name in ("source", "destination", "task") if query.get(name)}


def _list(request: SignedInRequest, form: MoveForm, *, status: int = 200) -> HttpResponse:
    q, state, cursor = (
        request.GET.get(name, "").replace("\0", "").strip()[:200] for name in ("q", "state", "cursor")
    )
    mine = transfer_selectors.transfers(request.user)
    rows = mine
    if state == "active":
        rows = rows.filter(state__in=ACTIVE)
    elif state:
        rows = rows.filter(state=state)
    if q:
        rows = rows.filter(
            Q(source__icontains=q) | Q(destination__icontains=q) | Q(handle=q) | Q(task__handle=q)
        )
    found, following = page_of(rows, cursor=cursor, size=PAGE_SIZE, mine=mine)
    words = {"q": q, "state": state}
    waiting = transfer_selectors.waiting_for_sign_in(request.user)
    shown = TransferListPage(
        page=Page(
            tuple(transfer_row(transfer_selectors.show_transfer(row)) for row in found),
            next_query=query_of(words, cursor=following) if following else None,
            first_query=query_of(words) if cursor else None,
        ),
        q=q,
        state=state,
        states=tuple(each.value for each in TransferState),
        any_transfers=bool(found) or mine.exists(),
        waiting=tuple(transfer_row(transfer_selectors.show_transfer(row)) for row in waiting[:5]),
    )
    context = {
        "here": "data",
        "page": shown,
        "form": form,
        "is_open": status != 200 or bool(form.initial) or not shown.any_transfers,
    }
    return page(request, "data/list.html", context, parts=("rows",), status=status)


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def transfer_new(request: SignedInRequest) -> HttpResponse:
    """Start a move; nothing passes through Facet, and the storages are asked after the commit."""
    if request.method != "POST":
        return redirect("web:transfer-list")
    form = MoveForm(request.POST)
    if not form.is_valid():
        return _list(request, form, status=422)
    try:
        made = verbs.move_data(request.user, form.given(), actor=_actor(request), now=timezone.now())
    except FacetError as error:
        blame(form, error)
        return _list(request, form, status=422)
    tell(request, _("Accepted: it is moved as soon as the storages agree."))
    return redirect("web:transfer-show", handle=made.handle)


@require_safe
@signed_in
def transfer_show(request: SignedInRequest, handle: str) -> HttpResponse:
    """One transfer: how far it is, what was looked at before, its items and events."""
    row = verbs.find_transfer(request.user, handle)
    refs = system_refs()
    events = selectors.events(request.user).filter(transfer=row.handle).order_by("-position__seq")
    value = transfer_selectors.show_transfer(row)
    shown = TransferPage(
        row=transfer_row(value),
        transfer=value,
        policy=tuple(
            (str(each.get("rule", "")), str(each.get("outcome", "")), str(each.get("detail", "")))
            for each in row.policy
        ),
        events=event_rows(events[:EVENTS_SHOWN], refs),
        may_cancel=value.state in ACTIVE and not value.cancel_requested,
    )
    return page(request, "data/detail.html", {"here": "data", "page": shown}, parts=("live",))


@require_POST
@signed_in
def transfer_cancel(request: SignedInRequest, handle: str) -> HttpResponse:
    """Cancel it: at once, or when the mover confirms."""
    row = cancel_transfer(request.user, handle, actor=_actor(request), now=timezone.now())
    if row.state in ACTIVE:
        tell(request, _("Cancelling: it ends when the mover confirms."), level=messages.INFO)
    return redirect("web:transfer-show", handle=handle)


def _actor(request: SignedInRequest) -> str:
    return f"user:{request.user.get_username()}"
