"""Places as people write them, and what moves between them."""

from datetime import UTC, datetime, timedelta

import pytest

from orchestrator.envelope.types import DataRef
from orchestrator.move_input import MoveInput, deadline_of, item_of
from orchestrator.staging import Plan, Storage, Wanted, plan_inputs, storages
from orchestrator.task_input import TaskInput
from orchestrator.transfer_rules import (
    GIVE_UP_AFTER,
    GRACE,
    MoveFacts,
    judge,
    next_look_s,
    pause_s,
    without_trace,
)
from providers.errors import InvalidInput
from providers.movers.places import read_place
from providers.movers.types import Fault, MoveState, Progress
from providers.reading import read

C = "c0000000-0000-4000-8000-00000000000a"
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


def test_places_are_told_as_they_were_written() -> None:
    place = read_place(f"globus://{C.upper()}/a/b c.txt")

    assert (place.scheme, place.collection, place.path, place.name) == ("globus", C, "/a/b c.txt", "b c.txt")
    assert read_place("file://localhost/x/").uri == "file:///x/"
    assert read_place("file:///x/y").relative_to(read_place("file:///x/")) == "y"
    assert read_place("file:///xy").relative_to(read_place("file:///x/")) is None


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("https://example.org/x", "bad_uri_scheme"),
        ("/x", "bad_uri_scheme"),
        ("globus://my-laptop/x", "bad_collection"),
        (f"globus://{C}", "bad_uri"),
        ("file://server/x", "bad_uri"),
        ("file:///a/../b", "bad_path"),
        ("file:///a//b", "bad_path"),
        ("file:///a\nb", "bad_uri"),
        (f"file:///{'x' * 1000}", "too_long"),
    ],
)
def test_a_bad_place_names_its_fault(text: str, code: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_place(text, pointer="/source/uri")

    assert caught.value.problems[0][:2] == ("/source/uri", code)


def _item(source: str, destination: str, **options: object) -> tuple[str, str]:
    item = item_of(
        MoveInput.model_validate({"source": source, "destination": destination, "options": options})
    )
    return item.source.uri, item.destination.uri


def test_a_file_goes_into_a_folder_under_its_own_name_and_a_folder_stays_one() -> None:
    assert _item("file:///a/x", "file:///b/") == ("file:///a/x", "file:///b/x")
    assert _item("file:///a/x", "file:///b/y") == ("file:///a/x", "file:///b/y")
    assert _item("file:///a/", "file:///b") == ("file:///a/", "file:///b/")
    assert _item("file:///a", "file:///b", recursive=True) == ("file:///a/", "file:///b/")


@pytest.mark.parametrize(
    ("source", "destination", "code"),
    [
        ("file:///a", f"globus://{C}/a", "no_common_mover"),
        ("file:///a", "file:///a", "same_place"),
        ("file:///a/", "file:///a/b/", "same_place"),
    ],
)
def test_what_cannot_move_says_why(source: str, destination: str, code: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        _item(source, destination)

    assert caught.value.problems[0][1] == code


def test_a_deadline_is_ahead_and_not_for_ever() -> None:
    def at(given: datetime | None) -> datetime:
        fields = {"source": "file:///a", "destination": "file:///b", "options": {"deadline": given}}
        return deadline_of(MoveInput.model_validate(fields).options, now=NOW)

    assert at(None) == NOW + timedelta(hours=24)
    assert at(NOW + timedelta(hours=1)) == NOW + timedelta(hours=1)
    for wrong in (NOW, NOW + timedelta(days=15)):
        with pytest.raises(InvalidInput, match="deadline"):
            at(wrong)


def test_a_fault_no_try_gets_over_is_given_up_after_a_while_and_others_are_not() -> None:
    facts = MoveFacts(started_at=NOW, deadline_at=NOW + timedelta(hours=1))
    missing = Progress(state=MoveState.ACTIVE, reason="no such file", fault=Fault.MISSING, faults=3)

    first = judge(facts, missing, now=NOW)
    assert (first.target, first.fault_since) == (None, NOW)
    since = MoveFacts(NOW, facts.deadline_at, fault="missing_source", fault_since=NOW)
    later = judge(since, missing, now=NOW + GIVE_UP_AFTER)
    assert (later.target, later.reason, later.gives_up) == ("failed", "no such file", True)
    healed = judge(since, Progress(state=MoveState.ACTIVE), now=NOW + GIVE_UP_AFTER)
    assert (healed.target, healed.fault, healed.fault_since) == (None, "", None)
    other = Progress(state=MoveState.ACTIVE, reason="endpoint too busy", fault=Fault.OTHER)
    assert judge(MoveFacts(NOW, None, "other", NOW), other, now=NOW + timedelta(days=1)).target is None


def test_a_move_its_service_never_ends_is_ended_after_the_deadline() -> None:
    facts = MoveFacts(started_at=NOW, deadline_at=NOW)
    active = Progress(state=MoveState.ACTIVE)

    assert judge(facts, active, now=NOW + GRACE).target is None
    over = judge(facts, active, now=NOW + GRACE + timedelta(seconds=1))
    assert (over.target, over.fault, over.gives_up) == ("failed", "deadline", True)


def test_a_move_nobody_knows_any_more_is_failed_after_five_looks() -> None:
    assert without_trace(MoveFacts(NOW, tries=3)).target is None
    assert without_trace(MoveFacts(NOW, tries=4)).target == "failed"


def test_looks_grow_rarer() -> None:
    ages = [0, 30, 300, 86_400]

    looks = [next_look_s(MoveFacts(NOW), now=NOW + timedelta(seconds=age)) for age in ages]

    assert looks == [1.0, 2.0, 11.0, 30.0]
    assert [pause_s(n) for n in (1, 3, 20)] == [2.0, 8.0, 300.0]


@pytest.mark.parametrize(
    ("inputs", "where", "code"),
    [
        ([{"uri": "ftp://x/y"}], "/inputs/0/uri", "not_valid"),
        ([{"uri": "file:///a/x"}, {"uri": "file:///b/x"}], "", "same_path"),
        ([{"uri": "file:///a/x", "path": "../x"}], "/inputs/0/path", "not_valid"),
        ([{"uri": "file:///a/x", "path": "/x"}], "/inputs/0/path", "not_valid"),
    ],
)
def test_a_tasks_bad_inputs_are_named(inputs: list[dict[str, str]], where: str, code: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read(TaskInput, {"command": "true", "inputs": inputs}, what="task")

    assert caught.value.problems[0][:2] == (where, code)


def _storage(uri: str, path: str) -> tuple[Storage, ...]:
    return storages([(uri, path)], user="alice", remote_user="al1ce")


def test_a_storage_stands_for_a_folder_in_both_directions() -> None:
    (home,) = _storage(f"globus://{C}/home/{{user}}/", "/u/{user}")

    assert home.place_of("/u/al1ce/a/b") == read_place(f"globus://{C}/home/al1ce/a/b")
    assert home.path_of(read_place(f"globus://{C}/home/al1ce/a/b")) == "/u/al1ce/a/b"
    assert home.place_of("/u/al1ce2/a") is None
    assert home.path_of(read_place(f"globus://{C}/home/bob/a")) is None
    (root,) = _storage(f"globus://{C}/", "/")
    assert root.path_of(read_place(f"globus://{C}/a")) == "/a"


def _plan(uri: str, places: tuple[Storage, ...], **held: str) -> Plan:
    ref = DataRef(uri=uri, bytes=3, sha256="a" * 64)
    copies = {("a" * 64, 3): held["copy"]} if held else {}
    return plan_inputs([Wanted(ref, "in/x")], places, base="/u/al1ce/facet", held=copies)


def test_an_input_is_moved_only_where_it_is_not_there_already() -> None:
    files = _storage("file:///export/{user}/", "/u/{user}")

    inside = _plan("file:///export/al1ce/x", files)
    assert (inside.links[0].at, inside.to_move) == ("/u/al1ce/x", ())
    outside = _plan("file:///data/x", files)
    assert outside.to_move[0].destination.uri.startswith("file:///export/al1ce/facet/inputs/")
    assert outside.links[0].at.startswith("/u/al1ce/facet/inputs/")
    assert outside.links[0].at.endswith("/x")
    held = _plan("file:///data/x", files, copy="/u/al1ce/kept")
    assert (held.to_move, held.links[0].at, held.links[0].is_copy) == ((), "/u/al1ce/kept", True)
    assert _plan("file:///own/x", ()).links[0].at == "/own/x", "no storage named: the site's own path"


def test_an_input_no_mover_brings_is_said_to_stay_away() -> None:
    plan = _plan(f"globus://{C}/x", _storage("file:///export/", "/u"))

    assert plan.cannot == (f"its profile names no storage for globus:// data: globus://{C}/x",)
