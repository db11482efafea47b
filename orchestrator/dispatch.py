"""Handing an attempt to its scheduler: commit the intent, ask the site, commit what came back.

A process killed anywhere in between leaves an attempt in `dispatching`; the control cycle then asks the site
for the key before anything is submitted again.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction

from federation.ledger import record
from federation.links import open_link
from federation.selectors import prepared, profile_of
from orchestrator.jobs import JobFacts, job_request
from orchestrator.lifecycle import AttemptState, Cause
from orchestrator.models import Attempt
from orchestrator.services.attempts import accept_submission, reject_submission
from orchestrator.services.moves import attempt_event, move_attempt
from providers.contracts import Link
from providers.errors import FacetError, IllegalMove
from providers.registry import dialect
from providers.types import Batch, JobRequest, SubmitResult

_MARGIN = timedelta(seconds=15)
"""Added to a submission's own deadline before we believe that no command of ours is alive at the site."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """An attempt whose intent is committed, and the job to submit for it."""

    attempt: Attempt
    job: JobRequest


def dispatch(attempt_id: int, *, now: datetime) -> Attempt | None:
    """Submit a planned attempt; None when another worker took it first or nothing is left to do."""
    attempt = (
        Attempt.objects.select_related("task__user", "task__envelope", "task__group", "system", "connection")
        .filter(pk=attempt_id, state=AttemptState.PLANNED)
        .first()
    )
    if attempt is None or attempt.cancel_requested_at is not None:
        return None
    try:
        job = _job(attempt)
        batch = dialect(attempt.system.dialect).submit(job)
        link = open_link(attempt.connection)
    except FacetError as error:
        refusal = SubmitResult(outcome="rejected", said=str(error), explained=str(error))
        _reject(attempt, refusal, now=now)
        return attempt
    deadline = now + timedelta(seconds=batch.deadline_s) + _MARGIN
    try:
        with transaction.atomic():
            move_attempt(
                attempt,
                AttemptState.DISPATCHING,
                now=now,
                dispatch_started_at=now,
                dispatch_deadline_at=deadline,
                dispatches=attempt.dispatches + 1,
                workdir=job.workdir,
                stdout_path=job.stdout_path,
                stderr_path=job.stderr_path,
                due_at=deadline,
            )
    except IllegalMove:
        return None
    result = _ask(attempt, link, batch)
    _apply(attempt, result, now=now)
    return attempt


def _ask(attempt: Attempt, link: Link, batch: Batch) -> SubmitResult:
    """Touch the site. No answer says nothing about the job: the control cycle then asks for the key."""
    try:
        return dialect(attempt.system.dialect).read_submit(link.run(batch))
    except FacetError as error:
        return SubmitResult(outcome="doubtful", said=str(error)[:500], explained=str(error))


def _job(attempt: Attempt) -> JobRequest:
    system, task, connection = attempt.system, attempt.task, attempt.connection
    assert system.profile_id is not None  # noqa: S101  # it was placed there
    envelope = task.envelope.body
    environment = task.spec["environment"]
    wanted = envelope.get("container") or {}
    image = environment["container"] or wanted.get("image")
    profile = profile_of(system.profile_id)
    runtimes = [word for word in wanted.get("runtime", ()) if word in profile.containers]
    facts = JobFacts(
        task=task.handle,
        attempt_number=attempt.number,
        submit_key=attempt.submit_key,
        partition=attempt.partition,
        account=attempt.account,
        qos=attempt.qos,
        shape=attempt.shape,
        gpu_spelling=_spelling(attempt),
        container_runtime=(runtimes or list(profile.containers) or [None])[0] if image else None,
        container_image=image,
        remote_user=connection.remote_user,
        home=(connection.facts or {}).get("home", ""),
    )
    return job_request(task.spec, profile, facts, task.name)


def _spelling(attempt: Attempt) -> str | None:
    """Return how this partition spells the granted GPU type."""
    wanted = attempt.shape.get("gpu_type")
    for partition in prepared(attempt.system).partitions:
        if partition.name == attempt.partition:
            for node in partition.nodes:
                if node.gpus and (wanted is None or node.gpu_type == wanted):
                    return node.gpu_spelling
    return None


def _apply(attempt: Attempt, result: SubmitResult, *, now: datetime) -> None:
    if result.outcome == "rejected":
        _reject(attempt, result, now=now)
        return
    with transaction.atomic():
        if result.outcome == "accepted" and result.job_id:
            accept_submission(attempt, job_id=result.job_id, now=now)
            return
        soon = min(attempt.dispatch_deadline_at or now, now + timedelta(seconds=5))
        Attempt.objects.filter(pk=attempt.pk, state=AttemptState.DISPATCHING).update(
            due_at=soon, reason_explained=f"Submitted, but the answer is in doubt: {result.explained}"
        )
        summary = "the site gave no clear answer; asking it for our key before anything else"
        record([attempt_event(attempt, "attempt.unseen", summary, data={"said": result.said[:300]})], now=now)


def _reject(attempt: Attempt, result: SubmitResult, *, now: datetime) -> None:
    with transaction.atomic():
        reject_submission(attempt, result, cause=Cause.DISPATCH_REJECTED, now=now)
