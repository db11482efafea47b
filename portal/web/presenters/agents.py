"""Tokens, subscriptions and wakes as one page; subscriptions with their deliveries. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from portal.subscriptions import DeliveryShown, SubscriptionShown
from portal.tokens import TokenMade, TokenShown
from portal.web.presenters.shared import Page
from portal.web.presenters.tasks import EventRow

if TYPE_CHECKING:
    from federation.models import Event
    from orchestrator.models import Delivery


@dataclass(frozen=True, slots=True)
class Told:
    """One subscription that was told of an event, and how that stands."""

    subscription: str
    name: str
    state: str


@dataclass(frozen=True, slots=True)
class Wake:
    """An event that wakes: a milestone or an exception, and whom it reached."""

    event: EventRow
    kind: str
    told: tuple[Told, ...]


@dataclass(frozen=True, slots=True)
class AgentsPage:
    """Everything about the programs that act for the caller."""

    tokens: tuple[TokenShown, ...]
    subscriptions: tuple[SubscriptionShown, ...]
    wakes: tuple[Wake, ...]
    made: TokenMade | None
    """The token that was just made, with its secret; None on every other page."""
    address: str
    """Where e-mail goes; "" = the account has none."""

    @property
    def token_example(self) -> dict[str, object]:
        """The input of a token, to show as a call."""
        return {"name": "lab-agent", "scopes": ["read", "draft", "submit"], "expires_in_days": 30}


@dataclass(frozen=True, slots=True)
class SubscriptionPage:
    """One subscription with its log of deliveries."""

    subscription: SubscriptionShown
    deliveries: Page[DeliveryShown]
    state: str
    """Which deliveries are shown; "" = all."""
    dead: int
    """Deliveries that were given up."""
    secret: str | None
    """The secret that was just made; None on every other page."""
    now: datetime


def wakes(events: Iterable[tuple["Event", EventRow]], told: Sequence["Delivery"]) -> tuple[Wake, ...]:
    """Return events that wake with whom they reached, in the order given."""
    by_event: dict[str, list[Told]] = {}
    for each in told:
        one = Told(each.subscription.handle, each.subscription.name, each.state)
        by_event.setdefault(each.event, []).append(one)
    return tuple(Wake(row, event.wake, tuple(by_event.get(event.handle, ()))) for event, row in events)
