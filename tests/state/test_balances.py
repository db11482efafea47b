"""Balances come from the site with the full probe, show their age, and placement stays within them."""

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from federation import balances, collector
from federation.models import Allocation, Connection, System
from federation.profile import BalanceRule, ProfileDocument
from federation.selectors import credit_left, left_of, show_allocation
from federation.services import store_profile
from orchestrator.lifecycle import TaskState
from providers.errors import SiteError
from providers.types import BatchReply, Reply
from tests.state.conftest import PROFILES, Sites
from tests.state.spending import ONE_GPU, submit
from tests.web.world import make_system

pytestmark = pytest.mark.django_db


def _seen(*values: object) -> tuple[Any, ...]:
    """Return figures to be compared with plain numbers."""
    return values


SSHARE = {"source": "sshare", "tres": "gres/gpu", "minutes_per_unit": 60, "unit": "SU"}


def _ask(system: System, balance: dict[str, object], now: datetime) -> None:
    """Put a profile with this rule in force and look at the site in full."""
    document = {**PROFILES["delta"], "balance": balance}
    store_profile(ProfileDocument.model_validate(document), str(document), now=now)
    connection = Connection.objects.get(system=system)
    assert collector.refresh_access(connection.pk, now=now)


@pytest.mark.django_db(transaction=True)
def test_balances_are_imported_as_the_user_and_a_broken_command_leaves_the_last_one(
    sites: Sites, alice: User
) -> None:
    system = sites.add("delta", alice, account="bbka-delta-gpu", granted=Decimal(50_000))
    now = timezone.now()

    _ask(system, SSHARE, now)

    gpu, cpu = (Allocation.objects.get(account=f"bbka-delta-{kind}") for kind in ("gpu", "cpu"))
    assert _seen(gpu.granted, gpu.site_granted, gpu.site_used, gpu.site_left) == (50_000, 10_000, 0, 10_000)
    assert (cpu.granted, cpu.site_granted, cpu.unit) == (None, None, "SU")
    shown = show_allocation(gpu, now=now + timedelta(minutes=7)).site
    assert shown is not None
    assert (shown.age_s, shown.source, shown.unit, shown.counts, shown.problem) == (
        420,
        "sshare",
        "SU",
        True,
        None,
    )
    assert left_of(gpu) == 10_000

    later = now + timedelta(hours=1)
    _ask(
        system,
        {"source": "command", "command": ["no-such-balance"], "pattern": r"(?P<account>\S+) (?P<left>\d+)"},
        later,
    )

    gpu.refresh_from_db()
    assert _seen(gpu.site_left, gpu.site_at) == (10_000, now)
    told = show_allocation(gpu, now=later).site
    assert told is not None
    assert told.problem is not None
    assert "not installed" in told.problem
    assert System.objects.get().health == "online"


@pytest.mark.django_db(transaction=True)
def test_a_program_of_the_site_is_read_by_the_profiles_pattern(sites: Sites, alice: User) -> None:
    system = sites.add("delta", alice, account="bbka-delta-gpu")
    said = {"source": "command", "command": ["echo", "bbka-delta-gpu 12.5 of 40"], "unit": "GPUh"}

    _ask(
        system, {**said, "pattern": r"(?P<account>\S+) (?P<left>[\d.]+) of (?P<granted>\d+)"}, timezone.now()
    )

    row = Allocation.objects.get()
    assert (row.account, row.site_left, row.site_used, row.site_unit) == (
        "bbka-delta-gpu", Decimal("12.5"), Decimal("27.5"), "GPUh"
    )  # fmt: skip
    assert row.site_source == "echo"


@pytest.mark.parametrize("amount", ["1e30", "18446744073709551615"])
def test_an_amount_that_no_account_holds_is_told_and_costs_itself_alone(amount: str) -> None:
    rule = BalanceRule.model_validate(
        {"source": "command", "command": ["b"], "pattern": r"(?P<account>\S+) (?P<left>\S+)"}
    )
    reply = BatchReply(replies={"facet.balances": Reply(name="facet.balances", rc=0, stdout=f"gpu {amount}")})

    with pytest.raises(SiteError, match="more than any account holds"):
        balances.read(rule, reply, user="alice")


def test_placement_stays_within_what_the_site_has_left(alice: User, now: datetime) -> None:
    make_system(alice, "anvil", "Anvil", "a100", "40G", free=3, now=now)
    Allocation.objects.update(site_unit="SU", site_left=Decimal("1.5"), site_at=now)

    first, second = (submit(alice, now, envelope=ONE_GPU) for _ in range(2))

    assert (first.state, second.state) == (TaskState.PLACING, TaskState.UNSCHEDULABLE)
    assert credit_left(alice.pk, "anvil", "science") == Decimal("0.5")


def test_what_was_settled_since_the_balance_was_told_is_taken_off(alice: User, now: datetime) -> None:
    make_system(alice, "anvil", "Anvil", "a100", "40G", free=3, now=now)
    allocation = Allocation.objects.get()
    for number, at in enumerate((now - timedelta(hours=1), now + timedelta(hours=1))):
        allocation.charges.create(
            handle=f"chg_{number}", attempt_handle=f"a{number}", kind="settle", amount=3, at=at
        )
    Allocation.objects.update(site_unit="SU", site_left=Decimal(10), site_at=now, used=6, reserved=2)

    allocation.refresh_from_db()
    assert left_of(allocation) == 10 - 2 - 3


def test_a_balance_in_another_unit_is_shown_and_never_mixed(alice: User, now: datetime) -> None:
    make_system(alice, "anvil", "Anvil", "a100", "40G", free=3, now=now)
    Allocation.objects.update(site_unit="node-hours", site_left=Decimal(0), site_at=now)

    allocation = Allocation.objects.get()
    shown = show_allocation(allocation, now=now)
    assert shown.left == 1000
    assert shown.site is not None
    assert _seen(shown.site.left, shown.site.counts) == (0, False)
    assert submit(alice, now).state == TaskState.PLACING
