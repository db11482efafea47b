"""Squares, bars and the timeline: the geometry behind what is drawn."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.types import Health
from orchestrator.lifecycle import AttemptState, GroupState, TaskState, TransferState
from orchestrator.models import DeliveryState, SubscriptionState
from portal.web.presenters.decisions import Estimates, TimeBar, time_bars
from portal.web.presenters.federation import MAX_SQUARES, Pool, QueueBar, on_one_scale, per_square, squares
from portal.web.presenters.shared import SystemRef, said, tones
from portal.web.presenters.timeline import AttemptFacts, axis, timeline

NOW = datetime(2026, 3, 4, 14, 10, tzinfo=UTC)
ANVIL = SystemRef("anvil", "Anvil", 1)


def test_one_gpu_is_one_square_up_to_the_bound() -> None:
    assert [per_square(n) for n in (0, 1, 256, 257, 512, 513, 2000)] == [1, 1, 1, 2, 2, 4, 8]


def test_squares_keep_counts_exactly_when_one_is_one() -> None:
    assert squares((9, 32, 23, 0), 1) == (9, 32, 23, 0)


def test_a_single_free_gpu_among_hundreds_is_still_a_square() -> None:
    assert squares((0, 599, 1, 8), 8) == (0, 75, 1, 1)


@given(st.lists(st.integers(0, 5000), min_size=4, max_size=4))
def test_squares_stay_bounded_and_no_kind_vanishes(counts: list[int]) -> None:
    step = per_square(sum(counts)) or 1
    drawn = squares(counts, step)

    assert sum(drawn) <= MAX_SQUARES + len(counts)
    assert [n > 0 for n in drawn] == [n > 0 for n in counts]


def test_pools_of_one_card_share_their_scale() -> None:
    pools = on_one_scale((Pool("A100 40 GB", 6, 14, 372, 8), Pool("H200 141 GB", 0, 0, 64, 0)))

    assert [pool.per_square for pool in pools] == [2, 2]
    assert str(pools[1].squares) == '<i class="b"></i>' * 32
    assert pools[0].spoken == "A100 40 GB: 6 free, 14 yours, 372 busy, 8 down"


def test_the_queue_bar_shows_ours_first() -> None:
    assert QueueBar(pending=50, running=50, ours_pending=0, ours_running=10).parts == (
        (10.0, 100),
        (40.0, 55),
        (50.0, 26),
    )
    assert QueueBar(None, None, 0, 0).parts == ()


def test_bars_share_one_scale_and_long_tails_are_cut() -> None:
    fast = Estimates(0, 0, 0, 0, 400, 400)
    slow = Estimates(400, 4000, 100, 100, 200, 800)

    assert time_bars([fast, slow]) == (
        TimeBar(wait=0.0, stage=0.0, run=44.44, tail_from=44.44, tail=0),
        TimeBar(wait=44.44, stage=22.22, run=22.22, tail_from=88.89, tail=11.11),
    )
    assert time_bars([]) == ()


def attempt(**more: Any) -> AttemptFacts:
    first = AttemptFacts(
        handle="att_1",
        number=1,
        ref=ANVIL,
        partition="gpu",
        state="succeeded",
        cause="",
        job_id="7",
        shape="",
        planned_at=NOW - timedelta(minutes=40),
        queued_at=NOW - timedelta(minutes=40),
        started_at=NOW - timedelta(minutes=30),
        ended_at=NOW - timedelta(minutes=10),
        predicted_start_at=NOW - timedelta(minutes=35),
        predicted_end_at=NOW - timedelta(minutes=20),
    )
    return replace(first, **more)


def test_no_attempt_draws_no_timeline() -> None:
    assert timeline([], now=NOW) is None


def test_a_finished_attempt_shows_waiting_then_running_and_no_now_line() -> None:
    drawn = timeline([attempt()], now=NOW)

    assert drawn is not None
    actual, predicted = drawn.lanes[0].actual, drawn.lanes[0].predicted
    assert drawn.frame.columns == 6  # five minutes a tick: 13:30 … 14:00
    assert drawn.frame.now_x is None
    assert actual is not None
    assert (actual.x, actual.width, actual.wait, actual.look) == (0.0, 100.0, 33.33, "done")
    assert predicted is not None
    assert (predicted.x, predicted.width, predicted.wait) == (0.0, 66.67, 25.0)


def test_a_waiting_attempt_is_all_hatched_up_to_now() -> None:
    drawn = timeline([attempt(state="pending", started_at=None, ended_at=None)], now=NOW)

    assert drawn is not None
    assert drawn.lanes[0].actual is not None
    assert (drawn.lanes[0].actual.look, drawn.lanes[0].actual.wait) == ("waiting", 100)
    assert drawn.frame.now_x is not None
    assert abs(drawn.lanes[0].actual.x + drawn.lanes[0].actual.width - drawn.frame.now_x) < 0.02


def test_a_failed_attempt_says_its_cause_in_words() -> None:
    drawn = timeline([attempt(state="failed", cause="out_of_memory")], now=NOW)

    assert drawn is not None
    assert drawn.lanes[0].actual is not None
    assert (drawn.lanes[0].actual.look, drawn.lanes[0].actual.label) == ("failed", "Failed: out of memory")


def test_a_planned_attempt_has_only_its_prediction() -> None:
    lane = timeline(
        [attempt(state="planned", queued_at=None, started_at=None, ended_at=None)], now=NOW
    ).lanes[0]  # type: ignore[union-attr]

    assert lane.actual is None
    assert lane.predicted is not None


@given(st.integers(0, 10**7), st.integers(0, 10**9))
def test_the_axis_holds_its_ends_with_few_ticks(start: int, length: int) -> None:
    first = datetime.fromtimestamp(1_700_000_000 + start, UTC)
    last = first + timedelta(seconds=length)

    low, high, step = axis(first, last)

    assert low <= first <= last <= high
    assert 1 <= (high - low).total_seconds() / step <= 9


@pytest.mark.parametrize(
    ("kind", "states"),
    [
        ("task", list(TaskState)),
        ("attempt", list(AttemptState)),
        ("group", list(GroupState)),
        ("transfer", list(TransferState)),
        ("subscription", list(SubscriptionState)),
        ("delivery", list(DeliveryState)),
        ("health", list(Health)),
    ],
)
def test_every_state_has_a_word_and_an_icon(kind: str, states: list[str]) -> None:
    icons = {said(state, kind).icon for state in states}

    assert "circle-help" not in {said(state, kind).icon for state in states if state != "unknown"}
    assert all(icons)


def test_a_state_we_do_not_know_keeps_its_own_word_and_is_marked() -> None:
    assert (said("molten", "task").word, said("molten", "task").look) == ("molten", "warn")


def test_each_system_keeps_its_colour_and_neighbours_differ() -> None:
    assert tones(["vista", "anvil", "delta", "anvil"]) == {"anvil": 1, "delta": 2, "vista": 3}
