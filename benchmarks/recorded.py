"""Rounds kept in a file, one JSON object a line: what was seen and asked, and what became of every copy.

A decision is a function of what is kept here, so that a change of ours can be tried on the same rounds again.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from pydantic import TypeAdapter

from federation.limit_use import UseOfLimits
from orchestrator.envelope.types import Envelope
from providers.types import Probe

Rows = list[tuple[str, str, tuple[float, ...]]]


@dataclass(frozen=True, slots=True)
class Copy:
    """One copy of a round's job, and what accounting told of it; empty words = it never started."""

    system: str
    partition: str
    nodes: int
    job: str
    sent_after_s: float
    """Seconds from the decision to the scheduler's answer."""
    wait_s: int
    submit: str = ""
    eligible: str = ""
    start: str = ""
    priority: str = ""


@dataclass(frozen=True, slots=True)
class Kept:
    """One round."""

    at: datetime
    kind: str
    envelope: Envelope
    probes: dict[str, Probe]
    """What was seen of each cluster, by its name."""
    fulls: dict[str, Probe]
    """Its last full probe, without nodes and jobs."""
    by_user: Rows
    by_partition: Rows
    took_s: float
    copies: tuple[Copy, ...] = field(default=())

    @property
    def use(self) -> UseOfLimits:
        """Return the shares of their limits that finished jobs had used."""
        return UseOfLimits(
            by_user={(system, user): shares for system, user, shares in self.by_user},
            by_partition={(system, name): shares for system, name, shares in self.by_partition},
        )


_ADAPTER = TypeAdapter(Kept)


def write(path: Path, rounds: Iterable[Kept]) -> None:
    """Write rounds, the oldest first."""
    path.write_bytes(b"".join(_ADAPTER.dump_json(each) + b"\n" for each in rounds))


def read(path: Path) -> list[Kept]:
    """Return the rounds of a file."""
    return [_ADAPTER.validate_json(line) for line in path.read_bytes().splitlines()]
