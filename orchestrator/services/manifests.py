"""What a finished task left behind, kept as one document."""

from datetime import datetime
from typing import Any

from federation.handles import new_handle
from orchestrator.leavings import Tails
from orchestrator.lifecycle import Cause, TaskState
from orchestrator.models import Attempt, Manifest, Task
from orchestrator.settlement import cost_of
from orchestrator.triage import Failure, triage
from providers.types import FileEntry


def keep_manifest(
    task: Task,
    attempt: Attempt,
    files: tuple[FileEntry, ...] | None,
    *,
    now: datetime,
    tails: Tails | None = None,
) -> Manifest:
    """Store the manifest of a task that reached its end. `files` None = they could not be listed.

    A failed task's says why, as far as its last words tell; the words themselves are kept as a few lines.
    """
    body = manifest_body(task, attempt, files)
    if task.state == TaskState.FAILED:
        body["triage"] = triage(_failure(task, attempt, tails or Tails()))
    return Manifest.objects.create(
        handle=new_handle("mf", now),
        task=task,
        attempt=attempt,
        body=body,
        created_at=now,
    )


def manifest_body(task: Task, attempt: Attempt, files: tuple[FileEntry, ...] | None) -> dict[str, Any]:
    """Return the manifest: where it ran, how it ended, the times of accounting, and every file."""
    cost = cost_of(
        attempt.predicted,
        walltime_s=attempt.shape["walltime_s"],
        started_at=attempt.started_at,
        ended_at=attempt.ended_at,
    )
    return {
        "task": task.handle,
        "attempt": attempt.handle,
        "state": task.state,
        "cause": task.cause or None,
        "system": attempt.system.slug,
        "partition": attempt.partition,
        "account": attempt.account or None,
        "job_id": attempt.job_id or None,
        "exit_code": attempt.exit_code,
        "exit_signal": attempt.exit_signal,
        "state_raw": attempt.state_raw,
        "shape": attempt.shape,
        "nodes": attempt.node_names,
        "restarts": attempt.restarts,
        "times": {
            "submitted_at": _iso(attempt.submitted_at),
            "eligible_at": _iso(attempt.eligible_at),
            "started_at": _iso(attempt.started_at),
            "ended_at": _iso(attempt.ended_at),
            "source": "scheduler",
        },
        "charge": {"amount": str(cost), "unit": (attempt.predicted.get("charge") or {}).get("unit")},
        "location": f"{attempt.system.slug}:{attempt.workdir}" if attempt.workdir else None,
        "stdout": attempt.stdout_path or None,
        "stderr": attempt.stderr_path or None,
        "files": None if files is None else [entry.model_dump(mode="json") for entry in files],
        "files_note": "the site could not list them" if files is None else None,
    }


def _failure(task: Task, attempt: Attempt, tails: Tails) -> Failure:
    words = (attempt.state_raw, attempt.reason_raw, attempt.reason_explained)
    return Failure(
        task=task.handle,
        system=attempt.system.slug,
        cause=Cause(task.cause) if task.cause else None,
        exit_code=attempt.exit_code,
        exit_signal=attempt.exit_signal,
        scheduler="\n".join(word for word in words if word),
        stderr=tails.stderr,
        stdout=tails.stdout,
        shape=attempt.shape,
        envelope=task.envelope.body,
    )


def _iso(at: datetime | None) -> str | None:
    return at.isoformat() if at else None
