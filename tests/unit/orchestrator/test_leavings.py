"""What is asked about an ended attempt, and what is made of the answer."""

from datetime import UTC, datetime, timedelta

from orchestrator.leavings import Leavings, Tails, operations, read
from providers.types import BatchReply, FileEntry, Reply

NOW = datetime(2026, 11, 29, 18, 0, tzinfo=UTC)


def _answer(**replies: Reply) -> BatchReply:
    return BatchReply(replies={f"k.{name}": reply for name, reply in replies.items()})


def _file(path: str, at: datetime | None = NOW) -> FileEntry:
    return FileEntry(path=path, bytes=1, modified_at=at)


def test_one_request_asks_for_files_milestones_and_the_last_words_of_a_failed_one() -> None:
    asked = list(operations("k", workdir="/w", stdout="/l/out", stderr="/l/err", with_tails=True))

    assert [each.name for each in asked] == ["k.files", "k.milestones", "k.stderr", "k.stdout"]
    assert asked[2].model_dump(include={"path", "offset", "limit"}) == {
        "path": "/l/err", "offset": -8192, "limit": 8192
    }  # fmt: skip
    assert len(list(operations("k", workdir="/w", stdout="/o", stderr="/e", with_tails=False))) == 2


def test_our_own_folder_is_no_result() -> None:
    files = (_file("a.txt"), _file(".facet/token"), _file(".facet/facet-milestone"))
    left = read("k", _answer(files=Reply(name="k.files", rc=0, files=files)), workdir="/w", since=NOW)

    assert left == Leavings(files=(files[0],))


def test_dropped_milestones_come_by_name_and_only_new_ones() -> None:
    old = NOW - timedelta(hours=1)
    files = (
        _file(".facet-milestones/b.txt"),
        _file(".facet-milestones/a.txt"),
        _file(".facet-milestones/0.txt", old),
    )
    said = (
        "/w/.facet-milestones/b.txt:epoch 2: done\n/w/.facet-milestones/0.txt:of another attempt\n"
        "/w/.facet-milestones/a.txt:epoch 1\n/w/.facet-milestones/never-listed.txt:x\nbroken\n"
    )
    reply = _answer(
        files=Reply(name="k.files", rc=0, files=files),
        milestones=Reply(name="k.milestones", rc=0, stdout=said),
    )

    assert read("k", reply, workdir="/w", since=NOW).milestones == ("epoch 1", "epoch 2: done")


def test_the_last_words_lose_job_tokens_and_what_cannot_be_read_is_empty() -> None:
    reply = _answer(
        stderr=Reply(name="k.stderr", rc=0, stdout="oops fjt_abcdefghij"), stdout=Reply(name="k.stdout", rc=1)
    )

    assert read("k", reply, workdir="/w", since=None) == Leavings(tails=Tails(stderr="oops **************"))
