"""The verbs on subscriptions: make, change, remove, acknowledge, replay. Secrets come sealed."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.db.models import QuerySet

from federation.handles import new_handle
from orchestrator import selectors
from orchestrator.models import Delivery, DeliveryState, Subscription, SubscriptionState, Target
from providers.errors import Conflict, InvalidInput, NotFound
from providers.reading import nearest

MOST = 50
"""Subscriptions of one user."""


def subscriptions(user: AbstractBaseUser) -> QuerySet[Subscription]:
    """Return this user's subscriptions, newest first."""
    return Subscription.objects.filter(user_id=user.pk).order_by("-id")


def deliveries(user: AbstractBaseUser) -> QuerySet[Delivery]:
    """Return the deliveries of this user's subscriptions, newest first."""
    rows = Delivery.objects.filter(subscription__user_id=user.pk)
    return rows.select_related("subscription").order_by("-id")


def find_subscription(user: AbstractBaseUser, handle: str) -> Subscription:
    """Return a subscription.

    Raises:
        NotFound: none of this user's.
    """
    row = subscriptions(user).filter(handle=handle).first()
    if row is None:
        raise NotFound(f"No subscription {handle[:80]!r}.")
    return row


def known_subscriptions(user: AbstractBaseUser, handles: Sequence[str], *, pointer: str) -> None:
    """Refuse handles that are not this user's subscriptions.

    Raises:
        InvalidInput: naming the nearest.
    """
    if not handles:
        return
    known = set(subscriptions(user).values_list("handle", flat=True))
    problems = tuple(
        (
            f"{pointer}/{number}",
            "unknown_subscription",
            f"No subscription {word[:80]!r}.{nearest(word, known)}",
        )
        for number, word in enumerate(handles)
        if word not in known
    )
    if problems:
        raise InvalidInput(problems[0][2], problems=problems)


@transaction.atomic
def create_subscription(
    user: AbstractBaseUser, fields: Mapping[str, Any], *, after: int | None, now: datetime
) -> Subscription:
    """Keep a subscription that hears from the head of the log on, or from a cursor.

    Raises:
        Conflict: the user has as many as one may.
    """
    if subscriptions(user).count() >= MOST:
        raise Conflict(f"You have {MOST} subscriptions, which is as many as one may.")
    cursor = selectors.head_cursor() if after is None else after
    target = Target(fields["target"])
    first = now + timedelta(seconds=fields["digest_s"]) if target is Target.EMAIL else None
    return Subscription.objects.create(
        handle=new_handle("sub", now),
        user_id=user.pk,
        cursor_seq=cursor,
        acked_seq=cursor,
        due_at=first,
        created_at=now,
        updated_at=now,
        **fields,
    )


@transaction.atomic
def edit_subscription(row: Subscription, changes: Mapping[str, Any], *, now: datetime) -> Subscription:
    """Change a subscription; one that is made active again starts with a clean record."""
    changed = dict(changes)
    if changed.get("state") == SubscriptionState.ACTIVE.value:
        changed |= {"failures": 0, "reason": ""}
        if row.target == Target.WEBHOOK.value:
            changed["due_at"] = None
    if changed.get("digest_s"):
        changed["due_at"] = now + timedelta(seconds=changed["digest_s"])
    Subscription.objects.filter(pk=row.pk).update(**changed, updated_at=now)
    row.refresh_from_db()
    return row


def remove_subscription(row: Subscription) -> None:
    """Forget a subscription and what was written of it."""
    row.delete()


@transaction.atomic
def acknowledge(row: Subscription, cursor: int) -> Subscription:
    """Note that a reader has everything up to a cursor; it never goes back.

    Raises:
        Conflict: another target knows by itself, or the cursor is beyond the log.
    """
    if row.target != Target.CURSOR.value:
        raise Conflict(f"A subscription of the target `{row.target}` is acknowledged by its receiver.")
    head = selectors.head_cursor()
    if cursor > head:
        raise Conflict(f"Cursor {cursor} is beyond the newest event, {head}.", head=head)
    Subscription.objects.filter(pk=row.pk, acked_seq__lt=cursor).update(acked_seq=cursor, cursor_seq=cursor)
    row.refresh_from_db()
    return row


@transaction.atomic
def replay(
    row: Subscription, *, after: int | None, delivery: str | None, dead_only: bool, now: datetime
) -> int:
    """Make deliveries due again and return how many: one, those given up, or all after a cursor.

    Events after the cursor that were never written as deliveries will be, by the next turn.

    Raises:
        NotFound: no such delivery of this subscription.
    """
    Subscription.objects.select_for_update(no_key=True).get(pk=row.pk)
    rows = Delivery.objects.filter(subscription=row)
    if delivery is not None:
        rows = rows.filter(handle=delivery)
        if not rows.exists():
            raise NotFound(f"No delivery {delivery[:80]!r} of {row.handle}.", pointer="/delivery")
    if dead_only:
        rows = rows.filter(state=DeliveryState.DEAD.value)
    if after is not None:
        rows = rows.filter(seq__gt=after)
        Subscription.objects.filter(pk=row.pk, cursor_seq__gt=after).update(cursor_seq=after)
    if row.target == Target.CURSOR.value:
        Subscription.objects.filter(pk=row.pk, acked_seq__gt=after or 0).update(acked_seq=after or 0)
    return rows.update(state=DeliveryState.PENDING.value, attempts=0, next_at=now, delivered_at=None)
