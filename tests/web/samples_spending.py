"""Balances, budgets and approvals as pages show them."""

from datetime import timedelta
from decimal import Decimal

from portal.web.presenters import allocations
from tests.web.samples import ANVIL, DELTA, NOW

ALLOCATIONS = (
    allocations.AllocationRow(
        handle="alc_1",
        ref=ANVIL,
        account="science",
        unit="SU",
        granted="1 000 SU",
        used="600",
        reserved="100",
        left="300 SU",
        is_exhausted=False,
        gauge=allocations.Gauge(60, 10, (80,)),
        site_left="290 SU",
        site_at=NOW,
        site_source="sshare",
        site_counts=False,
    ),
    allocations.AllocationRow(
        handle="alc_2",
        ref=DELTA,
        account="open",
        unit="GPU hours",
        granted="",
        used="3",
        reserved="0",
        left="",
        is_exhausted=True,
        gauge=None,
        site_left="",
        site_at=None,
        site_source="",
        site_counts=False,
    ),
)
METERS = (
    allocations.MeterRow(
        "charge", ANVIL, "90", "100 SU", "10", "20", False, allocations.Gauge(70, 20, (80,))
    ),
    allocations.MeterRow(
        "attempts", None, "4", "4", "0", "", True, allocations.Gauge(100, 0, (), is_over=True)
    ),
    allocations.MeterRow("model tokens", None, "", "", "", "", False, None),
)
BUDGETS = tuple(
    allocations.BudgetRow(
        f"bud_{number}",
        name,
        scope,
        scope,
        subject,
        state,
        METERS,
        "nothing new starts",
        deadline,
        imposed,
        "user:mira",
        NOW,
    )
    for number, (name, scope, subject, state, deadline, imposed) in enumerate(
        (
            ("Campaign", "project", "md", "open", NOW + timedelta(days=3), False),
            ("", "task", "task_1", "exhausted", None, True),
            ("", "group", "grp_1", "closed", None, False),
        )
    )
)  # fmt: skip


def approval(state: str, **more: object) -> allocations.ApprovalRow:
    """Return one approval in a state."""
    said = {
        "handle": f"apr_{state}",
        "state": state,
        "task": "task_1",
        "task_name": "md-equil",
        "ref": ANVIL,
        "partition": "gpu",
        "asks": (f"{allocations.amount(Decimal(24), 'SU')}, where more than 20 SU is asked about",),
        "asked_by": "token:lab-agent",
        "needs_admin": True,
        "created_at": NOW,
        "expires_at": NOW + timedelta(days=7),
        "decided_by": "",
        "decided_at": None,
        "note": "",
    }
    return allocations.ApprovalRow(**{**said, **more})  # type: ignore[arg-type]  # one mapping of all fields


SPENDING = allocations.AllocationsPage(
    waiting=(approval("pending"),),
    decided=(approval("rejected", decided_by="user:mira", decided_at=NOW, note="too dear"),),
    allocations=ALLOCATIONS,
    budgets=BUDGETS,
    with_closed=True,
    now=NOW,
)
NOTHING = allocations.AllocationsPage((), (), (), (), with_closed=False, now=NOW)
