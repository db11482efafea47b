"""Handing an attempt to its scheduler: commit the intent, ask the site, commit what came back.

A process killed anywhere in between leaves an attempt in `dispatching`; the control cycle then asks the site
for the key before anything is submitted again.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import urlsplit

import structlog
from django.conf import settings
from django.db import DatabaseError, transaction
from django.db.models import QuerySet

from federation import circuits
from federation.circuit import Proof
from federation.ledger import record
from federation.links import open_link
from federation.locks import only_one
from federation.selectors import prepared, profile_of
from orchestrator import copies, steady
from orchestrator.dueness import is_due
from orchestrator.job_tokens import issue
from orchestrator.jobs import JobFacts, image_of, job_request, kit
from orchestrator.lifecycle import AttemptState, Cause, TaskState
from orchestrator.milestone_kit import Kit
from orchestrator.models import Attempt, Task
from orchestrator.services.attempts import accept_submission, reject_submission
from orchestrator.services.moves import attempt_event, move_attempt
from orchestrator.tracing import about_attempt
from providers.errors import FacetError, IllegalMove, InvalidInput, SiteError
from providers.registry import dialect
from providers.types import Batch, BatchReply, Exec, JobRequest, Operation, SubmitResult

log = structlog.get_logger(__name__)

AT_ONCE = 50
"""Submissions sent to a site in one request."""
AT_ONCE_FACTOR = 2
"""How much longer a request may take that carries several."""
_MARGIN = timedelta(seconds=15)
"""Added to a submission's own deadline before we believe that no command of ours is alive at the site."""


@dataclass(frozen=True, slots=True)
class Taken:
    """An attempt whose intent is committed, and what to submit; no job when it could not be rendered."""

    attempt: Attempt
    job: JobRequest | None
    batch: Batch | None


def dispatch(attempt_id: int, *, now: datetime) -> Attempt | None:
    """Submit a planned attempt; None when another worker took it first or nothing is left to do."""
    with _asking(attempt_id) as mine:
        rows = _planned().filter(pk=attempt_id) if mine else ()
        done = [attempt for attempt in rows if dispatch_together([attempt], now=now)]
    return done[0] if done else None


def is_being_asked_for(attempt: Attempt) -> bool:
    """Whether a worker waits for the answer to this submission: whatever a clock says, it is not over."""
    with _asking(attempt.pk) as free:
        return not free


def is_really_over(attempt: Attempt) -> bool:
    """Whether the submission's deadline has passed by a steady clock, too, whatever the time of day is.

    A machine that has no reading yet takes its first one now, which can only make it wait longer.
    """
    if not attempt.dispatch_ticks or attempt.dispatch_started_at is None:
        return True  # begun by a version that took no readings
    assert attempt.dispatch_deadline_at is not None  # noqa: S101  # set with it
    here, at_s = steady.machine(), steady.seconds()
    since_s = attempt.dispatch_ticks.get(here)
    if since_s is None:
        ticks = {**attempt.dispatch_ticks, here: at_s}
        Attempt.objects.filter(pk=attempt.pk, state=AttemptState.DISPATCHING).update(dispatch_ticks=ticks)
        return False
    allowed = attempt.dispatch_deadline_at - attempt.dispatch_started_at
    return bool(at_s - since_s > allowed.total_seconds())


def _asking(attempt_id: int) -> AbstractContextManager[bool]:
    return only_one(f"dispatch:{attempt_id}")


def dispatch_together(attempts: Sequence[Attempt], *, now: datetime) -> list[Attempt]:
    """Submit planned attempts of one connection in one request; return those that were ours to submit."""
    ready = [attempt for attempt in attempts if copies.are_there(attempt, now=now)]
    taken = [taken for attempt in ready if (taken := _take(attempt, now=now)) is not None]
    for_site = [each for each in taken if each.job is not None]
    if for_site:
        answers = _ask(for_site)
        _tell_circuit(answers, now=now)
        for each, result in answers:
            try:
                _apply(each.attempt, result, now=now)
            except (IllegalMove, DatabaseError) as error:  # found by its key once its deadline is over
                log.warning("answer could not be noted", attempt=each.attempt.handle, error=str(error))
    return [each.attempt for each in taken]


def planned(connection_id: int, *, now: datetime, limit: int = AT_ONCE) -> list[Attempt]:
    """Return attempts of a connection that wait for a dispatcher and are due, oldest first."""
    return list(_planned().filter(is_due(now), connection_id=connection_id).order_by("pk")[:limit])


def _planned() -> QuerySet[Attempt]:
    return (
        Attempt.objects.select_related("task__user", "task__envelope", "task__group", "system", "connection")
        .filter(state=AttemptState.PLANNED, cancel_requested_at=None)
        .exclude(task__state=TaskState.STAGING)
    )


@about_attempt
def _take(attempt: Attempt, *, now: datetime) -> Taken | None:
    """Commit the intent to submit an attempt; None when another worker was first."""
    try:
        job, own_kit = _job(attempt)
        batch = _with_kit(dialect(attempt.system.dialect).submit(job), own_kit, attempt, now=now)
    except FacetError as error:
        refusal = SubmitResult(outcome="rejected", said=str(error), explained=str(error))
        _reject(attempt, refusal, now=now)
        return Taken(attempt, None, None)
    deadline = now + timedelta(seconds=batch.deadline_s) * AT_ONCE_FACTOR + _MARGIN
    try:
        with transaction.atomic():
            move_attempt(
                attempt,
                AttemptState.DISPATCHING,
                now=now,
                dispatch_started_at=now,
                dispatch_deadline_at=deadline,
                dispatches=attempt.dispatches + 1,
                dispatch_ticks={steady.machine(): steady.seconds()},
                workdir=job.workdir,
                stdout_path=job.stdout_path,
                stderr_path=job.stderr_path,
                due_at=deadline,
            )
    except IllegalMove:
        return None
    return Taken(attempt, job, batch)


def _ask(taken: Sequence[Taken]) -> list[tuple[Taken, SubmitResult]]:
    """Touch the site. No answer says nothing about the jobs: the control cycle then asks for their keys."""
    first = taken[0].attempt
    batches = [each.batch for each in taken if each.batch is not None]
    operations = tuple(
        _renamed(operation, f"{number}:")
        for number, batch in enumerate(batches)
        for operation in batch.operations
    )
    deadline_s = max(batch.deadline_s for batch in batches) * (1 if len(batches) == 1 else AT_ONCE_FACTOR)
    try:
        reply = open_link(first.connection).run(Batch(operations=operations, deadline_s=deadline_s))
    except InvalidInput as error:  # the link sent nothing: too large, or the connection's settings are wrong
        if len(taken) > 1:
            return [answer for each in taken for answer in _ask([each])]
        refusal = SubmitResult(outcome="rejected", said=str(error)[:500], explained=str(error))
        return [(taken[0], refusal)]
    except FacetError as error:
        lost = SubmitResult(
            outcome="doubtful",
            said=str(error)[:500],
            explained=str(error),
            blames_site=isinstance(error, SiteError),
        )
        return [(each, lost) for each in taken]
    speaks = dialect(first.system.dialect)
    return [(each, speaks.read_submit(_part(reply, number))) for number, each in enumerate(taken)]


def _tell_circuit(answers: Sequence[tuple[Taken, SubmitResult]], *, now: datetime) -> None:
    """Let one request count for the system where it took a job, against it where it took none."""
    attempt = answers[0][0].attempt
    accepted = [each.attempt for each, result in answers if result.outcome == "accepted"]
    doubts = [
        (each.attempt, result)
        for each, result in answers
        if result.outcome == "doubtful" and result.blames_site
    ]
    with transaction.atomic():
        for each in accepted:
            circuits.note_success(attempt.system, each.handle, Proof.DISPATCH, now=now)
        if doubts and not accepted:
            for each, result in doubts:
                reason = f"{each.handle} could not be handed over: {result.explained}"
                circuits.note_failure(attempt.system_id, each.handle, Proof.DISPATCH, reason, now=now)


def _renamed(operation: Operation, prefix: str) -> Operation:
    """Return an operation under a name of its own among those of other submissions."""
    update = {"name": f"{prefix}{operation.name}"}
    if isinstance(operation, Exec) and operation.requires:
        update["requires"] = f"{prefix}{operation.requires}"
    return operation.model_copy(update=update)


def _part(reply: BatchReply, number: int) -> BatchReply:
    """Return the replies of one of several submissions under their own names."""
    prefix = f"{number}:"
    own = {
        name.removeprefix(prefix): each.model_copy(update={"name": name.removeprefix(prefix)})
        for name, each in reply.replies.items()
        if name.startswith(prefix)
    }
    return reply.model_copy(update={"replies": own})


def _with_kit(batch: Batch, kit: Kit | None, attempt: Attempt, *, now: datetime) -> Batch:
    """Return the submission with the job's own kit put there first; the token is kept nowhere here."""
    if kit is None:
        return batch
    operations = (*kit.operations(issue(attempt, now=now)), *batch.operations)
    return batch.model_copy(update={"operations": operations})


def _job(attempt: Attempt) -> tuple[JobRequest, Kit | None]:
    system, task, connection = attempt.system, attempt.task, attempt.connection
    assert system.profile_id is not None  # noqa: S101  # it was placed there
    envelope = task.envelope.body
    wanted, image = envelope.get("container") or {}, image_of(task.spec, envelope)
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
        submission=attempt.claims + 1,
        resumes=task.plan.get("resume") == system.slug,
        milestone_url=_milestone_url(connection.kind),
        inputs=tuple(attempt.inputs),
    )
    return job_request(task.spec, profile, facts, task.name), kit(profile, facts)


def _milestone_url(kind: str) -> str:
    """Return where a job may report milestones; empty where our address would mean another machine."""
    url: str = settings.MILESTONE_URL
    is_here_only = urlsplit(url).hostname in ("localhost", "127.0.0.1", "::1")
    return "" if is_here_only and kind != "local" else url


def _spelling(attempt: Attempt) -> str | None:
    """Return how this partition spells the granted GPU type."""
    wanted = attempt.shape.get("gpu_type")
    for partition in prepared(attempt.system).partitions:
        if partition.name == attempt.partition:
            for node in partition.nodes:
                if node.gpus and (wanted is None or node.gpu_type == wanted):
                    return node.gpu_spelling
    return None


@about_attempt
def _apply(attempt: Attempt, result: SubmitResult, *, now: datetime) -> None:
    if result.outcome == "rejected":
        _reject(attempt, result, now=now)
        return
    with transaction.atomic():
        _lock_task(attempt)
        if result.outcome == "accepted" and result.job_id:
            accept_submission(attempt, job_id=result.job_id, now=now)
            return
        soon = min(attempt.dispatch_deadline_at or now, now + timedelta(seconds=5))
        Attempt.objects.filter(pk=attempt.pk, state=AttemptState.DISPATCHING).update(
            due_at=soon,
            claim_is_made=attempt.claim_is_made or result.is_begun,
            reason_explained=f"Submitted, but the answer is in doubt: {result.explained}",
        )
        summary = "the site gave no clear answer; asking it for our key before anything else"
        record([attempt_event(attempt, "attempt.unseen", summary, data={"said": result.said[:300]})], now=now)


def _lock_task(attempt: Attempt) -> None:
    """Lock the task before its attempt, as everywhere, and see what became of it while the site was asked."""
    rows = Task.objects.select_for_update(no_key=True, of=("self",)).select_related("group")
    attempt.task = rows.get(pk=attempt.task_id)


def _reject(attempt: Attempt, result: SubmitResult, *, now: datetime) -> None:
    with transaction.atomic():
        _lock_task(attempt)
        reject_submission(attempt, result, cause=Cause.DISPATCH_REJECTED, now=now)
