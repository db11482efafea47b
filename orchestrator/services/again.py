"""Submitting what was submitted before, with changes: `like` names the task, the rest says what differs."""

from collections.abc import Mapping
from typing import Any

from django.contrib.auth.models import AbstractBaseUser

from orchestrator.envelope.changes import with_changes
from orchestrator.services.tasks import find_task
from providers.errors import InvalidInput, NotFound

LIKE = "like"
_NOT_REPEATED = ("client_ref", "group")
"""What names one task alone."""
_WORK = ("command", "script")


def as_before(user: AbstractBaseUser, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a task input with what `like` names filled in; one without `like` as it is.

    What is given wins, member by member; within `envelope` too, so that a change says only itself.

    Raises:
        InvalidInput: `like` is no handle, or `envelope` no object.
        NotFound: no such task of this user.
    """
    said = dict(given)
    if LIKE not in said:
        return said
    handle = said.pop(LIKE)
    if not isinstance(handle, str):
        raise _wrong("/like", "`like` must be the handle of a task.")
    try:
        task = find_task(user, handle)
    except NotFound as error:
        raise NotFound(error.message, pointer="/like") from None
    before = {name: value for name, value in task.spec.items() if name not in _NOT_REPEATED}
    if any(said.get(name) is not None for name in _WORK):
        before = {name: value for name, value in before.items() if name not in _WORK}
    if said.get("envelope_id") is None:
        changes = said.get("envelope") or {}
        if not isinstance(changes, Mapping):
            raise _wrong("/envelope", "`envelope` must be an object.")
        said["envelope"] = with_changes(task.envelope.body, changes)
    return {**before, **said}


def _wrong(pointer: str, message: str) -> InvalidInput:
    return InvalidInput(message, problems=((pointer, "wrong_type", message),))
