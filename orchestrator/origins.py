"""Reading all that the provenance of a task's results tells of."""

from federation.selectors import scheduler_at
from orchestrator import selectors
from orchestrator.models import Task
from orchestrator.provenance import Origin


def origin_of(task: Task, *, facet_version: str) -> Origin:
    """Return all that the provenance of a task's results tells of."""
    user = task.user
    rows = list(selectors.attempts(user).filter(task=task).order_by("number"))
    accepted = next((row for row in rows if row.pk == task.attempt_id), None)
    manifest = selectors.manifest_of(task)
    return Origin(
        task=selectors.show_task(task),
        spec=task.spec,
        envelope=selectors.show_envelope(task.envelope),
        decision=selectors.show_decision(accepted.decision) if accepted else None,
        attempts=[selectors.show_attempt(row) for row in rows],
        manifest=manifest.body if manifest else None,
        person=user.get_username(),
        schedulers={row.system.slug: scheduler_at(row.system, row.submitted_at) for row in rows},
        facet_version=facet_version,
    )
