"""What becomes of a task whose attempt ended, cause by cause."""

from dataclasses import replace

import pytest

from orchestrator.adaptation import Act, Ended, adapt
from orchestrator.lifecycle import AttemptState, Cause
from orchestrator.task_input import RETRIED_BY_DEFAULT

ENDED = Ended(
    state=AttemptState.FAILED,
    cause=Cause.NODE_FAILURE,
    attempts_made=1,
    max_attempts=3,
    retry_on=frozenset(RETRIED_BY_DEFAULT),
    extend_walltime_factor=1.5,
    walltime_s=600,
    cancel_requested=False,
    replan_requested=False,
)


def test_success_is_success_even_when_a_cancel_came_too_late() -> None:
    late = replace(ENDED, state=AttemptState.SUCCEEDED, cause=None, cancel_requested=True)

    assert adapt(late).act is Act.SUCCEED


@pytest.mark.parametrize("cause", [Cause.EXIT_CODE, Cause.TIMEOUT, Cause.OUT_OF_MEMORY, Cause.LAUNCH_FAILED])
def test_a_fault_of_the_work_is_final_unless_it_is_listed(cause: Cause) -> None:
    decision = adapt(replace(ENDED, cause=cause))

    assert decision.act is Act.FAIL
    assert f"{cause} is not among the causes to retry on" in decision.reason
    assert adapt(replace(ENDED, cause=cause, retry_on=frozenset({cause}))).act is Act.RETRY


@pytest.mark.parametrize("cause", RETRIED_BY_DEFAULT)
def test_what_is_no_fault_of_the_work_is_tried_again(cause: Cause) -> None:
    assert adapt(replace(ENDED, cause=cause)).act is Act.RETRY


@pytest.mark.parametrize(("made", "delay_s"), [(1, 0), (2, 30), (3, 120), (4, 300), (5, 900), (9, 900)])
def test_each_retry_gives_the_site_more_time(made: int, delay_s: int) -> None:
    assert adapt(replace(ENDED, attempts_made=made, max_attempts=20)).delay_s == delay_s


def test_used_up_attempts_end_it() -> None:
    decision = adapt(replace(ENDED, attempts_made=3))

    assert (decision.act, decision.reason) == (
        Act.FAIL,
        "A node failed under the job. All 3 attempts are used up.",
    )


def test_only_a_time_out_asks_for_more_wall_time_rounded_up() -> None:
    timed_out = replace(ENDED, cause=Cause.TIMEOUT, retry_on=frozenset({Cause.TIMEOUT}), walltime_s=601)

    assert adapt(timed_out).walltime_s == 902
    assert adapt(ENDED).walltime_s is None


@pytest.mark.parametrize(
    ("had", "most", "next_"),
    [(1001, 4000, 1502), (3000, 4000, 4000), (4000, 4000, None), (None, 4000, None), (1000, None, None)],
)
def test_only_a_lack_of_memory_asks_for_more_and_never_for_more_than_the_envelope_allows(
    had: int | None, most: int | None, next_: int | None
) -> None:
    listed = frozenset({Cause.OUT_OF_MEMORY, Cause.NODE_FAILURE})
    lacked = replace(ENDED, cause=Cause.OUT_OF_MEMORY, retry_on=listed, memory_mib=had, memory_most_mib=most)

    decision = adapt(lacked)

    assert (decision.act, decision.memory_mib, decision.walltime_s) == (Act.RETRY, next_, None)
    assert decision.reason.endswith(f" with {next_} MiB of memory." if next_ else "Attempt 2 of 3 follows.")
    assert adapt(replace(lacked, cause=Cause.NODE_FAILURE)).memory_mib is None


@pytest.mark.parametrize("cause", [Cause.TIMEOUT, Cause.PREEMPTED, Cause.NODE_FAILURE])
def test_work_that_saves_itself_goes_on_where_it_was_without_more_wall_time(cause: Cause) -> None:
    saving = replace(ENDED, cause=cause, retry_on=frozenset({cause}), saves_itself=True)

    decision = adapt(saving)

    assert (decision.act, decision.resumes, decision.walltime_s) == (Act.RETRY, True, None)
    assert not decision.avoid_place
    assert decision.reason.endswith("Attempt 2 of 3 follows from its checkpoint.")
    assert not adapt(replace(saving, cause=Cause.LOST, retry_on=frozenset({Cause.LOST}))).resumes


@pytest.mark.parametrize(
    ("cause", "avoids"),
    [
        (Cause.NODE_FAILURE, True),
        (Cause.DISPATCH_REJECTED, True),
        (Cause.PREEMPTED, False),
        (Cause.LOST, False),
    ],
)
def test_a_fault_of_the_place_sends_the_next_attempt_elsewhere(cause: Cause, avoids: bool) -> None:
    assert adapt(replace(ENDED, cause=cause)).avoid_place is avoids


def test_a_refusal_that_will_not_pass_bars_the_place_for_good() -> None:
    refused = replace(ENDED, cause=Cause.DISPATCH_REJECTED)

    assert adapt(refused).never_there_again is False
    assert adapt(replace(refused, is_retryable=False)).never_there_again is True


def test_a_cancel_that_was_asked_for_is_never_retried() -> None:
    cancelled = replace(
        ENDED, state=AttemptState.CANCELLED, cause=Cause.CANCELLED_BY_USER, cancel_requested=True
    )

    assert adapt(cancelled).act is Act.CANCEL


def test_a_cancel_at_the_site_ends_the_task_as_cancelled_unless_listed() -> None:
    cancelled = replace(ENDED, state=AttemptState.CANCELLED, cause=Cause.CANCELLED_BY_SITE)

    assert adapt(cancelled).act is Act.CANCEL
    assert adapt(replace(cancelled, retry_on=frozenset({Cause.CANCELLED_BY_SITE}))).act is Act.RETRY


def test_an_attempt_that_gave_way_is_replaced() -> None:
    assert adapt(replace(ENDED, state=AttemptState.SUPERSEDED, cause=None)).act is Act.REPLACE
    assert adapt(replace(ENDED, replan_requested=True)).act is Act.REPLACE
