"""Agents, subscriptions, one event and the chain's check as pages show them."""

from datetime import timedelta

from orchestrator.shown import EventShown
from portal.skills.registry import Scope
from portal.subscriptions import DeliveryShown, Lag, SubscriptionShown
from portal.tokens import TokenMade, TokenShown
from portal.web.agent_forms import SubscriptionForm, TokenForm
from portal.web.presenters import agents, event_log
from portal.web.presenters.shared import Page
from tests.web.samples import ANVIL, DELTA, NOW
from tests.web.samples_tasks import EVENTS

TOKEN = TokenShown(
    id="tok_1",
    state="active",
    name="lab-agent",
    prefix="facet_abcdef",
    scopes=["read", "submit", "admin"],
    systems=["anvil"],
    created_at=NOW,
    expires_at=NOW + timedelta(days=30),
    revoked_at=None,
    last_used_at=NOW,
)
ENDED = TOKEN.model_copy(
    update={"id": "tok_2", "state": "revoked", "revoked_at": NOW, "systems": [], "last_used_at": None}
)
SUBSCRIPTION = SubscriptionShown(
    id="sub_1",
    state="disabled",
    reason="no try succeeded for days",
    name="lab-bot",
    target="webhook",
    url="https://hooks.example.org/facet",
    types=["task.*"],
    subject=None,
    only_named=False,
    digest=None,
    cursor=12_000,
    acked=11_998,
    failures=3,
    secrets=2,
    lag=Lag(events=2, oldest_s=90),
    created_at=NOW,
    updated_at=NOW,
)
BRIDGE = SUBSCRIPTION.model_copy(
    update={"id": "sub_2", "state": "active", "reason": None, "target": "cursor", "url": None, "types": []}
)
DELIVERY = DeliveryShown(
    id="dlv_1",
    state="dead",
    subscription="sub_1",
    event="evt_1",
    type="task.failed",
    cursor=12_000,
    attempts=2,
    next_at=None,
    delivered_at=None,
    tries=[
        {"at": "2026-03-04T14:00:00+00:00", "status": None, "error": "connection refused", "ms": 12},
        {"at": "2026-03-04T14:01:00+00:00", "status": 503, "error": "HTTP 503", "ms": 80},
    ],
    created_at=NOW,
)
WAKES = (
    agents.Wake(EVENTS[0], "exception", (agents.Told("sub_1", "lab-bot", "dead"),)),
    agents.Wake(EVENTS[1], "milestone", ()),
)
TOKEN_FORM = TokenForm(held=[Scope.READ, Scope.SUBMIT], systems=(ANVIL, DELTA))
AGENTS = agents.AgentsPage(
    (TOKEN, ENDED), (SUBSCRIPTION, BRIDGE), WAKES, TokenMade(**TOKEN.model_dump(), token="facet_secret"), ""
)
NO_AGENTS = agents.AgentsPage((), (), (), None, "mira@example.org")
ONE_SUBSCRIPTION = agents.SubscriptionPage(
    SUBSCRIPTION, Page((DELIVERY,), next_query="cursor=dlv_1"), "dead", 1, "whsec_secret", NOW
)
ONE_BRIDGE = agents.SubscriptionPage(BRIDGE, Page(()), "", 0, None, NOW)
SUBSCRIPTION_FORM = SubscriptionForm(initial={"name": "lab-bot", "families": ["task.*"], "target": "webhook"})
EVENT = event_log.EventPage(
    row=EVENTS[0],
    event=EventShown(
        id="evt_1",
        cursor=48_244,
        type="task.failed",
        subject="task_1",
        task="task_1",
        group="grp_1",
        attempt="att_1",
        transfer=None,
        system="anvil",
        actor="token:lab-agent",
        on_behalf_of="user:mira",
        at=NOW,
        state="failed",
        summary="md-equil failed",
        data={"cause": "exit_code"},
        next_actions=[],
        wake="exception",
    ),
    hash="ab" * 32,
    data='{"cause": "exit_code"}',
    actions=(("get_result", {"task": "task_1"}, "manifest, attempts and times"),),
)
CHECKING = event_log.VerifyPage(0, 20_000, 50_000, 20_000, 0, (), 40.0, "signed", NOW)
BROKEN = event_log.VerifyPage(
    40_000, 50_000, 50_000, 50_000, 1, ((40_012, "the event was changed"),), 100, None, NOW
)
WHOLE = event_log.VerifyPage(0, 20, 20, 20, 0, (), 100, None, NOW)
