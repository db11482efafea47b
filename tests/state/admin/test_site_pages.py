"""One system's own pages: downtime, disabling with a reason, probing, and who may do it."""

import re
from datetime import datetime

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from federation.models import Connection, SiteProfile, System
from federation.profile_yaml import read_profile
from federation.services import store_profile
from tests.state.admin.asking import (
    CHANGED,
    TEXT,
    in_force,
    place_of,
    review,
    staff,
    text_of,
)
from tests.state.conftest import Sites

pytestmark = pytest.mark.django_db


def _window(**changes: str) -> dict[str, str]:
    return {
        "start_at": "2027-01-31T08:00Z",
        "end_at": "2027-01-31T20:00Z",
        "partitions": "gpu",
        "reason": "power",
        **changes,
    }


def test_announcing_downtime_leads_to_the_review_and_keeps_the_rest_as_written(
    admin: Client, delta: System
) -> None:
    page = text_of(admin.post(place_of(delta, "maintenance"), _window()))

    assert '<span class="added">+maintenance:' in page
    assert "+- start_at: '2027-01-31T08:00:00+00:00'" in page
    assert '<span class="removed">' not in page
    assert 'value="downtime at 2027-01-31 08:00: power"' in page
    assert SiteProfile.objects.count() == 1


def test_announced_downtime_is_in_force_after_the_review(admin: Client, delta: System) -> None:
    page = admin.post(place_of(delta, "maintenance"), _window())
    form = page.context["form"]
    action = re.search(r'<form id="profile-form" method="post" action="([^"]+)"', text_of(page))
    assert action is not None

    sent = {field.html_name: field.value() or "" for field in form}
    admin.post(action[1], {**sent, "_store": "1"})

    (window,) = read_profile(in_force(delta).text).maintenance
    assert (window.start_at.hour, window.reason, window.partitions) == (8, "power", ("gpu",))
    assert "power" in text_of(admin.get(place_of(delta, "maintenance")))


@pytest.mark.parametrize("start", ["2027-01-31 08:00", "2027-01-31T09:00+01:00", " 2027-01-31T08:00:00 "])
def test_an_instant_without_an_offset_is_in_utc(admin: Client, delta: System, start: str) -> None:
    page = text_of(admin.post(place_of(delta, "maintenance"), _window(start_at=start)))

    assert 'value="downtime at 2027-01-31 08:00: power"' in page


def test_a_window_is_announced_and_taken_back(admin: Client, delta: System, now: datetime) -> None:
    windows = "maintenance:\n- {start_at: 2027-01-01T00:00:00Z, end_at: 2027-01-02T00:00:00Z, reason: one}\n"
    text = TEXT + windows + "containers: [apptainer]  # kept\n"
    store_profile(read_profile(text), text, now=now)

    shown = text_of(admin.get(place_of(delta, "maintenance")))
    (place,) = re.findall(r'<input type="hidden" name="remove" value="([^"]*)">', shown)
    page = text_of(admin.post(place_of(delta, "maintenance"), {"remove": place}))

    assert "one" in shown
    assert '<span class="removed">-maintenance:' in page
    assert "containers: [apptainer]  # kept" in page
    assert '<span class="added">' not in page


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"end_at": "2027-01-30T00:00Z"}, "end_at must be later than start_at"),
        ({"start_at": "tomorrow"}, "Input should be a valid datetime"),
        ({"partitions": "gpv"}, "No such partition: gpv."),
        ({"start_at": ""}, "This field is required."),
    ],
)
def test_a_wrong_window_is_told_at_its_field(
    admin: Client, delta: System, changes: dict[str, str], said: str
) -> None:
    page = text_of(admin.post(place_of(delta, "maintenance"), _window(**changes)))

    assert said in page
    assert "Announce one" in page


def test_a_system_is_disabled_with_a_reason_and_enabled_again(admin: Client, delta: System) -> None:
    assert "This field is required." in text_of(admin.post(place_of(delta, "disable"), {"reason": ""}))

    admin.post(place_of(delta, "disable"), {"reason": "cooling"})
    delta.refresh_from_db()
    assert (delta.is_enabled, delta.disabled_reason) == (False, "cooling")
    assert "cooling" in text_of(admin.get(place_of(delta)))

    admin.post(place_of(delta, "enable"))
    delta.refresh_from_db()
    assert delta.is_enabled is True


def test_probing_now_shows_what_came_back_and_where_the_profile_differs(
    admin: Client, sites: Sites, alice: User
) -> None:
    system = sites.add("delta", alice, account="bbka-delta-gpu")
    before = system.snapshots.count()

    answer = admin.post(place_of(system, "probe"), follow=True)

    page = text_of(answer)
    assert system.snapshots.count() == before + 1
    assert "Where the profile says otherwise" in page
    assert '<span class="facet-state online">available</span>' in page
    assert "</strong> usable" in page
    assert "<code>partitions.gpuA100x8</code></th><td>not listed</td>" in page


def test_a_profile_that_names_what_the_site_lacks_is_told_so(
    admin: Client, sites: Sites, alice: User, now: datetime
) -> None:
    system = sites.add("delta", alice, account="bbka-delta-gpu")
    before = in_force(system).text
    document = read_profile(before)
    text = before.replace("'cpu': {", "'cpuu': {}, 'cpu': {'max_walltime_s': 60, ")
    assert document.partitions.keys() < read_profile(text).partitions.keys()
    store_profile(read_profile(text), text, now=now)

    page = text_of(admin.post(place_of(system, "probe"), follow=True))

    assert "<code>partitions.cpuu</code></th><td>cpuu</td><td>no such partition</td>" in page
    assert "<code>partitions.cpu.max_walltime_s</code></th><td>00:01:00</td>" in page


def test_a_silent_site_is_shown_as_such(admin: Client, sites: Sites, alice: User) -> None:
    system = sites.add("delta", alice, account="bbka-delta-gpu")
    Connection.objects.update(settings={"env": {"PATH": "/nowhere"}})

    page = text_of(admin.post(place_of(system, "probe"), follow=True))

    assert 'role="alert"' in page
    assert "Where the profile says otherwise" not in page


def test_without_a_way_in_it_says_where_to_make_one(admin: Client, delta: System) -> None:
    page = text_of(admin.post(place_of(delta, "probe"), follow=True))

    assert "Nobody has a working connection to Delta; add one under Connections." in page


CHANGES = ("probe", "disable", "enable", "maintenance")


def test_staff_who_may_only_look_see_the_text_and_can_change_nothing(delta: System) -> None:
    client = staff("view_system")

    page = text_of(client.get(place_of(delta)))
    assert TEXT in page
    assert "<textarea" not in page
    assert "Probe now" not in page
    assert client.get(place_of(delta, "revisions")).status_code == 200
    assert review(client, delta, CHANGED).status_code == 403
    for name in CHANGES:
        assert client.post(place_of(delta, name), {"reason": "x"}).status_code == 403
    assert client.post(place_of(delta, "roll_back", 1)).status_code == 403
    assert client.get(reverse("admin:federation_system_add")).status_code == 403
    delta.refresh_from_db()
    assert (delta.is_enabled, SiteProfile.objects.count()) == (True, 1)


def test_staff_without_permission_and_strangers_see_nothing(delta: System) -> None:
    assert staff().get(place_of(delta)).status_code == 403
    assert Client().get(place_of(delta)).status_code == 302


@pytest.mark.parametrize("name", ["probe", "enable"])
def test_looking_at_an_action_does_not_do_it(admin: Client, delta: System, name: str) -> None:
    assert admin.get(place_of(delta, name)).status_code == 405


def test_a_system_cannot_be_deleted(admin: Client, delta: System) -> None:
    assert admin.post(reverse("admin:federation_system_delete", args=(delta.pk,))).status_code == 403


def test_a_text_is_tried_against_the_site_without_being_stored(
    admin: Client, sites: Sites, alice: User
) -> None:
    system = sites.add("delta", alice, account="bbka-delta-gpu")
    before = in_force(system)
    text = before.text.replace("'cpu': {", "'cpuu': {}, 'cpu': {'max_nodes': 3, ")

    page = text_of(admin.post(place_of(system), {"text": text, "_dry_run": "1"}))

    assert "Nothing is stored." in page
    assert "<code>partitions.cpuu</code></th><td>cpuu</td><td>no such partition</td>" in page
    row = page[page.index('<th scope="row"><code>cpu</code>') :].partition("</tr>")[0]
    assert "at most 3 nodes a job" in row.partition("</td><td>")[2]
    assert "at most 3 nodes a job" not in row.partition("</td><td>")[0]
    assert "Store as revision 2" in page
    assert in_force(system) == before
    assert system.snapshots.count() == 2


def test_a_dry_run_at_a_silent_site_says_so(admin: Client, sites: Sites, alice: User) -> None:
    system = sites.add("delta", alice, account="bbka-delta-gpu")
    Connection.objects.update(settings={"env": {"PATH": "/nowhere"}})
    text = in_force(system).text.replace("Delta", "Delta of NCSA")

    page = text_of(admin.post(place_of(system), {"text": text, "_dry_run": "1"}))

    assert '<p class="facet-fault" role="alert">' in page
    assert "What each partition would offer" not in page


def test_a_dry_run_without_a_way_in_says_where_to_make_one(admin: Client, delta: System) -> None:
    page = text_of(admin.post(place_of(delta), {"text": CHANGED, "_dry_run": "1"}))

    assert "Nobody has a working connection to Delta; add one under Connections." in page
    assert "Store as revision 2" in page
