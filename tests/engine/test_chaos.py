"""The bounded part of the chaos suite: every part of a running demo is killed once, while work goes on.

`benchmarks/chaos.py` is the long one: random kills over a thousand lives;
`benchmarks/chaos_slurm.py` does that on real Slurm.
"""

import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.chaos import PARTS, Demo
from benchmarks.chaos_checks import settle, submit_one
from tests.engine.test_installation import free_port, outside

pytestmark = [pytest.mark.services, pytest.mark.timeout(400)]

IDLE = {"link (command in flight)", "link (Globus stand-in)"}
"""Parts that may have nothing under way just then."""


def _kill(demo: Demo, part: str) -> int:
    """Kill a part, one that is starting anew once it is there; return how many processes it had."""
    until = time.monotonic() + 30
    count = demo.kill(PARTS[part])
    while not count and part not in IDLE and time.monotonic() < until:
        time.sleep(0.2)
        count = demo.kill(PARTS[part])
    return count


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder of a short name: Valkey's socket is below it then, and the path of that names its process."""
    with tempfile.TemporaryDirectory(prefix="facet-", ignore_cleanup_errors=True) as folder:
        yield Path(folder) / "data"


def test_killing_every_part_in_turn_loses_doubles_and_sticks_nothing(short: Path) -> None:
    place, port = short, free_port()
    place.mkdir()
    demo = Demo(
        place,
        port,
        command=[sys.executable, "-P", "-m", "portal.supervise", "demo"],
        env=outside(place, port),
    )
    try:
        demo.wait_ready()
        handles, killed = [], {}
        for number, part in enumerate(PARTS):
            handles.append(submit_one(demo, 2 * number, sleeps_s=1))
            killed[part] = _kill(demo, part)
            handles.append(submit_one(demo, 2 * number + 1, sleeps_s=0))
            time.sleep(0.5)  # a kill needs something under way, not an end of its own
        tasks = settle(demo, handles, within_s=240)
        found = demo.compare(handles, tasks)
    finally:
        demo.stop()

    assert {part for part, count in killed.items() if count == 0} <= IDLE
    assert found.are_clean, found
    assert len(tasks) == 2 * len(PARTS)
