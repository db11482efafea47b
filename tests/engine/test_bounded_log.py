"""A program's log stays small, and a full disk costs lines only."""

import subprocess
import sys
from pathlib import Path

import pytest

from portal.embedded.bounded_log import BoundedLog


def test_a_log_past_its_bound_starts_anew_and_the_oldest_is_dropped(tmp_path: Path) -> None:
    log = BoundedLog(tmp_path / "web.log", most_bytes=10, kept=2)

    for number in range(8):
        log.write(b"line %d\n" % number)
    log.close()

    kept = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert kept == {
        "web.log": "line 6\nline 7\n",
        "web.log.1": "line 4\nline 5\n",
        "web.log.2": "line 2\nline 3\n",
    }


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, a device that is always full")
def test_a_full_disk_loses_lines_and_the_program_goes_on() -> None:
    log = BoundedLog(Path("/dev/full"))
    program = subprocess.Popen(
        [sys.executable, "-c", "for n in range(9999): print('x' * 100)"], stdout=subprocess.PIPE
    )
    assert program.stdout is not None

    log.follow(program.stdout).join(20)

    assert program.wait(20) == 0
    assert log.lost == 9999 * 101


def test_lines_are_kept_again_once_there_is_room(tmp_path: Path) -> None:
    log = BoundedLog(tmp_path / "file-in-the-way" / "web.log")
    (tmp_path / "file-in-the-way").touch()
    log.write(b"lost\n")
    (tmp_path / "file-in-the-way").unlink()

    log.write(b"kept\n")
    log.close()

    assert (log.lost, log.last_lines()) == (5, "kept")
