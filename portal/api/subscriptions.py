"""REST of subscriptions: made, changed under If-Match, removed, acknowledged, replayed, rotated, tested."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

from django.http import HttpResponse
from django.utils import timezone
from pydantic import BaseModel

from orchestrator.models import Subscription
from orchestrator.services import subscriptions as verbs
from portal import subscriptions
from portal.api.problems import EditedMeanwhile
from portal.api.views import ApiView, OneObject, ResourceList, as_json
from portal.skills.registry import Caller, Options, Scope, require
from portal.subscriptions import AckInput, ReplayInput, RotateInput
from providers.reading import read
from providers.types import Frozen

_MAY_CHANGE = (Scope.SUBMIT, Scope.MANAGE)


def _require_to_change(caller: Caller) -> None:
    """Refuse who may not change subscriptions: what is subscribed to is read, so `read` is needed as well."""
    require(caller, Scope.READ)
    require(caller, *_MAY_CHANGE)


def tag_of(row: Subscription) -> str:
    """Return the entity tag of what can be edited; cursors and lag move without an edit."""
    return f'"{row.handle}.{int(row.updated_at.timestamp() * 1_000_000)}"'


class SubscriptionList(ResourceList):
    """GET and POST subscriptions."""

    resource = "subscriptions"

    def parameters(self, **_kwargs: str) -> tuple[str, ...]:
        """Return none for POST."""
        return () if self.request.method == "POST" else super().parameters()

    def post(self, _request: Any) -> HttpResponse:
        """Make one; the secret of a webhook is in this answer and nowhere else."""
        _require_to_change(self.caller)
        given = self.body()

        def work(_options: Options) -> HttpResponse:
            wanted = read(subscriptions.SubscriptionInput, given, what="subscription")
            made = subscriptions.create(self.caller, wanted, now=timezone.now())
            response = as_json(made, status=201)
            response["Location"] = f"/api/v1/subscriptions/{made.id}"
            return response

        return self.once("subscriptions", given, work, is_secret=True)


class OneSubscription(OneObject):
    """GET, PATCH and DELETE a subscription."""

    resource = "subscriptions"

    def get(self, _request: Any, handle: str) -> HttpResponse:
        """Return it, with its lag."""
        require(self.caller, Scope.READ)
        row = verbs.find_subscription(self.caller.user, handle)
        return self._shown(row, subscriptions.watch(row, now=timezone.now()))

    def patch(self, request: Any, handle: str) -> HttpResponse:
        """Change it."""
        row = self._editable(request, handle)
        given = read(subscriptions.SubscriptionEdit, self.body(), what="subscription")
        row = subscriptions.edit(self.caller, row, given, now=timezone.now())
        return self._shown(row, subscriptions.show(row))

    def delete(self, request: Any, handle: str) -> HttpResponse:
        """Remove it."""
        verbs.remove_subscription(self._editable(request, handle))
        return HttpResponse(status=204)

    def _editable(self, request: Any, handle: str) -> Subscription:
        _require_to_change(self.caller)
        row = verbs.find_subscription(self.caller.user, handle)
        wanted = request.META.get("HTTP_IF_MATCH")
        if wanted is not None and not {"*", tag_of(row)} & {tag.strip() for tag in wanted.split(",")}:
            raise EditedMeanwhile("The subscription is no longer what If-Match says.")
        return row

    def _shown(self, row: Subscription, value: BaseModel) -> HttpResponse:
        response = as_json(value)
        response["ETag"] = tag_of(row)
        response["Cache-Control"] = "private, no-cache"
        return response


class NoInput(Frozen):
    """Nothing is to be said."""


@dataclass(frozen=True, slots=True)
class Verb:
    """What can be done with a subscription besides editing it."""

    given: type[BaseModel]
    answer: type[BaseModel]
    require: Callable[[Caller], None]
    summary: str
    work: Callable[[Subscription, Any, datetime], BaseModel]
    is_secret: bool = False


def _acknowledge(row: Subscription, given: AckInput, _now: datetime) -> BaseModel:
    return subscriptions.show(verbs.acknowledge(row, given.cursor))


def _replay(row: Subscription, given: ReplayInput, now: datetime) -> BaseModel:
    return subscriptions.replay(row, given, now=now)


def _rotate(row: Subscription, given: RotateInput, now: datetime) -> BaseModel:
    return subscriptions.rotate(row, given, now=now)


def _test(row: Subscription, _given: NoInput, now: datetime) -> BaseModel:
    return subscriptions.test(row, now=now)


VERBS: Mapping[str, Verb] = {
    "ack": Verb(
        AckInput,
        subscriptions.SubscriptionShown,
        lambda caller: require(caller, Scope.READ),
        "Say how far you have read; never back. Scope: `read`.",
        _acknowledge,
    ),
    "replay": Verb(
        ReplayInput,
        subscriptions.Replayed,
        _require_to_change,
        "Send again: one delivery, those given up, or all after a cursor. Scopes: `read`, and `submit` or "
        "`manage`.",
        _replay,
    ),
    "rotate": Verb(
        RotateInput,
        subscriptions.SubscriptionMade,
        _require_to_change,
        "Make a new secret; both sign while they overlap. Scopes: `read`, and `submit` or `manage`.",
        _rotate,
        is_secret=True,
    ),
    "test": Verb(
        NoInput,
        subscriptions.Tested,
        _require_to_change,
        "Send a signed sample now and say what came back. Scopes: `read`, and `submit` or `manage`.",
        _test,
    ),
}


class SubscriptionVerb(ApiView):
    """POST subscriptions/{id}/ack, replay, rotate and test."""

    verb: ClassVar[str] = ""
    http_method_names: ClassVar[list[str]] = ["post"]

    def post(self, _request: Any, handle: str) -> HttpResponse:
        """Do it."""
        one = VERBS[self.verb]
        one.require(self.caller)
        row = verbs.find_subscription(self.caller.user, handle)
        body = self.body()

        def work(_options: Options) -> HttpResponse:
            given = read(one.given, body, what=self.verb)
            return as_json(one.work(row, given, timezone.now()))

        return self.once(f"subscriptions/{handle}/{self.verb}", body, work, is_secret=one.is_secret)
