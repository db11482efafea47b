"""Profiles as text: differences, and downtime written into them without touching the rest."""

from datetime import timedelta

import pytest

from federation.profile import MaintenanceWindow
from federation.profile_edit import DiffLine, counts, diff, with_maintenance
from federation.profile_yaml import read_profile
from tests.unit.federation.values import NOW

TEXT = "# kept\nsystem: delta\nname: Delta\narchitecture: x86_64\npartitions:\n  gpu: {}\n"
WINDOW = MaintenanceWindow(
    start_at=NOW, end_at=NOW + timedelta(hours=2), reason="power: off", partitions=("gpu",)
)
LATER = MaintenanceWindow(start_at=NOW + timedelta(days=1), end_at=NOW + timedelta(days=2))


def test_a_difference_is_told_line_by_line() -> None:
    lines = diff("a\nb\n", "a\nc\nd\n", before_name="old", after_name="new")

    assert lines == (
        DiffLine("place", "--- old"),
        DiffLine("place", "+++ new"),
        DiffLine("place", "@@ -1,2 +1,3 @@"),
        DiffLine("same", " a"),
        DiffLine("removed", "-b"),
        DiffLine("added", "+c"),
        DiffLine("added", "+d"),
    )
    assert counts(lines) == (2, 1)


def test_the_same_text_has_no_difference() -> None:
    assert diff("a\n", "a\n", before_name="x", after_name="y") == ()


def test_a_removed_line_that_looks_like_a_head_is_a_removed_line() -> None:
    lines = diff("-- x\n", "", before_name="old", after_name="new")

    assert lines[-1] == DiffLine("removed", "--- x")


@pytest.mark.parametrize("windows", [[WINDOW], [LATER, WINDOW], []])
@pytest.mark.parametrize(
    "before",
    [
        TEXT,
        TEXT.rstrip("\n"),
        TEXT + "maintenance: []\n",
        TEXT + "maintenance:\n  - {start_at: 2026-01-01T00:00:00Z, end_at: 2026-01-02T00:00:00Z}\n",
        TEXT.replace(
            "partitions:",
            "maintenance:\n- start_at: 2026-01-01T00:00:00Z\n  end_at: 2026-01-02T00:00:00Z\npartitions:",
        ),
    ],
    ids=["none", "no last line end", "empty", "at the end", "in the middle"],
)
def test_downtime_is_written_and_all_else_stays(before: str, windows: list[MaintenanceWindow]) -> None:
    after = with_maintenance(before, windows)

    read = read_profile(after)
    assert read.maintenance == tuple(sorted(windows, key=lambda window: window.start_at))
    assert read.model_copy(update={"maintenance": ()}) == read_profile(TEXT)
    assert after.startswith("# kept\nsystem: delta\n")
    assert after.count("maintenance") == bool(windows)


def test_writing_the_same_downtime_twice_changes_nothing() -> None:
    once = with_maintenance(TEXT, [WINDOW])

    assert with_maintenance(once, [WINDOW]) == once


def test_a_comment_that_belongs_to_the_next_field_stays() -> None:
    windows = "maintenance:\n  - {start_at: 2026-01-01T00:00:00Z, end_at: 2026-01-02T00:00:00Z}\n"
    rest = "\n# what images run with\ncontainers: [apptainer]\n"

    assert with_maintenance(TEXT + windows + rest, []) == TEXT + rest
