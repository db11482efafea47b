"""Of two open attempts the first that is seen to start stays; only what waited is replaced out of sight."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from federation.types import Health
from orchestrator.lifecycle import AttemptState
from orchestrator.rivals import (
    Hedge,
    OutOfSight,
    Rivalry,
    Side,
    Verdict,
    keeps_waiting,
    settle,
    why_not_hedged,
)

NOW = datetime(2027, 1, 31, 12, tzinfo=UTC)
WAITS = Side(Rivalry.HEDGE, AttemptState.PENDING, has_started=False, is_accepted=False)
RUNS = replace(WAITS, state=AttemptState.RUNNING, has_started=True)
OLD = replace(WAITS, rivalry=Rivalry.REPLACED)
OLD_RUNS = replace(RUNS, rivalry=Rivalry.REPLACED)
NEW = replace(WAITS, rivalry=Rivalry.SUCCESSOR, is_accepted=True)
NEW_RUNS = replace(NEW, state=AttemptState.RUNNING, has_started=True)


def ended(side: Side, state: AttemptState) -> Side:
    return replace(side, state=state, has_started=True)


@pytest.mark.parametrize(
    ("mine", "other", "verdict"),
    [
        (WAITS, replace(WAITS, is_accepted=True), Verdict.BOTH),
        (replace(WAITS, is_accepted=True), WAITS, Verdict.BOTH),
        (RUNS, replace(WAITS, is_accepted=True), Verdict.MINE),
        (replace(RUNS, is_accepted=True), WAITS, Verdict.MINE),
        (RUNS, replace(RUNS, is_accepted=True), Verdict.OTHER),
        (replace(RUNS, is_accepted=True), RUNS, Verdict.MINE),
        (replace(WAITS, is_accepted=True), RUNS, Verdict.OTHER),
        (OLD, NEW, Verdict.OTHER),
        (OLD, NEW_RUNS, Verdict.OTHER),
        (OLD_RUNS, NEW, Verdict.MINE),
        (OLD_RUNS, NEW_RUNS, Verdict.OTHER),
        (ended(OLD, AttemptState.SUCCEEDED), NEW, Verdict.MINE),
        (ended(OLD, AttemptState.SUCCEEDED), NEW_RUNS, Verdict.MINE),
        (ended(OLD, AttemptState.FAILED), NEW, Verdict.BOTH),
        (NEW, OLD, Verdict.BOTH),
        (NEW_RUNS, OLD, Verdict.MINE),
    ],
)
def test_who_stays(mine: Side, other: Side, verdict: Verdict) -> None:
    assert settle(mine, other)[0] is verdict


LOST = OutOfSight(
    health=Health.STALE,
    is_wanted=True,
    moves_left=1,
    was_waiting=True,
    has_started=False,
    is_ending=False,
    unseen_since=NOW - timedelta(seconds=16),
    expected_start_at=None,
)


def test_what_waited_at_a_lost_system_is_replaced() -> None:
    assert keeps_waiting(LOST, now=NOW) is None
    assert keeps_waiting(replace(LOST, expected_start_at=NOW + timedelta(hours=1)), now=NOW) is None


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"health": Health.DEGRADED}, "its system is not given up"),
        ({"has_started": True}, "it may be running"),
        ({"was_waiting": False}, "it may be running"),
        ({"is_ending": True}, "it is being ended or replaced already"),
        ({"is_wanted": False}, "the task allows no (further) replacement"),
        ({"moves_left": 0}, "the task allows no (further) replacement"),
        ({"unseen_since": NOW - timedelta(seconds=14)}, "it was seen a moment ago"),
        ({"unseen_since": None}, "it was seen a moment ago"),
        ({"expected_start_at": NOW}, "its scheduler expected it to have started by now"),
    ],
)
def test_what_may_run_or_is_not_lost_is_left_alone(changed: dict[str, object], why: str) -> None:
    assert keeps_waiting(replace(LOST, **changed), now=NOW) == why  # type: ignore[arg-type]  # by name


HEDGED = Hedge(first_allows=True, wait_p90_s=61, min_wait_s=60, second="vista")


def test_a_hedge_needs_both_sites_a_wait_and_a_second_place() -> None:
    assert why_not_hedged(HEDGED) is None
    assert "does not allow" in (why_not_hedged(replace(HEDGED, first_allows=False)) or "")
    assert "60 s are fine" in (why_not_hedged(replace(HEDGED, wait_p90_s=60)) or "")
    assert "no other system" in (why_not_hedged(replace(HEDGED, second=None)) or "")
    assert "a system of its own" in (why_not_hedged(replace(HEDGED, keeps_apart=True)) or "")
