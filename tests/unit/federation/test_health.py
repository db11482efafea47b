"""How far a system is trusted after each probe, and when it is asked again."""

from datetime import timedelta

import pytest

from federation import health
from federation.types import Health
from tests.unit.federation.values import NOW


@pytest.mark.parametrize(
    ("before", "word", "failures", "wait_s"),
    [
        (0, Health.DEGRADED, 1, 5),
        (1, Health.DEGRADED, 2, 10),
        (2, Health.STALE, 3, 10),
        (3, Health.STALE, 4, 15),
        (4, Health.STALE, 5, 30),
        (5, Health.OFFLINE, 6, 60),
        (6, Health.OFFLINE, 7, 120),
        (99, Health.OFFLINE, 100, 120),
    ],
)
def test_trust_falls_with_failures_in_a_row_and_the_wait_grows(
    before: int, word: Health, failures: int, wait_s: int
) -> None:
    verdict = health.after_failure("no answer", failures_before=before, never_seen=False)

    assert verdict == health.Verdict(word, "no answer", failures, wait_s)


def test_a_system_never_seen_is_offline_at_once() -> None:
    assert health.after_failure("x", failures_before=0, never_seen=True).health is Health.OFFLINE


def test_one_good_probe_brings_it_back_and_tells_the_warnings() -> None:
    verdict = health.after_success(warnings=("a", "b"), accounting_up=True, interval_s=30)

    assert verdict == health.Verdict(Health.ONLINE, "a; b", 0, 30)


def test_without_accounting_it_is_degraded_for_final_states_need_it() -> None:
    verdict = health.after_success(warnings=(), accounting_up=False, interval_s=30)

    assert (verdict.health, verdict.consecutive_failures) == (Health.DEGRADED, 0)
    assert verdict.reason == "the scheduler's accounting does not answer; final states may come late"


def test_a_long_reason_is_cut_to_what_the_table_holds() -> None:
    assert len(health.after_failure("x" * 999, failures_before=0, never_seen=False).reason) == 300


@pytest.mark.parametrize(
    ("word", "age_s", "read"),
    [
        (Health.ONLINE, 600, Health.ONLINE),
        (Health.ONLINE, 601, Health.STALE),
        (Health.DEGRADED, 601, Health.STALE),
        (Health.OFFLINE, 0, Health.OFFLINE),
        (Health.DISABLED, 9_999, Health.DISABLED),
        (Health.ONLINE, None, Health.OFFLINE),
    ],
)
def test_old_figures_are_stale_whatever_the_word(word: Health, age_s: int | None, read: Health) -> None:
    observed = None if age_s is None else NOW - timedelta(seconds=age_s)

    assert health.as_read(word, observed, max_age_s=600, now=NOW) is read
