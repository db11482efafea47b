"""Storing profiles: revisions that never change, one in force, and an event for every change."""

from datetime import datetime
from io import StringIO
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import DatabaseError, transaction

from federation.models import Event, SiteProfile, System
from federation.profile import ProfileDocument
from federation.profile_yaml import read_profile
from federation.services import roll_back, set_enabled, store_profile

pytestmark = pytest.mark.django_db(transaction=True)

TEXT = "system: delta\nname: Delta\narchitecture: x86_64\npartitions:\n  gpu: {max_nodes: 4}\n"
LARGER = TEXT.replace("max_nodes: 4", "max_nodes: 8")


def _store(text: str, now: datetime, **how: object) -> SiteProfile:
    return store_profile(read_profile(text), text, now=now, **how)  # type: ignore[arg-type]


def _events() -> list[tuple[str, str, dict[str, object]]]:
    return list(Event.objects.order_by("id").values_list("type", "actor", "data"))


def test_the_first_profile_makes_the_system_and_has_it_probed_in_full(now: datetime, alice: User) -> None:
    profile = _store(TEXT, now, user=alice, note="first", actor="user:alice")

    system = System.objects.get()
    assert (system.slug, system.name, system.profile, system.health) == ("delta", "Delta", profile, "offline")
    assert (system.next_probe_at, system.last_full_probe_at) == (now, None)
    assert (profile.revision, profile.text, profile.note, profile.created_by) == (1, TEXT, "first", alice)
    assert ProfileDocument.model_validate(profile.document) == read_profile(TEXT)
    assert _events() == [("profile.changed", "user:alice", {"revision": 1, "was": None, "note": "first"})]


def test_a_changed_text_is_the_next_revision_and_the_old_one_stays(now: datetime) -> None:
    _store(TEXT, now)

    second = _store(LARGER, now)

    assert System.objects.get().profile == second
    assert list(SiteProfile.objects.order_by("revision").values_list("revision", "text")) == [
        (1, TEXT),
        (2, LARGER),
    ]
    assert [data["was"] for _, _, data in _events()] == [None, 1]


def test_an_unchanged_text_makes_no_revision_and_no_event(now: datetime) -> None:
    first = _store(TEXT, now)

    assert _store(TEXT, now) == first
    assert (SiteProfile.objects.count(), Event.objects.count()) == (1, 1)


def test_a_changed_comment_alone_is_a_revision_for_the_text_is_kept(now: datetime) -> None:
    _store(TEXT, now)

    assert _store("# checked with the site\n" + TEXT, now).revision == 2


def test_revision_and_event_come_together_or_not_at_all(now: datetime) -> None:
    with transaction.atomic():
        _store(TEXT, now)
        transaction.set_rollback(True)

    assert (System.objects.count(), SiteProfile.objects.count(), Event.objects.count()) == (0, 0, 0)


def test_a_failing_event_takes_the_revision_with_it(now: datetime, monkeypatch: pytest.MonkeyPatch) -> None:
    _store(TEXT, now)
    monkeypatch.setattr("federation.ledger.EVENT_TYPES", {})

    with pytest.raises(KeyError):
        _store(LARGER, now)

    assert System.objects.filter(profile__revision=1).count() == 1
    assert SiteProfile.objects.count() == 1


@pytest.mark.parametrize(
    "change", [{"text": "x"}, {"document": {}}, {"revision": 9}], ids=lambda each: next(iter(each))
)
def test_the_database_refuses_to_edit_a_revision(now: datetime, change: dict[str, object]) -> None:
    profile = _store(TEXT, now)

    with pytest.raises(DatabaseError, match="Cannot update"), transaction.atomic():
        SiteProfile.objects.filter(pk=profile.pk).update(**change)

    profile.refresh_from_db()
    assert (profile.revision, profile.text) == (1, TEXT)


def test_the_revision_in_force_cannot_be_deleted(now: datetime) -> None:
    profile = _store(TEXT, now)

    with pytest.raises(DatabaseError), transaction.atomic():
        SiteProfile.objects.filter(pk=profile.pk)._raw_delete("default")


def test_rolling_back_puts_an_earlier_revision_in_force_and_makes_no_new_one(now: datetime) -> None:
    first = _store(TEXT, now)
    _store(TEXT.replace("Delta", "Delta 2"), now)

    roll_back(System.objects.get(), 1, now=now, actor="user:admin")

    system = System.objects.get()
    assert (system.profile, system.name, SiteProfile.objects.count()) == (first, "Delta", 2)
    assert (system.next_probe_at, system.last_full_probe_at) == (now, None)
    assert _events()[-1] == ("profile.changed", "user:admin", {"revision": 1, "was": 2, "note": ""})


def test_after_a_roll_back_the_next_text_is_a_revision_of_its_own(now: datetime) -> None:
    _store(TEXT, now)
    _store(LARGER, now)
    roll_back(System.objects.get(), 1, now=now, actor="x")

    assert _store(LARGER, now).revision == 3


def test_no_such_revision_changes_nothing(now: datetime) -> None:
    _store(TEXT, now)

    with pytest.raises(SiteProfile.DoesNotExist):
        roll_back(System.objects.get(), 7, now=now, actor="x")

    assert Event.objects.count() == 1


def test_disabling_says_why_and_stops_the_probes(now: datetime) -> None:
    _store(TEXT, now)

    set_enabled(System.objects.get(), enabled=False, reason="cooling", now=now, actor="user:admin")

    system = System.objects.get()
    assert (system.is_enabled, system.disabled_reason, system.health) == (False, "cooling", "disabled")
    assert system.next_probe_at is None
    assert _events()[-1] == ("system.disabled", "user:admin", {"was": "offline", "reason": "cooling"})


def test_enabling_again_has_it_probed_and_takes_the_reason_away(now: datetime) -> None:
    _store(TEXT, now)
    set_enabled(System.objects.get(), enabled=False, reason="cooling", now=now, actor="x")

    set_enabled(System.objects.get(), enabled=True, reason="", now=now, actor="x")

    system = System.objects.get()
    assert (system.is_enabled, system.disabled_reason, system.health) == (True, "", "offline")
    assert system.next_probe_at == now
    assert _events()[-1][0] == "system.offline"


def test_disabling_twice_is_told_once(now: datetime) -> None:
    _store(TEXT, now)
    for reason in ("cooling", "again"):
        set_enabled(System.objects.get(), enabled=False, reason=reason, now=now, actor="x")

    assert [kind for kind, _, _ in _events()] == ["profile.changed", "system.disabled"]
    assert System.objects.get().disabled_reason == "cooling"


def _folder(tmp_path: Path, **files: str) -> str:
    for name, text in files.items():
        (tmp_path / f"{name}.yaml").write_text(text, encoding="utf-8")
    return str(tmp_path)


def _call(name: str, path: str) -> tuple[str, str]:
    out, err = StringIO(), StringIO()
    call_command(name, path, stdout=out, stderr=err)
    return out.getvalue(), err.getvalue()


def test_loading_a_folder_puts_every_profile_in_force(tmp_path: Path) -> None:
    path = _folder(tmp_path, a=TEXT, b=TEXT.replace("delta", "vista"))

    assert _call("load_profiles", path)[0] == "delta: revision 1\nvista: revision 1\n"
    assert _call("load_profiles", path)[0] == "delta: revision 1\nvista: revision 1\n"
    assert list(SiteProfile.objects.values_list("note", flat=True)) == ["loaded from a file"] * 2


def test_one_wrong_profile_keeps_all_of_them_out(tmp_path: Path) -> None:
    path = _folder(tmp_path, a=TEXT, b=TEXT.replace("delta", "Vista!"))

    with pytest.raises(CommandError, match=r"b\.yaml has 1 fault; line 1, column 1"):
        _call("load_profiles", path)

    assert System.objects.count() == 0


def test_checking_prints_file_line_and_column_of_every_fault_and_stores_nothing(tmp_path: Path) -> None:
    wrong = "system: vista\nname: Vista\narchitecture: arm\npartitions:\n  gh: {max_nodes: 0}\n"
    path = _folder(tmp_path, a=TEXT, b=wrong)
    out, err = StringIO(), StringIO()

    with pytest.raises(CommandError, match="1 profile not valid"):
        call_command("check_profiles", path, stdout=out, stderr=err)

    assert out.getvalue() == "a.yaml: ok (1 partitions)\n"
    assert err.getvalue().splitlines() == [
        "b.yaml: line 3, column 1: write x86_64, aarch64 or ppc64le, not `arm`",
        "b.yaml: line 5, column 8: must be at least 1, not `0`",
    ]
    assert System.objects.count() == 0


def test_a_folder_without_profiles_and_a_file_that_is_not_there_are_faults(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"no \.yaml files here"):
        _call("load_profiles", str(tmp_path))
    with pytest.raises(CommandError, match="No such file"):
        _call("load_profiles", str(tmp_path / "nowhere.yaml"))


def test_the_ready_profiles_load(tmp_path: Path) -> None:
    out, _ = _call("load_profiles", str(Path(__file__).resolve().parents[2] / "profiles"))

    assert out.splitlines() == [
        f"{slug}: revision 1" for slug in ("anvil", "delta", "deltaai", "perlmutter", "vista")
    ]
