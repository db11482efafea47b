"""What is due is handed to the queue once, and a queue that nobody works off stays short."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from orchestrator import control, moving
from orchestrator.services import groups
from portal import chores, handing
from portal.heartbeat import redis_client

FIRST = 2_000_000_000
"""Rows that no other test has."""


@pytest.fixture(autouse=True)
def queue(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A queue of this test's own, and nothing that waits."""
    name = "handing-of-a-test"
    monkeypatch.setattr(handing, "QUEUE", name)
    monkeypatch.setattr(control, "systems_with_work", lambda **_: [FIRST, FIRST + 1])
    monkeypatch.setattr(control, "tasks_with_work", lambda **_: list(range(FIRST, FIRST + 400)))
    monkeypatch.setattr(groups, "groups_with_work", lambda **_: [FIRST])
    monkeypatch.setattr(moving, "users_with_work", lambda **_: [])
    yield name
    marks = list(redis_client().scan_iter("facet:waits:*:2000000*"))
    redis_client().delete(name, *marks)


def _waiting(queue: str) -> Counter[str]:
    raw: Any = redis_client().lrange(queue, 0, -1)
    return Counter(json.loads(each)["headers"]["task"] for each in raw)


def _take(queue: str) -> tuple[str, int]:
    """Take the next chore out of the queue, as a worker does."""
    raw: Any = redis_client().rpop(queue)
    headers = json.loads(raw)["headers"]
    return headers["task"], json.loads(headers["argsrepr"].replace("(", "[").replace(",)", "]"))[0]


def test_a_queue_that_nobody_works_off_holds_each_row_once_and_no_more_than_its_room(queue: str) -> None:
    for _second in range(5):
        chores.control_tick()

    assert _waiting(queue) == {
        "portal.control_system": 2,
        "portal.advance_group": 1,
        "portal.advance_task": handing.LONGEST - 3,
    }


def test_what_a_worker_has_begun_is_handed_out_again_and_the_next_tasks_get_the_room(queue: str) -> None:
    chores.control_tick()
    taken = [_take(queue) for _ in range(13)]
    assert [name for name, _ in taken] == [
        *["portal.control_system"] * 2,
        "portal.advance_group",
        *["portal.advance_task"] * 10,
    ]
    handing.begun("portal.control_system", FIRST)

    chores.control_tick()

    rows = {"portal.control_system": 1, "portal.advance_task": handing.LONGEST - 1}
    assert _waiting(queue) == rows
    raw: Any = redis_client().lrange(queue, 0, 0)  # the newest
    assert json.loads(raw[0])["headers"]["argsrepr"] == f"({FIRST + handing.LONGEST - 3 + 11},)"


def test_nothing_is_handed_out_that_another_clock_handed_out_meanwhile(queue: str) -> None:
    rows = [FIRST, FIRST + 1, FIRST + 2]
    redis_client().set(f"facet:waits:portal.refresh:{FIRST + 1}", "1", ex=10)

    assert handing.offer("portal.refresh", rows) == [FIRST, FIRST + 2]
    assert handing.offer("portal.refresh", rows) == []
    handing.begun("portal.refresh", FIRST + 2)
    assert handing.offer("portal.refresh", rows, most=0) == []
    assert handing.offer("portal.refresh", rows, most=1) == [FIRST + 2]
