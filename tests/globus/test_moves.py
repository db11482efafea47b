"""Transfers from request to end: durable, watched outside any request, faults in their own words."""

import json
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import DatabaseError, transaction
from django.utils import timezone

from federation.models import Connection, Event, System
from orchestrator import moving
from orchestrator.lifecycle import TransferState
from orchestrator.models import Transfer
from orchestrator.services import transfer_ends, transfers
from orchestrator.services.moves import move_transfer
from orchestrator.transfer_rules import GIVE_UP_AFTER
from orchestrator.transfer_selectors import show_transfer, waiting_for_sign_in
from portal.globus import flow
from portal.globus.application import TRANSFER_SERVER
from portal.globus.tokens import transfer_token
from portal.models import GlobusToken
from providers.errors import Conflict, IllegalMove, InvalidInput, NotAuthorized, NotFound
from providers.movers.globus_transfer import GlobusTransferMover
from providers.sandbox.globus.server import StandIn
from providers.sandbox.globus.spec import TRANSFER_SCOPE, Collection, Fault, MoveFault
from tests.globus.conftest import ALICE, consent
from tests.globus.test_transfer import A, B

pytestmark = pytest.mark.django_db


@pytest.fixture
def places(set_up: StandIn, tmp_path: Path, alice: User) -> tuple[Path, Path]:
    """Two collections, alice's access to them, and a folder of this machine that is open to her."""
    source, target = tmp_path / "a", tmp_path / "b"
    source.mkdir()
    target.mkdir()
    (source / "x.bin").write_bytes(b"x" * 100_000)
    set_up.state.know(
        collections=[
            Collection(id=A, name="a", root=str(source)),
            Collection(id=B, name="b", root=str(target)),
        ]
    )
    connect(set_up, alice)
    return source, target


@pytest.fixture
def home(tmp_path: Path, settings: Any) -> Path:
    settings.DATA_DIR = tmp_path / "data"
    settings.LOCAL_ROOTS = (str(tmp_path / "home" / "{user}"),)
    (tmp_path / "home" / "alice").mkdir(parents=True)
    (tmp_path / "home" / "alice" / "x").write_text("hello\n")
    return tmp_path / "home" / "alice"


def connect(server: StandIn, user: User) -> None:
    """Do what a person does who connects Globus."""
    session: dict[str, Any] = {}
    out = flow.start(session, "connect", user=user, next_url="", now=timezone.now())
    flow.finish(session, consent(out, ALICE), user=user, now=timezone.now())


def move(user: User, source: str, destination: str, **more: Any) -> Transfer:
    given = {"source": source, "destination": destination, **more}
    return transfers.move_data(user, given, actor="user:alice", now=timezone.now())


def watch(user: User, holds: Callable[[Transfer], bool] | None = None, *, later: float = 0) -> Transfer:
    """Do what the clock does until the newest transfer is over (or `holds`)."""
    deadline = time.monotonic() + 30
    while True:
        Transfer.objects.exclude(due_at=None).update(due_at=timezone.now())
        now = timezone.now() + timedelta(seconds=later)
        moving.watch_transfers(user.pk, now=now)
        transfer = Transfer.objects.latest("pk")
        if (holds or (lambda row: row.due_at is None))(transfer):
            return transfer
        assert time.monotonic() < deadline, transfer.__dict__
        time.sleep(0.05)


def told(transfer: Transfer) -> list[str]:
    rows = Event.objects.filter(subject=transfer.handle).order_by("pk")
    return list(rows.values_list("type", flat=True))


def test_a_file_moves_between_collections_and_every_step_is_told(
    alice: User, places: tuple[Path, Path]
) -> None:
    asked = move(alice, f"globus://{A}/x.bin", f"globus://{B}/in/")
    assert (asked.state, asked.submission_id) == ("requested", "")

    done = watch(alice)

    assert (places[1] / "in" / "x.bin").read_bytes() == b"x" * 100_000
    shown = show_transfer(done)
    assert (shown.state, shown.mover, shown.files_moved, shown.bytes_moved) == (
        "succeeded",
        "globus",
        1,
        100_000,
    )
    assert shown.destination == f"globus://{B}/in/x.bin"
    assert (shown.rate_mib_s or 0) > 0
    assert told(done) == ["transfer.requested", "transfer.started", "transfer.succeeded"]


def test_a_file_moves_within_this_machine_below_the_users_own_folder(alice: User, home: Path) -> None:
    move(alice, f"file://{home}/x", f"file://{home}/copies/")

    done = watch(alice)

    assert (home / "copies" / "x").read_text() == "hello\n"
    assert (done.state, done.mover, done.bytes_moved) == ("succeeded", "file", 6)


def test_nobody_moves_files_of_somebody_else_or_outside(alice: User, home: Path) -> None:
    (home.parent / "bob").mkdir()

    for path in (f"{home.parent}/bob/x", "/etc/passwd"):
        with pytest.raises(NotAuthorized, match="outside the folders"):
            move(alice, f"file://{path}", f"file://{home}/y")
    strange = User.objects.create_user("../bob")
    with pytest.raises(NotAuthorized, match="No folder of this machine is open"):
        move(strange, f"file://{home}/x", f"file://{home}/y")
    assert not Transfer.objects.exists()


def test_the_submission_id_is_kept_before_the_submission_and_asked_again_it_is_one_move(
    set_up: StandIn, alice: User, places: tuple[Path, Path]
) -> None:
    move(alice, f"globus://{A}/x.bin", f"globus://{B}/x.bin")
    set_up.state.arm(Fault(path="/v0.10/transfer", is_cut=True, after=True))

    doubtful = watch(alice, lambda row: row.tries > 0)
    assert (doubtful.state, doubtful.remote_id) == ("requested", "")
    kept = doubtful.submission_id
    assert kept

    done = watch(alice)
    assert (done.state, done.submission_id) == ("succeeded", kept)
    assert len(set_up.state.every("move")) == 1


@pytest.mark.parametrize("step", ["new_submission_id", "submit"])
def test_a_move_that_is_cancelled_while_its_service_is_asked_does_not_go_on(
    set_up: StandIn, alice: User, places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    row = move(alice, f"globus://{A}/gone", f"globus://{B}/gone")  # tried until it is cancelled
    asked = getattr(GlobusTransferMover, step)

    def cancelled_meanwhile(*given: Any) -> str:
        answer = asked(*given)
        Transfer.objects.update(fault="consent")  # so far it waited for a person: nothing was made of it
        transfer_ends.cancel_transfer(alice, row.handle, actor="user:alice", now=timezone.now())
        return str(answer)

    monkeypatch.setattr(GlobusTransferMover, step, cancelled_meanwhile)
    moving.watch_transfers(alice.pk, now=timezone.now())

    assert Transfer.objects.get().state == "cancelled"
    made = set_up.state.every("move")
    assert [each["cancel"] for each in made] == ([True] if step == "submit" else [])


def test_503_for_minutes_fails_nothing_and_is_asked_ever_more_rarely(
    set_up: StandIn, alice: User, places: tuple[Path, Path]
) -> None:
    move(alice, f"globus://{A}/x.bin", f"globus://{B}/x.bin")
    set_up.state.arm(Fault(path="/v0.10", status=503, times=4))
    pauses = []
    for _ in range(4):
        now = timezone.now()
        Transfer.objects.update(due_at=now)
        moving.watch_transfers(alice.pk, now=now)
        waiting = Transfer.objects.get()
        assert (waiting.state, waiting.reason[:27]) == ("requested", "Globus Transfer answered 50")
        assert waiting.due_at is not None
        pauses.append(round((waiting.due_at - now).total_seconds()))

    assert pauses == [2, 4, 8, 16]
    assert watch(alice).state == "succeeded"


def test_a_missing_consent_is_an_action_not_a_failure(
    set_up: StandIn, alice: User, places: tuple[Path, Path]
) -> None:
    known = set_up.state.get("collection", B)
    assert known is not None
    set_up.state.put("collection", B, known | {"needs_consent": True})
    move(alice, f"globus://{A}/x.bin", f"globus://{B}/x.bin")

    waiting = watch(alice, lambda row: row.fault == "consent")
    watch(alice, lambda row: row.fault == "consent")

    shown = show_transfer(waiting)
    assert (shown.state, shown.sign_in) == ("requested", "/connections/globus/connect/")
    assert shown.next_actions[0] == {
        "action": "sign_in",
        "url": "/connections/globus/connect/",
        "why": "give the consent it waits for",
    }
    assert "asks for your consent" in (shown.reason or "")
    assert told(waiting) == ["transfer.requested", "connection.needs_sign_in"], (
        "told once, however often tried"
    )
    assert list(waiting_for_sign_in(alice)) == [waiting]

    Transfer.objects.update(due_at=timezone.now() + timedelta(hours=1))
    connect(set_up, alice)  # asks for what is missing, and makes the move due
    assert moving.users_with_work(now=timezone.now()) == [alice.pk]
    done = watch(alice)

    assert done.state == "succeeded"
    assert show_transfer(done).sign_in is None


def test_a_move_that_waits_for_a_consent_can_be_cancelled_and_has_a_deadline(
    alice: User, places: tuple[Path, Path]
) -> None:
    GlobusToken.objects.filter(resource_server=TRANSFER_SERVER).delete()
    move(alice, f"globus://{A}/x.bin", f"globus://{B}/x.bin")
    waiting = watch(alice, lambda row: row.fault == "consent")

    transfer_ends.cancel_transfer(alice, waiting.handle, actor="user:alice", now=timezone.now())
    assert Transfer.objects.get().state == "cancelled"

    move(alice, f"globus://{A}/x.bin", f"globus://{B}/x.bin")
    late = watch(alice, lambda row: row.state == "failed", later=25 * 3600)
    assert (late.fault, late.reason[:42]) == ("deadline", "the deadline passed before it could begin:")


def test_a_missing_source_is_told_while_it_is_tried_and_given_up(
    alice: User, places: tuple[Path, Path]
) -> None:
    move(alice, f"globus://{A}/gone", f"globus://{B}/gone")

    trying = watch(alice, lambda row: row.fault == "missing_source")
    assert (trying.state, trying.reason) == ("active", "FileNotFoundError: No such file or directory: gone")
    ended = watch(alice, later=GIVE_UP_AFTER.total_seconds() + 1)

    assert (ended.state, ended.fault, ended.reason) == ("failed", "missing_source", trying.reason)
    assert told(ended)[-1] == "transfer.failed"


def test_a_full_disk_ends_it_in_the_collections_words(
    set_up: StandIn, alice: User, places: tuple[Path, Path]
) -> None:
    set_up.state.arm_move(MoveFault.QUOTA)
    move(alice, f"globus://{A}/x.bin", f"globus://{B}/x.bin")

    ended = watch(alice)

    assert (ended.state, ended.fault) == ("failed", "quota")
    assert ended.reason == "Disk quota exceeded: x.bin"


def test_a_file_that_is_not_the_declared_one_does_not_arrive(alice: User, places: tuple[Path, Path]) -> None:
    given = {
        "source": {"uri": f"globus://{A}/x.bin", "sha256": "0" * 64},
        "destination": f"globus://{B}/x.bin",
    }
    transfers.move_data(alice, given, actor="user:alice", now=timezone.now())

    ended = watch(alice)

    assert (ended.state, ended.fault) == ("failed", "checksum_mismatch")
    assert ended.reason == "x.bin is not the declared file: its checksum is another"
    assert not (places[1] / "x.bin").exists()


def test_a_file_damaged_on_its_way_is_sent_again_and_counted(
    set_up: StandIn, alice: User, places: tuple[Path, Path]
) -> None:
    set_up.state.arm_move(MoveFault.CORRUPT)
    move(alice, f"globus://{A}/x.bin", f"globus://{B}/x.bin")

    done = watch(alice)

    assert (done.state, done.faults) == ("succeeded", 1)


def test_an_unknown_collection_and_a_path_outside_end_it_at_once(
    alice: User, places: tuple[Path, Path]
) -> None:
    nowhere = "c0000000-0000-4000-8000-0000000000ff"
    move(alice, f"globus://{nowhere}/x", f"globus://{B}/x")
    gone = watch(alice)
    assert (gone.state, gone.fault) == ("failed", "missing_source")
    assert nowhere in gone.reason


def test_an_active_move_is_cancelled_when_its_service_confirms(
    alice: User, places: tuple[Path, Path]
) -> None:
    move(alice, f"globus://{A}/gone", f"globus://{B}/gone")
    active = watch(alice, lambda row: row.state == "active")

    asked = transfer_ends.cancel_transfer(alice, active.handle, actor="user:alice", now=timezone.now())
    assert (asked.state, asked.cancel_requested_at is not None) == ("active", True)
    done = watch(alice)

    assert (done.state, done.reason) == ("cancelled", "canceled by user")
    again = transfer_ends.cancel_transfer(alice, done.handle, actor="user:alice", now=timezone.now())
    assert again.state == "cancelled"


def test_many_moves_of_one_user_are_watched_in_one_request(
    set_up: StandIn, alice: User, places: tuple[Path, Path]
) -> None:
    for number in range(6):
        move(alice, f"globus://{A}/gone{number}", f"globus://{B}/g{number}")
    moving.watch_transfers(alice.pk, now=timezone.now())
    before = set_up.state.requests("", sub=ALICE)
    Transfer.objects.update(due_at=timezone.now())

    assert moving.watch_transfers(alice.pk, now=timezone.now()) == 6

    assert set_up.state.requests("", sub=ALICE) == before + 1


def test_the_database_holds_the_lifecycle_and_the_submission_id(alice: User, home: Path) -> None:
    move(alice, f"file://{home}/x", f"file://{home}/y")
    done = watch(alice)

    with pytest.raises(IllegalMove):
        move_transfer(done, TransferState.ACTIVE, now=timezone.now())
    for change in (
        {"state": "active"},
        {"submission_id": "another"},
        {"destination": "file:///etc/passwd"},
        {"state": "lost"},
    ):
        with pytest.raises(DatabaseError), transaction.atomic():
            Transfer.objects.update(**change)
    with pytest.raises(DatabaseError), transaction.atomic():
        Transfer.objects.all().delete()


def test_another_users_transfer_is_not_there(alice: User, home: Path) -> None:
    asked = move(alice, f"file://{home}/x", f"file://{home}/y")
    bob = User.objects.create_user("bob")

    with pytest.raises(NotFound):
        transfer_ends.cancel_transfer(bob, asked.handle, actor="user:bob", now=timezone.now())
    assert not waiting_for_sign_in(bob).exists()


def test_a_user_with_two_identities_here_is_asked_to_say_which(alice: User, home: Path) -> None:
    for number, name in enumerate(("daemon", "nobody")):
        system = System.objects.create(slug=f"s{number}", name=name)
        Connection.objects.create(
            handle=f"c{number}", user=alice, system=system, kind="local", settings={"run_as": name}
        )

    with pytest.raises(Conflict, match=r"different users of this machine \(daemon, nobody\)"):
        move(alice, f"file://{home}/x", f"file://{home}/y")


def test_moves_between_collections_need_an_application(alice: User, home: Path, settings: Any) -> None:
    settings.GLOBUS_CLIENT_ID, settings.GLOBUS_CLIENT_SECRET = "", None

    with pytest.raises(Conflict, match="not set up"):
        move(alice, f"globus://{A}/x", f"globus://{B}/x")
    with pytest.raises(InvalidInput, match="no mover in common"):
        move(alice, f"file://{home}/x", f"globus://{B}/x")


def test_the_policy_trace_says_what_was_looked_at(alice: User, places: tuple[Path, Path]) -> None:
    asked = move(alice, f"globus://{A}/x.bin", f"globus://{B}/x.bin", options={"label": "mine"})

    rules = {finding["rule"]: finding["outcome"] for finding in asked.policy}
    assert rules == {"access": "allowed", "mover": "info", "verification": "info", "deadline": "info"}
    GlobusToken.objects.filter(resource_server=TRANSFER_SERVER).delete()
    assert move(alice, f"globus://{A}/x.bin", f"globus://{B}/y").policy[0]["outcome"] == "needs_action"


def test_scope_words_of_the_stand_in_are_those_we_ask_for(places: tuple[Path, Path], alice: User) -> None:
    kept = GlobusToken.objects.get(user=alice, resource_server=TRANSFER_SERVER)

    assert kept.scope.partition("[")[0] == TRANSFER_SCOPE


def test_no_token_is_kept_with_a_transfer_or_told_of_it(
    set_up: StandIn, alice: User, places: tuple[Path, Path], caplog: pytest.LogCaptureFixture
) -> None:
    secret = transfer_token(alice.pk)
    move(alice, f"globus://{A}/x.bin", f"globus://{B}/x.bin")
    body = {"code": "ClientError", "message": f"the token {secret} is not good"}
    set_up.state.arm(Fault(path="/v0.10/transfer", status=503, body=body))
    watch(alice, lambda row: row.tries > 0)
    done = watch(alice)

    kept = json.dumps(list(Transfer.objects.values()), default=str)
    told_of = json.dumps(list(Event.objects.values()), default=str)
    assert done.state == "succeeded"
    assert GlobusToken.objects.filter(user=alice).exists()
    for where in (kept, told_of, caplog.text):
        assert secret not in where
