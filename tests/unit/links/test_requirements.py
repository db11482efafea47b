"""An operation that requires another runs only after that one ended with 0; the rest of the batch goes on."""

from providers.links.local import LocalLink
from providers.types import Batch, Exec


def _run(first: str) -> dict[str, tuple[int | None, bool]]:
    operations = (
        Exec(name="ping", argv=("sh", "-c", first), timeout_s=0.5),
        Exec(name="queue", argv=("true",), requires="ping"),
        Exec(name="after", argv=("true",), requires="queue"),
        Exec(name="accounting", argv=("true",)),
    )
    replies = LocalLink().run(Batch(operations=operations)).replies
    return {name: (reply.rc, reply.skipped) for name, reply in replies.items()}


def test_all_run_when_the_required_one_succeeds() -> None:
    assert _run("exit 0") == {
        "ping": (0, False),
        "queue": (0, False),
        "after": (0, False),
        "accounting": (0, False),
    }


def test_what_requires_a_failure_is_skipped_and_so_on_down_the_chain() -> None:
    assert _run("exit 1") == {
        "ping": (1, False),
        "queue": (None, True),
        "after": (None, True),
        "accounting": (0, False),
    }


def test_one_that_did_not_end_in_time_counts_as_failed() -> None:
    assert _run("sleep 5")["queue"] == (None, True)
    assert _run("sleep 5")["accounting"] == (0, False)


def test_an_operation_that_was_never_run_satisfies_nothing() -> None:
    lonely = Batch(operations=(Exec(name="queue", argv=("true",), requires="ping"),))

    assert LocalLink().run(lonely).replies["queue"].skipped
