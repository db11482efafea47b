"""History as charts: nothing is drawn over what was not seen, and axes are pleasant."""

from datetime import UTC, datetime, timedelta

import pytest

from federation.shown import History, HistoryPoint
from portal.web.presenters.charts import chart, nice
from portal.web.presenters.history import history_view, hours_of

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
START = NOW - timedelta(hours=1)


def test_a_value_is_placed_in_the_middle_of_its_stretch_on_a_scale_from_zero() -> None:
    drawn = chart(
        "Free GPUs", [(START, 0), (START + timedelta(minutes=30), 8)], start=START, end=NOW, step_s=1800
    )

    assert str(drawn.lines) == "M25.0 100.0L75.0 0.0"
    assert str(drawn.areas) == "M25.0 100L25.0 100.0L75.0 0.0L75.0 100Z"
    assert drawn.y_ticks == ((0, 8), (50, 4), (100, 0))
    assert drawn.spoken == "Free GPUs: 8 now, between 0 and 8 in this time"


def test_a_pause_is_a_gap_and_a_lone_point_still_a_mark() -> None:
    points = [(START + timedelta(minutes=m), 1.0) for m in (0, 2, 4, 40)]

    drawn = chart("Waiting jobs", points, start=START, end=NOW, step_s=120)

    assert drawn.lines.count("M") == 2
    assert drawn.lines.endswith("H68.63")


def test_a_chart_without_points_says_so_and_draws_nothing() -> None:
    drawn = chart("Free GPUs", [], start=START, end=NOW, step_s=60, top=32)

    assert (str(drawn.lines), drawn.now) == ("", None)
    assert drawn.y_ticks[0] == (0, 40)
    assert drawn.spoken == "Free GPUs: nothing was seen in this time"


@pytest.mark.parametrize(
    ("value", "top"), [(0, 1), (1, 1), (1.5, 2), (3, 4), (9, 10), (14, 20), (64, 80), (96, 100), (826, 1000)]
)
def test_an_axis_ends_at_a_pleasant_number(value: float, top: int) -> None:
    assert nice(value) == top


def test_ticks_are_whole_and_few() -> None:
    drawn = chart("x", [], start=START + timedelta(minutes=7), end=NOW + timedelta(minutes=7), step_s=60)

    assert [at.minute for _x, at in drawn.x_ticks] == [15, 30, 45, 0]


def test_the_partition_with_most_gpus_is_shown_unless_another_is_asked_for() -> None:
    point = HistoryPoint(at=START, gpus_free=3, cpus_free=40, running=1, pending=2)
    found = [History(system="anvil", partition=name, points=[point]) for name in ("cpu", "gpu")]
    gpus, cpus = {"cpu": 0, "gpu": 32}, {"cpu": 128, "gpu": 64}

    usual = history_view(found, "", gpus, cpus, hours=1, now=NOW)
    asked = history_view(found, "cpu", gpus, cpus, hours=1, now=NOW)

    assert usual is not None
    assert asked is not None
    assert (usual.partition, usual.free.title, usual.free.now) == ("gpu", "Free GPUs", 3)
    assert (asked.partition, asked.free.title, asked.free.now) == ("cpu", "Free CPUs", 40)
    assert history_view([], "", {}, {}, hours=1, now=NOW) is None


def test_what_is_drawn_can_be_read_the_newest_first() -> None:
    points = [
        HistoryPoint(at=START + timedelta(minutes=m), gpus_free=m, cpus_free=40, running=1, pending=2 * m)
        for m in (0, 5)
    ]
    found = [History(system="anvil", partition="gpu", points=points)]

    view = history_view(found, "", {"gpu": 32}, {"gpu": 64}, hours=1, now=NOW)

    assert view is not None
    assert view.values == ((START + timedelta(minutes=5), 5, 10), (START, 0, 0))


def test_hours_that_are_not_offered_mean_a_day() -> None:
    assert [hours_of(word) for word in ("6", "168", "5", "-1", "x", "")] == [6, 168, 24, 24, 24, 24]
