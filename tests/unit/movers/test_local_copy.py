"""The local mover with its real copying process: within its roots, verified, resumable, never over a link."""

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from providers.errors import InvalidInput, NotAuthorized, NotFound
from providers.links.local import Become
from providers.movers.local_copy import LocalMover, forget_old
from providers.movers.types import Fault, Move, MoveItem, MoveState, Progress


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home" / "in" / "deep").mkdir(parents=True)
    (tmp_path / "home" / "in" / "x.bin").write_bytes(b"x" * 3_000_000)
    (tmp_path / "home" / "in" / "deep" / "y.txt").write_text("hi\n")
    return tmp_path / "home"


@pytest.fixture
def mover(home: Path, tmp_path: Path) -> LocalMover:
    return LocalMover(roots=(home,), folder=tmp_path / "moves")


def a_move(
    source: Path | str,
    target: Path | str,
    *,
    folder: bool = False,
    sha256: str | None = None,
    deadline: datetime | None = None,
) -> Move:
    item = MoveItem(source=str(source), destination=str(target), is_folder=folder, sha256=sha256)
    return Move(
        source_collection="", destination_collection="", items=(item,), label="test", deadline=deadline
    )


def ended(mover: LocalMover, move_id: str, holds: Callable[[Progress], bool] | None = None) -> Progress:
    deadline = time.monotonic() + 30
    while True:
        seen = mover.observe([move_id])[move_id]
        if (holds or (lambda each: each.state is not MoveState.ACTIVE))(seen):
            return seen
        assert time.monotonic() < deadline, seen
        time.sleep(0.02)


def moved(mover: LocalMover, move: Move) -> Progress:
    return ended(mover, mover.submit(move, mover.new_submission_id()))


def test_a_folder_arrives_whole_with_sizes_and_checksums_and_is_not_sent_twice(
    mover: LocalMover, home: Path
) -> None:
    os.chmod(home / "in" / "deep" / "y.txt", 0o750)  # noqa: PTH101  # what is to be kept
    first = moved(mover, a_move(f"{home}/in/", f"{home}/out/", folder=True))

    assert (first.state, first.files, first.files_moved, first.bytes_moved) == ("succeeded", 2, 2, 3_000_003)
    assert {Path(each.path).name: each.sha256 for each in first.seen} == {
        "x.bin": hashlib.sha256(b"x" * 3_000_000).hexdigest(),
        "y.txt": hashlib.sha256(b"hi\n").hexdigest(),
    }
    assert (home / "out" / "deep" / "y.txt").stat().st_mode & 0o777 == 0o750

    again = moved(mover, a_move(f"{home}/in/", f"{home}/out/", folder=True))

    assert (again.files_moved, again.files_skipped, again.bytes_moved) == (0, 2, 0)


def test_a_submission_asked_for_twice_is_one_move(mover: LocalMover, home: Path) -> None:
    submission, move = mover.new_submission_id(), a_move(home / "in" / "x.bin", home / "x")

    assert mover.submit(move, submission) == mover.submit(move, submission)
    ended(mover, submission)
    mover.submit(move, submission)

    assert ended(mover, submission).files_moved == 1, "the second did not copy again"


@pytest.mark.parametrize("path", ["/etc/passwd", "{home}/../secret", "{home}x/secret"])
def test_a_path_outside_the_roots_is_refused_on_either_side(mover: LocalMover, home: Path, path: str) -> None:
    path = path.format(home=home)

    for move in (a_move(path, home / "x"), a_move(home / "in" / "x.bin", path)):
        with pytest.raises(NotAuthorized, match=r"outside the folders|not followed"):
            mover.check(move)
        with pytest.raises(NotAuthorized):
            mover.submit(move, mover.new_submission_id())


def test_a_link_that_leads_out_is_not_followed(mover: LocalMover, home: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_text("planted")
    (home / "way").symlink_to(tmp_path / "secret")
    (home / "key").symlink_to(tmp_path / "secret" / "key")

    over_folder = moved(mover, a_move(home / "way" / "key", home / "stolen"))
    as_file = moved(mover, a_move(home / "key", home / "stolen"))
    into = moved(mover, a_move(home / "in" / "x.bin", home / "way" / "x.bin"))

    assert {each.fault for each in (over_folder, as_file, into)} == {Fault.DENIED}
    assert "leads over a symbolic link" in over_folder.reason
    assert not (home / "stolen").exists()
    assert [file.name for file in (tmp_path / "secret").iterdir()] == ["key"]


def test_links_in_a_folder_are_left_out_and_that_is_said(
    mover: LocalMover, home: Path, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text("planted")
    (home / "in" / "key").symlink_to(tmp_path / "key")

    seen = moved(mover, a_move(f"{home}/in/", f"{home}/out/", folder=True))

    assert (seen.state, seen.files_moved) == ("succeeded", 2)
    assert seen.reason == "1 symbolic links were left out: a move follows none."
    assert not (home / "out" / "key").exists()


def test_a_missing_source_is_told_with_its_path(mover: LocalMover, home: Path) -> None:
    seen = moved(mover, a_move(home / "gone", home / "x"))

    assert (seen.state, seen.fault) == (MoveState.FAILED, Fault.MISSING)
    assert seen.reason == f"No such file or directory: {home}/gone"


def test_a_file_that_is_not_the_declared_one_is_refused(mover: LocalMover, home: Path) -> None:
    wanted = hashlib.sha256(b"another").hexdigest()

    seen = moved(mover, a_move(home / "in" / "x.bin", home / "x", sha256=wanted))

    assert (seen.state, seen.fault) == (MoveState.FAILED, Fault.CHECKSUM)
    assert wanted in seen.reason
    assert not (home / "x").exists()


def test_a_full_disk_ends_it_in_the_systems_own_words(home: Path, tmp_path: Path) -> None:
    if not Path("/dev/full").exists() or os.geteuid() != 0:
        pytest.skip("a small file system to fill can only be mounted by root")
    small = tmp_path / "small"
    small.mkdir()
    if os.system(f"mount -t tmpfs -o size=1m none {small} 2>/dev/null") != 0:  # our own path
        pytest.skip("this machine does not let root mount a tmpfs")
    try:
        mover = LocalMover(roots=(home, small), folder=tmp_path / "moves")
        seen = moved(mover, a_move(home / "in" / "x.bin", small / "x"))
        assert (seen.state, seen.fault) == (MoveState.FAILED, Fault.QUOTA)
        assert seen.reason == f"No space left on device: {small}/x"
        assert list(small.iterdir()) == [], "no half of it is left"
    finally:
        os.system(f"umount {small}")  # our own path


def test_a_passed_deadline_ends_it(mover: LocalMover, home: Path) -> None:
    passed = datetime.now(UTC) - timedelta(seconds=1)

    seen = moved(mover, a_move(home / "in" / "x.bin", home / "x", deadline=passed))

    assert (seen.state, seen.fault) == (MoveState.FAILED, Fault.DEADLINE)


def test_what_a_killed_process_left_is_taken_up_again(mover: LocalMover, home: Path) -> None:
    submission = mover.new_submission_id()
    mover.submit(a_move(home / "in" / "x.bin", home / "x"), submission)
    ended(mover, submission)
    state = mover.folder / submission / "state.json"
    left = json.loads(state.read_text()) | {"state": "active", "finished_at": None, "pid": 999_999_999}
    state.write_text(json.dumps(left))  # as if it had been killed on its way

    seen = ended(mover, submission)

    assert (seen.state, seen.files_skipped) == (MoveState.SUCCEEDED, 1)


def test_a_cancelled_move_stops_and_leaves_no_half(mover: LocalMover, home: Path) -> None:
    with (home / "big").open("wb") as file:
        file.truncate(3_000_000_000)  # sparse: takes long to copy, and no room here
    move_id = mover.submit(a_move(home / "big", home / "copy"), mover.new_submission_id())

    mover.cancel(move_id)

    assert ended(mover, move_id).state is MoveState.CANCELLED
    assert {file.name for file in home.iterdir()} == {"in", "big"}
    with pytest.raises(NotFound):
        mover.cancel(mover.new_submission_id())


@pytest.mark.parametrize("target", ["in/", "in/below/"])
def test_a_folder_is_not_moved_into_itself(mover: LocalMover, home: Path, target: str) -> None:
    with pytest.raises(InvalidInput, match="lies within"):
        mover.check(a_move(f"{home}/in/", f"{home}/{target}", folder=True))


def test_pipes_and_folders_are_no_files(mover: LocalMover, home: Path) -> None:
    os.mkfifo(home / "pipe")

    assert moved(mover, a_move(home / "pipe", home / "x")).reason == f"{home}/pipe is not a regular file"
    assert "is a folder; end both" in moved(mover, a_move(home / "in", home / "x")).reason


def test_an_id_that_is_none_names_no_move(mover: LocalMover) -> None:
    with pytest.raises(NotFound):
        mover.observe(["../../etc"])
    assert mover.observe([mover.new_submission_id()]) == {}


def test_old_moves_are_forgotten(mover: LocalMover, home: Path) -> None:
    moved(mover, a_move(home / "in" / "x.bin", home / "x"))

    assert forget_old(mover.folder, keep_s=3600) == 0
    until = time.monotonic() + 10  # its process may be about to end
    while not forget_old(mover.folder, keep_s=0):
        assert time.monotonic() < until
        time.sleep(0.02)
    assert list(mover.folder.iterdir()) == []
    assert forget_old(mover.folder / "none", keep_s=0) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user of this machine")
def test_files_are_read_and_written_as_the_user_they_are_moved_for(home: Path, tmp_path: Path) -> None:
    person = Become.named("daemon")
    for folder in (*reversed(home.parents), home):
        if folder.is_relative_to(tempfile.gettempdir()) and folder != Path(tempfile.gettempdir()):
            folder.chmod(folder.stat().st_mode | 0o011)
    theirs = home / "theirs"
    theirs.mkdir()
    (theirs / "x").write_text("x")
    for path in (theirs, theirs / "x"):
        os.chown(path, person.uid, person.gid)
    (home / "secret").write_text("planted")
    (home / "secret").chmod(0o600)
    mover = LocalMover(roots=(home,), folder=tmp_path / "moves", become=person)

    done = moved(mover, a_move(theirs / "x", theirs / "copies" / "x"))
    stolen = moved(mover, a_move(home / "secret", theirs / "stolen"))
    elsewhere = moved(mover, a_move(theirs / "x", home / "in" / "y"))

    assert done.state is MoveState.SUCCEEDED, done.reason
    assert (theirs / "copies" / "x").stat().st_uid == person.uid
    assert (stolen.fault, elsewhere.fault) == (Fault.DENIED, Fault.DENIED)
    assert stolen.reason == f"Permission denied: {home}/secret"
