"""Subscriptions at the edge: what a caller may say, what is shown, and the verbs that handle secrets."""

from datetime import datetime, timedelta
from typing import Any, Literal, Self

from django.contrib.auth.models import AbstractBaseUser
from django.db.models import Min
from django.utils import timezone
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from orchestrator import selectors
from orchestrator.models import Delivery, DeliveryState, Subscription, Target
from orchestrator.services import subscriptions as verbs
from portal.sealing import seal
from portal.skills.events import check_cursor, check_subject, check_types
from portal.skills.registry import Caller
from portal.webhooks.address import check, place_of
from portal.webhooks.deliver import allowed, secrets_of, send_one
from portal.webhooks.post import Sender
from portal.webhooks.signing import PURPOSE, new_secret
from providers.errors import Conflict, InvalidInput, NotAuthorized
from providers.types import Frozen

DIGEST_S = {"hourly": 3600, "daily": 86_400}
_LAG_COUNTED = 1000


class SubscriptionInput(Frozen):
    """Whom to tell of what. A webhook's secret is in the answer, once."""

    name: str = Field("", max_length=80)
    target: Literal["webhook", "email", "cursor"] = Field(
        description="webhook: signed requests; email: a digest to your own address; cursor: you fetch and "
        "acknowledge."
    )
    url: str | None = Field(None, description="Where a webhook goes; https.")
    types: tuple[str, ...] = Field(
        (), max_length=60, description="Event types; `task.*` means all of tasks. Empty: those that wake."
    )
    subject: str | None = Field(None, description="A task, group, attempt, transfer or system.")
    only_named: bool = Field(
        default=False, description="Only tasks that name it in `continuation.subscriptions`."
    )
    digest: Literal["hourly", "daily"] | None = Field(None, description="For e-mail; absent: daily.")
    after: int | None = Field(None, ge=0, lt=2**63, description="Cursor to begin after; absent: from now on.")

    @model_validator(mode="after")
    def _fits_its_target(self) -> Self:
        if (self.url is not None) != (self.target == "webhook"):
            raise PydanticCustomError(
                "url_and_target", "`url` belongs to the target `webhook`, and to no other"
            )
        if self.digest is not None and self.target != "email":
            raise PydanticCustomError("digest_and_target", "`digest` belongs to the target `email`")
        return self


class SubscriptionEdit(Frozen):
    """What to change; what is absent stays."""

    name: str | None = Field(None, max_length=80)
    url: str | None = None
    types: tuple[str, ...] | None = Field(None, max_length=60)
    subject: str | None = Field(None, description="Empty text: any.")
    only_named: bool | None = None
    digest: Literal["hourly", "daily"] | None = None
    state: Literal["active", "paused"] | None = None


class Lag(Frozen):
    """What has not reached its reader yet."""

    events: int = Field(description="Not yet delivered or acknowledged; 1000 stands for more.")
    oldest_s: int | None = Field(description="Age of the oldest of them, s.")


class SubscriptionShown(Frozen):
    """A subscription as its owner sees it; never its secret."""

    id: str
    state: str = Field(description="active, paused or disabled.")
    reason: str | None = Field(description="The last failure, or why it is disabled.")
    name: str
    target: str
    url: str | None
    types: list[str]
    subject: str | None
    only_named: bool
    digest: str | None
    cursor: int = Field(description="Up to where the log has been looked at for it.")
    acked: int = Field(description="Up to where everything has reached its reader.")
    failures: int = Field(description="Failed tries since the last that succeeded.")
    secrets: int = Field(description="Secrets that sign now: two while one is being rotated.")
    lag: Lag | None = Field(None, description="How far behind its reader is; null in lists.")
    created_at: datetime
    updated_at: datetime


class SubscriptionMade(SubscriptionShown):
    """With the secret, shown this once; null where nothing is signed."""

    secret: str | None


class DeliveryShown(Frozen):
    """One event on its way to a webhook."""

    id: str
    state: str = Field(description="pending, delivered or dead.")
    subscription: str
    event: str = Field(description="The `webhook-id` of every try.")
    type: str
    cursor: int
    attempts: int
    next_at: datetime | None
    delivered_at: datetime | None
    tries: list[dict[str, Any]] = Field(description="Instant, HTTP status, error and ms of each try.")
    created_at: datetime


class AckInput(Frozen):
    """How far the reader is."""

    cursor: int = Field(ge=0, lt=2**63)


class ReplayInput(Frozen):
    """What to send again; exactly one."""

    after: int | None = Field(None, ge=0, lt=2**63, description="Everything after this cursor.")
    delivery: str | None = Field(None, description="This one.")
    dead: Literal[True] | None = Field(None, description="All that were given up.")

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if sum(each is not None for each in (self.after, self.delivery, self.dead)) != 1:
            raise PydanticCustomError("not_exactly_one", "give exactly one of `after`, `delivery` and `dead`")
        return self


class Replayed(Frozen):
    """What will be sent again."""

    id: str
    state: str
    requeued: int = Field(
        description="Deliveries due again; events never written as such follow by themselves."
    )


class RotateInput(Frozen):
    """How long both secrets sign."""

    overlap_s: int = Field(86_400, ge=0, le=30 * 86_400)


class Tested(Frozen):
    """What the receiver said to a sample."""

    id: str
    state: str
    delivered: bool
    status: int | None
    error: str | None
    ms: int


def show(row: Subscription) -> SubscriptionShown:
    """Return a subscription as its owner sees it."""
    return SubscriptionShown(**_fields(row))


def watch(row: Subscription, *, now: datetime) -> SubscriptionShown:
    """Return a subscription with its lag; a few queries."""
    return SubscriptionShown(**_fields(row), lag=lag(row, now=now))


def _fields(row: Subscription) -> dict[str, Any]:
    overlaps = row.previous_until is not None and row.previous_until > timezone.now()
    return {
        "id": row.handle,
        "state": row.state,
        "reason": row.reason or None,
        "name": row.name,
        "target": row.target,
        "url": row.url or None,
        "types": row.types,
        "subject": row.subject or None,
        "only_named": row.only_named,
        "digest": next((word for word, each in DIGEST_S.items() if each == row.digest_s), None),
        "cursor": row.cursor_seq,
        "acked": _acked(row),
        "failures": row.failures,
        "secrets": bool(row.sealed_secret) + overlaps,
        "created_at": row.created_at,
        "updated_at": row.updated_at,
    }


def _acked(row: Subscription) -> int:
    if row.target == Target.CURSOR.value:
        return row.acked_seq
    first: int | None = row.deliveries.filter(state=DeliveryState.PENDING.value).aggregate(m=Min("seq"))["m"]
    return row.cursor_seq if first is None else min(first - 1, row.cursor_seq)


def lag(row: Subscription, *, now: datetime) -> Lag:
    """Return how far behind its reader is."""
    pending = row.deliveries.filter(state=DeliveryState.PENDING.value)
    waiting = list(pending.order_by("seq").values_list("created_at", flat=True)[:_LAG_COUNTED])
    from_log = selectors.of_types(
        selectors.events(row.user).filter(position__seq__gt=row.cursor_seq), row.types
    )
    if not row.types:
        from_log = from_log.exclude(wake="routine")
    waiting += from_log.order_by("position__seq").values_list("at", flat=True)[: _LAG_COUNTED - len(waiting)]
    oldest = min(waiting, default=None)
    return Lag(
        events=len(waiting),
        oldest_s=None if oldest is None else max(0, round((now - oldest).total_seconds())),
    )


def show_delivery(row: Delivery) -> DeliveryShown:
    """Return a delivery as the owner sees it."""
    return DeliveryShown(
        id=row.handle,
        state=row.state,
        subscription=row.subscription.handle,
        event=row.event,
        type=row.event_type,
        cursor=row.seq,
        attempts=row.attempts,
        next_at=row.next_at,
        delivered_at=row.delivered_at,
        tries=row.tries,
        created_at=row.created_at,
    )


def create(caller: Caller, given: SubscriptionInput, *, now: datetime) -> SubscriptionMade:
    """Make a subscription.

    Raises:
        FacetError: a type, subject, cursor or URL is not what it must be.
    """
    _whole(caller)
    _check(caller.user, given.types, given.subject)
    if given.after is not None:
        check_cursor(given.after)
    secret = None
    fields: dict[str, Any] = {
        "name": given.name or given.target,
        "target": given.target,
        "types": list(given.types),
        "subject": given.subject or "",
        "only_named": given.only_named,
    }
    if given.url is not None:
        check(place_of(given.url), allowed())
        secret = new_secret()
        fields |= {"url": given.url, "sealed_secret": seal(secret, purpose=PURPOSE)}
    if given.target == Target.EMAIL.value:
        _has_address(caller.user)
        fields["digest_s"] = DIGEST_S[given.digest or "daily"]
    row = verbs.create_subscription(caller.user, fields, after=given.after, now=now)
    return SubscriptionMade(**_fields(row), secret=secret)


def _whole(caller: Caller) -> None:
    """Refuse a token that is limited to systems: what is delivered outlives it and knows no such limit.

    Raises:
        NotAuthorized: it is.
    """
    if caller.systems is not None:
        raise NotAuthorized(
            f"A token limited to {', '.join(sorted(caller.systems))} makes and edits no subscriptions.",
            remediation="Read the stream or wait_for_events with it, or use a token of all your systems.",
        )


def _check(user: AbstractBaseUser, types: tuple[str, ...], subject: str | None) -> None:
    check_types(types)
    check_subject(user, subject or None)


def _has_address(user: AbstractBaseUser) -> None:
    if not getattr(user, "email", ""):
        raise Conflict("Your account has no e-mail address.", remediation="Have one entered in your account.")


def edit(caller: Caller, row: Subscription, given: SubscriptionEdit, *, now: datetime) -> Subscription:
    """Change a subscription.

    Raises:
        FacetError: a type, subject or URL is not what it must be, or belongs to another target.
    """
    _whole(caller)
    said = given.model_dump(exclude_none=True)
    _check(caller.user, given.types or (), given.subject)
    for field, target in (("url", Target.WEBHOOK), ("digest", Target.EMAIL)):
        if field in said and row.target != target.value:
            message = f"`{field}` belongs to the target `{target.value}`."
            raise InvalidInput(message, problems=((f"/{field}", f"{field}_and_target", message),))
    if given.url is not None:
        check(place_of(given.url), allowed())
    if given.types is not None:
        said["types"] = list(given.types)
    if given.digest is not None:
        said["digest_s"] = DIGEST_S[said.pop("digest")]
    return verbs.edit_subscription(row, said, now=now)


def rotate(row: Subscription, given: RotateInput, *, now: datetime) -> SubscriptionMade:
    """Make a new secret; the present one signs beside it until the overlap ends.

    Raises:
        Conflict: nothing is signed for this target.
    """
    _is_webhook(row)
    secret = new_secret()
    changes = {
        "sealed_previous": row.sealed_secret,
        "previous_until": now + timedelta(seconds=given.overlap_s),
        "sealed_secret": seal(secret, purpose=PURPOSE),
    }
    row = verbs.edit_subscription(row, changes, now=now)
    return SubscriptionMade(**_fields(row), secret=secret)


def _is_webhook(row: Subscription) -> None:
    if row.target != Target.WEBHOOK.value:
        raise Conflict(f"Only webhooks can do this; the target is `{row.target}`.")


def test(row: Subscription, *, now: datetime) -> Tested:
    """Send a sample now, whatever the state, and return what the receiver said; nothing is recorded.

    Raises:
        Conflict: the target is no webhook.
    """
    _is_webhook(row)
    id_ = f"{row.handle}_test_{int(now.timestamp())}"
    body = f'{{"type":"webhook.test","timestamp":"{now.isoformat()}","data":{{"id":"{id_}"}}}}'.encode()
    sender = Sender(place_of(row.url), allowed())
    try:
        heard = send_one(sender, secrets_of(row, now=now), id_, body)
    finally:
        sender.close()
    return Tested(
        id=row.handle,
        state=row.state,
        delivered=not heard.error,
        status=heard.status,
        error=heard.error or None,
        ms=heard.ms,
    )


def replay(row: Subscription, given: ReplayInput, *, now: datetime) -> Replayed:
    """Make deliveries due again.

    Raises:
        Gone: the events after that cursor are kept no longer.
    """
    if given.after is not None:
        check_cursor(given.after)
    count = verbs.replay(row, after=given.after, delivery=given.delivery, dead_only=bool(given.dead), now=now)
    return Replayed(id=row.handle, state=row.state, requeued=count)
