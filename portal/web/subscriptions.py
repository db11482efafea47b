"""One subscription: what it hears, how far it is, its deliveries; pause, rotate, test, replay, remove."""

from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from orchestrator.models import DeliveryState
from orchestrator.services import subscriptions as verbs
from portal import subscriptions, tokens
from portal.subscriptions import ReplayInput, RotateInput, SubscriptionEdit, SubscriptionInput
from portal.web.agent_forms import SubscriptionForm, blame, initial_of
from portal.web.agents import show_agents
from portal.web.guard import SignedInRequest, signed_in
from portal.web.paging import page_of, query_of
from portal.web.presenters.agents import SubscriptionPage
from portal.web.presenters.shared import Page
from portal.web.rendering import page
from portal.web.told import tell
from providers.errors import FacetError
from providers.reading import read

PAGE_SIZE = 25
STATES = tuple(state.value for state in DeliveryState)


@require_safe
@signed_in
def subscription_show(request: SignedInRequest, handle: str) -> HttpResponse:
    """One subscription with its deliveries, newest first."""
    return _show(request, handle)


def _show(
    request: SignedInRequest,
    handle: str,
    *,
    form: SubscriptionForm | None = None,
    secret: str | None = None,
    status: int = 200,
) -> HttpResponse:
    row = verbs.find_subscription(request.user, handle)
    now = timezone.now()
    shown = subscriptions.watch(row, now=now)
    mine = verbs.deliveries(request.user).filter(subscription=row)
    state, cursor = request.GET.get("state", ""), request.GET.get("cursor", "").replace("\0", "")
    rows = mine.filter(state=state) if state in STATES else mine
    found, following = page_of(rows, cursor=cursor, size=PAGE_SIZE, mine=mine)
    words = {"state": state if state in STATES else ""}
    value = SubscriptionPage(
        subscription=shown,
        deliveries=Page(
            tuple(subscriptions.show_delivery(each) for each in found),
            next_query=query_of(words, cursor=following) if following else None,
            first_query=query_of(words) if cursor else None,
        ),
        state=words["state"],
        dead=mine.filter(state=DeliveryState.DEAD.value).count(),
        secret=secret,
        now=now,
    )
    context: dict[str, Any] = {
        "here": "agents",
        "page": value,
        "form": form or SubscriptionForm(initial=shown.model_dump() | initial_of(shown.types)),
        "is_refused": form is not None,
    }
    return page(request, "agents/subscription.html", context, parts=("live",), status=status)


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def subscription_new(request: SignedInRequest) -> HttpResponse:
    """Make a subscription; a webhook's secret is in this answer and nowhere else."""
    if request.method != "POST":
        return redirect("web:agent-list")
    form = SubscriptionForm(request.POST)
    if not form.is_valid():
        return show_agents(request, subscription_form=form, status=422)
    try:
        wanted = read(SubscriptionInput, form.given(), what="subscription")
        made = subscriptions.create(tokens.caller_in_session(request.user), wanted, now=timezone.now())
    except FacetError as error:
        blame(form, error)
        return show_agents(request, subscription_form=form, status=422)
    if made.secret is None:
        tell(request, _("“%(name)s” hears from now on.") % {"name": made.name})
        return redirect("web:subscription-show", handle=made.id)
    return _show(request, made.id, secret=made.secret)


@require_POST
@signed_in
def subscription_edit(request: SignedInRequest, handle: str) -> HttpResponse:
    """Change what it hears and where it goes."""
    row = verbs.find_subscription(request.user, handle)
    form = SubscriptionForm(request.POST)
    if not form.is_valid():
        return _show(request, handle, form=form, status=422)
    try:
        wanted = read(SubscriptionEdit, form.changes(row.target), what="subscription")
        subscriptions.edit(tokens.caller_in_session(request.user), row, wanted, now=timezone.now())
    except FacetError as error:
        blame(form, error)
        return _show(request, handle, form=form, status=422)
    tell(request, _("Changed."))
    return redirect("web:subscription-show", handle=handle)


@require_POST
@signed_in
def subscription_switch(request: SignedInRequest, handle: str) -> HttpResponse:
    """Pause it, or serve it again."""
    row = verbs.find_subscription(request.user, handle)
    state = "paused" if row.state == "active" else "active"
    caller = tokens.caller_in_session(request.user)
    wanted = read(SubscriptionEdit, {"state": state}, what="subscription")
    subscriptions.edit(caller, row, wanted, now=timezone.now())
    tell(
        request,
        _("Paused: nothing is lost, it goes on where it stopped.") if state == "paused" else _("Active."),
    )
    return redirect("web:subscription-show", handle=handle)


@require_POST
@signed_in
def subscription_rotate(request: SignedInRequest, handle: str) -> HttpResponse:
    """Make a new secret; the present one signs beside it for a day."""
    row = verbs.find_subscription(request.user, handle)
    try:
        made = subscriptions.rotate(row, RotateInput(), now=timezone.now())
    except FacetError as error:
        return _refused(request, handle, error)
    return _show(request, handle, secret=made.secret)


@require_POST
@signed_in
def subscription_test(request: SignedInRequest, handle: str) -> HttpResponse:
    """Send a signed sample now and say what came back."""
    row = verbs.find_subscription(request.user, handle)
    try:
        heard = subscriptions.test(row, now=timezone.now())
    except FacetError as error:
        return _refused(request, handle, error)
    if heard.delivered:
        words = _("Delivered: the receiver answered %(status)s after %(ms)s ms.")
        tell(request, words % {"status": heard.status, "ms": heard.ms})
    else:
        tell(request, _("Not delivered: %(error)s") % {"error": heard.error}, level=messages.ERROR)
    return redirect("web:subscription-show", handle=handle)


@require_POST
@signed_in
def subscription_replay(request: SignedInRequest, handle: str) -> HttpResponse:
    """Send again: one delivery, or all that were given up."""
    row = verbs.find_subscription(request.user, handle)
    one = request.POST.get("delivery", "").replace("\0", "")
    given: dict[str, Any] = {"delivery": one} if one else {"dead": True}
    done = subscriptions.replay(row, read(ReplayInput, given, what="replay"), now=timezone.now())
    n = done.requeued
    tell(request, ngettext("%(n)s delivery is due again.", "%(n)s deliveries are due again.", n) % {"n": n})
    return redirect("web:subscription-show", handle=handle)


@require_POST
@signed_in
def subscription_remove(request: SignedInRequest, handle: str) -> HttpResponse:
    """Forget it and its deliveries."""
    row = verbs.find_subscription(request.user, handle)
    verbs.remove_subscription(row)
    tell(request, _("“%(name)s” is removed.") % {"name": row.name})
    return redirect("web:agent-list")


def _refused(request: SignedInRequest, handle: str, error: FacetError) -> HttpResponse:
    tell(request, f"{error.message} {error.remediation}".strip(), level=messages.ERROR)
    return redirect("web:subscription-show", handle=handle)
