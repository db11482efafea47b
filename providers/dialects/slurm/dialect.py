"""The Slurm dialect as one object: what `providers.contracts.Dialect` asks for, each part in its module."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from providers.dialects.slurm.cancel import build_cancel, read_cancel
from providers.dialects.slurm.observe import build_observe, read_observe
from providers.dialects.slurm.probe import build_probe, read_probe
from providers.dialects.slurm.script import render_script
from providers.dialects.slurm.submit import build_submit, read_submit
from providers.types import Batch, BatchReply, JobRef, JobRequest, Observation, Probe, SubmitResult


class SlurmDialect:
    """How Slurm 20.11 and later speaks; see `providers.contracts.Dialect` for each promise."""

    name: str = "slurm"

    def probe(self, *, full: bool, since: datetime | None = None) -> Batch:
        """Build the probe: live state, and with `full` also partitions, QoS, associations, finished jobs."""
        return build_probe(full=full, since=since)

    def read_probe(self, reply: BatchReply, *, now: datetime) -> Probe:
        """Return what was seen.

        Raises:
            SchedulerDown: the controller did not answer.
            UnparsableOutput: something printed is not understood.
        """
        return read_probe(reply, now=now)

    def script(self, job: JobRequest) -> str:
        """Render the whole batch script.

        Raises:
            InvalidInput: a field cannot be rendered safely.
        """
        return render_script(job)

    def submit(self, job: JobRequest) -> Batch:
        """Build working directory, script and submit command in one batch.

        Raises:
            InvalidInput: a field cannot be rendered safely.
        """
        return build_submit(job)

    def read_submit(self, reply: BatchReply) -> SubmitResult:
        """Return what became of the submission; never raises for a refusal."""
        return read_submit(reply)

    def observe(self, refs: Sequence[JobRef], *, since: datetime, now: datetime) -> Batch:
        """Build one look at many jobs: the queue first, then accounting by id or by name."""
        return build_observe(refs, since=since, now=now)

    def read_observe(
        self, reply: BatchReply, refs: Sequence[JobRef], *, now: datetime
    ) -> Mapping[str, Observation | None]:
        """Return by submit key what was seen; None = no such job; left out = nothing can be said.

        Raises:
            SchedulerDown: neither squeue nor sacct answered.
        """
        return read_observe(reply, refs, now=now)

    def cancel(self, refs: Sequence[JobRef]) -> Batch:
        """Build the cancellation of jobs by id (by name where the id is unknown)."""
        return build_cancel(refs)

    def read_cancel(self, reply: BatchReply, refs: Sequence[JobRef]) -> Mapping[str, str]:
        """Return by submit key: "" when the request was taken, else the scheduler's own refusal."""
        return read_cancel(reply, refs)
