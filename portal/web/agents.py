"""Programs that act for a person: their tokens, what wakes them, and what they were told."""

from typing import Any

from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from orchestrator import selectors
from orchestrator.services import subscriptions as subscribed
from portal import subscriptions, tokens
from portal.tokens import TokenInput, TokenMade
from portal.web.agent_forms import SubscriptionForm, TokenForm, blame
from portal.web.guard import SignedInRequest, signed_in
from portal.web.presenters.agents import AgentsPage, wakes
from portal.web.presenters.events import event_rows
from portal.web.rendering import page
from portal.web.seen import system_refs
from portal.web.task_list import by_name
from portal.web.told import tell
from providers.errors import FacetError
from providers.reading import read

TOKENS_SHOWN = 100
WAKES_SHOWN = 30
WATCHED = 8
"""Subscriptions whose lag is counted here, the newest; each costs some queries, and its own page has it."""


@require_safe
@signed_in
def agent_list(request: SignedInRequest) -> HttpResponse:
    """Tokens, subscriptions, and the events that woke somebody, newest first."""
    return show_agents(request)


def show_agents(
    request: SignedInRequest,
    *,
    token_form: TokenForm | None = None,
    subscription_form: SubscriptionForm | None = None,
    made: TokenMade | None = None,
    status: int = 200,
) -> HttpResponse:
    """Answer the page of agents, with forms that were refused or the token that was just made."""
    now, refs = timezone.now(), system_refs()
    rows = tokens.tokens(request.user)[:TOKENS_SHOWN]
    heard = selectors.events(request.user).exclude(wake="routine").order_by("-position__seq")[:WAKES_SHOWN]
    events = list(heard)
    told = subscribed.deliveries(request.user).filter(event__in=[event.handle for event in events])
    shown = AgentsPage(
        tokens=tuple(tokens.show_token(row, now=now) for row in rows),
        subscriptions=tuple(
            subscriptions.watch(row, now=now) if place < WATCHED else subscriptions.show(row)
            for place, row in enumerate(subscribed.subscriptions(request.user))
        ),
        wakes=wakes(zip(events, event_rows(events, refs), strict=True), list(told)),
        made=made,
        address=request.user.email,
    )
    context: dict[str, Any] = {
        "here": "agents",
        "page": shown,
        "token_form": token_form or _token_form(request),
        "subscription_form": subscription_form or SubscriptionForm(),
        "is_refused": status != 200,
    }
    return page(request, "agents/list.html", context, parts=("live",), status=status)


def _token_form(request: SignedInRequest, data: Any = None) -> TokenForm:
    return TokenForm(data, held=tokens.may_hold(request.user), systems=by_name(system_refs()))


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def token_new(request: SignedInRequest) -> HttpResponse:
    """Make a token; its secret is in this answer and nowhere else."""
    if request.method != "POST":
        return redirect("web:agent-list")
    form = _token_form(request, request.POST)
    if not form.is_valid():
        return show_agents(request, token_form=form, status=422)
    try:
        wanted = read(TokenInput, form.given(), what="token")
        caller = tokens.caller_in_session(request.user)
        made = tokens.create_token(caller, wanted, now=timezone.now())
    except FacetError as error:
        blame(form, error)
        return show_agents(request, token_form=form, status=422)
    return show_agents(request, made=made)


@require_POST
@signed_in
def token_revoke(request: SignedInRequest, handle: str) -> HttpResponse:
    """End a token now and for good."""
    row = tokens.revoke_token(request.user, handle, now=timezone.now())
    tell(request, _("The token “%(name)s” is revoked: nothing can use it any more.") % {"name": row.name})
    return redirect("web:agent-list")
