"""A site manager sees and changes the systems they look after; every way across is tried."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.admin.sites import site
from django.contrib.auth.models import Permission, User
from django.db import transaction
from django.test import Client
from django.urls import reverse

from federation.handles import new_handle
from federation.ledger import Happening, record
from federation.managers import GROUP, appoint, dismiss
from federation.models import Allocation, Charge, Event, SiteProfile, Snapshot, System
from federation.profile_yaml import read_profile
from federation.services import allocate, connect, store_profile
from portal.skills.registry import Scope
from portal.tokens import may_hold
from tests.state.admin.asking import CHANGED, TEXT, in_force, last_event, place_of, review, store, text_of

pytestmark = pytest.mark.django_db

OTHER = TEXT.replace("delta", "vista").replace("Delta", "Vista")
FOR_MANAGERS = {"Allocation", "Attempt", "Charge", "Connection", "Event", "Snapshot", "System"}


@dataclass
class World:
    """Two systems with one row of each kind; `carol` looks after Delta and not after Vista."""

    carol: User
    client: Client
    delta: System
    vista: System
    rows: dict[str, dict[str, Any]]
    """By system's slug: model's name to the row there."""


def _rows(system: System, user: User, now: datetime) -> dict[str, Any]:
    connection = connect(user, system, kind="local", settings={}, now=now, remote_user=user.username)
    allocation = allocate(user, system, f"{system.slug}-gpu", unit="SU", granted=Decimal(10), now=now)
    charge = Charge.objects.create(
        handle=new_handle("chg", now), allocation=allocation, attempt_handle=new_handle("att", now),
        kind="reserve", amount=Decimal(1), at=now,
    )  # fmt: skip
    snapshot = Snapshot.objects.create(
        handle=new_handle("snap", now), system=system, taken_at=now, duration_s=1, availability="unreachable"
    )
    event = Event.objects.get(type="profile.changed", system=system.slug)
    return {
        "System": system, "Connection": connection, "Allocation": allocation, "Charge": charge,
        "Snapshot": snapshot, "Event": event,
    }  # fmt: skip


@pytest.fixture
def world(delta: System, alice: User, bob: User, now: datetime) -> World:
    vista = store_profile(read_profile(OTHER), OTHER, now=now).system
    carol = User.objects.create_user("carol", password="a-long-password")
    appoint(delta, carol, now=now, actor="user:root")
    carol.refresh_from_db()
    client = Client()
    client.force_login(carol)
    rows = {"delta": _rows(delta, alice, now), "vista": _rows(vista, bob, now)}
    return World(carol, client, delta, vista, rows)


def _places(row: Any, *names: str) -> Iterator[str]:
    meta = row._meta
    for name in names:
        yield reverse(f"admin:{meta.app_label}_{meta.model_name}_{name}", args=(row.pk,))


# --- what is theirs ----------------------------------------------------------------------------------


def test_they_see_their_systems_and_no_other_in_every_list(world: World) -> None:
    for name, row in world.rows["delta"].items():
        changelist = reverse(f"admin:{row._meta.app_label}_{row._meta.model_name}_changelist")
        answer = world.client.get(changelist)
        shown = set(answer.context["cl"].queryset.values_list("pk", flat=True))

        assert row.pk in shown, name
        assert world.rows["vista"][name].pk not in shown, name
        assert "vista" not in text_of(answer).lower(), name
        assert all(world.client.get(place).status_code == 200 for place in _places(row, "change"))


def test_they_edit_roll_back_announce_and_disable_their_system(world: World) -> None:
    client, delta = world.client, world.delta

    assert "Store as revision 2" in text_of(review(client, delta, CHANGED))
    store(client, delta, CHANGED)
    assert (in_force(delta).revision, last_event().actor) == (2, "user:carol")
    client.post(place_of(delta, "roll_back", 1))
    assert in_force(delta).revision == 1
    client.post(place_of(delta, "disable"), {"reason": "cooling"})
    delta.refresh_from_db()
    assert (delta.is_enabled, delta.disabled_reason) == (False, "cooling")
    assert client.get(place_of(delta, "maintenance")).status_code == 200


def test_they_switch_connections_of_their_system_off_and_on_and_cannot_say_how_it_is_reached(
    world: World,
) -> None:
    own = world.rows["delta"]["Connection"]
    changelist = reverse("admin:federation_connection_changelist")

    world.client.post(changelist, {"action": "disable_connections", "_selected_action": [own.pk]})
    own.refresh_from_db()
    assert own.state == "disabled"
    world.client.post(changelist, {"action": "enable_connections", "_selected_action": [own.pk]})
    own.refresh_from_db()
    assert own.state == "active"

    posted = {"kind": "local", "remote_user": "root", "settings": '{"run_as": "root"}'}
    for place in (reverse("admin:federation_connection_add"), *_places(own, "change")):
        assert world.client.post(place, {**posted, "user": "1", "system": "1"}).status_code == 403
    own.refresh_from_db()
    assert (own.settings, own.remote_user) == ({}, "alice")


def test_they_grant_credit_on_their_system_to_people_with_a_way_in(world: World, alice: User) -> None:
    add = {"user": alice.pk, "system": world.delta.pk, "account": "x", "unit": "SU", "granted": "5"}

    assert world.client.post(reverse("admin:federation_allocation_add"), add).status_code == 302
    assert Allocation.objects.get(account="x").granted == Decimal(5)
    own = world.rows["delta"]["Allocation"]
    world.client.post(next(_places(own, "change")), {"unit": "SU", "granted": "7"})
    own.refresh_from_db()
    assert own.granted == Decimal(7)


# --- across ------------------------------------------------------------------------------------------


def test_no_row_of_another_system_opens_by_its_key(world: World) -> None:
    for name, row in world.rows["vista"].items():
        for place in _places(row, "change", "delete"):
            assert world.client.get(place).status_code in {302, 403, 404}, name
            assert "vista" not in text_of(world.client.get(place, follow=True)).lower(), name
            assert world.client.post(place, {"granted": "99", "text": OTHER}).status_code in {302, 403, 404}
    world.vista.refresh_from_db()
    assert SiteProfile.objects.filter(system=world.vista).count() == 1
    assert world.rows["vista"]["Allocation"].granted == Decimal(10)


def test_no_page_of_another_system_opens(world: World) -> None:
    for name in ("probe", "revisions", "export", "maintenance", "disable", "enable", "managers"):
        place = place_of(world.vista, name)
        assert world.client.get(place).status_code in {404, 405}, name
        posted = world.client.post(place, {"reason": "x", "username": "carol"})
        assert posted.status_code in {404, 405}, name
    world.vista.refresh_from_db()
    assert (world.vista.is_enabled, world.vista.managers.count()) == (True, 0)


def test_no_revision_or_probe_of_another_system_is_shown_under_their_own(world: World) -> None:
    foreign = world.rows["vista"]["Snapshot"].handle

    assert world.client.get(place_of(world.delta, "probed", foreign)).status_code == 404
    assert world.client.get(place_of(world.vista, "revision", 1)).status_code == 404
    assert world.client.post(place_of(world.vista, "roll_back", 1)).status_code == 404
    assert review(world.client, world.vista, OTHER).status_code == 404


def test_an_action_takes_no_row_of_another_system(world: World) -> None:
    foreign = world.rows["vista"]["Connection"]
    changelist = reverse("admin:federation_connection_changelist")

    for action in ("disable_connections", "ask_the_site"):
        world.client.post(
            changelist, {"action": action, "_selected_action": [foreign.pk], "select_across": "1"}
        )
    foreign.refresh_from_db()
    assert (foreign.state, foreign.facts_at) == ("active", None)


def test_credit_is_not_granted_on_another_system_or_to_a_stranger(
    world: World, alice: User, bob: User
) -> None:
    place = reverse("admin:federation_allocation_add")
    add = {"user": alice.pk, "system": world.vista.pk, "account": "x", "unit": "SU", "granted": "5"}

    for wrong in (add, {**add, "user": bob.pk, "system": world.delta.pk}):
        assert "Select a valid choice" in text_of(world.client.post(place, wrong))
    assert not Allocation.objects.filter(account="x").exists()
    assert "bob" not in text_of(world.client.get(place))


def test_nobody_is_looked_up_and_no_other_system_is_suggested(world: World) -> None:
    place = reverse("admin:autocomplete")
    of = {"app_label": "federation", "model_name": "connection", "term": ""}

    assert world.client.get(place, {**of, "field_name": "user"}).status_code == 403
    suggested = world.client.get(place, {**of, "field_name": "system"}).json()["results"]
    assert [each["text"] for each in suggested] == ["delta"]


def test_what_happens_to_peoples_work_at_their_site_stays_theirs(
    world: World, alice: User, now: datetime
) -> None:
    with transaction.atomic():
        (private,) = record(
            [Happening("task.failed", "tsk_x", "Secret study failed", user_id=alice.pk, system="delta")],
            now=now,
        )

    assert "Secret study" not in text_of(world.client.get(reverse("admin:federation_event_changelist")))
    assert world.client.get(next(_places(private, "change"))).status_code == 302


def test_of_what_belongs_to_no_system_they_see_nothing_even_with_djangos_permission(world: World) -> None:
    world.carol.user_permissions.set(Permission.objects.all())
    others = [model for model in site._registry if model.__name__ not in FOR_MANAGERS]

    assert len(others) > 15
    for model in others:
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}"
        assert world.client.get(reverse(f"{name}_changelist")).status_code == 403, name
        assert world.client.post(reverse(f"{name}_add"), {}).status_code == 403, name
        for row in model._default_manager.all()[:1]:
            assert world.client.get(reverse(f"{name}_change", args=(row.pk,))).status_code in {302, 403}


def test_djangos_permissions_do_not_widen_what_they_see(world: World) -> None:
    world.carol.user_permissions.set(Permission.objects.all())

    assert world.client.get(place_of(world.vista)).status_code == 404
    assert world.client.get(reverse("admin:federation_system_add")).status_code == 403
    assert world.client.post(place_of(world.delta, "managers"), {"username": "bob"}).status_code == 404
    assert (
        world.client.get(reverse("admin:auth_user_password_change", args=(world.carol.pk,))).status_code
        == 403
    )


# --- appointing --------------------------------------------------------------------------------------


def test_an_administrator_appoints_and_dismisses_by_name(admin: Client, delta: System, alice: User) -> None:
    place = place_of(delta, "managers")

    admin.post(place, {"username": "alice"})
    alice.refresh_from_db()
    assert (alice.is_staff, [group.name for group in alice.groups.all()]) == (True, [GROUP])
    assert (last_event().type, last_event().actor) == ("manager.appointed", "user:root")
    assert "alice" in text_of(admin.get(place))

    admin.post(place, {"username": "alice", "dismiss": "1"})
    assert (last_event().type, delta.managers.count()) == ("manager.dismissed", 0)


def test_whoever_looks_after_nothing_any_more_sees_nothing(world: World, now: datetime) -> None:
    dismiss(world.delta, world.carol, now=now, actor="user:root")

    assert world.client.get(place_of(world.delta)).status_code == 404
    assert list(world.client.get(reverse("admin:federation_system_changelist")).context["cl"].queryset) == []


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nobody", "There is no active account `nobody`."),
        ("root", "`root` is a superuser"),
        ("clerk", "`clerk` is a member of staff with rights of another kind"),
        ("", "This field is required."),
    ],
)
def test_who_cannot_be_appointed_is_told_why(admin: Client, delta: System, name: str, said: str) -> None:
    User.objects.create_user("clerk", is_staff=True)

    assert said in text_of(admin.post(place_of(delta, "managers"), {"username": name}))
    assert delta.managers.count() == 0


def test_a_site_managers_token_holds_no_administrators_scope(world: World) -> None:
    assert Scope.ADMIN not in may_hold(world.carol)
    assert Scope.ADMIN in may_hold(User.objects.create_user("clerk", is_staff=True))
