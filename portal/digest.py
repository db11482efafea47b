"""E-mails for people: what happened to their work since the last one, to their own address only."""

import hashlib
import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from smtplib import SMTPAuthenticationError, SMTPException, SMTPRecipientsRefused, SMTPSenderRefused
from socket import gaierror

from django.conf import settings
from django.core.mail import EmailMessage
from django.db import transaction

from orchestrator.models import Subscription, SubscriptionState, Target
from orchestrator.services.deliveries import heard_by
from orchestrator.shown import EventShown

_FAULTS: tuple[tuple[type[Exception], str], ...] = (
    (SMTPRecipientsRefused, "the mail server refused the address"),
    (SMTPSenderRefused, "the mail server refused the sender"),
    (SMTPAuthenticationError, "the mail server refused the account of this installation"),
    (SMTPException, "the mail server did not take it"),
    (ConnectionRefusedError, "the mail server refused the connection"),
    (TimeoutError, "the mail server did not answer in time"),
    (gaierror, "the name of the mail server was not found"),
    (OSError, "the mail server cannot be reached"),
)
"""Faults of sending in words, the first that fits; what a server says stays in the log of the operator."""
_log = logging.getLogger(__name__)
_LISTED = 100
_LOOKED_AT = 500
_TRY_AGAIN = timedelta(minutes=10)


def send_due(*, now: datetime) -> int:
    """Send every e-mail that is due; return how many. A failure costs only its own, which is tried again."""
    due = Subscription.objects.filter(
        state=SubscriptionState.ACTIVE.value, target=Target.EMAIL.value, due_at__lte=now
    )
    return sum(_send(each, now=now) for each in due.values_list("pk", flat=True))


@transaction.atomic
def _send(subscription_id: int, *, now: datetime) -> int:
    """Send one, and move the cursor behind it; the row is locked, so nobody else sends the same."""
    row = (
        Subscription.objects.select_for_update(of=("self",), skip_locked=True, no_key=True)
        .select_related("user")
        .filter(pk=subscription_id, due_at__lte=now)
        .first()
    )
    if row is None or row.digest_s is None:
        return 0
    events, cursor, more = heard_by(row, limit=_LOOKED_AT)
    address = getattr(row.user, "email", "")
    if events and address:
        try:
            _message(row, address, events, cursor=cursor, more=more).send()
        except (OSError, SMTPException) as error:
            _log.warning("the e-mail of %s could not be sent: %s", row.handle, type(error).__name__)
            Subscription.objects.filter(pk=row.pk).update(
                failures=row.failures + 1, reason=f"not sent: {_in_words(error)}", due_at=now + _TRY_AGAIN
            )
            return 0
    following = now if more else now + timedelta(seconds=row.digest_s)
    reason = "" if address else "Your account has no e-mail address."
    Subscription.objects.filter(pk=row.pk).update(
        cursor_seq=cursor, due_at=following, failures=0, reason=reason
    )
    return int(bool(events and address))


def _message(
    row: Subscription, address: str, events: Sequence[EventShown], *, cursor: int, more: bool
) -> EmailMessage:
    """Return the e-mail; its Message-ID follows from what it tells, so that repetitions are recognised."""
    identity = hashlib.sha256(f"{row.handle} {row.cursor_seq} {cursor}".encode()).hexdigest()[:32]
    count = len(events)
    return EmailMessage(
        subject=f"Facet: {count} event{'s' if count > 1 else ''} of your work",
        body=text(events, url=settings.PUBLIC_URL, more=more),
        to=[address],
        headers={"Message-ID": f"<{identity}@facet>", "Auto-Submitted": "auto-generated"},
    )


def text(events: Sequence[EventShown], *, url: str, more: bool) -> str:
    """Return the body: one line for each event, the newest state of each thing first."""
    lines = [_line(event, url) for event in events[-_LISTED:]]
    left = len(events) - len(lines)
    if left:
        lines.insert(0, f"({left} earlier ones: {url}/api/v1/events)")
    if more:
        lines.append("(There is more; the next e-mail follows.)")
    return "\n".join([*lines, "", f"You asked for this. Change it: {url}/api/v1/subscriptions", ""])


def _line(event: EventShown, url: str) -> str:
    summary = " ".join(event.summary.split())
    where = f"  {url}/tasks/{event.task}/" if event.task else ""
    return f"{event.at:%Y-%m-%d %H:%M} UTC  {event.type}  {summary}{where}"


def _in_words(error: Exception) -> str:
    return next(words for kind, words in _FAULTS if isinstance(error, kind))
