"""Several systems refreshed by one worker: at the same time, and each for itself."""

import time

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from federation.models import Connection, Snapshot
from federation.side_by_side import refresh_together
from tests.state.conftest import Sites

pytestmark = pytest.mark.django_db(transaction=True)


def test_slow_systems_are_asked_at_the_same_time_and_a_broken_one_costs_no_other(
    sites: Sites, alice: User
) -> None:
    systems = [
        sites.add(slug, alice, account=account)
        for slug, account in (("delta", "bbka-delta-gpu"), ("vista", "ASC24001"))
    ]
    for slug in ("delta", "vista"):
        sites.fault(slug, "slow", seconds=0.5)
    Connection.objects.filter(system=systems[1]).update(settings={"run_as": "nobody-of-that-name"})

    before = Snapshot.objects.count()
    refresh_together([system.pk for system in systems], now=timezone.now())
    broken = Snapshot.objects.filter(system=systems[1]).latest("pk")
    assert Snapshot.objects.count() == before + 2
    assert broken.availability != "available"
    assert Snapshot.objects.filter(system=systems[0]).latest("pk").availability == "available"

    Connection.objects.filter(system=systems[1]).update(settings={"env": sites.env["vista"]})
    began = time.monotonic()
    assert refresh_together([system.pk for system in systems], now=timezone.now()) == 2
    wall_s = time.monotonic() - began

    own = list(Snapshot.objects.order_by("-pk").values_list("duration_s", flat=True)[:2])
    assert wall_s < 0.9 * sum(own), (wall_s, own)
    assert refresh_together([], now=timezone.now()) == 0
