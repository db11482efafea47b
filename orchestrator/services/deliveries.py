"""From the event log to webhooks: write each delivery down, lease it to a sender, record what came of it.

Every subscription has its own cursor. Moving it and writing the deliveries is one transaction, so there is no
gap; a delivery is leased while it is sent, so a sender that dies costs a repetition, with the same id, and
never a loss.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Min, Q, QuerySet

from federation.handles import new_handle
from federation.models import Event
from orchestrator import selectors
from orchestrator.models import (
    Attempt,
    Delivery,
    DeliveryState,
    Manifest,
    Subscription,
    SubscriptionState,
    Target,
    Task,
)
from orchestrator.retries import held_until, next_try_at
from orchestrator.shown import AttemptShown, EventShown
from orchestrator.wake import Filter, Wish, encoded, hears, payload

BATCH = 200
LEASE = timedelta(seconds=60)
AT_ONCE = 50
"""Deliveries of one subscription that are leased at once."""
RECEIVERS = 32
KEPT = timedelta(days=30)
_TRIES_KEPT = 12


@dataclass(frozen=True, slots=True)
class Claim:
    """Deliveries of one subscription, leased for sending, oldest event first."""

    subscription: Subscription
    deliveries: Sequence[Delivery]
    until: datetime


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one try."""

    delivery_id: int
    at: datetime
    ms: int
    status: int | None = None
    """HTTP status; None = there was no answer."""
    error: str = ""
    """Why it does not count as delivered; empty = it does."""
    asked_s: int | None = None
    chance: float = 0.5
    """0..1, for the jitter of the next try."""

    @property
    def is_gone(self) -> bool:
        """Return whether the receiver wants nothing any more."""
        return self.status == 410


def behind(*, head: int, target: Target = Target.WEBHOOK) -> list[int]:
    """Return the subscriptions whose cursor has not reached the head of the log."""
    rows = Subscription.objects.filter(
        state=SubscriptionState.ACTIVE.value, target=target.value, cursor_seq__lt=head
    )
    return list(rows.values_list("pk", flat=True))


@transaction.atomic
def fan_out(subscription_id: int, *, now: datetime) -> bool:
    """Turn the next events into deliveries; return whether there are more."""
    subscription = (
        Subscription.objects.select_for_update(of=("self",), skip_locked=True, no_key=True)
        .select_related("user")
        .filter(pk=subscription_id, state=SubscriptionState.ACTIVE.value)
        .first()
    )
    if subscription is None:
        return False
    found, cursor, more = heard_by(subscription, limit=BATCH)
    Delivery.objects.bulk_create(
        [
            Delivery(
                handle=new_handle("dlv", now),
                subscription=subscription,
                seq=event.cursor,
                event=event.id,
                event_type=event.type,
                body=body,
                next_at=now,
                created_at=now,
            )
            for event, body in _written(found)
        ],
        ignore_conflicts=True,  # a replay moved the cursor back over what is written already
    )
    Subscription.objects.filter(pk=subscription.pk).update(cursor_seq=cursor)
    return more


def heard_by(subscription: Subscription, *, limit: int) -> tuple[list[EventShown], int, bool]:
    """Return the next events that a subscription hears, the cursor beyond them, and if there are more."""
    head = selectors.head_cursor()
    rows = selectors.events(subscription.user).filter(position__seq__gt=subscription.cursor_seq)
    looked_at = list(rows.filter(position__seq__lte=head).order_by("position__seq")[:limit])
    more = len(looked_at) == limit
    cursor = looked_at[-1].position.seq if more else max(head, subscription.cursor_seq)
    wishes = _wishes(looked_at)
    wanted = filter_of(subscription)
    shown = [selectors.show_event(row) for row in looked_at]
    return [each for each in shown if hears(wanted, each, _wish_of(each, wishes))], cursor, more


def filter_of(subscription: Subscription) -> Filter:
    """Return what a subscription hears, as a value."""
    return Filter(
        handle=subscription.handle,
        types=tuple(subscription.types),
        subject=subscription.subject,
        only_named=subscription.only_named,
    )


def _wish_of(event: EventShown, wishes: dict[str, Wish]) -> Wish:
    return wishes.get(event.task or "") or wishes.get(event.group or "") or Wish()


def _wishes(events: Iterable[Event]) -> dict[str, Wish]:
    """Return the continuation of each task and group (its children's together) that these events are of."""
    events = list(events)
    tasks = {event.task for event in events if event.task}
    groups = {event.group for event in events if event.group and not event.task}
    found: dict[str, Wish] = {}
    rows = Task.objects.filter(Q(handle__in=tasks) | Q(group__handle__in=groups))
    for handle, group, said in rows.values_list("handle", "group__handle", "spec__continuation"):
        wish = Wish(tuple((said or {}).get("on", ())), tuple((said or {}).get("subscriptions", ())))
        found[handle] = wish
        if group in groups:
            before = found.get(group, Wish())
            found[group] = Wish(_union(before.on, wish.on), _union(before.subscriptions, wish.subscriptions))
    return found


def _union(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*one, *other)))


def _written(events: Sequence[EventShown]) -> list[tuple[EventShown, str]]:
    """Return each event with the payload that is sent of it."""
    attempts: dict[str, AttemptShown] = {
        row.handle: selectors.show_attempt(row)
        for row in Attempt.objects.filter(handle__in={e.attempt for e in events if e.attempt}).select_related(
            "task", "system", "decision"
        )
    }
    manifests: dict[str, str] = dict(
        Manifest.objects.filter(task__handle__in={e.task for e in events if e.task}).values_list(
            "task__handle", "handle"
        )
    )
    return [
        (
            event,
            encoded(
                payload(
                    event,
                    attempt=attempts.get(event.attempt or ""),
                    manifest=manifests.get(event.task or ""),
                )
            ),
        )
        for event in events
    ]


def due(now: datetime) -> QuerySet[Delivery]:
    """Return the deliveries that may be sent now."""
    held = Q(subscription__due_at__gt=now)
    return Delivery.objects.filter(
        state=DeliveryState.PENDING.value,
        next_at__lte=now,
        subscription__state=SubscriptionState.ACTIVE.value,
    ).exclude(held)


def claim(*, now: datetime) -> list[Claim]:
    """Lease what is due: some of each subscription, those that wait longest first."""
    oldest = due(now).order_by().values("subscription").annotate(first=Min("next_at")).order_by("first")
    found = [_claim_of(row["subscription"], now=now) for row in oldest[:RECEIVERS]]
    return [each for each in found if each.deliveries]


@transaction.atomic
def _claim_of(subscription_id: int, *, now: datetime) -> Claim:
    rows = due(now).filter(subscription_id=subscription_id).order_by("seq")
    taken = list(rows.select_for_update(of=("self",), skip_locked=True, no_key=True)[:AT_ONCE])
    until = now + LEASE
    Delivery.objects.filter(pk__in=[row.pk for row in taken]).update(next_at=until)
    return Claim(Subscription.objects.get(pk=subscription_id), taken, until)


@transaction.atomic
def settle(given: Claim, outcomes: Sequence[Outcome], *, now: datetime) -> None:
    """Record what came of a claim; what was not tried is due again at once.

    A delivery whose lease ran out meanwhile belongs to somebody else: what we know of it is kept,
    unless it is delivered already.
    """
    present = Subscription.objects.select_for_update(no_key=True).filter(pk=given.subscription.pk).first()
    if present is None:
        return  # removed while we were sending
    tried = {outcome.delivery_id for outcome in outcomes}
    leased = Delivery.objects.filter(
        pk__in=[row.pk for row in given.deliveries], state=DeliveryState.PENDING.value
    )
    leased.filter(next_at=given.until).exclude(pk__in=tried).update(next_at=now)
    rows = {row.pk: row for row in leased.filter(pk__in=tried).select_for_update(no_key=True)}
    for outcome in outcomes:
        if outcome.delivery_id in rows:
            _settle_one(rows[outcome.delivery_id], outcome, now=now)
    Delivery.objects.bulk_update(rows.values(), ["state", "attempts", "next_at", "tries", "delivered_at"])
    died = any(row.state == DeliveryState.DEAD.value for row in rows.values())
    _judge(present, outcomes, died=died, now=now)


def _settle_one(row: Delivery, outcome: Outcome, *, now: datetime) -> None:
    row.attempts += 1
    tried = {"at": outcome.at.isoformat(), "status": outcome.status, "error": outcome.error, "ms": outcome.ms}
    row.tries = [*row.tries, tried][-_TRIES_KEPT:]
    if not outcome.error:
        row.state, row.next_at, row.delivered_at = DeliveryState.DELIVERED.value, None, outcome.at
        return
    following = next_try_at(row.attempts, now=now, chance=outcome.chance, asked_s=outcome.asked_s)
    row.next_at = None if outcome.is_gone else following
    if row.next_at is None:
        row.state = DeliveryState.DEAD.value


def _judge(given: Subscription, outcomes: Sequence[Outcome], *, died: bool, now: datetime) -> None:
    """Hold or disable a subscription by the last of its outcomes; one success forgives everything before."""
    if not outcomes:
        return
    rows = Subscription.objects.filter(pk=given.pk, state=SubscriptionState.ACTIVE.value)
    last = outcomes[-1]
    if not last.error:
        rows.update(failures=0, due_at=None, reason="")
        return
    before = 0 if any(not each.error for each in outcomes) else given.failures
    failures = before + 1
    changes: dict[str, Any] = {"failures": failures, "due_at": held_until(failures, now=now)}
    changes["reason"] = last.error[:300]
    if last.is_gone or died:
        why = "the receiver says that it is gone (410)" if last.is_gone else "no try succeeded for days"
        changes |= {
            "state": SubscriptionState.DISABLED.value,
            "reason": f"{why}: {last.error}"[:300],
            "updated_at": now,
        }
    rows.update(**changes)


def prune(*, now: datetime) -> int:
    """Forget what was delivered or given up long ago; return how many."""
    old = Delivery.objects.filter(created_at__lt=now - KEPT).exclude(state=DeliveryState.PENDING.value)
    return old.delete()[0]


def told_up_to() -> int | None:
    """Return the place up to which every active webhook and e-mail was served; None where there are none."""
    rows = Subscription.objects.filter(state=SubscriptionState.ACTIVE.value).exclude(
        target=Target.CURSOR.value
    )
    least: int | None = rows.aggregate(least=Min("cursor_seq"))["least"]
    return least
