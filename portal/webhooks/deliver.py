"""One turn of delivery: events become deliveries, what is due is sent, what came of it is recorded.

The database is touched by the calling thread only; threads send, one for each receiver.
"""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from datetime import datetime

from django.conf import settings
from django.utils import timezone

from federation.locks import only_one
from orchestrator import selectors
from orchestrator.models import Subscription
from orchestrator.services.deliveries import Claim, Outcome, behind, claim, due, fan_out, settle
from portal.sealing import Unreadable, unseal
from portal.webhooks.address import Allowed, place_of
from portal.webhooks.post import Heard, Sender
from portal.webhooks.signing import PURPOSE, headers

_THREADS = 16
RECEIVER_S = 8.0
"""How long one receiver is sent to in one turn; the rest waits for the next."""
_TURN_S = 20.0


def allowed() -> Allowed:
    """Return what the operator allows besides public addresses."""
    return Allowed(settings.WEBHOOK_ALLOW)


def deliver(*, now: datetime | None = None, turn_s: float = _TURN_S) -> int:
    """Send what is due, turn after turn while there is something; return how many were tried.

    Safe to run twice at once: a second one finds the lock taken, and even without it nothing would be lost.
    """
    head = selectors.head_cursor()
    if not behind(head=head) and not due(now or timezone.now()).exists():
        return 0
    until = time.monotonic() + turn_s
    sent = 0
    with only_one("webhooks") as is_ours:
        while is_ours and time.monotonic() < until:
            instant = now or timezone.now()
            more = [fan_out(each, now=instant) for each in behind(head=selectors.head_cursor())]
            tried = _send_all(claim(now=instant), now=now)
            sent += tried
            if not tried and not any(more):
                break
    return sent


@dataclass(frozen=True, slots=True)
class _Letter:
    """One delivery ready to send."""

    delivery_id: int
    event: str
    body: bytes


def _send_all(claims: list[Claim], *, now: datetime | None) -> int:
    if not claims:
        return 0
    tried = 0
    with ThreadPoolExecutor(min(_THREADS, len(claims)), thread_name_prefix="webhook") as pool:
        running = {pool.submit(_job(each)): each for each in claims}
        for done in as_completed(running):
            outcomes = done.result()
            settle(running[done], outcomes, now=now or timezone.now())
            tried += len(outcomes)
    return tried


def _job(given: Claim) -> Callable[[], list[Outcome]]:
    """Return the work of one receiver; it needs no database."""
    letters = [_Letter(row.pk, row.event, row.body.encode()) for row in given.deliveries]
    url = given.subscription.url
    try:
        secrets = secrets_of(given.subscription, now=timezone.now())
    except Unreadable as error:
        said = error.message
        return lambda: [_outcome(letters[0].delivery_id, Heard(0, error=said))]
    return lambda: _send_to(url, secrets, letters)


def secrets_of(subscription: Subscription, *, now: datetime) -> list[str]:
    """Return the secrets that sign now: the present one, and the one before while it is still valid.

    Raises:
        Unreadable: it was sealed with a key that is lost.
    """
    sealed = [subscription.sealed_secret]
    if subscription.previous_until is not None and subscription.previous_until > now:
        sealed.append(subscription.sealed_previous)
    return [unseal(each, purpose=PURPOSE) for each in sealed if each]


def _send_to(url: str, secrets: list[str], letters: list[_Letter]) -> list[Outcome]:
    """Send in the order of the log until one fails or the time is over."""
    sender = Sender(place_of(url), allowed())
    until = time.monotonic() + RECEIVER_S
    outcomes: list[Outcome] = []
    try:
        for letter in letters:
            outcome = _outcome(letter.delivery_id, send_one(sender, secrets, letter.event, letter.body))
            outcomes.append(outcome)
            if outcome.error or time.monotonic() > until:
                break
    finally:
        sender.close()
    return outcomes


def send_one(sender: Sender, secrets: list[str], event: str, body: bytes) -> Heard:
    """Sign and send one body."""
    signed = headers(secrets, id_=event, timestamp=int(timezone.now().timestamp()), body=body)
    return sender.send(body, signed)


def _outcome(delivery_id: int, heard: Heard) -> Outcome:
    return Outcome(
        delivery_id=delivery_id,
        at=timezone.now(),
        ms=heard.ms,
        status=heard.status,
        error=heard.error,
        asked_s=heard.asked_s,
        chance=heard.chance,
    )
