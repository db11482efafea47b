"""Pace and board: below the service's limit over all processes, and one look for everybody."""

from typing import Any

import pytest
from redis import Redis, RedisError

from portal.globus import links
from providers.links.globus_board import SharedBoard
from providers.links.globus_compute import Rhythm
from providers.links.globus_pace import Limit, LocalPace, SharedPace


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def _most_in_any_window(sent: list[float]) -> int:
    return max(sum(start <= at < start + 10 for at in sent) for start in sent)


@pytest.mark.parametrize("requests", [1, 2, 5, 18, 20])
def test_no_window_of_ten_seconds_holds_more_than_the_limit(requests: int) -> None:
    clock, sent = Clock(), []
    pace = LocalPace(Limit(requests), clock=clock)

    while clock.now < 200:
        wait = pace.wait_s("alice")
        if wait:
            clock.now += wait + 1e-9
        else:
            sent.append(clock.now)

    assert _most_in_any_window(sent) <= max(requests, 1) + (requests == 1)
    assert len(sent) >= 9 * (requests - max(1, requests * 4 // 10))


def test_one_user_does_not_slow_another() -> None:
    pace = LocalPace(Limit(2), clock=Clock())
    assert pace.wait_s("alice") == 0

    assert pace.wait_s("alice") > 0
    assert pace.wait_s("bob") == 0


def test_a_hold_lasts_as_long_as_the_service_asked() -> None:
    clock = Clock()
    pace = LocalPace(Limit(18), clock=clock)

    pace.hold("alice", 7)

    assert pace.wait_s("alice") == pytest.approx(7)
    clock.now += 7.001
    assert pace.wait_s("alice") == 0


def test_processes_share_one_bucket_and_one_hold() -> None:
    links._redis().delete("facet:globus:pace:test")
    first, second = (SharedPace(links._redis, Limit(18)) for _ in range(2))

    free = [pace.wait_s("test") for pace in (first, second) * 4]
    assert free[:7] == [0] * 7
    assert first.wait_s("test") > 0
    first.hold("test", 30)

    assert 29 < second.wait_s("test") <= 31
    links._redis().delete("facet:globus:pace:test")


def test_without_redis_each_process_keeps_its_own_bucket() -> None:
    def away() -> Redis:
        raise RedisError("away")

    pace = SharedPace(away, Limit(2))

    assert pace.wait_s("alice") == 0
    assert pace.wait_s("alice") > 0


def test_who_looks_asks_for_everybody_and_pins_up_what_it_found() -> None:
    for key in links._redis().keys("facet:globus:*:owner-x") or []:
        links._redis().delete(key)
    board = SharedBoard(links._redis)
    for task in ("a", "b", "c"):
        board.watch("owner-x", task, for_s=30)
    board.watch("owner-x", "late", for_s=-1)

    assert list(board.open_tasks("owner-x", "b")) == ["b", "a", "c"]
    board.pin("owner-x", {"a": {"status": "success", "result": "11\n1"}})

    assert list(board.open_tasks("owner-x", "b")) == ["b", "c"]
    assert board.answer("a") == {"status": "success", "result": "11\n1"}
    assert board.answer("a") is None
    assert board.answer("c") is None
    board.pin("owner-x", {"b": {}, "c": {}})


def test_a_task_is_looked_at_after_twice_as_long_each_time() -> None:
    rhythm = Rhythm(first_s=0.02, longest_s=0.5)

    assert [round(rhythm.pause_s(n), 3) for n in range(7)] == [0.02, 0.04, 0.08, 0.16, 0.32, 0.5, 0.5]


def test_the_board_looks_after_itself_without_redis() -> None:
    def away() -> Any:
        raise RedisError("away")

    board = SharedBoard(away)
    board.watch("o", "t", for_s=5)
    board.pin("o", {"t": {}})

    assert board.answer("t") is None
    assert list(board.open_tasks("o", "t")) == ["t"]
