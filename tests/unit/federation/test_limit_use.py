"""What finished jobs teach of time limits: the newest of each user and partition, each told once."""

from datetime import timedelta

import pytest

from federation.limit_use import MAX_USERS, LimitUse, UseOfLimits, merged
from providers.types import FinishedJob
from tests.unit.federation.values import NOW


def ended(user: str | None = "bob", *, share: float = 0.5, at_s: int = 0) -> FinishedJob:
    return FinishedJob(
        user=user,
        partition="gpu",
        ended_at=NOW + timedelta(seconds=at_s),
        elapsed_s=round(share * 1000),
        walltime_s=1000,
    )


def test_shares_are_kept_by_user_and_by_partition_the_oldest_first() -> None:
    found = merged(LimitUse(), [ended(share=0.9, at_s=2), ended("eve", share=0.25, at_s=1)])

    assert found == LimitUse(
        by_user={"eve": (0.25,), "bob": (0.9,)},
        by_partition={"gpu": (0.25, 0.9)},
        until=NOW + timedelta(seconds=2),
    )


def test_what_was_told_before_is_not_counted_again() -> None:
    once = merged(LimitUse(), [ended(at_s=5)])

    assert merged(once, [ended(at_s=5), ended(at_s=4)]) == once
    assert merged(once, ()) == once
    assert len(merged(once, [ended(at_s=6)]).by_user["bob"]) == 2


def test_a_job_that_outlasted_its_limit_used_all_of_it() -> None:
    assert merged(LimitUse(), [ended(share=1.3)]).by_user == {"bob": (1.0,)}


def test_the_newest_thirty_of_a_user_and_two_hundred_of_a_partition_count() -> None:
    found = merged(LimitUse(), [ended(share=n / 1000, at_s=n) for n in range(1, 301)])

    assert found.by_user["bob"] == tuple(n / 1000 for n in range(271, 301))
    assert found.by_partition["gpu"] == tuple(n / 1000 for n in range(101, 301))


def test_the_users_seen_most_lately_are_kept() -> None:
    first = merged(LimitUse(), [ended("old", at_s=0), ended("back", at_s=1)])

    crowd = [ended(f"u{n}", at_s=2 + n) for n in range(MAX_USERS - 1)]
    found = merged(first, [*crowd, ended("back", at_s=5000)])

    assert len(found.by_user) == MAX_USERS
    assert "old" not in found.by_user
    assert len(found.by_user["back"]) == 2


def test_our_own_jobs_alone_say_nothing_of_a_partition() -> None:
    found = merged(LimitUse(), [ended("alice")], only_own=True)

    assert (found.by_user, found.by_partition) == ({"alice": (0.5,)}, {})


def test_a_job_is_expected_to_end_as_its_users_longer_ones_did() -> None:
    use = UseOfLimits(
        by_user={("delta", "bob"): [0.1, 0.2, 0.6, 0.7, 0.8]},
        by_partition={("delta", "gpu"): [0.3, 0.3, 0.3, 0.9, 0.95, 1.0]},
    )

    asked = [("bob", 0.0), ("bob", 0.2), ("bob", 0.65), ("eve", 0.0), ("bob", 0.9)]
    answers = [use.expected("delta", "gpu", user, used) for user, used in asked]

    assert answers == pytest.approx([2.4 / 5, 2.1 / 3, 2.85 / 3, 3.75 / 6, 0.95])
    assert use.expected("vista", "gpu", None, 0.4) == 0.7


def test_the_same_content_has_the_same_digest_in_any_order() -> None:
    one = UseOfLimits(by_user={("a", "x"): [0.1], ("b", "y"): [0.2]})
    other = UseOfLimits(by_user={("b", "y"): [0.2], ("a", "x"): [0.1]})

    assert (one, one.digest) == (other, other.digest)
    assert one != UseOfLimits(by_user={("a", "x"): [0.1], ("b", "y"): [0.3]})
    assert (bool(one), bool(UseOfLimits())) == (True, False)
