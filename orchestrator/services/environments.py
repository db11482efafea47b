"""Remembering where a user's environments are: the first run of each there, and the last."""

from orchestrator.environments import environment_of
from orchestrator.lifecycle import AttemptState
from orchestrator.models import Attempt, EnvironmentUse


def note_use(attempt: Attempt) -> None:
    """Remember that the environment of an attempt that ran to a good end is at its system.

    Of two that end at once the one that is told first is the first.
    """
    if attempt.state != AttemptState.SUCCEEDED or attempt.ended_at is None:
        return
    task = attempt.task
    image = (task.envelope.body.get("container") or {}).get("image")
    environment = environment_of(task.spec.get("environment"), image)
    if environment is None:
        return
    EnvironmentUse.objects.bulk_create(
        [
            EnvironmentUse(
                user_id=task.user_id,
                system_id=attempt.system_id,
                environment=environment,
                first_attempt=attempt,
                last_at=attempt.ended_at,
            )
        ],
        update_conflicts=True,
        unique_fields=["user", "environment", "system"],
        update_fields=["last_at"],
    )
