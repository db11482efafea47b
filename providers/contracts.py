"""What every link and every dialect promises. Links move bytes, dialects know words; never each other."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from providers.types import (
    Batch,
    BatchReply,
    JobRef,
    JobRequest,
    Observation,
    Probe,
    SubmitResult,
)


class Link(Protocol):
    """One user's way to one system."""

    def run(self, batch: Batch) -> BatchReply:
        """Run the batch in one request and return every reply.

        Raises:
            SiteUnreachable: no answer within `batch.deadline_s` plus the link's own margin.
        """
        ...


class Dialect(Protocol):
    """How one scheduler speaks: argv lists out, values in. Pure; never runs anything.

    Each `read_*` gets the replies to the batch of the builder of the same name.
    """

    name: str

    def probe(self, *, full: bool, since: datetime | None = None) -> Batch:
        """Build the probe: live state, and with `full` also partitions, QoS, associations, finished jobs.

        `since`: the newest end of a job known so far, by the site's clock; None = none is.
        """
        ...

    def read_probe(self, reply: BatchReply, *, now: datetime) -> Probe:
        """Return what was seen.

        Raises:
            SchedulerDown: the controller did not answer.
            UnparsableOutput: something printed is not understood; the facts name command and line.
        """
        ...

    def script(self, job: JobRequest) -> str:
        """Render the whole batch script."""
        ...

    def submit(self, job: JobRequest) -> Batch:
        """Build working directory, script and submit command in one batch."""
        ...

    def read_submit(self, reply: BatchReply) -> SubmitResult:
        """Return what became of the submission; never raises for a refusal."""
        ...

    def observe(self, refs: Sequence[JobRef], *, since: datetime, now: datetime) -> Batch:
        """Build one look at many jobs by id and by key: queue first, then accounting.

        `since` bounds the accounting query (the earliest submission looked for), by the same clock as `now`:
        only how long ago that is counts, since the site has a clock of its own.
        """
        ...

    def read_observe(
        self, reply: BatchReply, refs: Sequence[JobRef], *, now: datetime
    ) -> Mapping[str, Observation | None]:
        """Return by submit key what was seen; None = the scheduler answered and knows no such job.

        A key is left out when nothing can be said of it (an answer was missing or cut).

        Raises:
            SchedulerDown: no part of the answer can be trusted.
        """
        ...

    def cancel(self, refs: Sequence[JobRef]) -> Batch:
        """Build the cancellation of jobs by id (by name where the id is unknown)."""
        ...

    def read_cancel(self, reply: BatchReply, refs: Sequence[JobRef]) -> Mapping[str, str]:
        """Return by submit key: "" when the request was taken, else the scheduler's own refusal."""
        ...
