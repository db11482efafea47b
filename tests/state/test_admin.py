"""The admin: profiles are reviewed before they are stored, history is read only, no secret is shown."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from html import unescape
from typing import Any

import pytest
from django.contrib.admin.sites import site
from django.contrib.auth.models import Permission, User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse

from federation.admin.profile_forms import fingerprint
from federation.admin.readonly import ReadOnlyAdmin
from federation.handles import new_handle
from federation.models import Allocation, Connection, Event, SiteProfile, System
from federation.profile_yaml import read_profile
from federation.services import allocate, connect, store_profile
from orchestrator.models import Envelope
from portal.models import ApiToken, IdempotencyRecord
from portal.skills.registry import Scope
from portal.tokens import digest, issue_token
from tests.state.conftest import Sites

pytestmark = pytest.mark.django_db(transaction=True)

TEXT = "# by hand\nsystem: delta\nname: Delta\narchitecture: x86_64\npartitions:\n  gpu: {max_nodes: 4}\n"
CHANGED = TEXT.replace("max_nodes: 4", "max_nodes: 8")


@pytest.fixture
def admin(db: None) -> Client:
    """A signed-in superuser."""
    client = Client()
    client.force_login(User.objects.create_superuser("root", password="a-long-password"))
    return client


@pytest.fixture
def delta(db: None, now: datetime) -> System:
    return store_profile(read_profile(TEXT), TEXT, now=now).system


def _staff(*permissions: str) -> Client:
    """Return a signed-in member of staff with these permissions and no others."""
    user = User.objects.create_user("staff", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client()
    client.force_login(user)
    return client


def _page(system: System, name: str = "change", *more: object) -> str:
    return reverse(f"admin:federation_system_{name}", args=(system.pk, *more))


def _in_force(system: System) -> SiteProfile:
    """Return the revision in force now."""
    system.refresh_from_db()
    assert system.profile is not None
    return system.profile


def _last_event() -> Event:
    event = Event.objects.order_by("id").last()
    assert event is not None
    return event


def _text(response: Any) -> str:
    return unescape(response.content.decode())


def _review(client: Client, system: System, text: str, **fields: str) -> Any:
    return client.post(_page(system), {"text": text, "_review": "1", **fields})


def _store(client: Client, system: System, text: str, **fields: object) -> Any:
    given = {"text": text, "_store": "1", "base": 1, "reviewed": fingerprint(text), **fields}
    return client.post(_page(system), given)


# --- the profile -------------------------------------------------------------------------------------


def test_the_page_of_a_system_shows_its_text_and_how_it_stands(admin: Client, delta: System) -> None:
    page = _text(admin.get(_page(delta)))

    assert TEXT in page
    assert 'class="facet-state offline"' in page
    assert "Probe now" in page
    assert "1 of " in page


def test_every_fault_stands_at_the_field_with_its_line_and_column(admin: Client, delta: System) -> None:
    page = _text(_review(admin, delta, TEXT.replace("max_nodes: 4", "max_nodes: 0, qoss: x")))

    assert 'data-line="6">line 6, column 9: must be at least 1, not `0`</a>' in page
    assert "2 faults to correct:" in page
    assert "line 6, column 23: Unknown field `qoss`. Did you mean `qos`?" in page
    assert "Store as revision" not in page
    assert SiteProfile.objects.count() == 1


def test_a_valid_text_is_shown_as_a_difference_and_not_stored_yet(admin: Client, delta: System) -> None:
    page = _text(_review(admin, delta, CHANGED, note="more nodes"))

    assert '<span class="removed">-  gpu: {max_nodes: 4}' in page
    assert '<span class="added">+  gpu: {max_nodes: 8}' in page
    assert "--- revision 1 (in force)" in page
    assert "Store as revision 2" in page
    assert 'value="more nodes"' in page
    assert SiteProfile.objects.count() == 1


def test_what_was_reviewed_is_stored_as_a_new_revision_by_who_did_it(admin: Client, delta: System) -> None:
    answer = _store(admin, delta, CHANGED, note="more nodes")

    assert (answer.status_code, answer["Location"]) == (302, _page(delta))
    stored = _in_force(delta)
    assert (stored.revision, stored.text, stored.note) == (2, CHANGED, "more nodes")
    assert stored.created_by == User.objects.get(username="root")
    assert SiteProfile.objects.get(revision=1).text == TEXT
    event = _last_event()
    assert (event.type, event.actor, event.data["revision"]) == ("profile.changed", "user:root", 2)


def test_the_line_ends_of_a_browser_are_not_kept(admin: Client, delta: System) -> None:
    _store(admin, delta, CHANGED.replace("\n", "\r\n"), reviewed=fingerprint(CHANGED))

    assert _in_force(delta).text == CHANGED


@pytest.mark.parametrize(
    "unreviewed", [{"reviewed": ""}, {"reviewed": fingerprint(TEXT)}, {"base": 7}, {"base": ""}]
)
def test_what_was_not_reviewed_as_it_is_is_shown_first(
    admin: Client, delta: System, unreviewed: dict[str, object]
) -> None:
    page = _text(_store(admin, delta, CHANGED, **unreviewed))

    assert "Not stored yet: this difference was not shown before." in page
    assert '<span class="added">+  gpu: {max_nodes: 8}' in page
    assert SiteProfile.objects.count() == 1


def test_a_revision_stored_meanwhile_is_not_overwritten_unseen(
    admin: Client, delta: System, now: datetime
) -> None:
    theirs = TEXT.replace("max_nodes: 4", "max_nodes: 6")
    store_profile(read_profile(theirs), theirs, now=now)

    page = _text(_store(admin, delta, CHANGED, base=1))

    assert "--- revision 2 (in force)" in page
    assert '<span class="removed">-  gpu: {max_nodes: 6}' in page
    assert SiteProfile.objects.count() == 2


def test_the_same_text_changes_nothing_and_cannot_be_stored(admin: Client, delta: System) -> None:
    page = _text(_review(admin, delta, TEXT))

    assert "Nothing: this is the text in force." in page
    assert "Store as revision" not in page


def test_another_systems_profile_is_refused_here(admin: Client, delta: System) -> None:
    page = _text(_review(admin, delta, TEXT.replace("system: delta", "system: vista")))

    assert "line 1: `system: vista` is not this system; write `system: delta`" in page


def test_a_file_takes_the_place_of_the_text(admin: Client, delta: System) -> None:
    file = SimpleUploadedFile("delta.yaml", CHANGED.encode())

    page = _text(admin.post(_page(delta), {"text": TEXT, "_review": "1", "file": file}))

    assert '<span class="added">+  gpu: {max_nodes: 8}' in page


def test_a_file_that_is_no_text_is_refused(admin: Client, delta: System) -> None:
    file = SimpleUploadedFile("delta.yaml", b"\xff\xfe\x00")

    assert "This file is not UTF-8 text" in _text(admin.post(_page(delta), {"text": TEXT, "file": file}))


def test_a_new_system_is_made_of_its_first_profile(admin: Client) -> None:
    place = reverse("admin:federation_system_add")

    assert admin.get(place).status_code == 200
    page = _text(admin.post(place, {"text": TEXT, "_review": "1"}))
    assert "--- nothing" in page
    assert System.objects.count() == 0
    answer = admin.post(place, {"text": TEXT, "_store": "1", "reviewed": fingerprint(TEXT)})

    system = System.objects.get()
    assert answer["Location"] == _page(system)
    assert (system.slug, _in_force(system).text) == ("delta", TEXT)


def test_a_system_that_is_there_is_not_added_again(admin: Client, delta: System) -> None:
    page = _text(admin.post(reverse("admin:federation_system_add"), {"text": TEXT, "_review": "1"}))

    assert "There is a system `delta` already" in page


def test_the_text_in_force_can_be_taken_away_as_a_file(admin: Client, delta: System) -> None:
    answer = admin.get(_page(delta, "export"))

    assert answer.content.decode() == TEXT
    assert answer["Content-Disposition"] == 'attachment; filename="delta.yaml"'


# --- revisions ---------------------------------------------------------------------------------------


@pytest.fixture
def twice(delta: System, now: datetime) -> System:
    store_profile(read_profile(CHANGED), CHANGED, now=now, note="more nodes")
    delta.refresh_from_db()
    return delta


def test_history_lists_every_revision_and_what_it_changed(admin: Client, twice: System) -> None:
    page = _text(admin.get(_page(twice, "revisions")))

    assert page.index("more nodes") < page.index("+6")
    assert '<span class="facet-added">+1</span> <span class="facet-removed">−1</span>' in page
    assert page.count("in force</span>") == 1
    assert page.count("Roll back to this") == 1


def test_one_revision_is_shown_against_its_neighbours(admin: Client, twice: System) -> None:
    first, second = (_text(admin.get(_page(twice, "revision", number))) for number in (1, 2))

    assert "What changed since" in first
    assert '<span class="added">+  gpu: {max_nodes: 8}' in first
    assert "What changed since" not in second
    assert '<span class="removed">-  gpu: {max_nodes: 4}' in second
    assert admin.get(_page(twice, "revision", 3)).status_code == 404


def test_rolling_back_asks_with_the_difference_and_then_does_it(admin: Client, twice: System) -> None:
    asked = _text(admin.get(_page(twice, "roll_back", 1)))
    assert '<span class="removed">-  gpu: {max_nodes: 8}' in asked
    assert _in_force(twice).revision == 2

    answer = admin.post(_page(twice, "roll_back", 1))

    assert (answer.status_code, _in_force(twice).revision) == (302, 1)
    assert _last_event().actor == "user:root"


# --- downtime, enabling ------------------------------------------------------------------------------


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
    page = _text(admin.post(_page(delta, "maintenance"), _window()))

    assert '<span class="added">+maintenance:' in page
    assert "+- start_at: '2027-01-31T08:00:00+00:00'" in page
    assert '<span class="removed">' not in page
    assert 'value="downtime at 2027-01-31 08:00: power"' in page
    assert SiteProfile.objects.count() == 1


def test_a_window_is_announced_and_taken_back(admin: Client, delta: System, now: datetime) -> None:
    windows = "maintenance:\n- {start_at: 2027-01-01T00:00:00Z, end_at: 2027-01-02T00:00:00Z, reason: one}\n"
    text = TEXT + windows + "containers: [apptainer]  # kept\n"
    store_profile(read_profile(text), text, now=now)

    shown = _text(admin.get(_page(delta, "maintenance")))
    page = _text(admin.post(_page(delta, "maintenance"), {"remove": "0"}))

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
    page = _text(admin.post(_page(delta, "maintenance"), _window(**changes)))

    assert said in page
    assert "Announce one" in page


def test_a_system_is_disabled_with_a_reason_and_enabled_again(admin: Client, delta: System) -> None:
    assert "This field is required." in _text(admin.post(_page(delta, "disable"), {"reason": ""}))

    admin.post(_page(delta, "disable"), {"reason": "cooling"})
    delta.refresh_from_db()
    assert (delta.is_enabled, delta.disabled_reason) == (False, "cooling")
    assert "cooling" in _text(admin.get(_page(delta)))

    admin.post(_page(delta, "enable"))
    delta.refresh_from_db()
    assert delta.is_enabled is True


# --- probing -----------------------------------------------------------------------------------------


def test_probing_now_shows_what_came_back_and_where_the_profile_differs(
    admin: Client, sites: Sites, alice: User
) -> None:
    system = sites.add("delta", alice, account="bbka-delta-gpu")
    before = system.snapshots.count()

    answer = admin.post(_page(system, "probe"), follow=True)

    page = _text(answer)
    assert system.snapshots.count() == before + 1
    assert "Where the profile says otherwise" in page
    assert '<span class="facet-state online">available</span>' in page
    assert "</strong> usable" in page
    assert "<code>partitions.gpuA100x8</code></th><td>not listed</td>" in page


def test_a_profile_that_names_what_the_site_lacks_is_told_so(
    admin: Client, sites: Sites, alice: User, now: datetime
) -> None:
    system = sites.add("delta", alice, account="bbka-delta-gpu")
    before = _in_force(system).text
    document = read_profile(before)
    text = before.replace("'cpu': {", "'cpuu': {}, 'cpu': {'max_walltime_s': 60, ")
    assert document.partitions.keys() < read_profile(text).partitions.keys()
    store_profile(read_profile(text), text, now=now)

    page = _text(admin.post(_page(system, "probe"), follow=True))

    assert "<code>partitions.cpuu</code></th><td>cpuu</td><td>no such partition</td>" in page
    assert "<code>partitions.cpu.max_walltime_s</code></th><td>00:01:00</td>" in page


def test_a_silent_site_is_shown_as_such(admin: Client, sites: Sites, alice: User) -> None:
    system = sites.add("delta", alice, account="bbka-delta-gpu")
    Connection.objects.update(settings={"env": {"PATH": "/nowhere"}})

    page = _text(admin.post(_page(system, "probe"), follow=True))

    assert 'role="alert"' in page
    assert "Where the profile says otherwise" not in page


def test_without_a_way_in_it_says_where_to_make_one(admin: Client, delta: System) -> None:
    page = _text(admin.post(_page(delta, "probe"), follow=True))

    assert "Nobody has a working connection to Delta; add one under Connections." in page


# --- who may -----------------------------------------------------------------------------------------

CHANGES = ("probe", "disable", "enable", "maintenance")


def test_staff_who_may_only_look_see_the_text_and_can_change_nothing(delta: System) -> None:
    client = _staff("view_system")

    page = _text(client.get(_page(delta)))
    assert TEXT in page
    assert "<textarea" not in page
    assert "Probe now" not in page
    assert client.get(_page(delta, "revisions")).status_code == 200
    assert _review(client, delta, CHANGED).status_code == 403
    for name in CHANGES:
        assert client.post(_page(delta, name), {"reason": "x"}).status_code == 403
    assert client.post(_page(delta, "roll_back", 1)).status_code == 403
    assert client.get(reverse("admin:federation_system_add")).status_code == 403
    delta.refresh_from_db()
    assert (delta.is_enabled, SiteProfile.objects.count()) == (True, 1)


def test_staff_without_permission_and_strangers_see_nothing(delta: System) -> None:
    assert _staff().get(_page(delta)).status_code == 403
    assert Client().get(_page(delta)).status_code == 302


@pytest.mark.parametrize("name", ["probe", "enable"])
def test_looking_at_an_action_does_not_do_it(admin: Client, delta: System, name: str) -> None:
    assert admin.get(_page(delta, name)).status_code == 405


def test_a_system_cannot_be_deleted(admin: Client, delta: System) -> None:
    assert admin.post(reverse("admin:federation_system_delete", args=(delta.pk,))).status_code == 403


# --- connections, allocations ------------------------------------------------------------------------


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
    page = _text(admin.post(reverse("admin:federation_connection_add"), _connection(alice, delta, **changes)))

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


# --- history and secrets -----------------------------------------------------------------------------


@pytest.fixture
def history(delta: System, alice: User, now: datetime) -> str:
    """One row of the most; returns the secret of a token."""
    _, secret = issue_token(alice, name="laptop", scopes=[Scope.READ], now=now)
    allocate(alice, delta, "x-gpu", unit="SU", granted=None, now=now)
    Envelope.objects.create(
        handle=new_handle("env", now), user=alice, source="user", body={"gpus": {"min": 1}}, created_at=now
    )
    IdempotencyRecord.objects.create(
        user=alice, key="k1", route="tokens", body_digest="d" * 64, status=201, created_at=now,
        started_at=now, body={"token": "facet_replayed_secret"}, headers={},
    )  # fmt: skip
    return secret


READ_ONLY = [model for model, model_admin in site._registry.items() if isinstance(model_admin, ReadOnlyAdmin)]


@pytest.mark.parametrize("model", READ_ONLY, ids=lambda model: model.__name__)
def test_history_can_be_looked_at_and_not_added_changed_or_deleted(
    admin: Client, history: str, model: Any
) -> None:
    name = f"admin:{model._meta.app_label}_{model._meta.model_name}"

    assert admin.get(reverse(f"{name}_changelist")).status_code == 200
    assert admin.post(reverse(f"{name}_add"), {}).status_code == 403
    for row in model.objects.all()[:1]:
        place = reverse(f"{name}_change", args=(row.pk,))
        assert admin.get(place).status_code == 200
        assert admin.post(place, {"handle": "x", "state": "succeeded"}).status_code == 403
        assert admin.post(reverse(f"{name}_delete", args=(row.pk,)), {"post": "yes"}).status_code == 403
        assert model.objects.filter(pk=row.pk).exists()


def test_history_is_all_of_it() -> None:
    assert {model.__name__ for model in READ_ONLY} == {
        "ApiToken", "Attempt", "Charge", "Decision", "Envelope", "Event", "Group", "IdempotencyRecord",
        "Manifest", "Snapshot", "Task", "Transfer",
    }  # fmt: skip


def test_json_is_drawn_to_be_read(admin: Client, history: str) -> None:
    row = Envelope.objects.get()

    page = _text(admin.get(reverse("admin:orchestrator_envelope_change", args=(row.pk,))))

    assert '<pre class="facet-json">{\n  "gpus": {\n    "min": 1\n  }\n}</pre>' in page


def test_a_script_in_json_stays_text(admin: Client, alice: User, now: datetime) -> None:
    row = Envelope.objects.create(
        handle=new_handle("env", now), user=alice, source="user", body={"x": "<script>alert(1)</script>"},
        created_at=now,
    )  # fmt: skip

    page = admin.get(reverse("admin:orchestrator_envelope_change", args=(row.pk,))).content.decode()

    assert "<script>alert(1)" not in page
    assert "&lt;script&gt;alert(1)" in page


def test_no_page_shows_a_secret_a_hash_or_a_replayed_answer(admin: Client, history: str) -> None:
    token, record = ApiToken.objects.get(), IdempotencyRecord.objects.get()
    pages = [
        reverse("admin:portal_apitoken_changelist"),
        reverse("admin:portal_apitoken_change", args=(token.pk,)),
        reverse("admin:portal_idempotencyrecord_changelist"),
        reverse("admin:portal_idempotencyrecord_change", args=(record.pk,)),
        reverse("admin:auth_user_changelist"),
    ]

    for place in pages:
        page = _text(admin.get(place))
        for secret in (history, digest(history), "facet_replayed_secret", "d" * 64):
            assert secret not in page


def test_a_token_is_revoked_by_an_action_and_by_nothing_else(admin: Client, history: str) -> None:
    token = ApiToken.objects.get()
    place = reverse("admin:portal_apitoken_changelist")
    given = {"action": "revoke", "_selected_action": [token.pk]}

    _staff("view_apitoken").post(place, given)
    assert ApiToken.objects.filter(revoked_at__isnull=True).exists()

    admin.post(place, given)
    revoked_at = ApiToken.objects.get().revoked_at
    assert revoked_at is not None
    assert datetime.now(UTC) - revoked_at < timedelta(minutes=1)


def test_people_are_added_with_the_themes_forms(admin: Client) -> None:
    given = {
        "username": "carol",
        "usable_password": "true",
        "password1": "a-long-password-9",
        "password2": "a-long-password-9",
    }

    assert admin.get(reverse("admin:auth_user_add")).status_code == 200
    assert admin.post(reverse("admin:auth_user_add"), given).status_code == 302
    assert User.objects.get(username="carol").check_password("a-long-password-9")


@pytest.mark.parametrize("app", ["federation", "orchestrator", "portal", "auth"])
def test_every_list_and_the_front_page_open(admin: Client, history: str, app: str) -> None:
    assert admin.get(reverse("admin:index")).status_code == 200
    for model in [m for m in site._registry if m._meta.app_label == app]:
        answer = admin.get(reverse(f"admin:{app}_{model._meta.model_name}_changelist"), {"q": "x"})
        assert answer.status_code == 200
