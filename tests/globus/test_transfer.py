"""Moving data over the wire: the unmodified TransferClient against the stand-in, with every fault."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from providers.errors import InvalidInput, NotAuthorized, NotFound, RateLimited, SiteUnreachable
from providers.movers.globus_transfer import GlobusTransferMover
from providers.movers.types import Move, MoveItem, MoveState, Progress
from providers.sandbox.globus.auth import dependencies
from providers.sandbox.globus.server import StandIn, serving
from providers.sandbox.globus.spec import (
    COMPUTE_SERVER,
    TRANSFER_SCOPE,
    TRANSFER_SERVER,
    Collection,
    Fault,
    MoveFault,
)
from tests.globus.conftest import ALICE, BOB, CLIENT

A, B = "c0000000-0000-4000-8000-00000000000a", "c0000000-0000-4000-8000-00000000000b"
SUBMIT = "/v0.10/transfer"


@dataclass
class Held:
    """Access to Transfer, kept in memory."""

    server: StandIn
    sub: str = ALICE
    resource_server: str = TRANSFER_SERVER
    asked: list[Mapping[str, Any]] = field(default_factory=list)
    current: str = ""

    def token(self, *, refused: str | None = None) -> str:
        if refused is not None or not self.current:
            self.current = self.server.state.mint(
                "access",
                sub=self.sub,
                client=CLIENT,
                scope=TRANSFER_SCOPE,
                server=self.resource_server,
                ttl_s=600,
            )
        return self.current

    def is_there(self) -> bool:
        return True

    def sign_in_needed(self, reason: str, parameters: Mapping[str, Any]) -> NotAuthorized:
        self.asked.append(parameters)
        return NotAuthorized(reason)


@pytest.fixture
def places(globus: StandIn, tmp_path: Path) -> tuple[Path, Path]:
    source, target = tmp_path / "a", tmp_path / "b"
    (source / "in" / "deep").mkdir(parents=True)
    target.mkdir()
    (source / "in" / "x.bin").write_bytes(b"x" * 3_000_000)
    (source / "in" / "deep" / "y.txt").write_text("hi\n")
    globus.state.know(
        collections=[
            Collection(id=A, name="a", root=str(source)),
            Collection(id=B, name="b", root=str(target)),
        ]
    )
    return source, target


@pytest.fixture
def mover(globus: StandIn, places: tuple[Path, Path]) -> GlobusTransferMover:
    return GlobusTransferMover(Held(globus), base_url=globus.url)


def a_move(source: str = "/in", target: str = "/out", *, folder: bool = True, **more: Any) -> Move:
    item = MoveItem(source=source, destination=target, is_folder=folder)
    return Move(source_collection=A, destination_collection=B, items=(item,), label="stage in", **more)


def until(mover: GlobusTransferMover, move_id: str, holds: Callable[[Progress], bool]) -> Progress:
    deadline = time.monotonic() + 15
    while True:
        seen = mover.observe([move_id])[move_id]
        if holds(seen):
            return seen
        assert time.monotonic() < deadline, seen
        time.sleep(0.05)


def over(seen: Progress) -> bool:
    return seen.state is not MoveState.ACTIVE


def test_a_folder_arrives_whole_and_a_second_time_nothing_is_sent(
    mover: GlobusTransferMover, places: tuple[Path, Path]
) -> None:
    first = until(mover, mover.submit(a_move(), mover.new_submission_id()), over)

    assert (first.state, first.files, first.files_moved) == (MoveState.SUCCEEDED, 2, 2)
    assert first.bytes_moved == 3_000_003
    assert first.finished_at is not None
    assert (places[1] / "out" / "deep" / "y.txt").read_text() == "hi\n"

    again = until(mover, mover.submit(a_move(), mover.new_submission_id()), over)

    assert (again.files_moved, again.files_skipped, again.bytes_moved) == (0, 2, 0)


def test_a_submission_asked_for_twice_is_one_move(globus: StandIn, mover: GlobusTransferMover) -> None:
    submission = mover.new_submission_id()

    assert mover.submit(a_move(), submission) == mover.submit(a_move(), submission)
    assert len(globus.state.every("move")) == 1


def test_an_answer_lost_after_submission_costs_nothing(globus: StandIn, mover: GlobusTransferMover) -> None:
    submission = mover.new_submission_id()
    globus.state.arm(Fault(path=SUBMIT, is_cut=True, after=True))

    with pytest.raises(SiteUnreachable):
        mover.submit(a_move(), submission)
    until(mover, mover.submit(a_move(), submission), over)

    assert len(globus.state.every("move")) == 1


def test_a_file_damaged_on_its_way_is_sent_again(
    globus: StandIn, mover: GlobusTransferMover, places: tuple[Path, Path]
) -> None:
    globus.state.arm_move(MoveFault.CORRUPT)

    seen = until(mover, mover.submit(a_move(), mover.new_submission_id()), over)

    assert (seen.state, seen.faults) == (MoveState.SUCCEEDED, 1)
    assert (places[1] / "out" / "x.bin").read_bytes() == (places[0] / "in" / "x.bin").read_bytes()


def test_a_missing_source_is_told_while_it_is_tried_and_ends_at_the_deadline(
    mover: GlobusTransferMover,
) -> None:
    deadline = datetime.now(UTC) + timedelta(seconds=2)
    move_id = mover.submit(a_move("/gone", "/g", folder=False, deadline=deadline), mover.new_submission_id())

    trying = until(mover, move_id, lambda seen: seen.faults > 0)
    ended = until(mover, move_id, over)

    assert (trying.state, trying.reason) == (
        MoveState.ACTIVE,
        "FileNotFoundError: No such file or directory: gone",
    )
    assert (ended.state, ended.reason) == (MoveState.FAILED, trying.reason)


def test_a_full_disk_ends_the_move_in_the_collections_own_words(
    globus: StandIn, mover: GlobusTransferMover
) -> None:
    globus.state.arm_move(MoveFault.QUOTA)

    seen = until(mover, mover.submit(a_move(), mover.new_submission_id()), over)

    assert seen.state is MoveState.FAILED
    assert seen.reason.startswith("Disk quota exceeded")


def test_a_cancelled_move_is_cancelled_not_failed(mover: GlobusTransferMover) -> None:
    move_id = mover.submit(a_move("/gone", "/g", folder=False), mover.new_submission_id())

    mover.cancel(move_id)

    assert until(mover, move_id, over).state is MoveState.CANCELLED
    mover.cancel(move_id)


def test_a_missing_consent_is_an_action_that_names_the_scope(
    globus: StandIn, mover: GlobusTransferMover
) -> None:
    known = globus.state.get("collection", B)
    assert known is not None
    globus.state.put("collection", B, known | {"needs_consent": True})
    scope = f"https://auth.globus.org/scopes/{B}/data_access"

    with pytest.raises(NotAuthorized, match="asks for your consent"):
        mover.submit(a_move(), mover.new_submission_id())
    assert isinstance(mover.access, Held)
    assert mover.access.asked == [{"required_scopes": [f"{TRANSFER_SCOPE}[*{scope}]"]}]

    globus.auth._remember_consents(ALICE, CLIENT, dependencies(f"{TRANSFER_SCOPE}[*{scope}]"))
    seen = until(mover, mover.submit(a_move(), mover.new_submission_id()), over)
    assert seen.state is MoveState.SUCCEEDED


@pytest.mark.parametrize("path", ["/../../etc/passwd", "/in/../../b"])
def test_a_path_outside_the_collection_is_refused(mover: GlobusTransferMover, path: str) -> None:
    with pytest.raises(NotAuthorized, match="Path not allowed"):
        mover.submit(a_move(path, "/x", folder=False), mover.new_submission_id())


def test_a_collection_unknown_or_of_others_is_told_apart(globus: StandIn, mover: GlobusTransferMover) -> None:
    unknown = a_move().model_copy(update={"source_collection": "c0000000-0000-4000-8000-0000000000ff"})
    with pytest.raises(NotFound, match="no such collection"):
        mover.submit(unknown, mover.new_submission_id())
    known = globus.state.get("collection", A)
    assert known is not None
    globus.state.put("collection", A, known | {"identities": [BOB]})

    with pytest.raises(NotAuthorized, match="does not let you"):
        mover.submit(a_move(), mover.new_submission_id())


def test_an_empty_move_is_refused(mover: GlobusTransferMover) -> None:
    with pytest.raises(InvalidInput, match="does not take the move"):
        mover.submit(a_move().model_copy(update={"items": ()}), mover.new_submission_id())


def test_many_moves_are_watched_in_one_request(globus: StandIn, mover: GlobusTransferMover) -> None:
    ids = [mover.submit(a_move("/in", f"/out{n}"), mover.new_submission_id()) for n in range(5)]
    for move_id in ids:
        until(mover, move_id, over)
    before = globus.state.requests()

    seen = mover.observe([*ids, "c0000000-0000-4000-8000-0000000000ee"])

    assert set(seen) == set(ids)
    assert globus.state.requests() == before + 1


def test_a_move_of_somebody_else_is_not_seen(globus: StandIn, mover: GlobusTransferMover) -> None:
    move_id = mover.submit(a_move(), mover.new_submission_id())
    bob = GlobusTransferMover(Held(globus, sub=BOB), base_url=globus.url)

    assert bob.observe([move_id]) == {}
    with pytest.raises(NotFound):
        bob.cancel(move_id)


def test_an_expired_token_is_renewed_and_a_wrong_one_asks_for_a_sign_in(
    globus: StandIn, mover: GlobusTransferMover
) -> None:
    mover.new_submission_id()
    globus.state.expire()
    assert mover.new_submission_id()
    wrong = Held(globus, resource_server=COMPUTE_SERVER)

    with pytest.raises(NotAuthorized, match="does not accept the access to data"):
        GlobusTransferMover(wrong, base_url=globus.url).new_submission_id()


def test_too_many_requests_waits_once_and_then_says_when_to_come_back(
    globus: StandIn, mover: GlobusTransferMover
) -> None:
    globus.state.arm(Fault(path="/v0.10/", status=429, headers={"Retry-After": "0.2"}))
    assert mover.new_submission_id()
    globus.state.arm(Fault(path="/v0.10/", status=429, times=5, headers={"Retry-After": "60"}))

    with pytest.raises(RateLimited) as caught:
        mover.new_submission_id()

    assert caught.value.facts["retry_after_s"] == 60


def test_a_restarted_service_finishes_what_it_had_begun(tmp_path: Path) -> None:
    source, target = tmp_path / "a", tmp_path / "b"
    source.mkdir()
    target.mkdir()
    path = tmp_path / "kept.db"
    with serving(path) as first:
        first.state.know(
            collections=[
                Collection(id=A, name="a", root=str(source)),
                Collection(id=B, name="b", root=str(target)),
            ]
        )
        port = first.server_address[1]
        held = Held(first)
        mover = GlobusTransferMover(held, base_url=first.url)
        move_id = mover.submit(a_move("/late", "/late", folder=False), mover.new_submission_id())
    (source / "late").write_text("here now")
    with serving(path, port):
        seen = until(mover, move_id, over)

    assert seen.state is MoveState.SUCCEEDED
    assert (target / "late").read_text() == "here now"
