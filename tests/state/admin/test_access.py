"""Connections and allocations are changed through their verbs."""

from datetime import datetime
from decimal import Decimal

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from federation.models import Allocation, Connection, System
from federation.services import connect
from tests.state.admin.asking import (
    text_of,
)
from tests.state.conftest import Sites

pytestmark = pytest.mark.django_db


def _connection(user: User, system: System, **changes: str) -> dict[str, str]:
    return {
        "user": str(user.pk),
        "system": str(system.pk),
        "kind": "local",
        "remote_user": "alice",
        "settings": '{"run_as": "alice", "env": {"SLURM_CONF": "/etc/slurm.conf"}}',
        **changes,
    }


def test_a_connection_is_made_through_its_verb(admin: Client, delta: System, alice: User) -> None:
    answer = admin.post(reverse("admin:federation_connection_add"), _connection(alice, delta))

    assert answer.status_code == 302
    kept = Connection.objects.get()
    assert kept.handle.startswith("con_")
    assert kept.settings == {"run_as": "alice", "env": {"SLURM_CONF": "/etc/slurm.conf"}}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"settings": '{"run_as": "alice", "shell": "x"}'}, "Unknown field `shell`."),
        ({"settings": '{"run_as": "Alice;rm"}'}, "/run_as: String should match pattern"),
        ({"settings": '{"env": {"API_TOKEN": "x"}}'}, "env.API_TOKEN looks like a secret"),
        ({"settings": '{"become": {"name": "root", "uid": 0, "gid": 0}}'}, "/become/uid"),
        ({"settings": "[1]"}, "The settings must be a JSON object, not an array."),
        ({"settings": "{"}, "Enter a valid JSON."),
        ({"kind": "globus_compute"}, "`endpoint_id` is required."),
        ({"kind": "globus_compute", "settings": '{"endpoint_id": "x"}'}, "/endpoint_id"),
    ],
)
def test_settings_are_held_against_the_kind_of_link(
    admin: Client, delta: System, alice: User, changes: dict[str, str], said: str
) -> None:
    page = text_of(
        admin.post(reverse("admin:federation_connection_add"), _connection(alice, delta, **changes))
    )

    assert said in page
    assert Connection.objects.count() == 0


def test_connections_are_disabled_and_enabled_by_actions(
    admin: Client, delta: System, alice: User, now: datetime
) -> None:
    kept = connect(alice, delta, kind="local", settings={}, now=now)
    place = reverse("admin:federation_connection_changelist")

    admin.post(place, {"action": "disable_connections", "_selected_action": [kept.pk]})
    kept.refresh_from_db()
    assert (kept.state, kept.state_reason) == ("disabled", "by user:root")

    admin.post(place, {"action": "enable_connections", "_selected_action": [kept.pk]})
    kept.refresh_from_db()
    assert (kept.state, kept.state_reason) == ("active", "")


def test_asking_the_site_fills_in_who_we_are_there(admin: Client, sites: Sites, alice: User) -> None:
    sites.add("delta", alice, account="bbka-delta-gpu")
    kept = Connection.objects.get()
    Connection.objects.update(facts={}, facts_at=None)

    admin.post(
        reverse("admin:federation_connection_changelist"),
        {"action": "ask_the_site", "_selected_action": [kept.pk]},
    )

    kept.refresh_from_db()
    assert kept.facts["user"] == "alice"
    assert kept.facts["associations"] != []


def test_what_may_be_spent_is_granted_and_changed_while_the_ledger_is_not(
    admin: Client, delta: System, alice: User, now: datetime
) -> None:
    add = {"user": alice.pk, "system": delta.pk, "account": "x-gpu", "unit": "SU", "granted": "100"}
    assert admin.post(reverse("admin:federation_allocation_add"), add).status_code == 302
    kept = Allocation.objects.get()

    admin.post(
        reverse("admin:federation_allocation_change", args=(kept.pk,)),
        {"unit": "SU", "granted": "250", "used": "0", "reserved": "99", "account": "other"},
    )

    kept.refresh_from_db()
    assert (kept.granted, kept.reserved, kept.used) == (Decimal(250), Decimal(0), Decimal(0))
    assert kept.account == "x-gpu"
