"""Transfers as pages show them."""

from datetime import timedelta

from orchestrator.shown import TransferItem, TransferShown
from portal.web.presenters import transfers
from portal.web.presenters.shared import Page
from tests.web.samples import NOW
from tests.web.samples_tasks import EVENTS

MOVING = TransferShown(
    id="xfer_1",
    task="task_1",
    attempt=None,
    state="active",
    purpose="stage_in",
    mover="globus",
    source="globus://a/x/",
    destination="globus://b/x/",
    items=[
        TransferItem(
            source="globus://a/x/", destination="globus://b/x/", bytes=2048, sha256="ab" * 32, path=None
        )
    ],
    reason="the storage wants a consent",
    fault="consent",
    faults=2,
    files=10,
    files_moved=4,
    files_skipped=1,
    bytes_expected=2048,
    bytes_moved=512,
    rate_mib_s=None,
    sign_in="/connections/connect/",
    submitted_by="user:mira",
    cancel_requested=True,
    created_at=NOW,
    started_at=NOW,
    observed_at=NOW,
    deadline_at=NOW + timedelta(hours=24),
    finished_at=None,
    next_actions=[],
)
DONE = MOVING.model_copy(
    update={
        "id": "xfer_2",
        "state": "succeeded",
        "finished_at": NOW,
        "rate_mib_s": 12.5,
        "sign_in": None,
        "cancel_requested": False,
    }
)
ROWS = tuple(transfers.transfer_row(each) for each in (MOVING, DONE))
TRANSFERS = transfers.TransferListPage(
    Page(ROWS, next_query="cursor=xfer_1"),
    "",
    "",
    ("requested", "active", "failed"),
    any_transfers=True,
    waiting=ROWS[:1],
)
NO_TRANSFER = transfers.TransferListPage(Page(()), "", "", (), any_transfers=False, waiting=())
POLICY = (("same_account", "allowed", "both yours"), ("consent", "needs_action", "sign in"))
TRANSFER = transfers.TransferPage(ROWS[0], MOVING, POLICY, EVENTS, may_cancel=True)
ENDED = transfers.TransferPage(ROWS[1], DONE, (), EVENTS, may_cancel=False)
