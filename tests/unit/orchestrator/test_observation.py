"""A job that the queue denies and accounting calls alive: unknown first, lost at long last."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from orchestrator.lifecycle import AttemptState, Cause
from orchestrator.observation import (
    FORGOTTEN_AFTER,
    LOOKS_BEFORE_FORGOTTEN,
    AttemptFacts,
    Fold,
    absent,
    seen,
    unseen,
)
from providers.types import JobState, Observation

NOW = datetime(2026, 11, 29, 18, 0, tzinfo=UTC)
LOOK = Observation(
    job_id="7", source="accounting", state=JobState.RUNNING, state_raw="RUNNING", left_queue=True
)
FACTS = AttemptFacts(
    state=AttemptState.RUNNING,
    observed_at=NOW - timedelta(seconds=5),
    unseen_since=None,
    looks_without_trace=0,
    dispatch_deadline_at=None,
    cancel_reason="",
)
LONG_GONE = replace(
    FACTS,
    state=AttemptState.UNKNOWN,
    observed_at=NOW - timedelta(hours=1),
    unseen_since=NOW - FORGOTTEN_AFTER,
    looks_without_trace=LOOKS_BEFORE_FORGOTTEN - 1,
)


def _folded(facts: AttemptFacts) -> Fold:
    return seen(facts, LOOK, now=NOW)


def test_the_first_such_look_only_starts_the_clock() -> None:
    fold = _folded(FACTS)

    assert (fold.target, fold.cause, fold.became_unseen) == (None, None, False)
    assert (fold.changes["unseen_since"], fold.changes["looks_without_trace"]) == (NOW, 1)
    assert "observed_at" not in fold.changes


def test_after_a_minute_it_is_unknown() -> None:
    fold = _folded(replace(FACTS, observed_at=NOW - timedelta(seconds=60), looks_without_trace=9))

    assert (fold.target, fold.cause, fold.became_unseen) == (AttemptState.UNKNOWN, None, True)
    assert fold.changes["reason_explained"] == (
        "The job has left the queue, while accounting still calls it RUNNING."
    )


def test_denied_long_and_often_enough_it_is_lost() -> None:
    fold = _folded(LONG_GONE)

    assert (fold.target, fold.cause) == (AttemptState.FAILED, Cause.LOST)
    assert fold.changes["reason_explained"] == (
        "The scheduler has forgotten the job; its accounting still calls it RUNNING."
    )


@pytest.mark.parametrize(
    "not_enough",
    [
        {"looks_without_trace": LOOKS_BEFORE_FORGOTTEN - 2},
        {"unseen_since": NOW - FORGOTTEN_AFTER + timedelta(seconds=1)},
    ],
)
def test_neither_long_nor_often_alone_is_enough(not_enough: dict[str, object]) -> None:
    fold = _folded(replace(LONG_GONE, **not_enough))  # type: ignore[arg-type]  # the names are its fields

    assert fold.target is None


AHEAD = NOW + timedelta(days=1)
"""What a clock that was a day ahead has noted."""


def test_what_a_clock_noted_that_was_ahead_keeps_no_attempt_in_doubt_for_a_day() -> None:
    facts = replace(FACTS, observed_at=AHEAD, unseen_since=AHEAD)

    for fold in (absent(facts, now=NOW), unseen(facts, "no answer", now=NOW), _folded(facts)):
        assert (fold.target, fold.changes["unseen_since"]) == (None, NOW)

    later = NOW + timedelta(seconds=61)
    facts = replace(facts, unseen_since=NOW, looks_without_trace=3)
    assert unseen(facts, "no answer", now=later).target is AttemptState.UNKNOWN
    assert seen(facts, LOOK, now=later).target is AttemptState.UNKNOWN
    assert (absent(facts, now=later).target, absent(facts, now=later).cause) == (
        AttemptState.FAILED,
        Cause.LOST,
    )


def test_one_that_was_to_be_cancelled_ends_as_asked() -> None:
    fold = _folded(replace(LONG_GONE, cancel_reason="user"))

    assert (fold.target, fold.cause) == (AttemptState.CANCELLED, Cause.CANCELLED_BY_USER)


def test_a_look_that_shows_it_alive_again_resets_all() -> None:
    fold = seen(LONG_GONE, LOOK.model_copy(update={"left_queue": False}), now=NOW)

    assert (fold.target, fold.became_seen) == (AttemptState.RUNNING, True)
    assert (fold.changes["unseen_since"], fold.changes["looks_without_trace"]) == (None, 0)
