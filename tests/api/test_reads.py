"""Lists and objects: paged by place, filtered by name, one's own only, in few queries, by their schemas."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from federation.models import System
from orchestrator.models import Attempt, Task
from portal.api.resources import RESOURCES
from portal.skills.registry import SKILLS
from tests.api.conftest import Api

pytestmark = pytest.mark.django_db(transaction=True)


def _submit(api: Api, **given: Any) -> str:
    answer = api.post("tasks?wait_s=0", {"command": "true", **given})
    assert answer.status_code in (201, 202), answer.content
    handle: str = answer.json()["id"]
    return handle


def _walk(api: Api, path: str, key: str = "id") -> list[Any]:
    found: list[Any] = []
    cursor = None
    while True:
        mark = "&" if "?" in path else "?"
        page = api.get(path + (f"{mark}cursor={cursor}" if cursor else "")).json()
        found += [row[key] for row in page["results"]]
        cursor = page["next"]
        if cursor is None:
            return found


def test_pages_follow_each_other_without_gap_or_double_while_tasks_come(api: Api, delta: System) -> None:
    made = [_submit(api) for _ in range(7)]

    first = api.get("tasks?limit=3").json()
    _submit(api)
    second = api.get(f"tasks?limit=3&cursor={first['next']}").json()
    third = api.get(f"tasks?limit=3&cursor={second['next']}").json()

    seen = [row["id"] for page in (first, second, third) for row in page["results"]]
    assert seen == made[::-1]
    assert third["next"] is None
    assert made[0].removeprefix("task_") not in first["next"]


def test_events_come_in_commit_order_and_a_cursor_goes_on(api: Api, delta: System) -> None:
    _submit(api)
    listed = _walk(api, "events?limit=2", "cursor")
    assert listed == list(range(1, len(listed) + 1))

    _submit(api)
    later = api.get(f"events?after={listed[-1]}").json()["results"]

    assert [event["cursor"] for event in later] == [listed[-1] + 1, listed[-1] + 2]
    assert [event["type"] for event in later] == ["task.accepted", "task.placed"]


FILTERS = [
    ("tasks?state=placing", 2),
    ("tasks?state=placing,unschedulable", 3),
    ("tasks?state=failed", 0),
    ("tasks?system=delta", 2),
    ("tasks?system=nowhere", 0),
    ("tasks?partition=gpuA100x4", 2),
    ("tasks?name=two", 1),
    ("attempts?state=planned&system=delta", 2),
    ("decisions?state=unschedulable", 1),
    ("events?type=task.placed", 2),
    ("events?type=task.*", 6),
    ("events?type=task.placed,task.unschedulable", 3),
    ("charges?kind=reserve&system=delta", 2),
    ("allocations?account=bbka-delta-gpu", 1),
    ("snapshots?system=delta&state=available", 1),
    ("systems?state=online&system=delta", 1),
    ("systems?state=offline", 0),
]


def test_filters_are_named_after_fields(api: Api, delta: System) -> None:
    _submit(api, name="one", envelope={"gpus": 1})
    _submit(api, name="two", envelope={"gpus": 1})
    _submit(api, name="three", envelope={"gpus": 5000})

    assert {query: len(api.get(query).json()["results"]) for query, _ in FILTERS} == dict(FILTERS)


def test_the_filter_task_narrows_attempts_decisions_and_events(api: Api, delta: System) -> None:
    mine, _other = _submit(api), _submit(api)

    for kind in ("attempts", "decisions", "events"):
        found = api.get(f"{kind}?task={mine}").json()["results"]
        assert found
        assert {row["task"] for row in found} == {mine}


def test_every_object_has_id_and_state_on_top_and_an_entity_tag(api: Api, delta: System) -> None:
    _submit(api)
    for name in RESOURCES:
        for row in api.get(name).json()["results"]:
            assert row["id"]
            assert "state" in row
            one = api.get(f"{name}/{row['id']}")
            assert one.status_code == 200, name
            assert one.json()["id"] == row["id"]
            if name != "systems":  # the age of its figures grows
                assert api.get(f"{name}/{row['id']}", if_none_match=one["ETag"]).status_code == 304
    task = api.get("tasks").json()["results"][0]
    assert (task["system"], task["partition"]) == ("delta", "gpuA100x4")


def test_another_user_sees_nothing_and_gets_404(
    api: Api, delta: System, bob: User, caller: Callable[..., Api]
) -> None:
    handle = _submit(api)
    other = caller(bob)
    for name in RESOURCES:
        rows = api.get(name).json()["results"]
        if name in ("systems", "tokens"):
            continue
        theirs = other.get(name).json()["results"]
        assert theirs == [], name
        for row in rows:
            assert other.get(f"{name}/{row['id']}").status_code == 404, name

    for path in (f"tasks/{handle}/timeline", f"tasks/{handle}"):
        assert other.get(path).status_code == 404
    for verb in ("cancel", "replan"):
        assert other.post(f"tasks/{handle}/{verb}").status_code == 404
    for name, given in (
        ("get_result", {"task": handle}),
        ("read_log", {"task": handle}),
        ("cancel", {"task": handle}),
        ("replan", {"task": handle}),
        ("wait_for_events", {"subject": handle, "timeout_s": 0}),
    ):
        assert other.skill(name, given).status_code == 404, name
    assert Task.objects.get().cancel_requested_at is None


@pytest.mark.parametrize("slash", ["", "/"])
def test_a_trailing_slash_changes_nothing(api: Api, delta: System, slash: str) -> None:
    assert api.get(f"tasks{slash}").status_code == 200
    made = api.post(f"tasks{slash}?wait_s=0", {"command": "true"})
    assert made.status_code == 202
    handle = made.json()["id"]
    assert api.get(f"tasks/{handle}{slash}").status_code == 200
    assert api.get(f"tasks/{handle}/timeline{slash}").status_code == 200
    assert api.skill(f"get_result{slash}", {"task": handle}).status_code == 200
    assert api.post(f"tasks/{handle}/cancel{slash}").status_code == 200


def _queries(api: Api, path: str) -> int:
    with CaptureQueriesContext(
        connection,
    ) as caught:
        assert api.get(path).status_code == 200
    return len(caught)


def test_a_list_costs_the_same_queries_for_one_row_as_for_many(api: Api, delta: System) -> None:
    _submit(api)
    api.get("tasks")
    few = {name: _queries(api, name) for name in RESOURCES}
    for _ in range(5):
        _submit(api)

    assert {name: _queries(api, name) for name in RESOURCES} == few
    assert max(few.values()) <= 8


def test_the_timeline_shows_what_was_expected(api: Api, delta: System) -> None:
    handle = _submit(api)

    timeline = api.get(f"tasks/{handle}/timeline").json()

    assert timeline["task"] == handle
    assert [(e["phase"], e["predicted"]) for e in timeline["entries"]] == [
        ("wait", True),
        ("run", True),
        ("wait", False),
    ]


def test_a_list_of_decisions_is_brief_and_one_is_whole(api: Api, delta: System) -> None:
    _submit(api, envelope={"gpus": 1})

    listed = api.get("decisions").json()["results"][0]
    whole = api.get(f"decisions/{listed['id']}").json()

    rejected = next(c for c in whole["candidates"] if not c["feasible"])
    assert {"rule", "code", "required", "observed", "remedy"} == set(rejected["rejections"][0])
    brief = next(c for c in listed["candidates"] if not c["feasible"])
    assert [r["code"] for r in brief["rejections"]] == [r["code"] for r in rejected["rejections"]]
    assert any(c["sizing"] for c in whole["candidates"])
    assert not any(c["sizing"] for c in listed["candidates"])


def test_llms_txt_names_every_skill(client: Client, db: None) -> None:
    text = client.get("/llms.txt").content.decode()

    for name in SKILLS:
        assert f"`{name}`" in text


def test_calibration_is_told_by_place_and_class_and_only_to_its_owner(
    api: Api, caller: Callable[..., Api], bob: User, delta: System
) -> None:
    _submit(api, envelope={"gpus": 1, "walltime_s": 600})
    assert api.get("calibration").json() == {"results": [], "next": None}
    attempt = Attempt.objects.get()
    Attempt.objects.update(submitted_at=attempt.planned_at, started_at=attempt.planned_at)

    (row,) = api.get("calibration").json()["results"]

    figures = {"n": 1, "within_1min": 1.0, "p90_coverage": 1.0}
    assert row.items() >= {"system": "delta", "partition": attempt.partition, **figures}.items()
    assert row["class"] == attempt.predicted["wait"]["class"]
    assert row.items() >= {"measure": "wait", "basis": None, "unit": "s"}.items()
    assert api.get("calibration?system=delta").json()["results"] == [row]
    assert api.get("calibration?measure=wait").json()["results"] == [row]
    assert api.get("calibration?measure=runtime,charge").json()["results"] == []
    assert api.get("calibration?measure=weight").json()["errors"][0]["pointer"] == "?measure"
    assert api.get("calibration?system=vista").json()["results"] == []
    assert api.get("calibration?color=red").status_code == 422
    assert caller(bob).get("calibration").json()["results"] == []
    assert caller(bob, "submit").get("calibration").status_code == 403
