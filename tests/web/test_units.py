"""Seconds, MiB and bytes as people read them."""

from decimal import Decimal

import pytest

from portal.web.templatetags.units import count, duration, known, memory, size, wall_time


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (None, "–"),
        (0, "0 s"),
        (89, "89 s"),
        (90, "2 min"),
        (3599, "60 min"),
        (3600, "1 h"),
        (4320, "1 h 12 min"),
        (86_399, "23 h 59 min"),
        (86_400, "1 d"),
        (183_600, "2 d 3 h"),
        (-120, "-2 min"),
        (44.6, "45 s"),
    ],
)
def test_a_duration_is_said_in_its_two_largest_units(seconds: float | None, said: str) -> None:
    assert duration(seconds) == said


@pytest.mark.parametrize(
    ("seconds", "written"), [(None, "–"), (5400, "01:30:00"), (216_000, "2-12:00:00"), (59, "00:00:59")]
)
def test_a_wall_time_is_written_as_schedulers_write_it(seconds: int | None, written: str) -> None:
    assert wall_time(seconds) == written


@pytest.mark.parametrize(
    ("mib", "said"),
    [(None, "–"), (512, "512 MiB"), (65_536, "64 GiB"), (1536, "1.5 GiB"), (1_572_864, "1.5 TiB")],
)
def test_memory_keeps_a_figure_before_the_point(mib: float | None, said: str) -> None:
    assert memory(mib) == said


def test_bytes_are_binary_and_none_is_not_known() -> None:
    assert [size(n) for n in (None, 0, 512, 1536, 2**40)] == ["–", "0 B", "512 B", "1.5 KiB", "1 TiB"]


def test_counts_are_parted_by_thin_spaces() -> None:
    assert [count(n) for n in (None, 0, 999, 12_345)] == ["–", "0", "999", "12\u202f345"]


def test_zero_is_known() -> None:
    assert [known(v) for v in (None, "", 0, "x")] == ["–", "–", 0, "x"]


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (Decimal("100000.0000"), "100\u202f000"),
        (Decimal("1199.9774"), "1\u202f199.9774"),
        (Decimal("1E+3"), "1\u202f000"),
        (Decimal(0), "0"),
        (12345, "12\u202f345"),
    ],
)
def test_a_count_has_thin_spaces_and_no_idle_zeros(value: int | Decimal, written: str) -> None:
    assert count(value) == written
