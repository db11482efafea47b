"""What is due for a group, child by child."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from orchestrator.grouping import Child, Required, Step, step
from orchestrator.lifecycle import GroupState, TaskState

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


def child(
    key: str, state: TaskState = TaskState.ACCEPTED, round_: int = 1, after: tuple[str, ...] = ()
) -> Child:
    return Child(key=key, round=round_, after=after, state=state, is_started=state is not TaskState.ACCEPTED)


def due(*children: Child, required: Required = "all", cancel_requested: bool = False) -> Step:
    return step(children, required=required, cancel_requested=cancel_requested, now=NOW)


def test_the_first_round_starts_and_the_second_waits() -> None:
    found = due(child("a"), child("b"), child("c", round_=2))

    assert (found.start, found.target, found.completed_rounds) == (("a", "b"), None, ())


@pytest.mark.parametrize(
    ("required", "starts"), [("all", ()), ("any", ("c",)), (1, ("c",)), (2, ()), (99, ())]
)
def test_the_second_round_starts_when_enough_of_the_first_has_ended(
    required: Required, starts: tuple[str, ...]
) -> None:
    children = (child("a", TaskState.FAILED), child("b", TaskState.RUNNING), child("c", round_=2))

    assert due(*children, required=required).start == starts


def test_a_number_beyond_the_round_means_all_of_it() -> None:
    children = (child("a", TaskState.FAILED), child("b", TaskState.SUCCEEDED), child("c", round_=2))

    found = due(*children, required=99)

    assert (found.start, found.completed_rounds) == (("c",), (1,))


def test_a_child_waits_for_its_siblings_success_and_is_given_up_when_one_fails() -> None:
    after_a = child("c", after=("a",))

    assert due(child("a", TaskState.RUNNING), after_a).start == ()
    assert due(child("a", TaskState.SUCCEEDED), after_a).start == ("c",)
    assert due(child("a", TaskState.FAILED), after_a).give_up == {"c": "a"}
    assert due(child("a", TaskState.CANCELLED), after_a).give_up == {"c": "a"}


def test_nothing_starts_once_the_group_is_being_cancelled() -> None:
    assert due(child("a"), cancel_requested=True).start == ()


@pytest.mark.parametrize(
    ("states", "cancel_requested", "target"),
    [
        ("ss", False, GroupState.SUCCEEDED),
        ("ss", True, GroupState.SUCCEEDED),
        ("sf", False, GroupState.PARTIALLY_SUCCEEDED),
        ("sf", True, GroupState.CANCELLED),
        ("ff", False, GroupState.FAILED),
        ("fc", False, GroupState.FAILED),
        ("cc", False, GroupState.CANCELLED),
        ("sr", False, None),
        ("su", False, None),
    ],
)
def test_the_group_ends_when_every_child_has(
    states: str, cancel_requested: bool, target: GroupState | None
) -> None:
    words = {
        "s": TaskState.SUCCEEDED,
        "f": TaskState.FAILED,
        "c": TaskState.CANCELLED,
        "r": TaskState.RUNNING,
        "u": TaskState.UNSCHEDULABLE,
    }
    children = [child(str(number), words[letter]) for number, letter in enumerate(states)]

    assert due(*children, cancel_requested=cancel_requested).target is target


def waiting(key: str, *, for_s: int, p90_s: int = 0) -> Child:
    since = NOW - timedelta(seconds=for_s)
    return replace(child(key, TaskState.PENDING), waiting_since=since, wait_p90_s=p90_s)


def test_a_child_is_stalled_when_it_alone_is_left_and_overdue_by_its_own_estimate() -> None:
    done = child("a", TaskState.SUCCEEDED)

    assert due(done, waiting("b", for_s=61)).stalled == ("b",)
    assert due(done, waiting("b", for_s=59)).stalled == ()
    assert due(done, waiting("b", for_s=61, p90_s=300)).stalled == ()
    assert due(done, waiting("b", for_s=301, p90_s=300)).stalled == ("b",)
    assert due(child("a", TaskState.RUNNING), waiting("b", for_s=9999)).stalled == ()
    assert due(waiting("b", for_s=9999)).stalled == ()


def test_several_children_are_stalled_when_all_that_is_left_of_their_round_is_overdue() -> None:
    done, late = child("a", TaskState.SUCCEEDED), waiting("b", for_s=61)

    assert due(done, late, waiting("c", for_s=300)).stalled == ("b", "c")
    assert due(done, late, waiting("c", for_s=59)).stalled == ()
    assert due(done, late, child("c", TaskState.PLACING)).stalled == ()
    assert due(late, waiting("c", for_s=300)).stalled == ()  # side by side is still what they could run
    assert due(done, late, child("c", TaskState.RUNNING, round_=2), required="any").stalled == ("b",)
