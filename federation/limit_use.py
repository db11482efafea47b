"""How much of their time limits jobs really use at one system: what finished jobs leave behind. Pure.

Kept as shares (runtime ÷ limit) of the newest finished jobs of each user and of each partition. A job that
has used some of its limit already is expected to end like those before it that lasted longer than that.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from itertools import accumulate
from json import dumps
from typing import Self, TypeAlias

from providers.types import FinishedJob

OF_USER = 30
"""Newest finished jobs of one user that count."""
OF_PARTITION = 200
MAX_USERS = 1000
"""Those whose jobs ended most lately are kept."""
MIN_SHARES = 3
"""Fewer jobs tell nothing."""


Row: TypeAlias = tuple[str, str, tuple[float, ...]]
Rows: TypeAlias = Iterable[tuple[str, Iterable[float]]]


class Shares:
    """Shares of a limit that jobs used, in no order: asked often for the mean of those over some share."""

    __slots__ = ("_ordered", "_sums")

    def __init__(self, shares: Iterable[float]) -> None:
        """Take shares from 0 to 1."""
        self._ordered = sorted(shares)
        self._sums = [0.0, *accumulate(reversed(self._ordered))]

    def mean_over(self, used: float) -> float | None:
        """Return the mean of the shares greater than one used already; None with fewer than three."""
        longer = len(self._ordered) - bisect_right(self._ordered, used)
        return self._sums[longer] / longer if longer >= MIN_SHARES else None


@dataclass(frozen=True, slots=True)
class LimitUse:
    """What is known at one system, by its own names of users and by partition."""

    by_user: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """The oldest first; who had a job end most lately comes last."""
    by_partition: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    until: datetime | None = None
    """The newest end that was told, by the site's clock."""

    @classmethod
    def of_rows(cls, users: Rows, partitions: Rows, *, until: datetime | None) -> Self:
        """Return what was kept as lists of names and shares."""
        return cls(
            by_user={name: tuple(shares) for name, shares in users},
            by_partition={name: tuple(shares) for name, shares in partitions},
            until=until,
        )


def merged(kept: LimitUse, found: Iterable[FinishedJob], *, only_own: bool = False) -> LimitUse:
    """Return what is known after more jobs ended; those told before are passed over.

    With `only_own` they are of one user, who says nothing of a partition.
    """
    users = {user: list(shares) for user, shares in kept.by_user.items()}
    partitions = {name: list(shares) for name, shares in kept.by_partition.items()}
    until = kept.until
    for job in sorted(found, key=lambda job: job.ended_at):
        if kept.until is not None and job.ended_at <= kept.until:
            continue
        until = job.ended_at
        share = round(min(1.0, job.elapsed_s / job.walltime_s), 3)
        if job.user is not None:
            users[job.user] = [*users.pop(job.user, []), share]
        if not only_own:
            partitions.setdefault(job.partition, []).append(share)
    newest = list(users)[-MAX_USERS:]
    return LimitUse(
        by_user={user: tuple(users[user][-OF_USER:]) for user in newest},
        by_partition={name: tuple(shares[-OF_PARTITION:]) for name, shares in partitions.items()},
        until=until,
    )


class UseOfLimits:
    """The same of every system, ready to be asked by a plan; partitions by the profile's names.

    Equal content has an equal `digest`; one object is meant to serve all decisions until a system tells more.
    """

    __slots__ = ("_by_partition", "_by_user", "_told", "digest")

    def __init__(
        self,
        *,
        by_user: Mapping[tuple[str, str], Iterable[float]] | None = None,
        by_partition: Mapping[tuple[str, str], Iterable[float]] | None = None,
    ) -> None:
        """Take shares by (system, user) and by (system, partition)."""
        users = {key: tuple(shares) for key, shares in (by_user or {}).items()}
        places = {key: tuple(shares) for key, shares in (by_partition or {}).items()}
        self._told = users, places
        self._by_user = {key: Shares(shares) for key, shares in users.items()}
        self._by_partition = {key: Shares(shares) for key, shares in places.items()}
        content = dumps([sorted(users.items()), sorted(places.items())])
        self.digest = sha256(content.encode()).hexdigest()

    def rows(self) -> tuple[list[Row], list[Row]]:
        """Return what is known, as (system, user, shares) and as (system, partition, shares)."""
        users, places = self._told
        return [(*key, shares) for key, shares in users.items()], [
            (*key, shares) for key, shares in places.items()
        ]

    def __bool__(self) -> bool:
        """Return whether anything is known."""
        return bool(self._by_user or self._by_partition)

    def __eq__(self, other: object) -> bool:
        """Return whether the same is known."""
        return isinstance(other, UseOfLimits) and self.digest == other.digest

    def __hash__(self) -> int:
        """Return the hash of the content."""
        return hash(self.digest)

    def expected(self, system: str, partition: str, user: str | None, used: float) -> float:
        """Return the share of its limit a job is expected to use, given what it has used already.

        As the user's jobs that lasted longer than that, else the partition's; with fewer than three of
        either, half of what is left.
        """
        own = self._by_user.get((system, user)) if user is not None else None
        for shares in (own, self._by_partition.get((system, partition))):
            mean = shares.mean_over(used) if shares is not None else None
            if mean is not None:
                return min(1.0, mean)
        return used + (1.0 - used) / 2
