"""The machine dialect as one object: a host without a scheduler is one more system.

The queue lives in files of the user at the host, kept by a shipped program (`host/`); a key names a job's
folder, so submitting twice makes one job. Nothing but our own jobs is ever looked at or touched.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

from providers.dialects.body import absolute, checked_key
from providers.dialects.machine.answers import CancelAnswer, ObserveAnswer, SubmitAnswer, read_answer
from providers.dialects.machine.jobs import read_observation, render_script, wanted
from providers.dialects.machine.probe import build_probe, read_probe
from providers.dialects.machine.program import operation
from providers.errors import FacetError
from providers.types import (
    Batch,
    BatchReply,
    JobRef,
    JobRequest,
    MakeDirs,
    Observation,
    Operation,
    Probe,
    SubmitResult,
)

_SUBMIT_TIMEOUT_S = 30.0
_LOOK_TIMEOUT_S = 25.0


class MachineDialect:
    """How a host without a scheduler speaks; see `providers.contracts.Dialect` for each promise."""

    name: str = "machine"

    def probe(self, *, full: bool, since: datetime | None = None) -> Batch:  # noqa: ARG002 - it keeps none
        """Build the probe: what this host has, what is free, our own queue."""
        return build_probe(full=full)

    def read_probe(self, reply: BatchReply, *, now: datetime) -> Probe:
        """Return what was seen.

        Raises:
            SchedulerDown: the host's program did not answer.
            UnparsableOutput: what it printed is not understood.
        """
        return read_probe(reply, now=now)

    def script(self, job: JobRequest) -> str:
        """Render the whole batch script.

        Raises:
            InvalidInput: a field cannot be rendered safely.
        """
        return render_script(job)

    def submit(self, job: JobRequest) -> Batch:
        """Build folders and submission in one batch; the same key twice makes one job.

        Raises:
            InvalidInput: the job asks for what a single host does not have, or cannot be rendered safely.
        """
        asked, script = wanted(job), render_script(job)
        places = [
            job.workdir,
            *(
                absolute(path, field=field).rpartition("/")[0] or "/"
                for path, field in ((job.stdout_path, "stdout_path"), (job.stderr_path, "stderr_path"))
            ),
        ]
        operations: list[Operation] = [
            MakeDirs(name=f"mkdir-{number}", path=path) for number, path in enumerate(dict.fromkeys(places))
        ]
        operations.append(
            operation("submit", timeout_s=_SUBMIT_TIMEOUT_S, key=job.submit_key, job=asked, script=script)
        )
        return Batch(operations=tuple(operations), deadline_s=_SUBMIT_TIMEOUT_S + 15)

    def read_submit(self, reply: BatchReply) -> SubmitResult:
        """Return what became of the submission; never raises for a refusal."""
        said = reply.replies.get("submit")
        if said is not None and (said.missing or said.skipped):
            why = "python3 is not on the path of this host." if said.missing else "It was not tried in time."
            return SubmitResult(outcome="rejected", said=said.stderr[:500], explained=why, retryable=True)
        try:
            answer = read_answer(reply, "submit", SubmitAnswer)
        except FacetError as error:
            words = said.stderr[-2000:] if said is not None else ""
            return _doubtful(words, str(error))
        if answer.rejected is not None:
            return SubmitResult(
                outcome="rejected",
                said=answer.rejected,
                explained=f"This host cannot take the job: {answer.rejected}.",
            )
        if answer.number is None:
            return _doubtful("", "The answer holds no number.")
        return SubmitResult(outcome="accepted", job_id=str(answer.number))

    def observe(self, refs: Sequence[JobRef], *, since: datetime, now: datetime) -> Batch:  # noqa: ARG002  # keys need no window
        """Build one look at many jobs by their keys."""
        return Batch(operations=(_about("observe", refs),), deadline_s=_LOOK_TIMEOUT_S + 5)

    def read_observe(
        self, reply: BatchReply, refs: Sequence[JobRef], *, now: datetime
    ) -> Mapping[str, Observation | None]:
        """Return by submit key what was seen; None = this host knows no such job.

        Raises:
            SchedulerDown: the host's program did not answer.
            UnparsableOutput: what it printed is not understood.
        """
        answer = read_answer(reply, "observe", ObserveAnswer)
        at = reply.site_time or now
        return {
            ref.submit_key: None if job is None else read_observation(job, host=reply.hostname, now=at)
            for ref in refs
            if ref.submit_key in answer.jobs
            for job in [answer.jobs[ref.submit_key]]
        }

    def cancel(self, refs: Sequence[JobRef]) -> Batch:
        """Build the cancellation of jobs by their keys."""
        return Batch(operations=(_about("cancel", refs),), deadline_s=_LOOK_TIMEOUT_S + 5)

    def read_cancel(self, reply: BatchReply, refs: Sequence[JobRef]) -> Mapping[str, str]:
        """Return by submit key: "" when the request was taken, else why not."""
        try:
            taken = read_answer(reply, "cancel", CancelAnswer).taken
        except FacetError as error:
            return {ref.submit_key: str(error) for ref in refs}
        return {
            ref.submit_key: "" if ref.submit_key in taken else "The host did not take the request."
            for ref in refs
        }


def _about(verb: str, refs: Sequence[JobRef]) -> Operation:
    keys = list(dict.fromkeys(checked_key(ref.submit_key) for ref in refs))
    return operation(verb, timeout_s=_LOOK_TIMEOUT_S, keys=keys)


def _doubtful(said: str, why: str) -> SubmitResult:
    return SubmitResult(
        outcome="doubtful",
        said=said,
        explained=f"{why} The job may exist: it is looked up by its key before anything else.",
    )
