"""Jobs of anybody that ended lately: how much of the time they asked for they really used.

Asked for with the full probe only, since the last answer, and cut by bytes on a site that ends more jobs than
that. No text that a user chose is asked for (names, comments).

Source: sacct(1) --starttime, --state, --format, 20.11 to 25.11.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from providers.dialects.slurm.units import finite, read_instant, read_limit_s
from providers.dialects.slurm.words import read_state
from providers.errors import UnparsableOutput
from providers.types import FinishedJob, JobState

FIRST_WINDOW: Final = "now-6hours"
"""How far back the first question of all goes; in sacct's words, so that the site's own clock counts."""
ENDED: Final = frozenset(
    {JobState.COMPLETED, JobState.FAILED, JobState.TIMEOUT, JobState.OUT_OF_MEMORY, JobState.CANCELLED}
)
"""Ends that give the nodes back. A preempted job, or one whose node failed, comes again."""
_STATES: Final = "CD,F,TO,OOM,CA"
_COLUMNS: Final = ("User", "Partition", "State", "End", "ElapsedRaw", "TimelimitRaw")
_COMMAND: Final = "sacct -a -X -n -P"


def show_finished(since: datetime | None) -> tuple[str, ...]:
    """Return the command for the jobs that ended after an instant of the site's clock; None = the first."""
    start = FIRST_WINDOW if since is None else since.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return (*_COMMAND.split(), "-S", start, "-E", "now", "-s", _STATES, "-o", ",".join(_COLUMNS))


def read_finished(text: str, *, is_cut: bool = False) -> tuple[FinishedJob, ...]:
    """Return the jobs that ran and had a limit, the first to end first.

    Of an answer that was cut, the records before the cut count. Lines before the first record are a login
    banner.

    Raises:
        UnparsableOutput: a record has other columns, or a cell is not understood.
    """
    lines = text.split("\n")
    if is_cut:
        lines.pop()
    found = [job for line in _records(lines) if (job := _job(line)) is not None]
    return tuple(sorted(found, key=lambda job: job.ended_at))


def _records(lines: list[str]) -> Iterator[str]:
    begun = False
    for line in lines:
        begun = begun or line.count("|") == len(_COLUMNS) - 1
        if begun and line.strip():
            yield line


def _job(line: str) -> FinishedJob | None:
    """Return one job; None for one that never started, is not over, or had no limit."""
    cells = line.split("|")
    if len(cells) != len(_COLUMNS):
        raise UnparsableOutput("sacct printed other columns", command=_COMMAND, line=line[:200])
    user, partition, state, end, elapsed, limit = (cell.strip() for cell in cells)
    ended_at, walltime_s = read_instant(end), finite(read_limit_s(limit))
    if not elapsed.isascii() or not elapsed.isdigit():
        raise UnparsableOutput(f"{elapsed[:80]!r} is no number of seconds", command=_COMMAND, line=line[:200])
    if read_state(state) not in ENDED or ended_at is None or not walltime_s or not int(elapsed):
        return None
    return FinishedJob(
        user=user or None,
        partition=partition,
        ended_at=ended_at,
        elapsed_s=int(elapsed),
        walltime_s=walltime_s,
    )
