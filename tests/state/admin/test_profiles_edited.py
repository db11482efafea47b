"""A profile is reviewed before it is stored, each stored text is a revision, and there is a way back."""

from datetime import datetime

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse

from federation.admin.profile_forms import fingerprint
from federation.models import SiteProfile, System
from federation.profile_yaml import read_profile
from federation.services import store_profile
from tests.state.admin.asking import (
    CHANGED,
    TEXT,
    in_force,
    last_event,
    place_of,
    review,
    store,
    text_of,
)

pytestmark = pytest.mark.django_db


def test_the_page_of_a_system_shows_its_text_and_how_it_stands(admin: Client, delta: System) -> None:
    page = text_of(admin.get(place_of(delta)))

    assert TEXT in page
    assert 'class="facet-state offline"' in page
    assert "Probe now" in page
    assert "1 of " in page


def test_every_fault_stands_at_the_field_with_its_line_and_column(admin: Client, delta: System) -> None:
    page = text_of(review(admin, delta, TEXT.replace("max_nodes: 4", "max_nodes: 0, qoss: x")))

    assert 'data-line="6">line 6, column 9: must be at least 1, not `0`</a>' in page
    assert "2 faults to correct:" in page
    assert "line 6, column 23: Unknown field `qoss`. Did you mean `qos`?" in page
    assert "Store as revision" not in page
    assert SiteProfile.objects.count() == 1


def test_a_valid_text_is_shown_as_a_difference_and_not_stored_yet(admin: Client, delta: System) -> None:
    page = text_of(review(admin, delta, CHANGED, note="more nodes"))

    assert '<span class="removed">-  gpu: {max_nodes: 4}' in page
    assert '<span class="added">+  gpu: {max_nodes: 8}' in page
    assert "--- revision 1 (in force)" in page
    assert "Store as revision 2" in page
    assert 'value="more nodes"' in page
    assert SiteProfile.objects.count() == 1


def test_what_was_reviewed_is_stored_as_a_new_revision_by_who_did_it(admin: Client, delta: System) -> None:
    answer = store(admin, delta, CHANGED, note="more nodes")

    assert (answer.status_code, answer["Location"]) == (302, place_of(delta))
    stored = in_force(delta)
    assert (stored.revision, stored.text, stored.note) == (2, CHANGED, "more nodes")
    assert stored.created_by == User.objects.get(username="root")
    assert SiteProfile.objects.get(revision=1).text == TEXT
    event = last_event()
    assert (event.type, event.actor, event.data["revision"]) == ("profile.changed", "user:root", 2)


def test_the_line_ends_of_a_browser_are_not_kept(admin: Client, delta: System) -> None:
    store(admin, delta, CHANGED.replace("\n", "\r\n"), reviewed=fingerprint(CHANGED))

    assert in_force(delta).text == CHANGED


@pytest.mark.parametrize(
    "unreviewed", [{"reviewed": ""}, {"reviewed": fingerprint(TEXT)}, {"base": 7}, {"base": ""}]
)
def test_what_was_not_reviewed_as_it_is_is_shown_first(
    admin: Client, delta: System, unreviewed: dict[str, object]
) -> None:
    page = text_of(store(admin, delta, CHANGED, **unreviewed))

    assert "Not stored yet: this difference was not shown before." in page
    assert '<span class="added">+  gpu: {max_nodes: 8}' in page
    assert SiteProfile.objects.count() == 1


def test_a_revision_stored_meanwhile_is_not_overwritten_unseen(
    admin: Client, delta: System, now: datetime
) -> None:
    theirs = TEXT.replace("max_nodes: 4", "max_nodes: 6")
    store_profile(read_profile(theirs), theirs, now=now)

    page = text_of(store(admin, delta, CHANGED, base=1))

    assert "--- revision 2 (in force)" in page
    assert '<span class="removed">-  gpu: {max_nodes: 6}' in page
    assert SiteProfile.objects.count() == 2


def test_the_same_text_changes_nothing_and_cannot_be_stored(admin: Client, delta: System) -> None:
    page = text_of(review(admin, delta, TEXT))

    assert "Nothing: this is the text in force." in page
    assert "Store as revision" not in page


def test_another_systems_profile_is_refused_here(admin: Client, delta: System) -> None:
    page = text_of(review(admin, delta, TEXT.replace("system: delta", "system: vista")))

    assert "line 1: `system: vista` is not this system; write `system: delta`" in page


def test_a_file_takes_the_place_of_the_text(admin: Client, delta: System) -> None:
    file = SimpleUploadedFile("delta.yaml", CHANGED.encode())

    page = text_of(admin.post(place_of(delta), {"text": TEXT, "_review": "1", "file": file}))

    assert '<span class="added">+  gpu: {max_nodes: 8}' in page


def test_a_file_that_is_no_text_is_refused(admin: Client, delta: System) -> None:
    file = SimpleUploadedFile("delta.yaml", b"\xff\xfe\x00")

    assert "This file is not UTF-8 text" in text_of(admin.post(place_of(delta), {"text": TEXT, "file": file}))


def test_a_new_system_is_made_of_its_first_profile(admin: Client) -> None:
    place = reverse("admin:federation_system_add")

    assert admin.get(place).status_code == 200
    page = text_of(admin.post(place, {"text": TEXT, "_review": "1"}))
    assert "--- nothing" in page
    assert System.objects.count() == 0
    answer = admin.post(place, {"text": TEXT, "_store": "1", "reviewed": fingerprint(TEXT)})

    system = System.objects.get()
    assert answer["Location"] == place_of(system)
    assert (system.slug, in_force(system).text) == ("delta", TEXT)


def test_a_system_that_is_there_is_not_added_again(admin: Client, delta: System) -> None:
    page = text_of(admin.post(reverse("admin:federation_system_add"), {"text": TEXT, "_review": "1"}))

    assert "There is a system `delta` already" in page


def test_the_text_in_force_can_be_taken_away_as_a_file(admin: Client, delta: System) -> None:
    answer = admin.get(place_of(delta, "export"))

    assert answer.content.decode() == TEXT
    assert answer["Content-Disposition"] == 'attachment; filename="delta.yaml"'


@pytest.fixture
def twice(delta: System, now: datetime) -> System:
    store_profile(read_profile(CHANGED), CHANGED, now=now, note="more nodes")
    delta.refresh_from_db()
    return delta


def test_history_lists_every_revision_and_what_it_changed(admin: Client, twice: System) -> None:
    page = text_of(admin.get(place_of(twice, "revisions")))

    assert page.index("more nodes") < page.index("+6")
    assert '<span class="facet-added">+1</span> <span class="facet-removed">−1</span>' in page
    assert page.count("in force</span>") == 1
    assert page.count("Roll back to this") == 1


def test_one_revision_is_shown_against_its_neighbours(admin: Client, twice: System) -> None:
    first, second = (text_of(admin.get(place_of(twice, "revision", number))) for number in (1, 2))

    assert "What changed since" in first
    assert '<span class="added">+  gpu: {max_nodes: 8}' in first
    assert "What changed since" not in second
    assert '<span class="removed">-  gpu: {max_nodes: 4}' in second
    assert admin.get(place_of(twice, "revision", 3)).status_code == 404


def test_rolling_back_asks_with_the_difference_and_then_does_it(admin: Client, twice: System) -> None:
    asked = text_of(admin.get(place_of(twice, "roll_back", 1)))
    assert '<span class="removed">-  gpu: {max_nodes: 8}' in asked
    assert in_force(twice).revision == 2

    answer = admin.post(place_of(twice, "roll_back", 1))

    assert (answer.status_code, in_force(twice).revision) == (302, 1)
    assert last_event().actor == "user:root"
