"""The circuit breaker opens after incidents in a row, lets one trial through, and believes its outcome."""

from datetime import UTC, datetime, timedelta

import pytest

from federation.circuit import (
    CLOSED,
    OPENS_AFTER,
    TRIAL_TAKES,
    Circuit,
    CircuitState,
    Proof,
    admits,
    after_failure,
    after_success,
    sentence,
    with_trial,
    without_trial,
)

NOW = datetime(2027, 1, 31, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def failed(times: int, *, proof: Proof = Proof.DISPATCH, apart: timedelta = MINUTE) -> Circuit:
    """Return a closed circuit after so many incidents, the last of them now."""
    circuit = CLOSED
    for number in range(times):
        at = NOW - apart * (times - 1 - number)
        circuit = after_failure(circuit, f"att_{number}", proof, "no answer", now=at)
    return circuit


def test_two_incidents_leave_it_closed_and_the_third_opens_it() -> None:
    assert (failed(2).state, failed(2).failures) == (CircuitState.CLOSED, 2)

    opened = failed(OPENS_AFTER)

    assert opened.state is CircuitState.OPEN
    assert opened.retry_at == NOW + timedelta(seconds=60)
    assert not admits(opened, now=NOW + timedelta(seconds=59))
    assert admits(opened, now=NOW + timedelta(seconds=60))
    assert "no answer" in sentence(opened)


def test_what_fails_together_is_one_incident() -> None:
    assert failed(50, apart=timedelta(milliseconds=100)).failures == 1


def test_incidents_far_apart_are_no_row() -> None:
    assert failed(3, apart=timedelta(minutes=31)).failures == 1


@pytest.mark.parametrize(
    ("failing", "success", "left"),
    [
        (Proof.DISPATCH, Proof.DISPATCH, 0),
        (Proof.DISPATCH, Proof.WORK, 0),
        (Proof.WORK, Proof.WORK, 0),
        (Proof.WORK, Proof.DISPATCH, 2),
    ],
)
def test_a_success_undoes_what_it_proves_wrong(failing: Proof, success: Proof, left: int) -> None:
    assert after_success(failed(2, proof=failing), "att_9", success).failures == left


def test_one_trial_goes_at_a_time_and_its_success_closes() -> None:
    later = NOW + 2 * MINUTE
    trying = with_trial(failed(OPENS_AFTER), "att_t", now=later)

    assert (trying.state, trying.trial) == (CircuitState.HALF_OPEN, "att_t")
    assert not admits(trying, now=later)
    assert admits(trying, now=later + TRIAL_TAKES)
    assert after_success(trying, "att_other", Proof.WORK) == trying
    assert after_success(trying, "att_t", Proof.DISPATCH) == CLOSED


def test_a_failed_trial_opens_it_for_longer_and_others_failures_do_not_count() -> None:
    later = NOW + 2 * MINUTE
    trying = with_trial(failed(OPENS_AFTER), "att_t", now=later)

    again = after_failure(trying, "att_t", Proof.DISPATCH, "still none", now=later)

    assert after_failure(trying, "att_old", Proof.DISPATCH, "x", now=later) == trying
    assert (again.state, again.trips, again.reason) == (CircuitState.OPEN, 2, "still none")
    assert again.retry_at == later + timedelta(seconds=120)


def test_a_trial_that_was_cancelled_makes_room_for_the_next() -> None:
    later = NOW + 2 * MINUTE
    trying = with_trial(failed(OPENS_AFTER), "att_t", now=later)

    assert without_trial(trying, "att_x") == trying
    assert admits(without_trial(trying, "att_t"), now=later)


def test_what_was_sent_before_it_opened_neither_closes_nor_prolongs_it() -> None:
    opened = failed(OPENS_AFTER)

    assert after_success(opened, "att_0", Proof.WORK) == opened
    late = after_failure(opened, "att_0", Proof.WORK, "node died", now=NOW + MINUTE)
    assert (late.retry_at, late.trips, late.reason) == (opened.retry_at, 1, "node died")


@pytest.mark.parametrize("is_out", [False, True])
def test_a_clock_that_was_ahead_does_not_keep_a_circuit_open(is_out: bool) -> None:
    circuit = failed(OPENS_AFTER)
    circuit = with_trial(circuit, "att_trial", now=NOW + MINUTE) if is_out else circuit

    assert admits(circuit, now=NOW - timedelta(days=1))


def test_an_incident_of_a_clock_that_was_ahead_hides_none_of_now() -> None:
    earlier = NOW - timedelta(days=1)
    circuit = failed(1)
    for number in range(1, OPENS_AFTER):
        circuit = after_failure(
            circuit, f"att_{number}", Proof.WORK, "node failed", now=earlier + MINUTE * number
        )

    assert circuit.state is CircuitState.OPEN
